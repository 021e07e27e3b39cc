//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/dequant"
	"splash/oracle"
)

func asBF16(x float32) float32 { return dequant.FromBF16(dequant.ToBF16(x)) }

// draftSegments are those of a pass of two lanes.
func draftSegments(first, second, index int) []segmentInfo {
	return []segmentInfo{
		{lane: 1, first: 0, rows: cUint(first), index: cUint(index)},
		{lane: 0, first: cUint(first), rows: cUint(second), index: 3},
	}
}

// TestDraftRows rounds a block's rows, and puts the mask's embedding in those after the first of each segment.
func TestDraftRows(t *testing.T) {
	b := newBench(t)
	const width, rows = 300, 9
	rng := rand.New(rand.NewPCG(23, 1))
	x, mask := normals(rng, rows*width), normals(rng, width)
	segments := draftSegments(8, 1, 0)
	for _, masked := range []cUint{0, 1} {
		buf := filled(b, x)
		add(&b.commands, b.kernel("draft_rows"), segmentGrid(width, len(segments)), draftRowsParams{width: width, mask: masked},
			buf.from(0), filled(b, mask).from(0), filled(b, segments).from(0))
		b.run()
		for i, got := range view[float32](buf) {
			want := asBF16(x[i])
			if row := i / width; masked != 0 && row != 0 && row != 8 {
				want = mask[i%width]
			}
			if got != want {
				t.Fatalf("mask %d, row %d, element %d: %v, want %v", masked, i/width, i%width, got, want)
			}
		}
	}
}

// TestDraftTaps puts rows of two taps beside each other.
func TestDraftTaps(t *testing.T) {
	b := newBench(t)
	const width = 260
	rng := rand.New(rand.NewPCG(23, 2))
	taps := [][]float32{normals(rng, 6*width), normals(rng, 6*width)}
	list := []uint32{4, 5, 0}
	dst := empty[float32](b, len(list)*2*width)
	for i, x := range taps {
		add(&b.commands, b.kernel("draft_taps"), copyGrid(len(list), width),
			draftTapsParams{width: width, stride: 2 * width, offset: cUint(i * width)}, filled(b, x).from(0), filled(b, list).from(0),
			dst.from(0))
	}
	b.run()
	for i, got := range view[float32](dst) {
		row, tap, c := i/(2*width), i/width%2, i%width
		if want := asBF16(taps[tap][int(list[row])*width+c]); got != want {
			t.Fatalf("row %d, tap %d, element %d: %v, want %v", row, tap, c, got, want)
		}
	}
}

// TestDraftConv holds both sides of the convolution to the oracle: two products of a sum, and what is added to.
func TestDraftConv(t *testing.T) {
	b := newBench(t)
	const hidden, group, rows = 272, 16, 11
	rng := rand.New(rand.NewPCG(23, 3))
	var r ratio
	for side := range 2 {
		for _, sum := range []cUint{0, 1} {
			x, dynamic, base := normals(rng, rows*hidden), normals(rng, rows*4*hidden/group), normals(rng, 4*hidden)
			before := normals(rng, rows*hidden)
			segments := draftSegments(8, 3, 7)
			dst := filled(b, before)
			in := filled(b, x)
			if sum == 0 {
				dst = in // in place
			}
			add(&b.commands, b.kernel("draft_conv"), segmentGrid(hidden, len(segments)),
				draftConvParams{hidden: hidden, group: group, side: cUint(side), add: sum}, in.from(0),
				filled(b, dynamic).from(0), filled(b, base).from(0), filled(b, segments).from(0), dst.from(0))
			b.run()
			for _, s := range segments {
				first, n := int(s.first), int(s.rows)
				part, d := x[first*hidden:(first+n)*hidden], dynamic[first*4*hidden/group:(first+n)*4*hidden/group]
				want, size := make([]float64, n*hidden), make([]float64, n*hidden)
				oracle.DraftConvolve(want, wide(part), wide(base), wide(d), side, n, group)
				oracle.DraftConvolve(size, magnitudes(part), magnitudes(base), magnitudes(d), side, n, group)
				for i, y := range want {
					if sum != 0 {
						y += float64(before[first*hidden+i])
					}
					r.check(view[float32](dst)[first*hidden+i], y, 5*u*(size[i]+math.Abs(y)), "side %d, add %d, element %d", side, sum, i)
				}
			}
		}
	}
	r.report(t, "draft_conv")
}

func magnitudes(x []float32) []float64 {
	y := wide(x)
	for i, v := range y {
		y[i] = math.Abs(v)
	}
	return y
}

