package conformance_test

import (
	"math"
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// TestStreams expands rows to streams, reads them, writes to them and takes their mean.
func TestStreams(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		for _, kind := range []dequant.Type{dequant.Q8_0, dequant.Q4_0, dequant.BF16} {
			const rows, streams, hidden, rank = 5, 4, 256, 256
			const all = streams * hidden
			p := newPair(t, b, rows, planner.Layout{Hidden: hidden, Hyper: planner.HyperLayout{Streams: streams, Rank: rank}})
			x, y := p.normals(rows*hidden), p.normals(rows*hidden)
			in, out := p.input(x, hidden), p.input(y, hidden)
			w := &hyperWeights{
				norm: p.normals(all), down: p.blocks(dequant.Lookup(kind), rank, all), up: p.blocks(dequant.Lookup(kind), all, rank),
				inject: floatMatrix(p.normals(streams*all), streams, all),
			}
			mix := &model.HyperMix{
				Layout: &p.layout.Hyper, Norm: p.vector(w.norm), Down: p.matrix(planner.Tensor{Name: "down"}, w.down),
				Up: p.matrix(planner.Tensor{Name: "up"}, w.up), Inject: p.matrix(planner.Tensor{Name: "inject"}, w.inject),
			}
			last := *mix
			last.Inject = model.NoMatrix
			wide, h, final, inject, mean := p.buffer(all), p.buffer(hidden), p.buffer(hidden), p.buffer(streams), p.buffer(hidden)
			p.pass([]int{2, 3}, func(b model.Backend) {
				in.set(b)
				out.set(b)
				b.Expand(wide, in.buffer)
				b.HyperRead(h, inject, wide, mix)
				b.HyperRead(final, inject, wide, &last)
				b.HyperWrite(wide, out.buffer, inject)
				b.StreamMean(mean, wide)
			})
			bounds := w.bounds(&b, rows, widened(x), hidden, streams)
			for _, read := range []model.Buffer{h, final} {
				p.compare(read, "read "+kind.String(), func(row, i int) float64 { return bounds.read[row][i] })
			}
			p.compare(inject, "injections", func(row, i int) float64 { return bounds.inject[row][i] })
			write := func(row, i int) float64 {
				v := math.Abs(float64(y[row*hidden+i%hidden]))
				weight := p.want(inject, row)[i/hidden]
				return bounds.inject[row][i/hidden]*v + 4*float32Roundoff*(math.Abs(float64(x[row*hidden+i%hidden]))+weight*v)
			}
			p.compare(wide, "streams", write)
			p.compare(mean, "mean", func(row, i int) float64 {
				bound := 0.0
				for s := range streams {
					bound += (write(row, s*hidden+i) + 4*float32Roundoff*math.Abs(p.want(wide, row)[s*hidden+i])) / streams
				}
				return bound
			})
			p.report(b, "streams")
		}
	})
}

// hyperWeights are those of a mix.
type hyperWeights struct {
	norm             []float32
	down, up, inject dequant.Matrix
}

// hyperBounds bound what a read gives.
type hyperBounds struct{ read, inject [][]float64 }

