//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/dequant"
	"splash/oracle"
)

// TestNorm: a norm of K values is a sum of K squares, a root, a quotient and two products: (K/2 + 6) u of the value.
func TestNorm(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(11, 1))
	var r ratio
	for _, width := range []int{1, 32, 255, 256, 1000} {
		const rows, eps = 3, 1e-6
		x, w := normals(rng, rows*width), normals(rng, width)
		buf := filled(b, x)
		add(&b.commands, b.kernel("rmsnorm"), rowGrid(rows), normParams{width: cUint(width), epsilon: eps},
			buf.from(0), filled(b, w).from(0), buf.from(0))
		b.run()
		want := make([]float64, width)
		for row := range rows {
			oracle.RMSNorm(want, wide(x[row*width:(row+1)*width]), wide(w), float64(float32(eps)))
			for i, v := range want {
				r.check(view[float32](buf)[row*width+i], v, (float64(width)/2+6)*u*math.Abs(v), "width %d, row %d, element %d", width, row, i)
			}
		}
	}
	r.report(t, "rmsnorm")
}

func TestGatedNorm(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(11, 2))
	var r ratio
	for _, sigmoid := range []bool{false, true} {
		const rows, heads, dim, eps = 3, 4, 128, 1e-6
		x, z, w := normals(rng, rows*heads*dim), normals(rng, rows*heads*dim), normals(rng, dim)
		for i := range z {
			z[i] *= 4
		}
		z[0], z[1] = 100, -100
		buf := filled(b, x)
		p := gatedNormParams{heads: heads, dim: dim, epsilon: eps}
		gate := oracle.SiLU
		if sigmoid {
			p.sigmoid, gate = 1, oracle.Sigmoid
		}
		add(&b.commands, b.kernel("gated_norm"), headGrid(heads, rows), p, buf.from(0), filled(b, z).from(0),
			filled(b, w).from(0), buf.from(0))
		b.run()
		want := make([]float64, dim)
		for at := 0; at < len(x); at += dim {
			oracle.GatedNorm(want, wide(x[at:at+dim]), wide(z[at:at+dim]), wide(w), float64(float32(eps)), gate)
			for i, v := range want {
				r.check(view[float32](buf)[at+i], v, (dim/2+24)*u*math.Abs(v)+0x1p-126, "sigmoid %v, element %d", sigmoid, at+i)
			}
		}
	}
	r.report(t, "gated_norm")
}

func TestCopyRows(t *testing.T) {
	b := newBench(t)
	const width = 300
	x := normals(rand.New(rand.NewPCG(11, 3)), 5*width)
	list := []uint32{4, 0, 0, 3}
	dst := empty[float32](b, len(list)*width)
	add(&b.commands, b.kernel("copy_rows"), copyGrid(len(list), width), copyParams{width: width}, filled(b, x).from(0),
		filled(b, list).from(0), dst.from(0))
	b.run()
	for i, n := range list {
		if !slices.Equal(view[float32](dst)[i*width:(i+1)*width], x[n*width:(n+1)*width]) {
			t.Errorf("row %d is not row %d", i, n)
		}
	}
}

// An attentionCase is one shape of attention.
type attentionCase struct {
	heads, kvHeads, dim, pairs int
	gated, norms, sinks        bool
	window                     int
	wide, codes                bool  // keys and values are F32, or codes of 8 bits
	position                   int32 // of the first row
	block, budget              int   // of sparse attention; 0: dense
}

// TestAttention prepares the rows of two lanes whose pages are mixed, attends, and holds keys, values and results to the
// oracle.
func TestAttention(t *testing.T) {
	b := newBench(t)
	for _, c := range []attentionCase{
		{heads: 2, kvHeads: 1, dim: 256, pairs: 32, gated: true, norms: true},
		{heads: 4, kvHeads: 2, dim: 128, pairs: 32, norms: true, sinks: true, window: 16},
		{heads: 4, kvHeads: 4, dim: 64, sinks: true},
		{heads: 4, kvHeads: 2, dim: 64, pairs: 16, norms: true, gated: true, window: 40, wide: true},
		{heads: 2, kvHeads: 2, dim: 128, pairs: 64, position: 262000},
		{heads: 4, kvHeads: 1, dim: 256, pairs: 32, gated: true, norms: true, block: 4, budget: 3},
		{heads: 2, kvHeads: 1, dim: 64, sinks: true, wide: true, block: 8, budget: 1},
		{heads: 2, kvHeads: 1, dim: 256, pairs: 32, gated: true, norms: true, codes: true},
		{heads: 4, kvHeads: 2, dim: 64, pairs: 32, sinks: true, window: 40, codes: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { testAttention(b, c) })
	}
}

