//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/oracle"
)

// vectors is a projection of given rows, for the oracle.
type vectors [][]float64

func (v vectors) Dims() (rows, cols int)   { return len(v), len(v[0]) }
func (v vectors) Row(dst []float64, i int) { copy(dst, v[i]) }

// TestStreams expands rows to streams, reads them, writes to them and takes their mean. The read's projections are those of
// project.metal: here the gates and injections are given.
func TestStreams(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(33, 1))
	const rows, streams, width, eps = 3, 4, 300, 1e-6
	const all = streams * width
	p := hyperParams{streams: streams, width: width, epsilon: eps, scale: 0.25, injects: 1}

	x, expanded := normals(rng, rows*width), empty[float32](b, rows*all)
	add(&b.commands, b.kernel("expand"), copyGrid(rows, width), p, filled(b, x).from(0), expanded.from(0))
	b.run()
	for i, v := range view[float32](expanded) {
		if v != x[i/all*width+i%width] {
			t.Fatalf("element %d of a stream is %v", i, v)
		}
	}

	s, w, gates, inject := normals(rng, rows*all), normals(rng, all), normals(rng, rows*all), normals(rng, rows*streams)
	normed, h, weights := empty[float32](b, rows*all), empty[float32](b, rows*width), filled(b, inject)
	add(&b.commands, b.kernel("grouped_norm"), streamGrid(streams, rows), p, filled(b, s).from(0), filled(b, w).from(0), normed.from(0))
	add(&b.commands, b.kernel("hyper_mix"), copyGrid(rows, width), p, normed.from(0), filled(b, gates).from(0), weights.from(0), h.from(0))
	b.run()
	var norm, mix, write, mean ratio
	want := make([]float64, all)
	for row := range rows {
		oracle.GroupedRMSNorm(want, wide(s[row*all:(row+1)*all]), wide(w), streams, float64(float32(eps)))
		for i, v := range want {
			norm.check(view[float32](normed)[row*all+i], v/streams, (float64(width)/64+12)*u*math.Abs(v/streams), "row %d, element %d", row, i)
		}
		for i := range width {
			sum, size := 0.0, 0.0
			for stream := range streams {
				at := row*all + stream*width + i
				v := oracle.Sigmoid(float64(gates[at])) * float64(view[float32](normed)[at])
				sum, size = sum+v, size+math.Abs(v)
			}
			mix.check(view[float32](h)[row*width+i], sum, (streams+12)*u*size, "row %d, element %d", row, i)
		}
		for i := range streams {
			v := 2 * oracle.Sigmoid(float64(inject[row*streams+i]))
			mix.check(view[float32](weights)[row*streams+i], v, 12*u*v, "row %d, injection %d", row, i)
		}
	}

	written, average, y := filled(b, s), empty[float32](b, rows*width), normals(rng, rows*width)
	add(&b.commands, b.kernel("hyper_write"), copyGrid(rows, width), p, filled(b, y).from(0), weights.from(0), written.from(0))
	add(&b.commands, b.kernel("stream_mean"), copyGrid(rows, width), p, written.from(0), average.from(0))
	b.run()
	for row := range rows {
		want, size := wide(s[row*all:(row+1)*all]), make([]float64, width)
		oracle.HyperWrite(want, wide(view[float32](weights)[row*streams:(row+1)*streams]), wide(y[row*width:(row+1)*width]))
		got := view[float32](written)[row*all : (row+1)*all]
		for i, v := range want {
			write.check(got[i], v, 2*u*(math.Abs(v)+2*math.Abs(float64(y[row*width+i%width]))), "row %d, element %d", row, i)
			size[i%width] += math.Abs(float64(got[i]))
		}
		oracle.HyperMean(want[:width], wide(got))
		for i, v := range want[:width] {
			mean.check(view[float32](average)[row*width+i], v, (streams-1)*u*size[i], "row %d, element %d", row, i)
		}
	}
	norm.report(t, "grouped_norm")
	mix.report(t, "hyper_mix")
	write.report(t, "hyper_write")
	mean.report(t, "stream_mean")
}

