// Package reference is the oracle as a backend: every operator is the formula of package oracle, in float64, on weights
// decoded by package dequant. It reads the source blocks in place and serves any model, slowly; what it computes for a
// row does not depend, to the last bit, on the rows beside it or on how a prompt was cut into passes.
package reference

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A Backend implements model.Backend.
type Backend struct {
	// Keep changes a row's keys and values, of heads of dim, as they are to be kept: to see what it costs that a backend rounds
	// them. nil keeps them as they are.
	Keep func(keys, values []float64, dim int)

	layout  *planner.Layout
	maxRows int
	workers int
	cache   int64 // decoded weights that may still be kept, in elements

	matrices []*matrix
	experts  [][]*matrix
	vectors  [][]float64
	buffers  []buffer
	states   []func() state
	lanes    []*lane
	saved    []*lane
	freq     []float32

	kind    model.Kind
	rows    []row
	outputs []int // rows whose logits are wanted
	touched []*lane
	err     error
	read    []float32
}

// A buffer holds width values a row.
type buffer struct {
	width  int
	domain model.Domain
	data   []float64
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

// cachedWeights bounds the decoded weights that are kept between passes: 2^27 float64 values are 1 GiB. Beyond it a row
// of weights is decoded anew for every pass.
const cachedWeights = 1 << 27

// New returns a backend for the target whose passes have at most maxRows rows.
func New(p *planner.Plan, maxRows int) *Backend {
	b := &Backend{layout: &p.Layout, maxRows: maxRows, workers: runtime.GOMAXPROCS(0), cache: cachedWeights}
	b.freq = oracle.RopeFrequencies(p.Layout.Attention.RopeBase, p.Layout.Attention.RopeDim)
	return b
}

var _ model.Backend = (*Backend)(nil)

// Buffer allocates a buffer.
func (b *Backend) Buffer(width int, d model.Domain) (model.Buffer, error) {
	if width <= 0 {
		return 0, fmt.Errorf("reference: a buffer of width %d", width)
	}
	b.buffers = append(b.buffers, buffer{width: width, domain: d})
	return model.Buffer(len(b.buffers) - 1), nil
}

// Begin starts a pass.
func (b *Backend) Begin(p *model.Pass) error {
	b.kind, b.err = p.Kind, nil
	b.rows, b.outputs, b.touched = b.rows[:0], b.outputs[:0], b.touched[:0]
	n, _ := p.Rows()
	if n == 0 || n > b.maxRows {
		return fmt.Errorf("reference: a pass of %d rows; 1 to %d are possible", n, b.maxRows)
	}
	for i := range p.Segments {
		if err := b.addSegment(&p.Segments[i]); err != nil {
			return err
		}
	}
	for i := range b.buffers {
		if buf := &b.buffers[i]; len(buf.data) < b.count(buf)*buf.width {
			buf.data = make([]float64, b.count(buf)*buf.width)
		}
	}
	return nil
}

func (b *Backend) addSegment(s *model.Segment) error {
	l, err := b.lane(s.Lane)
	if err != nil {
		return err
	}
	if len(s.Tokens) == 0 {
		return fmt.Errorf("reference: lane %d has a segment without rows", s.Lane)
	}
	if err := s.CheckRows(b.layout.Hidden); err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	for _, other := range b.touched {
		if other == l {
			return fmt.Errorf("reference: lane %d has two segments in one pass", s.Lane)
		}
	}
	b.touched = append(b.touched, l)
	start := l.length
	switch b.kind {
	case model.TargetPass:
		l.firstRow, l.firstIndex = len(b.rows), start
		l.begin(len(s.Tokens))
	case model.ContextPass:
		start = l.firstIndex
		if start+len(s.Tokens) > l.length {
			return fmt.Errorf("reference: %d context rows of lane %d, which kept %d of its last segment",
				len(s.Tokens), s.Lane, l.length-start)
		}
	}
	for i, token := range s.Tokens {
		if token < 0 || int(token) >= b.layout.Vocab {
			return fmt.Errorf("reference: token %d is not in the vocabulary of %d", token, b.layout.Vocab)
		}
		r := row{
			lane: l, token: token, index: start + i, routed: s.Routed == 0 || i < s.Routed,
			first: i == 0, source: l.firstRow + i,
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
		for _, l := range b.touched {
			l.end()
		}
	}
	return b.err
}

// Read returns a row of a buffer.
func (b *Backend) Read(h model.Buffer, i int) []float32 {
	x := b.row(h, i)
	if cap(b.read) < len(x) {
		b.read = make([]float32, len(x))
	}
	b.read = b.read[:len(x)]
	for j, v := range x {
		b.read[j] = float32(v)
	}
	return b.read
}

// ReadFloat64 returns a copy of a row of a buffer, as it is computed.
func (b *Backend) ReadFloat64(h model.Buffer, i int) []float64 {
	return append([]float64(nil), b.row(h, i)...)
}

func (b *Backend) count(buf *buffer) int {
	if buf.domain == model.OutputRows {
		return len(b.outputs)
	}
	return len(b.rows)
}

// row is row i of a buffer.
func (b *Backend) row(h model.Buffer, i int) []float64 {
	buf := &b.buffers[h]
	return buf.data[i*buf.width : (i+1)*buf.width]
}

// each runs f for every row of the pass that buffer h has.
func (b *Backend) each(h model.Buffer, f func(i int)) {
	b.parallel(b.count(&b.buffers[h]), func(_, i int) { f(i) })
}

// parallel runs f for i in [0, n) on all workers; worker tells them apart. Every i is computed by itself, so the result
// does not depend on the number of workers.
func (b *Backend) parallel(n int, f func(worker, i int)) {
	workers := min(b.workers, n)
	if workers <= 1 {
		for i := range n {
			f(0, i)
		}
		return
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[any] // what a worker panicked with, which the caller is to see
	for w := range workers {
		wg.Go(func() {
			debug.SetPanicOnFault(true) // weights are mapped, and their files may be cut short
			defer func() {
				if v := recover(); v != nil {
					failed.Store(&v)
				}
			}()
			for i := w * n / workers; i < (w+1)*n/workers; i++ {
				f(w, i)
			}
		})
	}
	wg.Wait()
	if v := failed.Load(); v != nil {
		panic(*v)
	}
}

var errNoLane = errors.New("reference: no such lane")