// draftCase is the preparation of a draft's heads as that of a target's: all dimensions turn.
func draftCase(kvHeads int) attentionCase {
	return attentionCase{heads: draftPerKV * kvHeads, kvHeads: kvHeads, dim: draftDim, pairs: draftDim / 2, norms: true}
}

// TestDraftHeads holds a block's queries and keys to their norm and rotation.
func TestDraftHeads(t *testing.T) {
	b := newBench(t)
	const kvHeads, rows = 2, 3
	rng := rand.New(rand.NewPCG(23, 4))
	c := draftCase(kvHeads)
	q, k := normals(rng, rows*c.heads*draftDim), normals(rng, rows*kvHeads*draftDim)
	qNorm, kNorm := normals(rng, draftDim), normals(rng, draftDim)
	freq := oracle.RopeFrequencies(1e7, draftDim)
	list := []rowInfo{{index: 0}, {index: 70}, {index: 262001}}
	qb, kb := filled(b, q), filled(b, k)
	add(&b.commands, b.kernel("draft_heads"), headGrid(c.heads+kvHeads, rows), draftHeadsParams{kvHeads: kvHeads, epsilon: 1e-6},
		qb.from(0), kb.from(0), filled(b, qNorm).from(0), filled(b, kNorm).from(0), filled(b, freq).from(0), filled(b, list).from(0))
	b.run()
	var r ratio
	for row := range rows {
		place := oracle.TextPosition(int(list[row].index))
		for at := row * c.heads * draftDim; at < (row+1)*c.heads*draftDim; at += draftDim {
			checkPrepared(&r, view[float32](qb)[at:at+draftDim], q[at:at+draftDim], qNorm, c, place, freq, 0, 0, "query")
		}
		for at := row * kvHeads * draftDim; at < (row+1)*kvHeads*draftDim; at += draftDim {
			checkPrepared(&r, view[float32](kb)[at:at+draftDim], k[at:at+draftDim], kNorm, c, place, freq, 0, 0, "key")
		}
	}
	r.report(t, "draft_heads")
}

// TestDraftStore fills rings, over their end and with more rows than they have, and sees that other slots stay as they were.
func TestDraftStore(t *testing.T) {
	b := newBench(t)
	const kvHeads, window, rows, width = 2, 8, 24, 2 * draftDim
	rng := rand.New(rand.NewPCG(23, 5))
	k, v, kNorm := normals(rng, rows*width), normals(rng, rows*width), normals(rng, draftDim)
	freq := oracle.RopeFrequencies(1e6, draftDim)
	segments := draftSegments(20, 4, 13)
	keys, values := filled(b, make([]uint16, 2*window*width)), filled(b, make([]uint16, 2*window*width))
	add(&b.commands, b.kernel("draft_store"), grid{x: 2 * kvHeads, y: 20, z: 2, threads: 32},
		draftHeadsParams{kvHeads: kvHeads, window: window, epsilon: 1e-6}, filled(b, k).from(0), filled(b, v).from(0),
		filled(b, kNorm).from(0), filled(b, freq).from(0), filled(b, segments).from(0), keys.from(0), values.from(0))
	b.run()
	var r ratio
	written := 0
	for _, s := range segments {
		for i := max(0, int(s.rows)-window); i < int(s.rows); i++ {
			place := int(s.index) + i
			slot := int(s.lane)*window + place%window
			written++
			for head := range kvHeads {
				from, to := (int(s.first)+i)*width+head*draftDim, slot*width+head*draftDim
				got := make([]float32, draftDim)
				for j, x := range view[uint16](keys)[to : to+draftDim] {
					got[j] = dequant.FromBF16(x)
				}
				checkPrepared(&r, got, k[from:from+draftDim], kNorm, draftCase(kvHeads), oracle.TextPosition(place), freq, 0x1p-8, 0, "key")
				for j, x := range view[uint16](values)[to : to+draftDim] {
					if x != dequant.ToBF16(v[from+j]) {
						t.Fatalf("place %d, value %d of head %d", place, j, head)
					}
				}
			}
		}
	}
	r.report(t, "draft_store")
	zeros := 0
	for at := 0; at < 2*window*width; at += width {
		if !slices.ContainsFunc(view[uint16](values)[at:at+width], func(x uint16) bool { return x != 0 }) {
			zeros++
		}
	}
	if want := 2*window - written; zeros != want {
		t.Errorf("%d slots were left, want %d", zeros, want)
	}
}

// A draftRing is the ring of a test, as the oracle reads it.
type draftRing struct {
	keys, values []uint16
	lane, window int
	width        int
	read         map[int]bool
}

func (c *draftRing) Context(_, place int) (k, v []float64) {
	c.read[place] = true
	at := (c.lane*c.window + place%c.window) * c.width
	for i := range c.width {
		k = append(k, float64(dequant.FromBF16(c.keys[at+i])))
		v = append(v, float64(dequant.FromBF16(c.values[at+i])))
	}
	return k, v
}

