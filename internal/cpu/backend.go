// Package cpu computes a target on the machine's cores. It is a model.Backend that reads the blocks of a weight file in
// place: a tile of rows is unpacked into a worker's scratch once a pass and multiplied by every row of every lane.
//
// Activations are float32. Beside weights in block formats they are rounded to 8 bits in blocks of 32 columns, which is
// what lets a product run in integers, and at the level AVX512BF16 to bfloat16 beside BF16 weights; Options.Exact keeps them
// float32. What is computed for a row does not depend, to the last bit, on the rows beside it, on how a prompt was cut into
// passes, or on the number of workers.
package cpu

import (
	"fmt"
	"runtime"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// Options are the choices of a backend that its plan does not make.
type Options struct {
	Workers int      // goroutines that compute; 0: GOMAXPROCS
	Level   string   // the instructions to use: the name of a Level; "": the SPLASH_CPU variable, or the best there is
	Exact   bool     // multiply float32 activations beside every format
	KV      KVFormat // how keys and values are kept
}

// A Backend implements model.Backend.
type Backend struct {
	layout  *planner.Layout
	maxRows int
	exact   bool
	kv      KVFormat
	k       *kernels
	pool    *pool
	shares  [model.ContextPass + 1]shares // of the kinds of passes
	workers []*worker

	matrices []*matrix
	experts  [][]*matrix
	vectors  [][]float32
	buffers  []buffer
	groups   [][]model.Buffer // of buffers that share memory
	overlaid int              // the rows that it has room for
	states   []func() state
	lanes    []*lane
	saved    []*checkpoint
	freePage map[pageShape][]*page

	kind     model.Kind
	rows     []row
	segments []segment
	outputs  []int // rows whose logits are wanted

	spare  []*lane     // given back
	tapsOf [][]float32 // of convolutions, by vector

	ropes    []*ropeTable
	choice   choice
	context  []int32 // of an n-gram
	hashed   []uint64
	inputs   inputs
	foreseen [2]foreseen // ofNorm, ofBlock
	attend   attending
	squares  []float32 // of strips of rows: [strips][rows]
	still    []float32 // a key that changes nothing
	moe      mixture
	hyper    streams
	ops      tasks
}

// A buffer holds width values a row.
type buffer struct {
	width  int
	domain model.Domain
	data   []float32 // in the pass under way: own, or common
	own    []float32
	common []float32 // what others overlap; nil: none do
}

// A row is one token position of one lane in the pass under way.
type row struct {
	lane   *lane
	token  int32
	index  int
	pos    oracle.Position
	routed bool
	first  bool // of its segment
	source int  // of a context row: the row of the last target pass that it is

	embedded []float32 // nil: the token table's
}

// A segment is the rows of one lane in the pass under way.
type segment struct {
	lane     *lane
	first, n int
}

// A worker is what one goroutine computes with.
type worker struct {
	tile    tile
	natural []natural
	acc     [2][]float32 // [rows][lanes] of a tile; the second is that of a gate's other half
	buffers []byte       // of unpacked blocks
	strip   []float32    // results that are rounded
	next    uintptr      // what is multiplied after the tiles under way
	floats  floatRows
	bf16    bf16Scratch
	row     []float32 // decoded rows
	panel   panel     // a strip of one
	taps    [maxTaps][]float32
	gdn     gdnScratch
	attend  attendScratch
}

// New returns a backend for the target whose passes have at most maxRows rows.
func New(p *planner.Plan, maxRows int, o Options) (*Backend, error) {
	k, err := kernelsOf(o.Level)
	if err != nil {
		return nil, err
	}
	if maxRows <= 0 {
		return nil, fmt.Errorf("cpu: passes of %d rows", maxRows)
	}
	workers := o.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	b := &Backend{
		layout: &p.Layout, maxRows: maxRows, exact: o.Exact, kv: o.KV, k: k,
		pool: newPool(workers), freePage: map[pageShape][]*page{},
	}
	for range workers {
		b.workers = append(b.workers, &worker{})
	}
	runtime.AddCleanup(b, func(p *pool) { p.close() }, b.pool)
	return b, nil
}

var _ model.Backend = (*Backend)(nil)

// Close ends the workers. The backend computes nothing after it.
func (b *Backend) Close() error {
	b.pool.close()
	return nil
}

// Level is the name of the instructions in use.
func (b *Backend) Level() string { return b.k.level.String() }

// Buffer allocates a buffer.
func (b *Backend) Buffer(width int, d model.Domain) (model.Buffer, error) {
	if width <= 0 {
		return 0, fmt.Errorf("cpu: a buffer of width %d", width)
	}
	b.buffers = append(b.buffers, buffer{width: width, domain: d})
	return model.Buffer(len(b.buffers) - 1), nil
}

// Share lets buffers of all rows overlap.
func (b *Backend) Share(groups [][]model.Buffer) { b.groups = groups }

// fewRows are so few that their buffers do not overlap: what a worker writes to then stays its own from pass to pass.
const fewRows = 32

// place gives the buffers room for the pass.
func (b *Backend) place() {
	overlap := len(b.rows) > fewRows
	if overlap {
		b.overlay(len(b.rows))
	}
	for i := range b.buffers {
		buf := &b.buffers[i]
		if buf.common != nil && overlap {
			buf.data = buf.common
			continue
		}
		if need := b.count(buf) * buf.width; len(buf.own) < need {
			buf.own = floats(need)
		}
		buf.data = buf.own
	}
}

// overlay makes room for rows of the buffers that share memory.
func (b *Backend) overlay(rows int) {
	if rows <= b.overlaid {
		return
	}
	b.overlaid = rows
	size := func(h model.Buffer) int { return roundUp(rows*b.buffers[h].width, vector) }
	most := 0
	for _, group := range b.groups {
		n := 0
		for _, h := range group {
			n += size(h)
		}
		most = max(most, n)
	}
	room := floats(most)
	for _, group := range b.groups {
		at := 0
		for _, h := range group {
			b.buffers[h].common = room[at : at+size(h)]
			at += size(h)
		}
	}
}

// Begin starts a pass. A pass that is refused leaves its lanes as they were.
func (b *Backend) Begin(p *model.Pass) error {
	b.kind = p.Kind
	b.rows, b.segments, b.outputs = b.rows[:0], b.segments[:0], b.outputs[:0]
	n, _ := p.Rows()
	if n == 0 || n > b.maxRows {
		return fmt.Errorf("cpu: a pass of %d rows; 1 to %d are possible", n, b.maxRows)
	}
	for i := range p.Segments {
		if err := b.addSegment(&p.Segments[i]); err != nil {
			return err
		}
	}
	if b.kind == model.TargetPass {
		for i := range b.segments {
			s := &b.segments[i]
			s.lane.begin(s.first, s.n)
		}
	}
	b.place()
	for _, r := range b.ropes {
		r.made = false
	}
	b.shares[b.kind].number = 0
	for i := range b.foreseen {
		b.foreseen[i].of = noBuffer
	}
	return nil
}

func (b *Backend) addSegment(s *model.Segment) error {
	l, err := b.lane(s.Lane)
	if err != nil {
		return err
	}
	if len(s.Tokens) == 0 {
		return fmt.Errorf("cpu: lane %d has a segment without rows", s.Lane)
	}
	if err := s.CheckRows(b.layout.Hidden); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	for i := range b.segments {
		if b.segments[i].lane == l {
			return fmt.Errorf("cpu: lane %d has two segments in one pass", s.Lane)
		}
	}
	start, source := l.length, 0
	if b.kind == model.ContextPass {
		start, source = l.firstIndex, l.firstRow
		if start+len(s.Tokens) > l.length {
			return fmt.Errorf("cpu: %d context rows of lane %d, which kept %d of its last segment",
				len(s.Tokens), s.Lane, l.length-start)
		}
	}
	b.segments = append(b.segments, segment{l, len(b.rows), len(s.Tokens)})
	for i, token := range s.Tokens {
		if token < 0 || int(token) >= b.layout.Vocab {
			return fmt.Errorf("cpu: token %d is not in the vocabulary of %d", token, b.layout.Vocab)
		}
		r := row{
			lane: l, token: token, index: start + i, routed: s.Routed == 0 || i < s.Routed,
			first: i == 0, source: source + i,
		}
		r.pos = oracle.TextPosition(r.index + s.RopeDelta)
		if s.Positions != nil {
			r.pos = s.Positions[i]
		}
		if s.Embedded != nil {
			r.embedded = s.Embedded[i]
		}
		if i >= len(s.Tokens)-s.Outputs {
			b.outputs = append(b.outputs, len(b.rows))
		}
		b.rows = append(b.rows, r)
	}
	return nil
}

// End finishes the pass: the rows of a target's are part of their lanes.
func (b *Backend) End() error {
	if b.kind == model.TargetPass {
		for i := range b.segments {
			b.segments[i].lane.end()
		}
	}
	return nil
}

// Read returns a row of a buffer.
func (b *Backend) Read(h model.Buffer, i int) []float32 { return b.row(h, i) }

func (b *Backend) count(buf *buffer) int {
	if buf.domain == model.OutputRows {
		return len(b.outputs)
	}
	return len(b.rows)
}

// rowsOf is the number of rows of the pass that a buffer has.
func (b *Backend) rowsOf(h model.Buffer) int { return b.count(&b.buffers[h]) }

// row is row i of a buffer.
func (b *Backend) row(h model.Buffer, i int) []float32 {
	buf := &b.buffers[h]
	return buf.data[i*buf.width : (i+1)*buf.width : (i+1)*buf.width]
}

// span is the n rows of a buffer from row first on.
func (b *Backend) span(h model.Buffer, first, n int) []float32 {
	width := b.buffers[h].width
	return b.buffers[h].data[first*width : (first+n)*width]
}

// all is every row of a buffer.
func (b *Backend) all(h model.Buffer) []float32 { return b.span(h, 0, b.rowsOf(h)) }