// TestNGrams adds n-gram embeddings of two lanes over passes of several sizes, and holds streams to the oracle. A gate strays
// by its product's roundings, times the slope of the root below it, which is steepest where the product is least.
func TestNGrams(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(33, 2))
	const lanes, streams, width, taps, dilation, eps = 2, 4, 96, 4, 3, 1e-6
	const all = streams * width
	p := ngramParams{streams: streams, width: width, taps: taps, dilation: dilation, epsilon: eps}
	keyNorm, queryNorm, convNorm, conv := normals(rng, all), normals(rng, all), normals(rng, all), normals(rng, all*taps)
	kept := empty[float32](b, lanes*ngramKept*all)
	ple := oracle.PLE{KeyNorm: wide(keyNorm), QueryNorm: wide(queryNorm), ConvNorm: wide(convNorm), Conv: wide(conv), Dilation: dilation}
	var histories, strays [lanes][]float64
	for i := range histories {
		histories[i], strays[i] = make([]float64, (taps-1)*dilation*all), make([]float64, (taps-1)*dilation*all)
	}
	var index [lanes]int
	var r ratio
	for pass, sizes := range [][lanes]int{{1, 2}, {1, 1}, {3, 20}, {40, 1}, {1, 5}} {
		rows := sizes[0] + sizes[1]
		s, key, value := normals(rng, rows*all), normals(rng, rows*all), normals(rng, rows*width)
		buf, y, z := filled(b, s), empty[float32](b, rows*all), empty[float32](b, rows*all)
		segments := []segmentInfo{
			{lane: 1, rows: cUint(sizes[1]), index: cUint(index[1])}, {first: cUint(sizes[1]), rows: cUint(sizes[0]), index: cUint(index[0])},
		}
		add(&b.commands, b.kernel("ngram_gate"), streamGrid(streams, rows), p, buf.from(0), filled(b, key).from(0),
			filled(b, value).from(0), filled(b, keyNorm).from(0), filled(b, queryNorm).from(0), filled(b, convNorm).from(0), y.from(0), z.from(0))
		add(&b.commands, b.kernel("ngram_conv"), convGrid(all, lanes), p, y.from(0), z.from(0), filled(b, conv).from(0),
			filled(b, segments).from(0), kept.from(0), buf.from(0))
		b.run()
		for _, g := range segments {
			index[g.lane] += int(g.rows)
			for i := range int(g.rows) {
				row := int(g.first) + i
				in, k, v := wide(s[row*all:(row+1)*all]), wide(key[row*all:(row+1)*all]), wide(value[row*width:(row+1)*width])
				off, normed := ngramStray(&ple, in, k, v, eps)
				before := slices.Clone(histories[g.lane])
				want := slices.Clone(in)
				ple.Add(want, histories[g.lane], k, v, float64(float32(eps)))
				newest := histories[g.lane][len(histories[g.lane])-all:]
				for c, w := range want {
					sum, carried := math.Abs(newest[c]*ple.Conv[c*taps+taps-1]), normed[c]*math.Abs(ple.Conv[c*taps+taps-1])
					for j := range taps - 1 {
						at := j*dilation*all + c
						sum += math.Abs(before[at] * ple.Conv[c*taps+j])
						carried += strays[g.lane][at] * math.Abs(ple.Conv[c*taps+j])
					}
					bound := off[c] + 1.1*(carried+(taps+2)*u*sum) + 16*u*sum + 3*u*(math.Abs(w)+math.Abs(in[c]))
					r.check(view[float32](buf)[row*all+c], w, bound, "pass %d, lane %d, row %d, channel %d", pass, g.lane, i, c)
				}
				strays[g.lane] = append(strays[g.lane][all:], normed...)
			}
		}
	}
	r.report(t, "ngram")
}

// ngramStray bounds the errors of Y and of Z of one row.
func ngramStray(p *oracle.PLE, streams, key, value []float64, eps float64) (y, z []float64) {
	width := len(value)
	k, q := make([]float64, len(key)), make([]float64, len(key))
	oracle.GroupedRMSNorm(k, key, p.KeyNorm, len(key)/width, eps)
	oracle.GroupedRMSNorm(q, streams, p.QueryNorm, len(key)/width, eps)
	y, z = make([]float64, len(key)), make([]float64, len(key))
	for at := 0; at < len(key); at += width {
		t, size := 0.0, 0.0
		for i := at; i < at+width; i++ {
			t += k[i] * q[i] / math.Sqrt(float64(width))
			size += math.Abs(k[i]*q[i]) / math.Sqrt(float64(width))
		}
		stray := (float64(width)/32 + 24) * u * size
		root := math.Sqrt(math.Max(math.Abs(t)-stray, 1e-6))
		gate := stray/(2*root)/4 + 12*u // of a sigmoid, whose slope is a quarter
		if math.Abs(t) < stray {
			gate += 2 * root / 4 // of either sign
		}
		g := oracle.PLEGate(t)
		sum := 0.0
		for _, v := range value {
			sum += v * v
		}
		inv := 1 / math.Sqrt(g*g*sum/float64(width)+eps)
		for i := range width {
			y[at+i] = math.Abs(value[i]) * (gate + 2*u)
			// The norm of a multiple of the value does not depend on the multiple, but for epsilon.
			normed := g * math.Abs(value[i]*p.ConvNorm[at+i]) * inv
			z[at+i] = normed * ((float64(width)/32+16)*u + gate/g*eps*inv*inv)
		}
	}
	return y, z
}
