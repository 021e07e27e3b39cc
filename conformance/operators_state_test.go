package conformance_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// TestConvolution runs lanes of one row to many through one pass and then another, in place.
func TestConvolution(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		const channels, taps, rows = 640, 4, 24
		p := newPair(t, b, rows, planner.Layout{})
		values, weights := p.normals(rows*channels), p.normals(channels*taps)
		in, w := p.input(values, channels), p.vector(weights)
		var state model.State
		p.each(func(b model.Backend) { state = b.ConvState(channels, taps) })
		p.pass([]int{1, 15, 3, 5}, func(b model.Backend) {
			in.set(b)
			b.Conv(in.buffer, in.buffer, w, state)
		})
		first := map[int]bool{0: true, 1: true, 16: true, 19: true}
		start := 0
		p.compare(in.buffer, "conv", func(row, c int) float64 {
			if first[row] {
				start = row
			}
			size := 0.0
			for j := range taps {
				if at := row - taps + 1 + j; at >= start {
					size += math.Abs(float64(weights[c*taps+j]) * float64(values[at*channels+c]))
				}
			}
			return (1.1*float64(taps+1)*size + 12*math.Abs(p.want(in.buffer, row)[c])) * float32Roundoff
		})
		p.report(b, "convolution")
	})
}

// TestDeltaRule steps states of several lanes, with as many value heads as key heads and with three to one.
func TestDeltaRule(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, heads := range [][2]int{{2, 2}, {2, 6}} {
			testDeltaRule(t, b, heads, 13, 7)
		}
	})
}

// testDeltaRule steps a state a segment.
func testDeltaRule(t *testing.T, b operatorBackend, heads [2]int, segments ...int) {
	const d = 128
	rows, starts := 0, make(map[int]bool)
	for _, n := range segments {
		starts[rows] = true
		rows += n
	}
	l := planner.GDNLayout{KeyHeads: heads[0], ValueHeads: heads[1], HeadDim: d, Kernel: 4}
	p := newPair(t, b, rows, planner.Layout{GDN: l})
	width := (2*l.KeyHeads + l.ValueHeads) * d
	qkv, beta, alpha := p.normals(rows*width), p.normals(rows*l.ValueHeads), p.normals(rows*l.ValueHeads)
	decays, biases := p.normals(l.ValueHeads), p.normals(l.ValueHeads)
	for i := range decays {
		decays[i] = -float32(math.Abs(float64(decays[i]))) / 8
	}
	x, y, z := p.input(qkv, width), p.input(beta, l.ValueHeads), p.input(alpha, l.ValueHeads)
	out := p.buffer(l.ValueHeads * d)
	g := &model.GDN{Layout: &l, Decay: p.vector(decays), Bias: p.vector(biases)}
	p.each(func(b model.Backend) { g.State = b.GDNState(l.ValueHeads, d, d) })
	p.pass(segments, func(b model.Backend) {
		x.set(b)
		y.set(b)
		z.set(b)
		b.GDN(out, x.buffer, y.buffer, z.buffer, g)
	})
	bounds := make([][]float64, rows)
	for h := range l.ValueHeads {
		var s *deltaBound
		for row := range rows {
			if starts[row] {
				s = newDeltaBound(d)
			}
			in := widened(qkv[row*width : (row+1)*width])
			key := h / (l.ValueHeads / l.KeyHeads) * d
			decay := oracle.GDNDecay(float64(alpha[row*l.ValueHeads+h]), float64(biases[h]), float64(decays[h]))
			bound := s.step(in[key:key+d], in[l.KeyHeads*d+key:][:d], in[2*l.KeyHeads*d+h*d:][:d],
				oracle.GDNBeta(float64(beta[row*l.ValueHeads+h])), decay)
			bounds[row] = append(bounds[row], bound...)
		}
	}
	p.compare(out, fmt.Sprint(heads), func(row, i int) float64 { return bounds[row][i] })
	p.report(b, "delta rule")
}

// A deltaBound follows a state of the delta rule in float64, beside a bound of the error of each of its elements.
type deltaBound struct{ state, off []float64 }

