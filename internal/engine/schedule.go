package engine

import "time"

// A schedule says whose turn the next pass is: that of lanes that decode, or of prompts (serving.md 7.1). After a slice of
// prompts the lanes of their priority and above are owed a share of the time it took.
type schedule struct {
	prompts   bool     // the pass is a slice of prompts
	least     Priority // of the lanes that it takes
	contended bool     // lanes wait to decode while prompts are read

	owes bool          // a pass of decoding lanes comes next
	owed time.Duration // that they are to have
	rate float64       // rows of prompts a second, of the last slices
}

// takes reports whether the pass has rows of a stream.
func (c *schedule) takes(s *Stream) bool {
	return s.decoding() != c.prompts && s.request.Priority >= c.least && !s.waits()
}

// choose says what the next pass is of: where prompts are to be read, those of the highest priority, and of the decoding
// lanes those of the same or a higher one.
func (e *Engine) choose() {
	c := &e.schedule
	top, prompts := Background, false
	for _, s := range e.active {
		if !s.decoding() && !s.waits() {
			top, prompts = max(top, s.request.Priority), true
		}
	}
	c.contended = false
	if prompts {
		for _, s := range e.active {
			c.contended = c.contended || s.decoding() && s.request.Priority >= top
		}
	}
	c.least = top
	if !c.contended {
		c.owes = false
	}
	c.prompts = prompts && !c.owes
}

// slice is the most rows of the next slice of prompts.
func (e *Engine) slice() int {
	c := &e.schedule
	if !c.contended || c.rate == 0 {
		return e.o.Chunk
	}
	rows := min(c.rate*e.o.Slice.Seconds(), float64(e.o.Chunk))
	return min(max(int(rows)/pageTokens, 1)*pageTokens, e.o.Chunk)
}

// settle counts the time of a pass.
func (e *Engine) settle(took time.Duration) {
	c, f := &e.schedule, &e.figures
	rows, _ := e.pass.Rows()
	if !c.prompts {
		if c.owed -= took; c.owed <= 0 {
			c.owes = false
		}
		f.DecodeBatches++
		f.Widths[min(len(e.taken), len(f.Widths))-1]++
		f.DecodeTime += took
		return
	}
	c.owes, c.owed = true, time.Duration(max(e.o.DecodeShare, 0)*float64(took))
	if took > 0 {
		rate := float64(rows) / took.Seconds()
		if c.rate > 0 {
			rate = (c.rate + rate) / 2
		}
		c.rate = rate
	}
	f.PromptBatches++
	f.PromptRows += int64(rows)
	f.PromptTime += took
}
