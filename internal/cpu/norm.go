package cpu

import (
	"math"

	"splash/internal/model"
	"splash/oracle"
)

// RMSNorm normalizes each row, strips of columns apart, and rounds it to what is foreseen.
func (b *Backend) RMSNorm(dst, x model.Buffer, w model.Vector, eps float64, next []model.Matrix) {
	rows, t := b.rowsOf(x), &b.ops.norm
	if rows == 0 {
		return
	}
	*t = normTask{b: b, dst: dst, x: x, w: b.vectors[w], eps: eps, rows: rowCount(rows), room: roundUp(rows, vector)}
	t.strips = (len(t.w) + stripColumns - 1) / stripColumns
	b.squares = grown(b.squares, t.strips*t.room)
	grain := max(1, worthSharing/(stripColumns*min(rows, blockRows)))
	b.pool.run(t, t.strips*t.rows.blocks(), grain)
	t.scale, t.next = true, b.foresee(ofNorm, dst, next)
	b.pool.run(t, t.strips*t.next.blocks(t.rows), grain)
}

// normGrain is the number of rows of elementwise work that is worth another worker's time.
const normGrain = 8

// stripColumns is the number of columns of a row that elementwise work takes together.
const stripColumns = 512

// worthSharing is the number of values that are worth another worker's time.
const worthSharing = 8192

// A rowCount is rows in blocks of blockRows: tasks take all blocks of one column, a head or a strip, after those of another, so
// that a worker's share is of columns.
type rowCount int

// blocks is the number of blocks.
func (n rowCount) blocks() int { return (int(n) + blockRows - 1) / blockRows }

// part is the column and the rows of part i.
func (n rowCount) part(i int) (column, first, last int) {
	first = i % n.blocks() * blockRows
	return i / n.blocks(), first, min(first+blockRows, int(n))
}

// normTask sums the squares of blocks of rows, a strip after another, then scales them.
type normTask struct {
	b      *Backend
	dst, x model.Buffer
	w      []float32
	eps    float64

	rows   rowCount
	strips int
	room   int // of the sums of a strip
	scale  bool
	next   *foreseen
}

func (t *normTask) run(w, first, last int) {
	b, k := t.b, t.b.k
	for i := first; i < last; i++ {
		if t.scale {
			t.scaled(b.workers[w], i)
			continue
		}
		strip, row, end := t.rows.part(i)
		lo, hi := t.columns(strip)
		for ; row < end; row++ {
			b.squares[strip*t.room+row] = k.sumSquares(b.row(t.x, row)[lo:hi])
		}
	}
}

// columns are those of a strip.
func (t *normTask) columns(strip int) (lo, hi int) {
	return strip * stripColumns, min((strip+1)*stripColumns, len(t.w))
}

// scaled scales a strip of some rows, and rounds what is foreseen.
func (t *normTask) scaled(w *worker, i int) {
	b, f := t.b, t.next
	strip, block, row, end := f.part(i, t.rows)
	lo, hi := t.columns(strip)
	to := f.strip(b, w, row, end, lo, hi)
	for ; row < end; row++ {
		b.k.norm(to.row(row)[:hi-lo], b.row(t.x, row)[lo:hi], t.w[lo:hi], t.factor(row))
	}
	f.round(b, w, block, lo, hi-lo, &to)
}

// factor is 1 / sqrt(mean x^2 + eps) of a row.
func (t *normTask) factor(row int) float32 {
	var sum float64
	for strip := range t.strips {
		sum += float64(t.b.squares[strip*t.room+row])
	}
	return float32(1 / math.Sqrt(sum/float64(len(t.w))+t.eps))
}

// rmsNorm writes x_i w_i / sqrt(mean x^2 + eps).
func (b *Backend) rmsNorm(dst, x, w []float32, eps float64) {
	mean := float64(b.k.sumSquares(x)) / float64(len(x))
	b.k.norm(dst, x, w, float32(1/math.Sqrt(mean+eps)))
}