func newDeltaBound(d int) *deltaBound { return &deltaBound{make([]float64, d*d), make([]float64, d*d)} }

// step advances by a row and returns the bounds of its outputs. Keys and queries are normalized with a relative error of
// half the roundings of their sum of squares and a few more; sums of d products have d roundings.
func (s *deltaBound) step(q, k, v []float64, beta, decay float64) []float64 {
	d := len(v)
	n := float64(d+6) * float32Roundoff
	norm := float64(d/32+10) * float32Roundoff
	query, key := make([]float64, d), make([]float64, d)
	oracle.L2Norm(query, q, 1e-6)
	oracle.L2Norm(key, k, 1e-6)
	bounds, delta, deltaOff := make([]float64, d), make([]float64, d), make([]float64, d)
	for j := range d {
		var read, size, off float64
		for i := range d {
			at := i*d + j
			product := key[i] * decay * s.state[at]
			read += product
			size += math.Abs(product)
			off += math.Abs(key[i]) * decay * s.off[at]
		}
		delta[j] = beta * (v[j] - read)
		deltaOff[j] = beta * (off + (n+norm+3*float32Roundoff)*size + 4*float32Roundoff*(math.Abs(v[j])+size))
	}
	for j := range d {
		var size, off float64
		for i := range d {
			at, q := i*d+j, query[i]/math.Sqrt(float64(d))
			old, add := decay*s.state[at], key[i]*delta[j]
			s.off[at] = decay*s.off[at] + math.Abs(key[i])*deltaOff[j] + norm*math.Abs(add) +
				3*float32Roundoff*(math.Abs(old)+math.Abs(add))
			s.state[at] = old + add
			size += math.Abs(q * s.state[at])
			off += math.Abs(q) * s.off[at]
		}
		bounds[j] = 1.01*off + (n+norm+3*float32Roundoff)*size
	}
	return bounds
}

// TestAttention attends in one pass of several lanes: plain and gated, with norms, rotation, sinks and windows, over more
// than a page of tokens.
func TestAttention(t *testing.T) {
	for name, c := range map[string]struct {
		layout planner.AttentionLayout
		window int
		rotate bool
	}{
		"gated":  {planner.AttentionLayout{Heads: 4, KVHeads: 2, HeadDim: 256, RopeDim: 64, Gated: true, QKNorm: true}, 0, true},
		"plain":  {planner.AttentionLayout{Heads: 3, KVHeads: 1, HeadDim: 64, RopeDim: 64}, 0, false},
		"window": {planner.AttentionLayout{Heads: 4, KVHeads: 2, HeadDim: 128, RopeDim: 64, QKNorm: true, Sinks: true}, 16, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
				l := c.layout
				l.RopeBase = 1e7
				segments := []int{90, 1, 9}
				p := newPair(t, b, 100, planner.Layout{Attention: l})
				p.position = imagePosition
				a := &attentionCase{pair: p, b: &b, l: &l, window: c.window, rotate: c.rotate, segments: segments}
				a.run(t)
				p.report(b, "attention")
			})
		})
	}
}

// imagePosition is the place of a row as in an image, whose axes differ.
func imagePosition(index int) oracle.Position {
	i := int32(index)
	return oracle.Position{T: i, H: 3 + i/2, W: 2 * i}
}

type attentionCase struct {
	*pair
	b        *operatorBackend
	l        *planner.AttentionLayout
	window   int
	rotate   bool
	segments []int

	index  *model.Indexer        // nil: not sparse
	before func(b model.Backend) // of its inputs; may be nil

	indexQ, indexK []float32
	indexNorms     [2][]float32 // of queries and keys

	out                   model.Buffer
	prepared              map[int][]float64 // keys, by their first element
	queries, keys, values []float32
	qNorm, kNorm, sinks   []float32
}

