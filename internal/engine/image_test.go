package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
	"splash/oracle"
)

// see mixes a row's values and its position, where they are not those of text, into a fake network's hash.
func (f *fake) see(h uint64, s *model.Segment, i int) uint64 {
	index := int32(len(f.history[s.Lane]) - 1)
	pos := oracle.TextPosition(int(index) + s.RopeDelta)
	if s.Positions != nil {
		pos = s.Positions[i]
	}
	if pos != oracle.TextPosition(int(index)) {
		h = step(step(step(h, pos.T-index), pos.H-index), pos.W-index)
	}
	if s.Embedded != nil && s.Embedded[i] != nil {
		h = step(h, int32(math.Float32bits(s.Embedded[i][0])))
	}
	return h
}

// An eye makes values of images: each token's is a number of the image and of its place.
type eye struct {
	calls []byte // the images encoded
	gate  chan struct{}
	err   error
}

func (y *eye) image(name byte, start, rows, cols int) Image {
	m := Image{Start: start, Rows: rows, Cols: cols, Digest: [32]byte{name, 30: 7}}
	m.Encode = func(ctx context.Context) ([]float32, error) {
		if y.gate != nil {
			select {
			case <-y.gate:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if y.err != nil {
			return nil, y.err
		}
		y.calls = append(y.calls, name)
		values := make([]float32, rows*cols*2)
		for i := range rows * cols {
			values[2*i] = float32(name) + float32(i)/1024
		}
		return values, nil
	}
	return m
}

// saw is what a fake network says of a request with images, worked out apart from the engine.
func saw(r Request) (out []int32) {
	logits := make([]float32, 97)
	h, next := uint64(1), int32(0)
	for i := 0; i < len(r.Prompt); i++ {
		k := slices.IndexFunc(r.Images, func(m Image) bool { return m.Start == i })
		if k < 0 {
			h = step(h, r.Prompt[i])
			if d := next - int32(i); d != 0 {
				h = step(step(step(h, d), d), d)
			}
			next++
			continue
		}
		m := r.Images[k]
		for row := range m.Rows {
			for col := range m.Cols {
				h = step(h, r.Prompt[i])
				if p := (oracle.Position{T: next, H: next + int32(row), W: next + int32(col)}); p != oracle.TextPosition(i) {
					h = step(step(step(h, p.T-int32(i)), p.H-int32(i)), p.W-int32(i))
				}
				h = step(h, int32(math.Float32bits(float32(m.Digest[0])+float32(row*m.Cols+col)/1024)))
				i++
			}
		}
		i--
		next += int32(max(m.Rows, m.Cols))
	}
	delta := next - int32(len(r.Prompt))
	for len(out) < r.MaxTokens {
		fillLogits(logits, h)
		token := int32(oracle.Argmax(logits))
		out = append(out, token)
		h = step(h, token)
		if delta != 0 {
			h = step(step(step(h, delta), delta), delta)
		}
	}
	return out
}

// picture is a prompt of n tokens with images of 3 x 4 tokens from each place on.
func (y *eye) picture(n int, names string, starts ...int) Request {
	r := Request{Prompt: prompt(n, 1), MaxTokens: 6}
	for i, start := range starts {
		r.Images = append(r.Images, y.image(names[i], start, 3, 4))
		for k := range 12 {
			r.Prompt[start+k] = 9
		}
	}
	return r
}

func TestImages(t *testing.T) {
	for _, chunk := range []int{5, 32, 256} {
		f := newFake(97)
		y := &eye{}
		e := New(f, Options{Context: 4096, Chunk: chunk, Hidden: 2})
		run := func(r Request, cached int, calls string) {
			t.Helper()
			y.calls = nil
			s := submit(t, e, r)
			if d := cmp.Diff(saw(r), finished(t, s)); d != "" {
				t.Errorf("chunks of %d: %s", chunk, d)
			}
			if s.Cached() != cached || string(y.calls) != calls {
				t.Errorf("chunks of %d: %d tokens are reused, images %q encoded; want %d and %q", chunk, s.Cached(), y.calls, cached, calls)
			}
		}
		run(y.picture(100, "ab", 10, 50), 0, "ab")
		run(y.picture(100, "ab", 10, 50), 96, "")
		run(y.picture(130, "ab", 10, 50), 96, "")
		run(y.picture(130, "ac", 10, 50), 0, "ac") // the first image is the same, which no place was kept for
		run(y.picture(130, "ad", 10, 50), 32, "d") // now there is one, in the text between them
		run(y.picture(130, "zb", 10, 50), 0, "zb") // nothing of it is
		run(y.picture(100, "", nil...), 0, "")     // the same tokens without images
		run(y.picture(100, "abc", 0, 12, 24), 0, "abc")
		run(y.picture(100, "abd", 0, 12, 24), 0, "abd") // page 32 is in its digest: the junction is before it, at 0
		run(y.picture(100, "e", 88), 0, "e")            // it ends with the prompt
		e.Close()
		if len(f.history) != 0 {
			t.Error("lanes left")
		}
	}
}

// TestImagesSuspended gives up lanes between and in images: they are encoded again as far as they are read again.
func TestImagesSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		paced(f, time.Millisecond)
		y := &eye{}
		e := New(sized{f}, Options{Context: 4096, Chunk: 16, Hidden: 2, Memory: 4_000, Cache: -1, Lanes: 2})
		defer e.Close()
		r := y.picture(200, "abc", 20, 60, 150)
		r.Priority = Background
		s := submit(t, e, r)
		for range 3 {
			time.Sleep(90 * time.Millisecond)
			other := Request{Prompt: prompt(150, 2), MaxTokens: 3, Priority: Foreground}
			if d := cmp.Diff(text(t, other), finished(t, submit(t, e, other))); d != "" {
				t.Error(d)
			}
		}
		if d := cmp.Diff(saw(r), finished(t, s)); d != "" {
			t.Error(d)
		}
		if got := e.Stats(); got.PrioritySuspensions == 0 || got.ReplayTokens == 0 || len(y.calls) <= 3 {
			t.Errorf("%+v, images %q encoded", got.Figures, y.calls)
		}
	})
}

