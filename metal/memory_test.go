//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/model"
)

// footprintModels are a target of every kind of state, and one with a draft.
func footprintModels(t *testing.T) map[string]draftPair {
	all := map[string]draftPair{"demo": demoPair(t)}
	for _, family := range []string{"tiny-qwen35", "tiny-qwen4exp"} {
		all[family] = draftPair{target: openRecipe(t, fixtures.Recipe{Family: family, Seed: 3, Formats: fixtures.Uniform(dequant.Q8_0)})}
	}
	return all
}

// TestFootprint holds what is said to be taken, before anything is, to what a device has given: images, activations, scratch, and
// lanes and pages as they come.
func TestFootprint(t *testing.T) {
	const maxRows, lanes = 16, 2
	for name, p := range footprintModels(t) {
		t.Run(name, func(t *testing.T) {
			l := &Loading{Target: Source{Plan: p.plan, Weights: p.target.weights}, MaxRows: maxRows, Lanes: lanes}
			if p.sizes != nil {
				l.Draft = &Source{Draft: p.sizes, Tensors: p.tensors, Weights: p.weights}
			}
			want, err := l.Footprint()
			if err != nil {
				t.Fatal(err)
			}
			d := open(t, Devices()[0])
			x := footprintOf(t, p, d, Options{MaxRows: maxRows})
			defer x.backend.Close()
			if err := x.recordAll(maxRows, lanes); err != nil {
				t.Fatal(err)
			}
			b := x.backend
			if got := imageBytes(b); got != want.Images {
				t.Errorf("images of %d bytes, %d were said", got, want.Images)
			}
			if lane, token := b.LaneBytes(); lane != want.Lane || token != want.Token {
				t.Errorf("a lane of %d bytes and %d a token, %d and %d were said", lane, token, want.Lane, want.Token)
			}
			pages := int64(b.pages.capacity) * rawPage(b)
			if got := d.Counters().Buffers; got != want.Passes+int64(b.capacity)*want.Lane+pages {
				t.Errorf("%d bytes of buffers; said were %d, %d of %d lanes and %d of pages", got, want.Passes, int64(b.capacity)*want.Lane,
					b.capacity, pages)
			}
			if b.capacity != lanes {
				t.Errorf("room for %d lanes of %d", b.capacity, lanes)
			}
			if got := b.Replays(); got.Kept == 0 || got.Bytes > want.Graphs {
				t.Errorf("%d graphs of %d bytes, %d were said", got.Kept, got.Bytes, want.Graphs)
			}
			t.Logf("images %d, passes %d, a lane %d, a token %d", want.Images, want.Passes, want.Lane, want.Token)
			b.Close()
			if c := d.Counters(); c.Buffers != 0 || c.Wrapped != 0 {
				t.Errorf("%d and %d bytes are held after the end", c.Buffers, c.Wrapped)
			}
		})
	}
}

// footprintOf is a pair of networks on a backend, as a cycle is recorded on it.
func footprintOf(t *testing.T, p draftPair, d *Device, o Options) *dryCycle {
	t.Helper()
	if p.sizes == nil {
		b := p.target.backend(t, d, o)
		return &dryCycle{backend: b, network: p.network(t, b, model.Options{})}
	}
	b := p.backend(t, d, o)
	n := p.on(t, b)
	return &dryCycle{backend: b, network: n.Network, draft: n.draft}
}

func imageBytes(b *Backend) (n int64) {
	for _, m := range b.images {
		n += int64(len(m.file.Data))
	}
	return n
}

// rawPage is the bytes of a page in every layer.
func rawPage(b *Backend) (n int64) {
	for i := range b.states {
		if s := &b.states[i]; s.paged {
			n += int64(s.bytes[0] + s.bytes[1])
		}
	}
	return n
}

