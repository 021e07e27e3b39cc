//go:build cgo

package metal

import (
	"math/bits"
	"slices"
	"unsafe"

	"splash/internal/model"
	"splash/planner"
)

// A shape is what the dispatches of a program's passes depend on: passes of one shape are the same dispatches. All else that
// differs between passes, such as tokens, places, lanes, their lengths and pages, kernels read from what Begin writes.
type shape struct {
	program  any
	kind     model.Kind
	rows     int
	outputs  int
	segments int
	longest  int  // segment of a draft's pass, whose grids it is in
	decodes  bool // inputs are multiplied in codes
	chunks   bool // recurrent layers take chunks
	blocks   int  // scored of the rows of sparse attention: room for them, or 0 where every row sees all
}

// shape is that of the pass that has begun.
func (b *Backend) shape(program any) shape {
	s := shape{
		program: program, kind: b.kind, rows: b.rows, outputs: b.outputs, segments: len(b.segments),
		decodes: b.int8Activations && b.decodes(),
	}
	if b.kind != model.TargetPass {
		s.longest = b.longest()
		return s
	}
	s.chunks = b.chunks()
	if q := &b.layout.QSA; q.Heads != 0 {
		s.blocks = b.scoredBlocks(q)
	}
	return s
}

// scoredBlocks is room for the scores of a row's blocks, or 0 where no row has more blocks than it may see: a power of two, so
// that lanes that grow change it seldom.
func (b *Backend) scoredBlocks(q *planner.QSALayout) int {
	most := b.mostBlocks(q)
	if most <= q.Budget {
		return 0
	}
	return min(1<<bits.Len(uint(most-1)), b.pages.width*pageTokens/q.Block)
}

// mostBlocks is the number of complete blocks of the row of the pass that has the most.
func (b *Backend) mostBlocks(q *planner.QSALayout) (most int) {
	for _, s := range view[segmentInfo](b.segmentBuffer)[:len(b.segments)] {
		most = max(most, int(s.index+s.rows)/q.Block)
	}
	return most
}

// A recorded pass is what its operators left: dispatches, rows that the CPU gathers each time, and what they count.
type recorded struct {
	graph   *Graph
	gathers []ngramGather
	traffic Traffic
	attends []*model.Attention
	used    uint64 // the pass that used it last, counted from the first
}

// The passes that a backend keeps: a cycle's shapes are few, those of prompts' last parts come once.
const (
	keptGraphs     = 64
	keptGraphBytes = 32 << 20
)

// graphSet are the passes that are kept, by their shape.
type graphSet struct {
	off      bool // every pass is recorded
	kept     map[shape]*recorded
	passes   uint64
	largest  int64 // bytes of a pass that was kept
	counters Replays
}

// Replays count a backend's passes: those that were recorded, and those that ran as they were recorded before.
type Replays struct {
	Recorded, Replayed uint64
	Dropped            uint64 // kept passes that were let go of for others
	Moved              uint64 // and that were because a buffer of theirs moved
	Kept               int    // passes
	Bytes              int64  // that those take at most
}

// Replays returns the counts since the backend was made.
func (b *Backend) Replays() Replays { return b.graphs.counters }

// Replay begins a pass, and reports whether one of its shape was kept: then that is run.
func (b *Backend) Replay(p *model.Pass, program any) (known bool, err error) {
	if err := b.Begin(p); err != nil {
		return false, err
	}
	g := &b.graphs
	if g.off || len(b.embedded.runs) > 0 { // where images are in a prompt is its own
		return false, nil
	}
	b.passShape = b.shape(program)
	if b.playing = g.kept[b.passShape]; b.playing == nil {
		b.keeping = true
		return false, nil
	}
	b.traffic = b.playing.traffic
	return true, nil
}

// endOperators says that the operators of the pass have been called: what is recorded from here on chooses tokens, anew in every
// pass, and is no part of what is kept.
func (b *Backend) endOperators() {
	if b.operators < 0 {
		b.operators, b.operatorTraffic = b.commands.Len(), b.traffic
	}
}

// start gives the device the pass's operators, once: as they were recorded before, or have been now. They run with the next commit.
func (b *Backend) start() error {
	if b.started {
		return nil
	}
	b.endOperators()
	b.started = true
	g := &b.graphs
	g.passes++
	r := b.playing
	if r == nil {
		g.counters.Recorded++
		if !b.keeping {
			return b.device.encode(b.commands.list[:b.operators])
		}
		graph, err := b.device.Keep(&b.commands, b.operators)
		if err != nil {
			return err
		}
		r = &recorded{graph: graph, gathers: slices.Clone(b.gathers), traffic: b.operatorTraffic, attends: slices.Clone(b.attends)}
		g.keep(b.passShape, r)
	} else {
		g.counters.Replayed++
		for i := range r.gathers {
			b.gather(&r.gathers[i])
		}
	}
	r.used = g.passes
	return r.graph.encode()
}

// keep adds a pass, and lets go of those that were used longest ago where there are too many.
func (g *graphSet) keep(s shape, r *recorded) {
	c := &g.counters
	for c.Kept > 0 && (c.Kept >= keptGraphs || c.Bytes+r.bytes() > keptGraphBytes) {
		var oldest shape
		for at, x := range g.kept {
			if o := g.kept[oldest]; o == nil || x.used < o.used {
				oldest = at
			}
		}
		g.drop(oldest)
		c.Dropped++
	}
	if g.kept == nil {
		g.kept = make(map[shape]*recorded)
	}
	g.kept[s] = r
	c.Kept++
	c.Bytes += r.bytes()
	g.largest = max(g.largest, r.bytes())
}

func (g *graphSet) drop(s shape) {
	r := g.kept[s]
	delete(g.kept, s)
	g.counters.Kept--
	g.counters.Bytes -= r.bytes()
	r.graph.Free()
}

// bytes is the most that a device takes for the pass.
func (r *recorded) bytes() int64 { return int64(r.graph.Len()) * dispatchBytes }

// moved lets go of every kept pass: a buffer that they are bound to has gone. The pass under way, which may be bound to it too, is
// not kept.
func (b *Backend) moved() {
	b.keeping = false
	for s := range b.graphs.kept {
		b.graphs.drop(s)
		b.graphs.counters.Moved++
	}
}

// passTraffic is what the pass moves: what its operators counted, and what depends on how far its lanes are.
func (b *Backend) passTraffic() Traffic {
	t, attends := b.traffic, b.attends
	if b.playing != nil {
		attends = b.playing.attends
	}
	for _, a := range attends {
		t.KV += b.tokensSeen(a) * 2 * int64(a.Layout.KVHeads*b.headBytes(a.Layout.HeadDim))
		if a.Index == nil {
			continue
		}
		if q := a.Index.Layout; b.scoredBlocks(q) > 0 {
			most := int64(b.mostBlocks(q))
			t.KV += int64(len(b.segments)) * most * 4 * int64(q.HeadDim)
			t.Activations += 2 * 4 * int64(b.rows) * most // scratch
		}
	}
	return t
}

const dispatchBytes = int64(unsafe.Sizeof(dispatch{}))