// TestImagesWait decodes others while an image is encoded, and reads the text before it.
func TestImagesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(97)
		y := &eye{gate: make(chan struct{})}
		e := New(f, Options{Context: 4096, Hidden: 2})
		defer e.Close()
		r := y.picture(100, "a", 60)
		s := submit(t, e, r)
		for i := range 3 {
			other := Request{Prompt: prompt(50+i, 2), MaxTokens: 5}
			if d := cmp.Diff(text(t, other), finished(t, submit(t, e, other))); d != "" {
				t.Error(d)
			}
		}
		synctest.Wait()
		s.mu.Lock()
		if s.processed != 60 {
			t.Errorf("%d tokens are read before the image is there", s.processed)
		}
		s.mu.Unlock()
		close(y.gate)
		if d := cmp.Diff(saw(r), finished(t, s)); d != "" {
			t.Error(d)
		}

		// A request that nobody waits for ends while its image is encoded, and so does its encoding.
		y.gate = make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		s, err := e.Submit(ctx, y.picture(100, "b", 60))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		gone := errors.New("gone")
		cancel(gone)
		for more := true; more; {
			_, more = s.Next(nil)
		}
		if why, err := s.End(); why != Cancelled || err != gone {
			t.Errorf("%v, %v", why, err)
		}

		y.gate, y.err = nil, errors.New("it is too dark")
		s = submit(t, e, y.picture(100, "c", 60))
		for more := true; more; {
			_, more = s.Next(nil)
		}
		if why, err := s.End(); why != Failed || err != y.err {
			t.Errorf("%v, %v", why, err)
		}
		y.err = nil
		m := y.picture(100, "d", 60)
		m.Images[0].Rows = 4 // more tokens than values
		encode := m.Images[0].Encode
		m.Images[0].Encode = func(ctx context.Context) ([]float32, error) {
			v, err := encode(ctx)
			return v[:20], err
		}
		s = submit(t, e, m)
		for more := true; more; {
			_, more = s.Next(nil)
		}
		if why, err := s.End(); why != Failed || err == nil || !strings.Contains(err.Error(), "an image of 16 tokens has 20 values, not 2 each") {
			t.Errorf("%v, %v", why, err)
		}
		// The engine goes on.
		if d := cmp.Diff(saw(r), finished(t, submit(t, e, r))); d != "" {
			t.Error(d)
		}
	})
}

// TestImagesDrafted proposes tokens after images.
func TestImagesDrafted(t *testing.T) {
	f := newFake(97)
	right := 0
	s := newScript(f, func() int { right = (right + 1) % 8; return right })
	y := &eye{}
	e := New(f, Options{Context: 4096, Chunk: 16, Hidden: 2, Proposer: s, Vocab: 97})
	defer e.Close()
	r := y.picture(100, "ab", 10, 50)
	r.MaxTokens = 40
	if d := cmp.Diff(saw(r), finished(t, submit(t, e, r))); d != "" {
		t.Error(d)
	}
	if s.fault != nil {
		t.Error(s.fault)
	}
}

func TestImagesRefused(t *testing.T) {
	y := &eye{}
	e := New(newFake(97), Options{Context: 4096, Hidden: 2})
	defer e.Close()
	for _, m := range [][]Image{
		{y.image('a', -1, 3, 4)}, {y.image('a', 89, 3, 4)}, {y.image('a', 10, 3, 4), y.image('b', 21, 3, 4)}, {y.image('a', 0, 0, 9)},
		{y.image('a', 0, -3, -4)}, {y.image('a', 0, 1, 7)}, {{Start: 0, Rows: 3, Cols: 4}}, {y.image('a', 20, 3, 4), y.image('b', 0, 3, 4)},
	} {
		if _, err := e.Submit(t.Context(), Request{Prompt: prompt(100, 1), Images: m}); err == nil || !strings.Contains(err.Error(), "engine: image") {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

func TestDigestWords(t *testing.T) {
	// The words of a digest are no tokens, and change with every byte of it.
	d := [32]byte{}
	seen := map[int32]bool{}
	for i := range d {
		for bit := range 8 {
			d = [32]byte{}
			d[i] = 1 << bit
			changed := 0
			for w := range keyRows {
				word := digestWord(&d, w)
				if word >= 0 {
					t.Fatalf("word %d is %d", w, word)
				}
				if word != digestWord(&[32]byte{}, w) {
					changed++
					seen[word] = true
				}
			}
			if top := i%4 == 3 && bit == 7; changed != 1 && !top {
				t.Errorf("bit %d of byte %d changes %d words", bit, i, changed)
			}
		}
	}
	if len(seen) != 31 {
		t.Errorf("%d words", len(seen))
	}
}