func (a *attentionCase) run(t *testing.T) {
	l, rows := a.l, a.rows
	wide := l.Heads * l.HeadDim
	if l.Gated {
		wide *= 2
	}
	a.queries, a.keys, a.values = a.normals(rows*wide), a.normals(rows*l.KVHeads*l.HeadDim), a.normals(rows*l.KVHeads*l.HeadDim)
	q, k, v := a.input(a.queries, wide), a.input(a.keys, l.KVHeads*l.HeadDim), a.input(a.values, l.KVHeads*l.HeadDim)
	out := a.buffer(l.Heads * l.HeadDim)
	m := &model.Attention{Layout: l, QNorm: model.None, KNorm: model.None, Sinks: model.None, Window: a.window, Rotate: a.rotate, Index: a.index}
	if l.QKNorm {
		a.qNorm, a.kNorm = a.normals(l.HeadDim), a.normals(l.HeadDim)
		m.QNorm, m.KNorm = a.vector(a.qNorm), a.vector(a.kNorm)
	}
	if l.Sinks {
		a.sinks = a.normals(l.Heads)
		m.Sinks = a.vector(a.sinks)
	}
	a.each(func(b model.Backend) { m.KV = b.KVState(l.KVHeads, l.HeadDim) })
	a.pass(a.segments, func(b model.Backend) {
		if a.before != nil {
			a.before(b)
		}
		q.set(b)
		k.set(b)
		v.set(b)
		b.Attention(out, q.buffer, k.buffer, v.buffer, m)
	})
	a.out = out
	bounds := a.bounds()
	a.compare(out, t.Name(), func(row, i int) float64 { return bounds[row][i] })
}

// head is a head of x in float64, normalized and rotated.
func (a *attentionCase) head(x []float32, norm []float32, index int) []float64 {
	h := widened(x)
	if norm != nil {
		oracle.RMSNorm(h, h, widened(norm), 1e-6)
	}
	if a.rotate {
		oracle.Rope(h, imagePosition(index), oracle.RopeFrequencies(a.l.RopeBase, a.l.RopeDim))
	}
	return h
}

// key is the prepared key that begins at an element of the keys, of a row of that index.
func (a *attentionCase) key(at, index int) []float64 {
	if a.prepared == nil {
		a.prepared = make(map[int][]float64)
	}
	if a.prepared[at] == nil {
		a.prepared[at] = a.head(a.keys[at:at+a.l.HeadDim], a.kNorm, index)
	}
	return a.prepared[at]
}

// bounds are those of each element. A score is a sum of products of prepared queries and stored keys, so it strays by their
// roundings times the sum of magnitudes, and by the rounding of its difference from the largest. With weights w and values v, a
// result o = sum w v strays by sum w stray |v - o|, by the rounding of stored values and by the roundings of its sum; a gate by a
// few units more.
func (a *attentionCase) bounds() [][]float64 {
	l := a.l
	all := make([][]float64, a.rows)
	first := 0
	for _, n := range a.segments {
		for row := first; row < first+n; row++ {
			seen := a.seen(row, first)
			for h := range l.Heads {
				all[row] = append(all[row], a.headBounds(row, first, h, seen)...)
			}
			for i := range all[row] {
				if l.Gated {
					all[row][i] += 12 * float32Roundoff * math.Abs(a.result(row)[i])
				}
			}
		}
		first += n
	}
	return all
}

