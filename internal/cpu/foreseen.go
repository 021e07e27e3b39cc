package cpu

import "splash/internal/model"

// A foreseen is a buffer in the forms that the matrices which multiply it next take: the operator that makes it rounds what
// it has in its caches, and no task of its own comes between the two.
type foreseen struct {
	of     model.Buffer
	by     []*matrix // one of each form
	inputs inputs    // of each
	whole  bool      // no matrix takes another form, so that the buffer itself is left out
}

// noBuffer is none.
const noBuffer model.Buffer = -1

// What a norm makes and what is made of that are two: a gate multiplies the one while it rounds the other.
const (
	ofNorm = iota
	ofBlock
)

// foresee begins what next multiply, all matrices that do. It has no form where they take the values as they are.
func (b *Backend) foresee(which int, dst model.Buffer, next []model.Matrix) *foreseen {
	b.forget(dst)
	f := &b.foreseen[which]
	f.of, f.by, f.whole = dst, f.by[:0], len(next) > 0
	f.inputs.reset()
	for _, h := range next {
		switch m := b.matrices[h]; {
		case !m.rounded() || m.ordered():
			f.whole = false
		case f.input(m) == nil:
			f.inputs.next().shape(b, m, b.rowsOf(dst))
			f.by = append(f.by, m)
		}
	}
	return f
}

// none has it in no form.
func (f *foreseen) none() { f.by, f.whole = f.by[:0], false }

// forms reports whether there is one.
func (f *foreseen) forms() bool { return len(f.by) > 0 }

// panels are those of every form.
func (f *foreseen) panels() []panel { return f.inputs.all[0].panels }

// input is the form of m, or nil.
func (f *foreseen) input(m *matrix) *input {
	for i, by := range f.by {
		if by.sameInput(m) {
			return &f.inputs.all[i].input
		}
	}
	return nil
}

// blocks is the number of blocks of rows that are made together: those of panels, where there is a form.
func (f *foreseen) blocks(rows rowCount) int {
	if f.forms() {
		return len(f.panels())
	}
	return rows.blocks()
}

// part is the column, the block and the rows of part i.
func (f *foreseen) part(i int, rows rowCount) (column, block, first, last int) {
	n := f.blocks(rows)
	if f.forms() {
		p := &f.panels()[i%n]
		return i / n, i % n, p.first, p.first + p.rows
	}
	column, first, last = rows.part(i)
	return column, i % n, first, last
}

// A strip is columns of rows of a buffer, or of what is never written there.
type strip struct {
	values        []float32
	first, stride int
}

func (s *strip) row(i int) []float32 { return s.values[(i-s.first)*s.stride:] }

// strip is where columns lo to hi-1 of rows are written.
func (f *foreseen) strip(b *Backend, w *worker, first, last, lo, hi int) strip {
	if f.whole && f.forms() {
		return strip{w.stripOf((last - first) * (hi - lo)), first, hi - lo}
	}
	return strip{b.all(f.of)[first*b.buffers[f.of].width+lo:], first, b.buffers[f.of].width}
}

// round rounds a strip of the rows of a block, from column lo on.
func (f *foreseen) round(b *Backend, w *worker, block, lo, n int, s *strip) {
	for i := range f.by {
		w.panel = f.inputs.all[i].panels[block].strip(lo, n)
		b.k.quantize(&w.panel, s.values, s.stride)
	}
}

// input is a buffer in the form that m multiplies: the one that was foreseen, or one that is made.
func (b *Backend) input(m *matrix, x model.Buffer) *input {
	for i := range b.foreseen {
		if f := &b.foreseen[i]; f.of == x {
			if in := f.input(m); in != nil {
				return in
			}
		}
	}
	return b.inputs.of(b, m, b.all(x), m.cols, b.rowsOf(x))
}

// forget ends what was foreseen of a buffer: it has been multiplied, or is written anew.
func (b *Backend) forget(x model.Buffer) {
	for i := range b.foreseen {
		if b.foreseen[i].of == x {
			b.foreseen[i].of = noBuffer
		}
	}
}

// stripOf is scratch for n values.
func (w *worker) stripOf(n int) []float32 {
	w.strip = grown(w.strip, n)
	return w.strip
}