func testAttention(b *bench, c attentionCase) {
	rng := rand.New(rand.NewPCG(13, uint64(c.heads*c.dim)))
	const tokens, lanes, tablePages, eps = 70, 2, 3, 1e-6
	stride := c.dim
	if c.gated {
		stride *= 2
	}
	q, k, v := normals(rng, tokens*c.heads*stride), normals(rng, tokens*c.kvHeads*c.dim), normals(rng, tokens*c.kvHeads*c.dim)
	qNorm, kNorm, sinks := normals(rng, c.dim), normals(rng, c.dim), normals(rng, c.heads)
	freq := oracle.RopeFrequencies(1e7, max(2, 2*c.pairs))
	rows := make([]rowInfo, tokens)
	positions := make([]oracle.Position, tokens)
	var count [lanes]int
	for i := range rows {
		lane := 0
		if i%7 == 3 {
			lane = 1
		}
		p := c.position + int32(count[lane])
		positions[i] = oracle.Position{T: p, H: p + 3, W: 2 * p}
		rows[i] = rowInfo{lane: cUint(lane), index: cUint(count[lane]), t: cInt(p), h: cInt(p + 3), w: cInt(2 * p)}
		count[lane]++
	}
	table := []uint32{5, 0, 3, 1, 4, 2}
	size, suffix, roundoff, step := 2*c.dim, "", 0x1p-8, 0.0
	switch {
	case c.wide:
		size, suffix, roundoff = 4*c.dim, "_f32", 0
	case c.codes:
		size, suffix, step = c.dim+scaleBytes, "_int8", 0.51/127
		v[0], v[1] = -1e-30, 0
		clear(v[5*c.kvHeads*c.dim:][:c.dim]) // a head of zeros
	}
	pages := len(table) * c.kvHeads * pageTokens * size
	qb, keys, values := filled(b, q), empty[byte](b, pages), empty[byte](b, pages)
	blocks, seen := chosenBlocks(rng, rows, c)
	rb, tb, sb, dst := filled(b, rows), filled(b, table), filled(b, sinks), empty[float32](b, tokens*c.heads*c.dim)
	flag := map[bool]cUint{true: 1}
	add(&b.commands, b.kernel("attention_prepare"+suffix), prepareGrid(c.heads+2*c.kvHeads, tokens, c.dim), prepareParams{
		heads: cUint(c.heads), kvHeads: cUint(c.kvHeads), dim: cUint(c.dim), pairs: cUint(c.pairs), gated: flag[c.gated],
		qNorm: flag[c.norms], kNorm: flag[c.norms], tablePages: tablePages, epsilon: eps,
	}, qb.from(0), filled(b, k).from(0), filled(b, v).from(0), filled(b, qNorm).from(0), filled(b, kNorm).from(0),
		filled(b, freq).from(0), rb.from(0), tb.from(0), keys.from(0), values.from(0))
	add(&b.commands, b.kernel("attention"+suffix), attentionGrid(c.heads, tokens, c.dim), attentionParams{
		heads: cUint(c.heads), kvHeads: cUint(c.kvHeads), dim: cUint(c.dim), gated: flag[c.gated], sinks: flag[c.sinks],
		window: cUint(c.window), tablePages: tablePages, scale: 1 / cFloat(math.Sqrt(float64(c.dim))), block: cUint(c.block), budget: cUint(c.budget),
	}, qb.from(0), rb.from(0), tb.from(0), keys.from(0), values.from(0), sb.from(0), filled(b, blocks).from(0), dst.from(0))
	b.run()

	var prepared, attended ratio
	caches := [lanes]oracle.Cache{{KVHeads: c.kvHeads, Dim: c.dim}, {KVHeads: c.kvHeads, Dim: c.dim}}
	for i := range rows {
		lane, index := int(rows[i].lane), int(rows[i].index)
		stored := func(cache *Buffer, head int) []float64 {
			page := int(table[lane*tablePages+index/pageTokens])
			token := head*pageTokens + index%pageTokens
			at := (page*c.kvHeads*pageTokens + token) * c.dim
			if c.codes {
				return decodeCodes(cache.bytes[page*c.kvHeads*pageTokens*size:], token, c)
			}
			if c.wide {
				return wide(view[float32](cache)[at : at+c.dim])
			}
			out := make([]float64, c.dim)
			for j, x := range view[uint16](cache)[at : at+c.dim] {
				out[j] = float64(dequant.FromBF16(x))
			}
			return out
		}
		var cacheKeys, cacheValues []float64
		for head := range c.kvHeads {
			from := (i*c.kvHeads + head) * c.dim
			gotK, gotV := stored(keys, head), stored(values, head)
			checkPrepared(&prepared, narrow(gotK), k[from:from+c.dim], kNorm, c, positions[i], freq, roundoff, step, fmt.Sprint("key of row ", i))
			wantV := storedValues(v[from:from+c.dim], c)
			for j, x := range gotV {
				prepared.check(float32(x), float64(wantV[j]), 1e-30, "value of row %d", i)
			}
			cacheKeys, cacheValues = append(cacheKeys, gotK...), append(cacheValues, gotV...)
		}
		caches[lane].Append(cacheKeys, cacheValues)
		// The attention is held to the oracle on the queries, keys and values that the kernel read.
		query, gate := make([]float64, c.heads*c.dim), make([]float64, c.heads*c.dim)
		for head := range c.heads {
			from := (i*c.heads + head) * stride
			got := view[float32](qb)[from : from+c.dim]
			checkPrepared(&prepared, got, q[from:from+c.dim], qNorm, c, positions[i], freq, 0, 0, fmt.Sprint("query of row ", i))
			copy(query[head*c.dim:], wide(got))
			if c.gated {
				copy(gate[head*c.dim:], wide(q[from+c.dim:from+2*c.dim]))
			}
		}
		checkAttention(&attended, view[float32](dst)[i*c.heads*c.dim:(i+1)*c.heads*c.dim], query, gate, &caches[lane], index, sinks,
			oracle.Mask{Window: c.window, Seen: seen[i]}, c)
	}
	prepared.report(b.t, "attention_prepare")
	attended.report(b.t, "attention")
}