// headBounds are those of a head of a row, whose segment begins at first.
func (a *attentionCase) headBounds(row, first, h int, seen []bool) []float64 {
	l, d := a.l, a.l.HeadDim
	prepared := float64(d/32+20) * float32Roundoff
	at := (row*l.Heads + h) * d
	if l.Gated {
		at *= 2
	}
	query := a.head(a.queries[at:at+d], a.qNorm, row-first)
	from := first
	if a.window > 0 {
		from = max(first, row+1-a.window)
	}
	var weights, strays []float64
	var values [][]float32
	for i := from; i <= row; i++ {
		if seen != nil && !seen[i-first] {
			continue
		}
		key := (i*l.KVHeads + h/(l.Heads/l.KVHeads)) * d
		k := a.key(key, i-first)
		score, size, queries := 0.0, 0.0, 0.0
		for j := range d {
			queries += math.Abs(query[j]) / math.Sqrt(float64(d))
			score += query[j] * k[j] / math.Sqrt(float64(d))
			// A rotated element strays by the pair it is made of.
			size += math.Abs(query[j]) * (math.Abs(k[j]) + math.Abs(k[(j+l.RopeDim/2)%d])) / math.Sqrt(float64(d))
		}
		stray := size*(a.b.kv+2*prepared+float64(d/8+16)*float32Roundoff) + queries*a.b.codes*most(k)
		weights, strays = append(weights, score), append(strays, stray)
		values = append(values, a.values[key:key+d])
	}
	top := slices.Max(weights)
	for i := range weights {
		strays[i] += (math.Abs(top-weights[i]) + 8) * float32Roundoff
	}
	if a.sinks != nil {
		oracle.SoftmaxSink(weights, float64(a.sinks[h]))
	} else {
		oracle.Softmax(weights)
	}
	mean, bounds := make([]float64, d), make([]float64, d)
	for i, w := range weights {
		for j, v := range values[i] {
			mean[j] += w * float64(v)
		}
	}
	sum := a.b.kv + float64(len(weights)+40)*float32Roundoff
	for i, w := range weights {
		code := a.b.codes * most(widened(values[i]))
		for j, v := range values[i] {
			// Twice, as the weights stray by e^stray - 1.
			bounds[j] += w * (2*strays[i]*math.Abs(float64(v)-mean[j]) + sum*math.Abs(float64(v)) + code)
		}
	}
	return bounds
}

// most is the largest magnitude of x.
func most(x []float64) (m float64) {
	for _, v := range x {
		m = math.Max(m, math.Abs(v))
	}
	return m
}

// result is what the oracle gives for a row.
func (a *attentionCase) result(row int) []float64 { return a.want(a.out, row) }

// seen says which tokens a row of sparse attention sees, by the oracle; nil says all.
func (a *attentionCase) seen(row, first int) []bool {
	if a.index == nil {
		return nil
	}
	q, index := a.index.Layout, row-first
	freq := oracle.RopeFrequencies(a.l.RopeBase, a.l.RopeDim)
	query := widened(a.indexQ[row*q.Heads*q.HeadDim : (row+1)*q.Heads*q.HeadDim])
	oracle.IndexerQuery(query, widened(a.indexNorms[0]), imagePosition(index), freq, 1e-6)
	scores, key := []float64(nil), make([]float64, q.HeadDim)
	for block := range oracle.SparseBlocks(index, q.Block) {
		at := first + block*q.Block
		raw := widened(a.indexK[at*q.HeadDim : (at+q.Block)*q.HeadDim])
		oracle.IndexerKey(key, raw, widened(a.indexNorms[1]), imagePosition(block*q.Block), freq, 1e-6)
		scores = append(scores, oracle.IndexerScore(query, key))
	}
	seen := make([]bool, index+1)
	oracle.SparseSeen(seen, scores, index, q.Block, q.Budget)
	return seen
}

// commonExperts are formats of several kinds, in which rows share experts; in others few rows are enough.
var commonExperts = []dequant.Type{dequant.Q4_K, dequant.Q8_0, dequant.BF16, dequant.IQ3XXS}

