package cpu

import (
	"math"

	"splash/internal/model"
	"splash/planner"
)

// minRouteSum bounds the sum of the chosen scores from below before it divides (oracle.Router).
const minRouteSum = 0x1p-14

// Route chooses each row's experts.
func (b *Backend) Route(routes, logits model.Buffer, m *planner.MoELayout) {
	b.ops.routes = routeTask{b, m, routes, logits}
	b.pool.run(&b.ops.routes, b.rowsOf(routes), normGrain)
}

type routeTask struct {
	b              *Backend
	m              *planner.MoELayout
	routes, logits model.Buffer
}

func (t *routeTask) run(_, first, last int) {
	for i := first; i < last; i++ {
		out := t.b.row(t.routes, i)
		ids, weights := out[:t.m.Taken], out[t.m.Taken:]
		logits := t.b.row(t.logits, i)
		best(ids, logits)
		routeWeights(weights, ids, logits, t.m)
		if !t.b.rows[i].routed {
			for j := range ids {
				ids[j] = -1
			}
		}
	}
}

// best writes the places of the len(ids) largest logits, the largest first, ties to the lower place, NaN last.
func best(ids, logits []float32) {
	n := 0
	before := func(a, c float32) bool { return a > c || c != c && a == a }
	for e, v := range logits {
		if n == len(ids) && !before(v, logits[int(ids[n-1])]) {
			continue
		}
		at := min(n, len(ids)-1)
		for at > 0 && before(v, logits[int(ids[at-1])]) {
			at--
		}
		if n < len(ids) {
			n++
		}
		copy(ids[at+1:n], ids[at:n-1])
		ids[at] = float32(e)
	}
}

// routeWeights writes the weights of the chosen experts (oracle.Router.Route).
func routeWeights(weights, ids, logits []float32, m *planner.MoELayout) {
	var sum float64
	most := float64(logits[int(ids[0])])
	score := func(v float32) float64 {
		if m.Sigmoid {
			return sigmoid(float64(v))
		}
		return math.Exp(float64(v) - most)
	}
	for j, id := range ids {
		w := score(logits[int(id)])
		weights[j] = float32(w)
		sum += w
	}
	scale := 1.0
	switch {
	case m.Sigmoid && m.Normalize:
		scale = 1 / math.Max(sum, minRouteSum)
	case !m.Sigmoid && m.Normalize:
		scale = 1 / sum
	case !m.Sigmoid:
		sum = 0
		for _, v := range logits {
			sum += score(v)
		}
		scale = 1 / sum
	}
	if m.Scale != 0 {
		scale *= m.Scale
	}
	for j := range weights {
		weights[j] = float32(float64(weights[j]) * scale)
	}
}

// mixture is what a layer of experts works with: the rows of each expert side by side, an expert after another.
type mixture struct {
	slots  []int32 // [rows][taken]: the place of a row's choice among those
	counts []int   // of each expert
	starts []int
	x      []float32 // [places][hidden]
	wide   []float32 // [places][width]
	out    []float32 // [places][hidden]
}

// Experts sums the outputs of each row's experts. Rows of one expert are multiplied together, and added up in the order
// of each row's routes.
func (b *Backend) Experts(dst, x, routes model.Buffer, gate, up, down model.Experts, e model.Epilogue) {
	places := b.placeRows(x, routes, len(b.experts[gate]))
	m := &b.moe
	gates, ups, downs := b.experts[gate], b.experts[up], b.experts[down]
	hidden, width := gates[0].cols, gates[0].rows
	m.wide, m.out = grown(m.wide, places*width), grown(m.out, places*downs[0].rows)
	b.expertProducts(gates, ups, m.wide, width, m.x, hidden)
	b.expertProducts(downs, nil, m.out, downs[0].rows, m.wide, width)
	b.ops.combine = combineTask{b, dst, routes, downs[0].rows, e}
	b.pool.run(&b.ops.combine, b.rowsOf(dst), normGrain)
}

