package target

import (
	"fmt"
	"strings"

	"splash/internal/media"
	"splash/planner"
)

// A MemoryPlan is what serving a target takes of the memory there is, in bytes. What weights, one lane and the draft's
// state leave is for more lanes and for what is kept of prompts.
type MemoryPlan struct {
	Limit   int64 // 0: not known, and nothing is held to it
	Weights int64 // of the target and its draft: images, or tensors as the files have them
	Vision  int64 // of the vision tower, and of what it takes for the largest image
	Passes  int64 // of activations and scratch, where the backend says what they take
	Lane    int64 // of a lane without tokens
	Token   int64 // of each token of it
	Context int   // tokens
	KV      string
}

// least is the context that a model must have memory for, unless its own is smaller.
const least = 2048

// Left is what lanes and what is kept of prompts may take.
func (m *MemoryPlan) Left() int64 { return m.Limit - m.fixed() }

// fixed is what is taken before there is a lane.
func (m *MemoryPlan) fixed() int64 { return m.Weights + m.Vision + m.Passes }

// Full is a lane at full context.
func (m *MemoryPlan) Full() int64 { return m.Lane + m.Token*int64(m.Context) }

// Cache is how much of what is left may hold prompts.
func (m *MemoryPlan) Cache() int64 { return max(0, m.Left()-m.Full()) }

func (m *MemoryPlan) String() string {
	limit := "no limit"
	if m.Limit > 0 {
		limit = bytes(m.Limit)
	}
	more := ""
	if m.Vision > 0 {
		more = " + vision " + bytes(m.Vision)
	}
	if m.Passes > 0 {
		more += " + passes " + bytes(m.Passes)
	}
	return fmt.Sprintf("weights %s%s + a lane of %d tokens %s (states %s, %s of keys and values a token) = %s of %s",
		bytes(m.Weights), more, m.Context, bytes(m.Full()), bytes(m.Lane), bytes(m.Token), bytes(m.fixed()+m.Full()), limit)
}

// bytes spells a number of bytes.
func bytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.size)), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

// planMemory finds the context that the memory allows, where none is asked for, and refuses what does not fit: the error
// names the largest context that does.
func (t *Target) planMemory(b Backend, s *source, d *draftFiles, o Options) error {
	p, asked, err := t.memoryPlan(b, s, d, o)
	if err != nil {
		return err
	}
	p.Context = t.Engine.Context
	if t.Vision != nil {
		p.Vision = t.Vision.Bytes() + t.Vision.Scratch(media.MaxPixels)
	}
	t.Memory = p
	if p.Limit == 0 {
		return nil
	}
	fits := 0
	if room := p.Left() - p.Lane; room > 0 {
		fits = int(min(room/max(1, p.Token), int64(s.plan.Layout.Context)))
	}
	need := min(least, s.plan.Layout.Context)
	if asked {
		need = p.Context
	}
	switch {
	case fits < min(least, s.plan.Layout.Context, need):
		p.Context = need
		return fmt.Errorf("the model does not fit in memory: %v", p)
	case fits < need:
		return fmt.Errorf("a context of %d tokens does not fit in memory, at most %d do: %v", need, fits, p)
	}
	if fits < p.Context {
		p.Context = fits
		if fits > 1024 {
			p.Context = fits / 1024 * 1024
		}
		t.Engine.Context = p.Context
	}
	o.log("Memory · " + p.String())
	t.Engine.Memory = p.Left()
	if t.Engine.Cache == 0 {
		if t.Engine.Cache = p.Cache(); t.Engine.Cache == 0 {
			t.Engine.Cache = -1
		}
	}
	return nil
}

// memoryPlan adds up what the target takes. asked says that a context was asked for.
func (t *Target) memoryPlan(b Backend, s *source, d *draftFiles, o Options) (p *MemoryPlan, asked bool, err error) {
	p, asked = &MemoryPlan{Limit: o.Memory, KV: o.KV}, o.Engine.Context > 0
	if b.Footprint != nil {
		f, err := b.Footprint(t.opening(s, d, &o))
		if err != nil {
			return nil, false, err
		}
		p.Weights, p.Passes, p.Lane, p.Token = f.Images, f.Passes+f.Graphs, f.Lane, f.Token
		return p, asked, nil
	}
	kv := planner.KVBF16
	if o.KV == planner.KVInt8.String() {
		kv = planner.KVInt8
	}
	state := planner.StateMemory(&s.plan.Layout, kv)
	var m meter
	if err := m.count(s.weights, s.plan.Tensors); err != nil {
		return nil, false, err
	}
	p.Weights = m.total
	// A lane has its recurrent states twice: as they are, and as they were before the rows that may be taken back.
	p.Lane = 2*state.Recurrent + state.Conv + state.PLE
	p.Token = state.KVToken + state.Index
	if d != nil {
		var m meter
		if err := m.count(d.weights, d.tensors); err != nil {
			return nil, false, err
		}
		p.Weights += m.total
		p.Lane += d.sizes.RingBytes()
	}
	return p, asked, nil
}