// decodeCodes is a token of a page of codes, whose scales are behind them.
func decodeCodes(page []byte, token int, c attentionCase) []float64 {
	scale := math.Float32frombits(binary.LittleEndian.Uint32(page[c.kvHeads*pageTokens*c.dim+scaleBytes*token:]))
	out := make([]float64, c.dim)
	for i := range out {
		out[i] = float64(int8(page[token*c.dim+i])) * float64(scale)
	}
	return out
}

// storedValues are a head's values as they are kept: BF16, or codes of that, whose rounding is the specification's, to the bit
// (models.md 11.3).
func storedValues(v []float32, c attentionCase) []float32 {
	out := slices.Clone(v)
	if c.wide {
		return out
	}
	var most float32
	for i, x := range v {
		out[i] = asBF16(x)
		most = max(most, float32(math.Abs(float64(out[i]))))
	}
	if c.codes {
		scale := most / 127
		for i, x := range out {
			code := float32(0)
			if most > 0 {
				code = float32(math.RoundToEven(float64(float32(x*127) / most)))
			}
			out[i] = float32(float64(code) * float64(scale))
		}
	}
	return out
}

// checkPrepared holds a head to its norm and rotation. An angle's sine and cosine are within 4 u, a norm within (dim/2 + 6)
// u; stored is the roundoff of what it is stored in, step half of the distance of two codes by the largest.
func checkPrepared(r *ratio, got, x, norm []float32, c attentionCase, p oracle.Position, freq []float32,
	stored, step float64, what string) {
	want := wide(x)
	bound := 8.0
	if c.norms {
		oracle.RMSNorm(want, want, wide(norm), float64(float32(1e-6)))
		bound += float64(c.dim)/2 + 6
	}
	magnitude := make([]float64, len(want))
	for i, v := range want {
		magnitude[i] = math.Abs(v)
	}
	for i := range c.pairs {
		m := magnitude[i] + magnitude[i+c.pairs]
		magnitude[i], magnitude[i+c.pairs] = m, m
	}
	if c.pairs > 0 {
		oracle.Rope(want, p, freq)
	}
	most := 0.0
	for _, v := range want {
		most = math.Max(most, math.Abs(v))
	}
	for i, v := range want {
		r.check(got[i], v, bound*u*magnitude[i]+stored*math.Abs(v)+step*most+1e-30, "%s, element %d", what, i)
	}
}

// chosenBlocks are blocks for the rows that have more complete ones than they may see, and what each row then sees.
func chosenBlocks(rng *rand.Rand, rows []rowInfo, c attentionCase) (blocks []uint32, seen [][]bool) {
	seen = make([][]bool, len(rows))
	if c.block == 0 {
		return nil, seen
	}
	blocks = make([]uint32, len(rows)*c.budget)
	for i, row := range rows {
		complete := (int(row.index) + 1) / c.block
		seen[i] = make([]bool, row.index+1)
		for j := range seen[i] {
			seen[i][j] = complete <= c.budget || j >= complete*c.block
		}
		if complete <= c.budget {
			continue
		}
		chosen := rng.Perm(complete)[:c.budget]
		slices.Sort(chosen)
		for j, n := range chosen {
			blocks[i*c.budget+j] = uint32(n)
			for k := range c.block {
				seen[i][n*c.block+k] = true
			}
		}
	}
	return blocks, seen
}