// placeRows orders the choices of all rows by expert and copies their inputs there. It returns how many there are.
func (b *Backend) placeRows(x, routes model.Buffer, experts int) int {
	m, taken := &b.moe, b.buffers[routes].width/2
	rows, width := len(b.rows), b.buffers[x].width
	if cap(m.counts) < experts {
		m.counts, m.starts = make([]int, experts), make([]int, experts)
	}
	m.counts, m.starts = m.counts[:experts], m.starts[:experts]
	clear(m.counts)
	for i := range rows {
		for _, id := range b.row(routes, i)[:taken] {
			if id >= 0 {
				m.counts[int(id)]++
			}
		}
	}
	places := 0
	for e, n := range m.counts {
		m.starts[e] = places
		places += n
	}
	m.slots, m.x = grown(m.slots, rows*taken), grown(m.x, places*width)
	for i := range rows {
		for j, id := range b.row(routes, i)[:taken] {
			if id < 0 {
				continue
			}
			at := m.starts[int(id)]
			m.starts[int(id)]++
			m.slots[i*taken+j] = int32(at)
			copy(m.x[at*width:(at+1)*width], b.row(x, i))
		}
	}
	for e, n := range m.counts {
		m.starts[e] -= n
	}
	return places
}

// expertProducts multiplies the rows of every expert that has some.
func (b *Backend) expertProducts(all, ups []*matrix, dst []float32, width int, x []float32, stride int) {
	t := &b.ops.products
	t.all = t.all[:0]
	b.inputs.reset()
	for e, n := range b.moe.counts {
		if n == 0 {
			continue
		}
		p := product{m: all[e], dst: dst[b.moe.starts[e]*width:], width: width}
		from := x[b.moe.starts[e]*stride:]
		p.in = b.inputs.of(b, p.m, from, stride, n)
		if ups != nil {
			p.up, p.upIn = ups[e], p.in
			if !p.m.sameInput(p.up) {
				p.upIn = b.inputs.of(b, p.up, from, stride, n)
			}
		}
		t.all = append(t.all, p)
	}
	if len(t.all) > 0 {
		b.runProducts(false)
	}
}

// combineTask adds up the experts of each row.
type combineTask struct {
	b           *Backend
	dst, routes model.Buffer
	hidden      int
	e           model.Epilogue
}

func (t *combineTask) run(_, first, last int) {
	b := t.b
	taken := b.buffers[t.routes].width / 2
	for i := first; i < last; i++ {
		out, r := b.row(t.dst, i), b.row(t.routes, i)
		if t.e == model.Store {
			clear(out)
		}
		for j, id := range r[:taken] {
			if id >= 0 {
				at := int(b.moe.slots[i*taken+j]) * t.hidden
				b.k.addScaled(out, b.moe.out[at:at+t.hidden], r[taken+j])
			}
		}
	}
}

// AddGated adds the shared expert's output.
func (b *Backend) AddGated(dst, y, x model.Buffer, gate model.Vector) {
	b.ops.addGated = addGatedTask{b, dst, y, x, gate}
	b.pool.run(&b.ops.addGated, b.rowsOf(dst), normGrain)
}

type addGatedTask struct {
	b         *Backend
	dst, y, x model.Buffer
	gate      model.Vector
}

func (t *addGatedTask) run(w, first, last int) {
	b := t.b
	for i := first; i < last; i++ {
		if !b.rows[i].routed {
			continue
		}
		scale := float32(1)
		if t.gate != model.None {
			scale = float32(sigmoid(float64(b.dotOne(b.workers[w], b.vectors[t.gate], b.row(t.x, i)))))
		}
		b.k.addScaled(b.row(t.dst, i), b.row(t.y, i), scale)
	}
}

// dotOne is the product of two vectors.
func (b *Backend) dotOne(w *worker, v, x []float32) float32 {
	w.floats = floatRows{values: v, rows: 1, cols: len(v), lanes: b.k.lanes}
	acc := w.accumulators(0, b.k.lanes)
	b.k.dot(acc, &w.floats, x, len(x), 1)
	return acc[0]
}
