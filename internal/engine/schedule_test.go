package engine

import (
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"splash/internal/model"
)

// recorded runs a lane that decodes beside a long prompt, and returns the passes from the prompt's first to its last: p for
// a slice of the prompt, d for a cycle. A row of a prompt takes 1 ms, a cycle 10 ms.
func recorded(t *testing.T, o Options, decoder, reader Priority) (passes string, slices []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		var mu sync.Mutex
		var log strings.Builder
		note := func(what string, rows int) { // not held while time passes
			mu.Lock()
			defer mu.Unlock()
			log.WriteString(what)
			if what == "p" {
				slices = append(slices, rows)
			}
		}
		f.fail = func(p *model.Pass) error {
			if rows, _ := p.Rows(); rows > 1 {
				time.Sleep(time.Duration(rows) * time.Millisecond)
				note("p", rows)
			} else {
				time.Sleep(10 * time.Millisecond)
				note("d", rows)
			}
			return nil
		}
		o.Context, o.Lanes = 1<<20, 2
		e := New(f, o)
		defer e.Close()
		talker := submit(t, e, Request{Prompt: prompt(100, 1), MaxTokens: 1000, Priority: decoder})
		time.Sleep(150 * time.Millisecond)
		mu.Lock()
		log.Reset()
		slices = slices[:0]
		mu.Unlock()
		finished(t, submit(t, e, Request{Prompt: prompt(1000, 2), MaxTokens: 1, Priority: reader}))
		mu.Lock()
		passes = log.String()
		mu.Unlock()
		passes = passes[strings.Index(passes, "p"):]
		passes = passes[:strings.LastIndex(passes, "p")+1]
		finished(t, talker)
	})
	return passes, slices
}

// TestDecodeShare: after a slice of prompts a lane that decodes is owed cycles of 10 ms for the share of its time.
func TestDecodeShare(t *testing.T) {
	for _, c := range []struct {
		share           float64
		decoder, reader Priority
	}{
		{0, Normal, Normal}, // the default
		{0.5, Normal, Normal},
		{1, Normal, Normal},
		{2.5, Foreground, Foreground},
		{0.01, Normal, Normal},
		{-1, Background, Background},
		{1, Normal, Foreground}, // nothing is owed to those below
	} {
		got, slices := recorded(t, Options{DecodeShare: c.share, Chunk: 100, Slice: time.Second}, c.decoder, c.reader)
		share := c.share
		if share == 0 {
			share = 0.5
		}
		want := "p"
		for _, rows := range slices[:len(slices)-1] {
			if c.reader == c.decoder { // at least one, and what the share comes to
				want += strings.Repeat("d", max(1, int(math.Ceil(share*float64(rows)/10))))
			}
			want += "p"
		}
		if got != want {
			t.Errorf("a share of %g, %v beside a prompt of %v:\n%s, want\n%s", c.share, c.decoder, c.reader, got, want)
		}
	}
}

// TestSlice: beside lanes that decode a slice takes the time it is to take, by the speed of those before it.
func TestSlice(t *testing.T) {
	_, slices := recorded(t, Options{Chunk: 256, Slice: 130 * time.Millisecond}, Normal, Normal)
	for i, rows := range slices[:len(slices)-2] { // the last ones end at the prompt's last page, and at its end
		if rows != 128 {
			t.Errorf("slice %d of %d has %d rows, want 128", i, len(slices), rows)
		}
	}
	_, slices = recorded(t, Options{Chunk: 256, Slice: 130 * time.Millisecond}, Normal, Foreground)
	if len(slices) == 0 || slices[0] != 256 {
		t.Errorf("with nobody else to decode the slices are %v", slices)
	}
}

// TestPassFigures: passes are counted by what they are of.
func TestPassFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		e := New(f, Options{Context: 1 << 20, Lanes: 3})
		defer e.Close()
		var streams []*Stream
		for i := range 3 {
			streams = append(streams, submit(t, e, Request{Prompt: prompt(64, uint64(i)), MaxTokens: 11}))
		}
		for _, s := range streams {
			finished(t, s)
		}
		synctest.Wait()
		s := e.Stats()
		if s.PromptRows != 3*64 || s.PromptBatches < 2 || s.PromptTime != 3*64*time.Millisecond {
			t.Errorf("%d rows of prompts in %d passes took %v", s.PromptRows, s.PromptBatches, s.PromptTime)
		}
		lanes := s.Widths[0] + 2*s.Widths[1] + 3*s.Widths[2]
		if lanes != 30 || s.DecodeTime != 30*time.Millisecond || s.Widths[2] == 0 || s.DecodeBatches != s.Widths[0]+s.Widths[1]+s.Widths[2] {
			t.Errorf("%d passes %v took %v", s.DecodeBatches, s.Widths, s.DecodeTime)
		}
	})
}