// bounds follow a read of streams that are all x: of what is normalized, of the low projection through its SiLU, of the gates
// through their sigmoid, whose slope is a quarter, and of the mean.
func (w *hyperWeights) bounds(b *operatorBackend, rows int, x []float64, hidden, streams int) (out hyperBounds) {
	down, up, inject := decode(w.down), decode(w.up), decode(w.inject)
	all, rank := hidden*streams, w.down.Rows
	n := float64(streams)
	for row := range rows {
		normed, off := make([]float64, all), make([]float64, all)
		for s := range streams {
			copy(normed[s*hidden:], x[row*hidden:(row+1)*hidden])
		}
		oracle.GroupedRMSNorm(normed, normed, widened(w.norm), streams, 1e-6)
		for i, v := range normed {
			off[i] = (float64(hidden/32) + 24) * float32Roundoff * math.Abs(v)
		}
		carried := func(m *decoded, r int, off []float64) (sum float64) {
			for i, o := range off {
				sum += math.Abs(m.values[r*m.cols+i]) * o
			}
			return sum
		}
		low, lowOff := make([]float64, rank), make([]float64, rank)
		for r := range low {
			v := oracle.Dot(down.values[r*all:(r+1)*all], normed) / n
			stray := (b.productBound(&down, r, spread(normed, off)) + carried(&down, r, off)) / n
			low[r] = oracle.SiLU(v)
			lowOff[r] = 1.1*stray + 24*float32Roundoff*(math.Abs(v)+stray)
		}
		read := make([]float64, hidden)
		for i, v := range normed {
			gate := oracle.Dot(up.values[i*rank:(i+1)*rank], low)
			stray := (b.productBound(&up, i, spread(low, lowOff))+carried(&up, i, lowOff))/4 + 12*float32Roundoff
			read[i%hidden] += (math.Min(stray, 1)*(math.Abs(v)+off[i]) + oracle.Sigmoid(gate)*(off[i]+8*float32Roundoff*math.Abs(v))) / n
		}
		weights := make([]float64, streams)
		for s := range weights {
			weights[s] = 2*(b.productBound(&inject, s, spread(normed, off))+carried(&inject, s, off))/n/4 + 24*float32Roundoff
		}
		out.read, out.inject = append(out.read, read), append(out.inject, weights)
	}
	return out
}

// TestSparseAttention runs rows with more blocks of keys than they may see. No score is so near another that float32 could choose
// otherwise, so that every backend sees the same tokens.
func TestSparseAttention(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		l := planner.AttentionLayout{Heads: 4, KVHeads: 2, HeadDim: 256, RopeDim: 64, RopeBase: 1e7, Gated: true, QKNorm: true}
		q := planner.QSALayout{Heads: 4, HeadDim: 128, Block: 4, Budget: 6}
		segments := []int{70, 3, 27}
		p := newPair(t, b, 100, planner.Layout{Attention: l, QSA: q})
		p.position = imagePosition
		a := &attentionCase{pair: p, b: &b, l: &l, rotate: true, segments: segments}
		a.indexQ, a.indexK = p.normals(100*q.Heads*q.HeadDim), p.normals(100*q.HeadDim)
		a.indexNorms = [2][]float32{p.normals(q.HeadDim), p.normals(q.HeadDim)}
		iq, ik := p.input(a.indexQ, q.Heads*q.HeadDim), p.input(a.indexK, q.HeadDim)
		a.index = &model.Indexer{
			Layout: &q, Q: iq.buffer, K: ik.buffer, QNorm: p.vector(a.indexNorms[0]), KNorm: p.vector(a.indexNorms[1]),
		}
		p.each(func(b model.Backend) { a.index.State = b.IndexState(q.HeadDim) })
		a.before = func(b model.Backend) {
			iq.set(b)
			ik.set(b)
		}
		a.run(t)
		p.report(b, "sparse attention")
	})
}

// TestNGrams adds the hashed n-grams of several lanes' tokens to their streams.
func TestNGrams(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		const rows, streams, hidden, taps, dilation, width = 30, 4, 256, 4, 3, 32
		const all = streams * hidden
		l := planner.PLELayout{
			NGram: 3, Heads: 2, Width: width, Kernel: taps, Dilation: dilation, EOS: 7, Vocab: []uint64{11, 13, 17, 19},
			Multipliers: []uint64{1000003, 2000003, 3000017}, Offsets: []uint64{0, 11, 24, 41}, Rows: 60,
		}
		p := newPair(t, b, rows, planner.Layout{Hidden: hidden, Hyper: planner.HyperLayout{Streams: streams}, PLE: l})
		table := p.matrix(planner.Tensor{Name: "per_layer_token_embd.weight", Role: planner.TokenTable},
			p.blocks(dequant.Lookup(dequant.Q8_0), l.Rows, width))
		x, key, value := p.normals(rows*hidden), p.normals(rows*all), p.normals(rows*hidden)
		in, k, v := p.input(x, hidden), p.input(key, all), p.input(value, hidden)
		norms := [3][]float32{p.normals(all), p.normals(all), p.normals(all)}
		conv := p.normals(all * taps)
		n := &model.NGram{
			Layout: &l, KeyNorm: p.vector(norms[0]), QueryNorm: p.vector(norms[1]), ConvNorm: p.vector(norms[2]), Conv: p.vector(conv),
		}
		p.each(func(b model.Backend) { n.State = b.NGramState(&l, all) })
		wide, gathered := p.buffer(all), p.buffer(4*width)
		p.pass([]int{1, 20, 9}, func(b model.Backend) {
			in.set(b)
			k.set(b)
			v.set(b)
			b.NGramRows(gathered, table, n)
			b.Expand(wide, in.buffer)
			b.NGramAdd(wide, k.buffer, v.buffer, n)
		})
		p.compare(gathered, "rows", func(int, int) float64 { return 1e-300 })
		ple := &oracle.PLE{
			KeyNorm: widened(norms[0]), QueryNorm: widened(norms[1]), ConvNorm: widened(norms[2]), Conv: widened(conv), Dilation: dilation,
		}
		bounds := ngramBounds(ple, []int{1, 20, 9}, widened(x), widened(key), widened(value), hidden)
		p.compare(wide, "streams", func(row, i int) float64 {
			return bounds[row][i] + 3*float32Roundoff*(math.Abs(p.want(wide, row)[i])+math.Abs(float64(x[row*hidden+i%hidden])))
		})
		p.report(b, "n-grams")
	})
}

