package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"splash/internal/model"
	"splash/oracle"
)

// An Image is an image of a prompt. Its tokens' rows have the values of a vision tower in place of embeddings.
type Image struct {
	Start      int // of its tokens in the prompt
	Rows, Cols int // tokens of its grid
	Digest     [32]byte
	// Encode makes the values, [Rows*Cols][hidden], which are not changed. It is called beside the engine's work, and again
	// where what was made of the image was given up; it ends early with the context.
	Encode func(ctx context.Context) ([]float32, error)
}

func (m *Image) tokens() int { return m.Rows * m.Cols }
func (m *Image) end() int    { return m.Start + m.tokens() }

// keyRows is how many of an image's first tokens hold all of its digest in a prompt's key.
const keyRows = 8

func (r *Request) checkImages() error {
	at := 0
	for i := range r.Images {
		m := &r.Images[i]
		switch {
		case m.Rows < 1 || m.Cols < 1 || m.tokens() < keyRows || m.Encode == nil:
			return fmt.Errorf("engine: image %d of %d x %d tokens", i, m.Rows, m.Cols)
		case m.Start < at || m.end() > len(r.Prompt):
			return fmt.Errorf("engine: image %d is tokens %d to %d of a prompt of %d", i, m.Start, m.end(), len(r.Prompt))
		}
		at = m.end()
	}
	return nil
}

// sight is what a stream has of its images.
type sight struct {
	images    []seenImage
	positions []oracle.Position // of the prompt's tokens
	delta     int               // what is to be added to the index of a token after them for its position
	results   chan seenRows     // of images that are being encoded; one a time
	looking   bool              // they are
	end       context.CancelFunc
}

// A seenImage is an image whose values are there, or not (yet, or no more).
type seenImage struct {
	*Image
	values []float32
}

// seenRows are the values of the image of that number.
type seenRows struct {
	image  int
	values []float32
	err    error
	last   bool
}

// see gives a stream its prompt: the request's, or that and what was said. Its key is what prompts are compared by: the
// tokens, but those of images are words of the image's digest, so that other images are other prompts.
func (s *Stream) see(prompt []int32) {
	s.prompt, s.key = prompt, prompt
	if len(s.request.Images) == 0 {
		return
	}
	v := &s.sight
	if v.images == nil {
		for i := range s.request.Images {
			v.images = append(v.images, seenImage{Image: &s.request.Images[i]})
		}
	}
	s.key = append([]int32(nil), prompt...)
	v.positions = v.positions[:0]
	next := int32(0)
	text := func(until int) {
		for len(v.positions) < until {
			v.positions = append(v.positions, oracle.Position{T: next, H: next, W: next})
			next++
		}
	}
	for _, m := range v.images {
		text(m.Start)
		v.positions, next = oracle.ImagePositions(v.positions, next, m.Rows, m.Cols)
		for i := range m.tokens() {
			s.key[m.Start+i] = digestWord(&m.Digest, i)
		}
	}
	text(len(prompt))
	v.delta = int(next) - len(prompt)
}

// digestWord is word i of a digest, of 31 bits, as a number that is no token.
func digestWord(d *[32]byte, i int) int32 {
	return int32(binary.LittleEndian.Uint32(d[4*(i%keyRows):]) | 1<<31)
}

// keepable is the last whole page at or before a place of the prompt where its key tells every image before it from others.
func (s *Stream) keepable(at int) int {
	for _, m := range slices.Backward(s.sight.images) {
		if m.Start < at && at < m.Start+keyRows {
			at = m.Start / pageTokens * pageTokens
		}
	}
	return at
}

// look has the images encoded whose tokens are still to be read.
func (e *Engine) look(s *Stream) {
	v := &s.sight
	var wanted []int
	for i, m := range v.images {
		if m.end() > s.at && m.values == nil {
			wanted = append(wanted, i)
		}
	}
	if len(wanted) == 0 || v.looking {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	results := make(chan seenRows, len(wanted))
	v.results, v.looking, v.end = results, true, cancel
	images := v.images
	go func() {
		for k, i := range wanted {
			r := seenRows{image: i, last: k == len(wanted)-1}
			r.err = e.guarded(func() (err error) {
				r.values, err = images[i].Encode(ctx)
				return err
			})
			results <- r
			e.signal()
			if r.err != nil {
				return
			}
		}
	}()
}

// receive takes the values of images that have been encoded.
func (e *Engine) receive() {
	for _, queue := range [][]*Stream{e.active, e.suspended} {
		for _, s := range queue {
			for s.sight.looking && !s.finished {
				select {
				case r := <-s.sight.results:
					e.seen(s, r)
					continue
				default:
				}
				break
			}
		}
	}
}

func (e *Engine) seen(s *Stream, r seenRows) {
	v := &s.sight
	m := &v.images[r.image]
	if s.ctx.Err() != nil {
		v.looking = false // it is about to end
		return
	}
	if r.err == nil && len(r.values) != m.tokens()*e.o.Hidden {
		r.err = fmt.Errorf("engine: an image of %d tokens has %d values, not %d each", m.tokens(), len(r.values), e.o.Hidden)
	}
	if r.err != nil {
		e.finish(s, Failed, r.err)
		return
	}
	m.values = r.values
	if r.last {
		v.end()
		v.looking = false
		e.look(s) // what was given up meanwhile
	}
}

// blind is where the stream's next rows end that can be read without an image that is not there.
func (s *Stream) blind(until int) int {
	for _, m := range s.sight.images {
		if m.values == nil && m.end() > s.at && m.Start < until {
			return max(m.Start, s.at)
		}
	}
	return until
}

// waits reports whether a stream can do nothing before an image of it is there.
func (s *Stream) waits() bool {
	return len(s.sight.images) > 0 && !s.decoding() && s.blind(s.at+1) == s.at
}

// stuck reports whether all lanes wait for images.
func (e *Engine) stuck() bool {
	for _, s := range e.active {
		if !s.waits() {
			return false
		}
	}
	return true
}

// dress gives a segment that begins at the stream's place the positions of its rows, and the values of images' rows.
func (s *Stream) dress(seg *model.Segment) {
	v := &s.sight
	if len(v.images) == 0 {
		return
	}
	from := s.at
	if s.decoding() {
		seg.RopeDelta = v.delta
		return
	}
	to := from + len(seg.Tokens)
	seg.Positions = v.positions[from:to]
	for _, m := range v.images {
		if m.end() <= from || m.Start >= to {
			continue
		}
		if seg.Embedded == nil {
			seg.Embedded = make([][]float32, len(seg.Tokens))
		}
		width := len(m.values) / m.tokens()
		for at := max(from, m.Start); at < min(to, m.end()); at++ {
			i := at - m.Start
			seg.Embedded[at-from] = m.values[i*width : (i+1)*width]
		}
	}
}

// passBy lets go of the images that have been read.
func (s *Stream) passBy() {
	for i := range s.sight.images {
		if m := &s.sight.images[i]; m.values != nil && m.end() <= s.at {
			m.values = nil
		}
	}
}

// close ends the encoding of images that nobody waits for.
func (v *sight) close() {
	if v.looking {
		v.end()
	}
	v.images = nil
}