// TestExperts routes rows, and sums their experts and a shared one.
func TestExperts(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, kind := range expertFormats(&b) {
			const hidden, width = 256, 256
			rows, count, taken := 9, 4, 3
			if !slices.Contains(commonExperts, kind) {
				rows, count, taken = 3, 2, 1
			}
			l := planner.MoELayout{Experts: count, Taken: taken, Width: width, Normalize: true}
			p := newPair(t, b, rows, planner.Layout{MoE: l})
			var sides [3][]dequant.Matrix
			for i := range sides {
				for range count {
					m := p.blocks(dequant.Lookup(kind), width, hidden)
					sides[i] = append(sides[i], m)
				}
			}
			x, logits, base := p.normals(rows*hidden), p.normals(rows*count), p.normals(rows*hidden)
			for i := range x {
				x[i] /= 256
			}
			in, scores, out := p.input(x, hidden), p.input(logits, count), p.input(base, hidden)
			shared, gate := p.input(p.normals(rows*hidden), hidden), p.vector(p.normals(hidden))
			routes := p.buffer(2 * l.Taken)
			var e [3]model.Experts
			for i := range e {
				e[i] = p.experts(sides[i])
			}
			p.pass([]int{rows / 2, rows - rows/2}, func(b model.Backend) {
				in.set(b)
				scores.set(b)
				out.set(b)
				shared.set(b)
				b.Route(routes, scores.buffer, &l)
				b.Experts(out.buffer, in.buffer, routes, e[0], e[1], e[2], model.Add)
				b.AddGated(out.buffer, shared.buffer, in.buffer, gate)
			})
			for row := range rows {
				want, got := p.want(routes, row), p.got.Read(routes, row)
				for j := range l.Taken {
					if float64(got[j]) != want[j] || !(math.Abs(float64(got[l.Taken+j])-want[l.Taken+j]) <= 8*float32Roundoff) {
						t.Fatalf("row %d takes %v, want %v", row, got, want)
					}
				}
			}
			bounds := expertBounds(&b, p, sides, routes, widened(x), hidden, l.Taken)
			p.compare(out.buffer, kind.String(), func(row, i int) float64 {
				sum := math.Abs(p.want(out.buffer, row)[i])
				return bounds[row][i] + 40*float32Roundoff*(sum+math.Abs(float64(base[row*hidden+i]))+60)
			})
			p.report(b, "experts")
		}
	})
}

// expertFormats are the formats that experts are tried in: of a backend with a kernel a format, all that planes have.
func expertFormats(b *operatorBackend) []dequant.Type {
	if !*full && (!b.planes || b.only != nil) {
		return commonExperts
	}
	var all []dequant.Type
	for _, f := range planner.ImageFormats() {
		if b.has(f.Type) {
			all = append(all, f.Type)
		}
	}
	return all
}

// expertBounds follow the experts of each row: the bounds of both halves of the gate, of what they make, and of the
// product of that.
func expertBounds(b *operatorBackend, p *pair, sides [3][]dequant.Matrix, routes model.Buffer, x []float64, hidden, taken int) [][]float64 {
	var all [3][]decoded
	for i, side := range sides {
		for _, m := range side {
			all[i] = append(all[i], decode(m))
		}
	}
	bounds := make([][]float64, p.rows)
	for row := range bounds {
		bounds[row] = make([]float64, hidden)
		in, route := x[row*hidden:(row+1)*hidden], p.want(routes, row)
		for j := range taken {
			e, weight := int(route[j]), route[taken+j]
			gate, up, down := &all[0][e], &all[1][e], &all[2][e]
			width := len(gate.values) / hidden
			wide, off := make([]float64, width), make([]float64, width)
			for i := range width {
				g, u := oracle.Dot(gate.values[i*hidden:(i+1)*hidden], in), oracle.Dot(up.values[i*hidden:(i+1)*hidden], in)
				bg, bu := b.productBound(gate, i, in), b.productBound(up, i, in)
				silu := oracle.SiLU(g)
				wide[i] = silu * u
				off[i] = 1.1*bg*(math.Abs(u)+bu) + math.Abs(silu)*bu + 32*float32Roundoff*(math.Abs(g)+bg)*(math.Abs(u)+bu)
			}
			for i := range hidden {
				var carried float64
				for c, o := range off {
					carried += math.Abs(down.values[i*width+c]) * o
				}
				bounds[row][i] += weight * (carried + 1.1*b.productBound(down, i, spread(wide, off)))
				bounds[row][i] += 8 * float32Roundoff * math.Abs(weight*oracle.Dot(down.values[i*width:(i+1)*width], wide))
			}
		}
	}
	return bounds
}

// spread is the largest that x can be with its errors.
func spread(x, off []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = math.Abs(v) + off[i]
	}
	return out
}
