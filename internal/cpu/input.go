package cpu

import "splash/planner"

// An input is rows of activations in the form that a matrix multiplies.
type input struct {
	rows   int
	x      []float32 // as the file's columns have them: rotated and permuted
	stride int
	panels []panel  // rounded, beside weights in blocks
	halves []uint16 // bfloat16 numbers, group after group, as the level's products of them have it
}

// inputs are those of the products of one task. They keep their memory.
type inputs struct {
	used int
	all  []*inputBuffer
}

// An inputBuffer is the memory of an input.
type inputBuffer struct {
	input
	values []float32
	codes  []int8
	scales []float32
	sums   []float32
	biases []int32
}

func (in *inputs) reset() { in.used = 0 }

func (in *inputs) next() *inputBuffer {
	if in.used == len(in.all) {
		in.all = append(in.all, &inputBuffer{})
	}
	in.used++
	return in.all[in.used-1]
}

// sameInput reports whether two matrices multiply the same form of an input.
func (m *matrix) sameInput(o *matrix) bool {
	if m.cols != o.cols || m.colOrder != o.colOrder || len(m.signs) != len(o.signs) || !sameForm(m, o) {
		return false
	}
	for i, s := range m.signs {
		if s != o.signs[i] {
			return false
		}
	}
	return true
}

// ordered reports whether the file's columns are not in the network's order.
func (m *matrix) ordered() bool { return m.signs != nil || m.colOrder != nil }

// rounded reports whether the activations beside m are rounded.
func (m *matrix) rounded() bool { return m.blocks != nil && !m.exact }

func sameForm(m, o *matrix) bool {
	if m.bf16 != o.bf16 {
		return false
	}
	if !m.rounded() || !o.rounded() {
		return m.rounded() == o.rounded()
	}
	a, b := m.blocks, o.blocks
	return a.group == b.group && a.minima == b.minima && a.bias == b.bias
}

// of makes rows rows of x, stride apart, an input of m.
func (in *inputs) of(b *Backend, m *matrix, x []float32, stride, rows int) *input {
	t := in.next()
	t.rows, t.x, t.stride, t.panels = rows, x, stride, t.panels[:0]
	task := &b.ops.inputs
	*task = inputTask{b: b, m: m, from: x, fromStride: stride, to: t}
	if m.ordered() {
		t.values = grown(t.values, rows*m.cols)
		t.x, t.stride = t.values, m.cols
	}
	if m.rounded() {
		t.shape(b, m, rows)
	}
	if m.bf16 {
		t.halves = grown(t.halves, rows*m.cols*b.k.bf16.terms)
	}
	task.cut()
	b.pool.run(task, task.parts, task.grain)
	return &t.input
}

// shape makes room for rows that are rounded.
func (t *inputBuffer) shape(b *Backend, m *matrix, rows int) {
	t.rows, t.panels = rows, t.panels[:0]
	t.codes = grown(t.codes, rows*m.cols)
	t.scales = grown(t.scales, rows*m.cols/unit)
	t.sums = grown(t.sums, rows*m.cols/m.blocks.group)
	t.biases = grown(t.biases, rows*m.cols/m.blocks.group)
	t.cut(b.k.panels, m)
}

// cut makes the panels: as many rows at once as the level multiplies.
func (t *inputBuffer) cut(sizes []int, m *matrix) {
	units, groups := m.cols/unit, m.cols/m.blocks.group
	for first, i := 0, 0; first < t.rows; {
		n := sizes[i]
		if n > t.rows-first {
			i++
			continue
		}
		t.panels = append(t.panels, panel{
			first: first, rows: n, group: m.blocks.group, minima: m.blocks.minima, bias: m.blocks.bias,
			codes:  t.codes[first*m.cols : (first+n)*m.cols],
			scales: t.scales[first*units : (first+n)*units],
			sums:   t.sums[first*groups : (first+n)*groups],
			biases: t.biases[first*groups : (first+n)*groups],
		})
		first += n
	}
}