// ngramBounds bound what is added to streams that are all x: Y by its gate's stray, and the convolution by that of its inputs and
// the roundings of its sum. A gate strays by the roundings of its product times the slope of the root below it.
func ngramBounds(p *oracle.PLE, segments []int, x, key, value []float64, hidden int) (bounds [][]float64) {
	all := len(p.KeyNorm)
	streams, taps := all/hidden, len(p.Conv)/all
	row := 0
	for _, n := range segments {
		var inputs, offs [][]float64 // Z and its strays
		for range n {
			k, q, xs := make([]float64, all), make([]float64, all), make([]float64, all)
			for s := range streams {
				copy(xs[s*hidden:], x[row*hidden:(row+1)*hidden])
			}
			oracle.GroupedRMSNorm(k, key[row*all:(row+1)*all], p.KeyNorm, streams, 1e-6)
			oracle.GroupedRMSNorm(q, xs, p.QueryNorm, streams, 1e-6)
			y, yOff, z := make([]float64, all), make([]float64, all), make([]float64, all)
			zOff, bound := make([]float64, all), make([]float64, all)
			for at := 0; at < all; at += hidden {
				t, size := 0.0, 0.0
				for i := at; i < at+hidden; i++ {
					t += k[i] * q[i] / math.Sqrt(float64(hidden))
					size += math.Abs(k[i]*q[i]) / math.Sqrt(float64(hidden))
				}
				stray := (float64(hidden/16) + 32) * float32Roundoff * size
				root := math.Sqrt(math.Max(math.Abs(t)-stray, 1e-6))
				gate := stray/(2*root)/4 + 16*float32Roundoff
				if math.Abs(t) < stray {
					gate += root / 2 // of either sign
				}
				for i := range hidden {
					v := value[row*hidden+i]
					y[at+i], yOff[at+i] = oracle.PLEGate(t)*v, math.Abs(v)*(gate+2*float32Roundoff)
				}
			}
			oracle.GroupedRMSNorm(z, y, p.ConvNorm, streams, 1e-6)
			for i, v := range z {
				// The norm of a multiple of the value does not depend on the multiple, but for epsilon, which is small beside it.
				zOff[i] = (float64(hidden/32)+32)*float32Roundoff*math.Abs(v) + 1e-4*yOff[i]
			}
			inputs, offs = append(inputs, z), append(offs, zOff)
			for c := range bound {
				sum, carried := 0.0, 0.0
				for j := range taps {
					if at := len(inputs) - 1 - p.Dilation*(taps-1-j); at >= 0 {
						sum += math.Abs(p.Conv[c*taps+j] * inputs[at][c])
						carried += math.Abs(p.Conv[c*taps+j]) * offs[at][c]
					}
				}
				bound[c] = yOff[c] + 1.1*(carried+float64(taps+2)*float32Roundoff*sum) + 24*float32Roundoff*sum
			}
			bounds = append(bounds, bound)
			row++
		}
	}
	return bounds
}