// checkAttention holds a row to the oracle. With weights p and values v, a result o = sum p v strays by sum p d |v - o|, where d
// is how far a score and its exponential do: a sum of dim products in dim/32 steps and five levels of lanes, the difference from
// the largest score, and a few units. The sum itself takes two roundings for every token of the four SIMD-groups.
func checkAttention(r *ratio, got []float32, query, gate []float64, cache *oracle.Cache, index int, sinks []float32, mask oracle.Mask,
	c attentionCase) {
	want := make([]float64, len(query))
	var s []float64
	if c.sinks {
		s = wide(sinks)
	}
	oracle.Attention(want, query, cache, index, s, mask)
	first := 0
	if mask.Window > 0 {
		first = max(0, index+1-mask.Window)
	}
	for head := range c.heads {
		at := head / (c.heads / c.kvHeads) * c.dim
		q := query[head*c.dim : (head+1)*c.dim]
		scores, sizes, top := make([]float64, index+1), make([]float64, index+1), math.Inf(-1)
		if c.sinks {
			top = s[head]
		}
		for i := first; i <= index; i++ {
			key := cache.Keys[i*c.kvHeads*c.dim+at:][:c.dim]
			for d := range q {
				scores[i] += q[d] * key[d] / math.Sqrt(float64(c.dim))
				sizes[i] += math.Abs(q[d]*key[d]) / math.Sqrt(float64(c.dim))
			}
			if mask.Seen == nil || mask.Seen[i] {
				top = max(top, scores[i])
			}
		}
		total := 0.0
		if c.sinks {
			total = math.Exp(s[head] - top)
		}
		for i := first; i <= index; i++ {
			if mask.Seen == nil || mask.Seen[i] {
				total += math.Exp(scores[i] - top)
			}
		}
		bounds := make([]float64, c.dim)
		for i := first; i <= index; i++ {
			if mask.Seen != nil && !mask.Seen[i] {
				continue
			}
			p := math.Exp(scores[i]-top) / total
			stray := (float64(c.dim)/32+8)*u*sizes[i] + u*(top-scores[i]) + 6*u
			for d, v := range cache.Values[i*c.kvHeads*c.dim+at:][:c.dim] {
				bounds[d] += p * (stray*math.Abs(v-want[head*c.dim+d]) + float64(2*((index+4-first)/4)+16)*u*math.Abs(v))
			}
		}
		for d, o := range want[head*c.dim : (head+1)*c.dim] {
			bound := bounds[d]
			if c.gated {
				g := oracle.Sigmoid(gate[head*c.dim+d])
				o *= g
				bound = bound*g + 8*u*math.Abs(o)
			}
			r.check(got[head*c.dim+d], o, bound+1e-30, "index %d, head %d, element %d", index, head, d)
		}
	}
}

func narrow(x []float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y
}

// TestConv runs two lanes' rows in passes of many sizes and holds every row to the oracle: the sum of few products, and SiLU.
func TestConv(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(17, 1))
	const channels, taps, lanes = 300, 4, 2
	w := normals(rng, channels*taps)
	weights, kept := filled(b, w), empty[float32](b, lanes*convKept*channels)
	histories := make([][]float64, lanes)
	for i := range histories {
		histories[i] = make([]float64, (taps-1)*channels)
	}
	var index [lanes]int
	var r ratio
	for pass, sizes := range [][lanes]int{{1, 2}, {1, 1}, {3, 20}, {40, 1}, {1, 5}} {
		rows := sizes[0] + sizes[1]
		x := normals(rng, rows*channels)
		buf := filled(b, x)
		segments := []segmentInfo{
			{lane: 1, first: 0, rows: cUint(sizes[1]), index: cUint(index[1])},
			{lane: 0, first: cUint(sizes[1]), rows: cUint(sizes[0]), index: cUint(index[0])},
		}
		add(&b.commands, b.kernel("conv"), convGrid(channels, lanes), convParams{channels: channels, taps: taps}, buf.from(0),
			weights.from(0), filled(b, segments).from(0), kept.from(0), buf.from(0))
		b.run()
		for _, s := range segments {
			index[s.lane] += int(s.rows)
			for i := range int(s.rows) {
				at := (int(s.first) + i) * channels
				in, want := wide(x[at:at+channels]), make([]float64, channels)
				past := slices.Clone(histories[s.lane])
				oracle.Conv(want, histories[s.lane], in, wide(w))
				for c, v := range want {
					sum := math.Abs(in[c] * float64(w[c*taps+taps-1]))
					for j := range taps - 1 {
						sum += math.Abs(past[j*channels+c] * float64(w[c*taps+j]))
					}
					bound := 1.1*(taps+2)*u*sum + 16*u*math.Abs(v)
					r.check(view[float32](buf)[at+c], v, bound, "pass %d, lane %d, row %d, channel %d", pass, s.lane, i, c)
				}
			}
		}
	}
	r.report(t, "conv")
}