// inputTask makes an input, panel after panel, group after group, or row after row where it has neither. Panels whose rows
// keep their order are made of strips of columns: a worker has made those that are of its share.
type inputTask struct {
	b          *Backend
	m          *matrix
	from       []float32
	fromStride int
	to         *inputBuffer

	parts, grain int
	strip        int // columns of a panel's part
}

// cut makes the parts.
func (t *inputTask) cut() {
	rows := 1 // of a part
	t.strip, t.parts = t.m.cols, 0
	switch {
	case t.m.rounded():
		rows, t.parts = t.to.panels[0].rows, len(t.to.panels)
		if !t.m.ordered() {
			t.strip = min(t.strip, stripColumns)
			t.parts *= (t.m.cols + t.strip - 1) / t.strip
		}
	case t.m.bf16:
		rows, t.parts = min(tileRows, t.to.rows), groupsOf(t.to.rows)
	case t.m.ordered():
		t.parts = t.to.rows
	}
	t.grain = max(1, worthSharing/(t.strip*rows))
}

func (t *inputTask) run(w, first, last int) {
	for i := first; i < last; i++ {
		switch {
		case t.m.rounded():
			t.round(t.b.workers[w], i%len(t.to.panels), i/len(t.to.panels)*t.strip)
		case t.m.bf16:
			row := i * tileRows
			n := min(tileRows, t.to.rows-row)
			t.order(t.b.workers[w], row, n)
			k, cols := t.b.k.bf16, t.m.cols
			k.split(t.to.halves[k.terms*cols*row:], t.to.x[row*t.to.stride:], t.to.stride, n, cols)
		default:
			t.order(t.b.workers[w], i, 1)
		}
	}
}

// round makes a panel's strip of columns from col on.
func (t *inputTask) round(w *worker, i, col int) {
	p := &t.to.panels[i]
	t.order(w, p.first, p.rows)
	w.panel = p.strip(col, min(t.strip, t.m.cols-col))
	t.b.k.quantize(&w.panel, t.to.x[p.first*t.to.stride+col:], t.to.stride)
}

// order writes n rows from row first on as the file's columns have them.
func (t *inputTask) order(w *worker, first, n int) {
	if !t.m.ordered() {
		return
	}
	for i := first; i < first+n; i++ {
		t.orderRow(w, i)
	}
}

func (t *inputTask) orderRow(w *worker, i int) {
	m := t.m
	x := t.from[i*t.fromStride:][:m.cols]
	to := t.to.values[i*m.cols : (i+1)*m.cols]
	if m.signs == nil {
		permute(to, x, m.colOrder)
		return
	}
	if m.colOrder == nil {
		rotateInput(to, x, m.signs)
		return
	}
	rotated := w.rowOf(m.cols)
	rotateInput(rotated, x, m.signs)
	permute(to, rotated, m.colOrder)
}

// rotateInput writes H (D x).
func rotateInput(dst, x, signs []float32) {
	for j, s := range signs {
		dst[j] = x[j] * s
	}
	hadamard(dst)
}

// permute writes x, in the network's order, in the file's.
func permute(dst, x []float32, o *planner.HeadOrder) {
	if o.Size > 1 {
		copy(dst, x[:o.From])
		for at := o.From; at < len(x); at += o.Size {
			copy(dst[o.Source(at):], x[at:at+o.Size])
		}
		return
	}
	for j, v := range x {
		dst[o.Source(j)] = v
	}
}

// target is the element of the network that element i of the file is: the inverse of HeadOrder.Source.
func target(o *planner.HeadOrder, i int) int {
	if o == nil || i < o.From {
		return i
	}
	h, t := (i-o.From)/o.Size, (i-o.From)%o.Size
	return o.From + (h%o.KeyHeads*o.PerKey+h/o.KeyHeads)*o.Size + t
}