// Embed writes the table's row of each token, or its embedded values.
func (b *Backend) Embed(dst model.Buffer, table model.Matrix) {
	b.ops.embed = embedTask{b, dst, b.matrices[table]}
	b.pool.run(&b.ops.embed, b.rowsOf(dst), normGrain)
}

type embedTask struct {
	b   *Backend
	dst model.Buffer
	m   *matrix
}

func (t *embedTask) run(w, first, last int) {
	for i := first; i < last; i++ {
		if e := t.b.rows[i].embedded; e != nil {
			copy(t.b.row(t.dst, i), e)
			continue
		}
		t.m.gather(t.b.row(t.dst, i), int(t.b.rows[i].token), t.b.workers[w].rowOf(t.m.cols))
	}
}

// rowOf is scratch for n values.
func (w *worker) rowOf(n int) []float32 {
	w.row = grown(w.row, n)
	return w.row
}

// Outputs gathers the rows whose logits are wanted.
func (b *Backend) Outputs(dst, x model.Buffer) {
	for i, r := range b.outputs {
		copy(b.row(dst, i), b.row(x, r))
	}
}

// Copy copies a buffer.
func (b *Backend) Copy(dst, x model.Buffer) { copy(b.all(dst), b.all(x)) }

// hadamard is oracle.Hadamard.
func hadamard(x []float32) { oracle.Hadamard(x) }

// A ropeTable holds the cosines and sines of one set of frequencies at the positions of the rows of a pass.
type ropeTable struct {
	theta    float64
	dims     int
	index    bool // positions are the rows' indices
	freq     []float32
	made     bool
	sin, cos []float32 // [rows][dims/2]
}

// rope returns the table of dims dimensions, filled for the pass under way: for the rows' positions, or their indices.
func (b *Backend) rope(theta float64, dims int, index bool) *ropeTable {
	var t *ropeTable
	for _, r := range b.ropes {
		if r.theta == theta && r.dims == dims && r.index == index {
			t = r
		}
	}
	if t == nil {
		t = &ropeTable{theta: theta, dims: dims, index: index, freq: oracle.RopeFrequencies(theta, dims)}
		b.ropes = append(b.ropes, t)
	}
	if !t.made {
		n := dims / 2
		t.sin, t.cos, t.made = grown(t.sin, len(b.rows)*n), grown(t.cos, len(b.rows)*n), true
		b.ops.rope = ropeTask{b, t}
		b.pool.run(&b.ops.rope, len(b.rows), normGrain)
	}
	return t
}

type ropeTask struct {
	b *Backend
	t *ropeTable
}

func (t *ropeTask) run(_, first, last int) {
	n := t.t.dims / 2
	for i := first; i < last; i++ {
		pos := t.b.rows[i].pos
		if t.t.index {
			pos = oracle.TextPosition(t.b.rows[i].index)
		}
		t.t.at(t.t.sin[i*n:(i+1)*n], t.t.cos[i*n:(i+1)*n], pos)
	}
}

// at writes the sines and cosines of a position: those of the F32 angles rn32(axis freq_i), as oracle.Rope has them.
func (t *ropeTable) at(sin, cos []float32, p oracle.Position) {
	for i, f := range t.freq {
		axis := p.T
		switch i % 3 {
		case 1:
			axis = p.H
		case 2:
			axis = p.W
		}
		s, c := math.Sincos(float64(float32(axis) * f))
		sin[i], cos[i] = float32(s), float32(c)
	}
}

// rotate rotates the head x in place for row i of the pass.
func (t *ropeTable) rotate(x []float32, i int) {
	n := t.dims / 2
	rotate(x, t.sin[i*n:(i+1)*n], t.cos[i*n:(i+1)*n])
}

func rotate(x, sin, cos []float32) {
	n := len(sin)
	low, high := x[:n], x[n:2*n]
	for i, s := range sin {
		a, c := low[i], high[i]
		low[i] = a*cos[i] - c*s
		high[i] = c*cos[i] + a*s
	}
}