// TestLanesStayInTheirBytes opens lanes, some long, keeps checkpoints, frees and opens again: what the device gives for them is at
// most what they are said to take at their most, and the pages of a pool's first step.
func TestLanesStayInTheirBytes(t *testing.T) {
	tokens := readManifest(t).Tokens
	x := openRecipe(t, fixtures.Recipe{Family: "tiny-qwen35", Seed: 3, Formats: fixtures.Uniform(dequant.Q8_0)})
	d := open(t, Devices()[0])
	b := x.backend(t, d, Options{MaxRows: 32})
	n := x.network(t, b, model.Options{})
	forward(t, n, newLane(t, n), tokens[:32]) // scratch
	b.FreeLane(0)
	lane, token := b.LaneBytes()
	before := d.Counters().Buffers - lane*int64(b.capacity) - rawPage(b)*int64(b.pages.capacity)
	slack := pageStep * rawPage(b)
	charged, most := int64(0), int64(0)
	held := make(map[model.Lane]int64)
	long := func(rows int) model.Lane {
		l := newLane(t, n)
		for at := 0; at < rows; at += 32 {
			read(t, n, l, tokens[:min(32, rows-at)])
		}
		held[l] = lane + token*int64(pagesOf(rows)*pageTokens)
		charged += held[l]
		most = max(most, charged)
		if got := d.Counters().Buffers - before; got > most+slack {
			t.Errorf("%d bytes for lanes and checkpoints, %d are charged at most", got, most)
		}
		return l
	}
	drop := func(l model.Lane) {
		b.FreeLane(l)
		charged -= held[l]
	}
	a, c := long(160), long(40)
	saved, bytes, err := b.Save(c)
	if err != nil {
		t.Fatal(err)
	}
	charged += bytes
	drop(a)
	drop(c)
	for _, rows := range []int{1, 2, 3, 4} { // the pages of the long lane make room for them
		long(rows)
	}
	for l := range held {
		if b.lanes[l] != nil {
			drop(l)
		}
	}
	want := logitsOf(t, n, b, saved, tokens[:4])
	long(160) // lanes make room for its pages
	if got := logitsOf(t, n, b, saved, tokens[:4]); !slices.Equal(got, want) {
		t.Error("a checkpoint whose pages were moved has other logits")
	}
	b.Drop(saved)
}

// read runs tokens whose logits nobody wants.
func read(t *testing.T, n model.Network, l model.Lane, tokens []int32) {
	t.Helper()
	if err := n.Forward(&model.Pass{Segments: []model.Segment{{Lane: l, Tokens: tokens}}}); err != nil {
		t.Fatal(err)
	}
}

// logitsOf are those after tokens that follow a checkpoint.
func logitsOf(t *testing.T, n model.Network, b *Backend, c model.Checkpoint, tokens []int32) []float32 {
	t.Helper()
	l := newLane(t, n)
	if err := b.Resume(l, c); err != nil {
		t.Fatal(err)
	}
	forward(t, n, l, tokens)
	defer b.FreeLane(l)
	return slices.Clone(n.Logits(len(tokens) - 1))
}

// TestUnload forgets networks and builds them again: in between the device holds the checkpoints' pages and little else, and what
// follows a checkpoint has the bits that it had.
func TestUnload(t *testing.T) {
	tokens := readManifest(t).Tokens
	for name, p := range footprintModels(t) {
		t.Run(name, func(t *testing.T) {
			d := open(t, Devices()[0])
			x := footprintOf(t, p, d, Options{MaxRows: 48})
			b := x.backend
			fill := newLane(t, x.network) // whose pages go
			read(t, x.network, fill, tokens[:33])
			lane := newLane(t, x.network)
			read(t, x.network, lane, tokens[:34])
			saved, _, err := b.Save(lane)
			if err != nil {
				t.Fatal(err)
			}
			want := logitsOf(t, x.network, b, saved, tokens[34:36])
			b.FreeLane(fill)
			b.FreeLane(lane)
			page, fixed := rawPage(b), d.Counters()
			for range 2 {
				b.Unload()
				c := d.Counters()
				if c.Wrapped != 0 || c.Buffers > 2*page+fixed.Buffers/20 || b.pages.capacity != 2 {
					t.Errorf("%d bytes wrapped and %d in buffers of %d after it was unloaded, with %d pages of %d", c.Wrapped, c.Buffers,
						fixed.Buffers, b.pages.capacity, page)
				}
				x = reload(t, p, b)
				if got := logitsOf(t, x.network, b, saved, tokens[34:36]); !slices.Equal(got, want) {
					t.Error("a network that was built again has other logits")
				}
			}
			b.Drop(saved)
			b.Unload()
			if c := d.Counters(); c.Buffers > fixed.Buffers/20 || b.pages.capacity != 0 {
				t.Errorf("%d bytes in buffers and %d pages without a checkpoint", c.Buffers, b.pages.capacity)
			}
			b.Close()
			if c := d.Counters(); c.Buffers != 0 || c.Wrapped != 0 {
				t.Errorf("%d and %d bytes are held after the end", c.Buffers, c.Wrapped)
			}
		})
	}
}

// reload builds the networks on an unloaded backend again.
func reload(t *testing.T, p draftPair, b *Backend) *dryCycle {
	t.Helper()
	if err := b.wrap(makeImages(t, Source{Plan: p.plan, Weights: p.target.weights})); err != nil {
		t.Fatal(err)
	}
	if p.sizes == nil {
		return &dryCycle{backend: b, network: p.network(t, b, model.Options{})}
	}
	if err := b.LoadDraft(makeImages(t, Source{Draft: p.sizes, Tensors: p.tensors, Weights: p.weights})); err != nil {
		t.Fatal(err)
	}
	n := p.on(t, b)
	return &dryCycle{backend: b, network: n.Network, draft: n.draft}
}