// TestDraftAttention holds the attention of blocks to the oracle, at places before, at and past the window's end. Slots that no
// row sees hold NaN.
func TestDraftAttention(t *testing.T) {
	checked, fast := newBench(t), newFastBench(t)
	var r ratio
	for _, c := range []struct{ window, index, rows int }{
		{16, 0, 8}, {16, 1, 8}, {16, 7, 8}, {16, 9, 1}, {16, 15, 8}, {16, 16, 8}, {16, 17, 5}, {16, 40, 8},
	} {
		testDraftAttention(t, checked, &r, 2, c.window, c.index, c.rows)
	}
	for _, index := range []int{0, 1, 7, 2039, 2040, 2041, 2047, 2048, 2049, 4095, 4096} {
		testDraftAttention(t, fast, &r, 1, 2048, index, 8)
	}
	r.report(t, "draft_attention")
}

func testDraftAttention(t *testing.T, b *bench, r *ratio, kvHeads, window, index, rows int) {
	rng := rand.New(rand.NewPCG(23, uint64(100*index+rows)))
	width, all := kvHeads*draftDim, rows+1
	const lanes = 2
	q, k, v := normals(rng, all*draftPerKV*width), normals(rng, all*width), normals(rng, all*width)
	segments := draftSegments(rows, 1, index)
	keys, values := make([]uint16, lanes*window*width), make([]uint16, lanes*window*width)
	for i := range keys {
		keys[i], values[i] = 0x7fc0, 0x7fc0
	}
	for _, s := range segments {
		for place := max(0, int(s.index)-window+1); place < int(s.index); place++ {
			at := (int(s.lane)*window + place%window) * width
			for i := range width {
				keys[at+i], values[at+i] = dequant.ToBF16(float32(rng.NormFloat64())), dequant.ToBF16(float32(rng.NormFloat64()))
			}
		}
	}
	kb, vb, dst := filled(b, keys), filled(b, values), empty[float32](b, all*draftPerKV*width)
	add(&b.commands, b.kernel("draft_attention"), draftAttentionGrid(kvHeads, rows, len(segments)), draftHeadsParams{
		kvHeads: cUint(kvHeads), window: cUint(window), scale: cFloat(1 / math.Sqrt(float64(draftDim))),
	}, filled(b, q).from(0), filled(b, k).from(0), filled(b, v).from(0), filled(b, segments).from(0), kb.from(0), vb.from(0),
		dst.from(0))
	b.run()
	d := oracle.Draft{
		Heads: draftPerKV * kvHeads, KVHeads: kvHeads, Window: window, Freq: oracle.RopeFrequencies(1e7, draftDim),
	}
	for _, s := range segments {
		first, n := int(s.first), int(s.rows)
		ring := &draftRing{keys, values, int(s.lane), window, width, make(map[int]bool)}
		want := make([]float64, n*draftPerKV*width)
		query, key, value := wide(q[first*draftPerKV*width:(first+n)*draftPerKV*width]), wide(k[first*width:(first+n)*width]),
			wide(v[first*width:(first+n)*width])
		d.Attend(want, query, key, value, 0, int(s.index), ring)
		var contextKeys, contextValues []float64
		for place := range ring.read {
			ck, cv := ring.Context(0, place)
			contextKeys, contextValues = append(contextKeys, ck...), append(contextValues, cv...)
		}
		contextKeys, contextValues = append(contextKeys, key...), append(contextValues, value...)
		for at := 0; at < len(want); at += draftDim {
			head := at / draftDim % (draftPerKV * kvHeads) / draftPerKV * draftDim
			bound := attentionBound(query[at:at+draftDim], contextKeys, contextValues, width, head)
			for i := range draftDim {
				got := view[float32](dst)[first*draftPerKV*width+at+i]
				r.check(got, want[at+i], bound, "window %d, index %d, lane %d, element %d", window, index, s.lane, at+i)
			}
		}
	}
}

// attentionBound is that of checkAttention, for a head at that element of rows of width.
func attentionBound(query, keys, values []float64, width, head int) float64 {
	worst, largest := 0.0, 0.0
	for row := head; row < len(keys); row += width {
		sum := 0.0
		for d, x := range query {
			sum += math.Abs(x * keys[row+d])
			largest = math.Max(largest, math.Abs(values[row+d]))
		}
		worst = math.Max(worst, sum/math.Sqrt(float64(len(query))))
	}
	return 2 * (float64(len(query)+4)*u*worst + float64(4*len(keys)/width+40)*u) * largest
}
