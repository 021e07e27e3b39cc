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
	if m.signs != nil || m.colOrder != nil {
		t.values = grown(t.values, rows*m.cols)
		t.x, t.stride = t.values, m.cols
	}
	if m.rounded() {
		t.codes = grown(t.codes, rows*m.cols)
		t.scales = grown(t.scales, rows*m.cols/unit)
		t.sums = grown(t.sums, rows*m.cols/m.blocks.group)
		t.biases = grown(t.biases, rows*m.cols/m.blocks.group)
		t.cut(b.k.panels, m)
	}
	if m.bf16 {
		t.halves = grown(t.halves, rows*m.cols*b.k.bf16.terms)
	}
	_, each := task.place(0)
	grain := max(1, 1<<15/(m.cols*each))
	b.pool.run(task, task.parts(), grain)
	return &t.input
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

// inputTask makes an input, panel after panel, group after group, or row after row where it has neither.
type inputTask struct {
	b          *Backend
	m          *matrix
	from       []float32
	fromStride int
	to         *inputBuffer
}

func (t *inputTask) parts() int {
	switch {
	case t.m.rounded():
		return len(t.to.panels)
	case t.m.bf16:
		return groupsOf(t.to.rows)
	case t.m.signs != nil || t.m.colOrder != nil:
		return t.to.rows
	}
	return 0
}

// place is where part i begins, and its number of rows.
func (t *inputTask) place(i int) (row, rows int) {
	switch {
	case t.m.rounded():
		return t.to.panels[i].first, t.to.panels[i].rows
	case t.m.bf16:
		return i * tileRows, min(tileRows, t.to.rows-i*tileRows)
	}
	return i, 1
}

func (t *inputTask) run(w, first, last int) {
	for i := first; i < last; i++ {
		row, n := t.place(i)
		if t.m.signs != nil || t.m.colOrder != nil {
			for r := range n {
				t.order(t.b.workers[w], row+r)
			}
		}
		x := t.to.x[row*t.to.stride:]
		switch {
		case t.m.rounded():
			t.b.k.quantize(&t.to.panels[i], x, t.to.stride)
		case t.m.bf16:
			k, cols := t.b.k.bf16, t.m.cols
			k.split(t.to.halves[k.terms*cols*row:], x, t.to.stride, n, cols)
		}
	}
}

// order writes row i as the file's columns have it.
func (t *inputTask) order(w *worker, i int) {
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
