package cpu

import (
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"splash/dequant"
	_ "splash/internal/cpu/amxtest"
)

// eachKernels runs f with the kernels of every level this machine runs.
func eachKernels(t *testing.T, f func(t *testing.T, k *kernels)) {
	for _, l := range Levels() {
		t.Run(l.String(), func(t *testing.T) { f(t, kernelsFor[l]) })
	}
}

const guardLength = 64

// A guarded slice lies between guard bands of NaN. What is read of them spoils a result, what is written to them is found.
type guarded struct {
	t   testing.TB
	all []float32
}

func guard(t testing.TB, n int) ([]float32, *guarded) {
	g := &guarded{t, floats(n + 2*guardLength)}
	for i := range g.all {
		if i < guardLength || i >= guardLength+n {
			g.all[i] = float32(math.NaN())
		}
	}
	return g.all[guardLength : guardLength+n : guardLength+n], g
}

func (g *guarded) check(what string) {
	g.t.Helper()
	n := len(g.all)
	for i, v := range g.all {
		if (i < guardLength || i >= n-guardLength) && v == v {
			g.t.Errorf("%s: element %d was written, of %d", what, i-guardLength, n-2*guardLength)
			return
		}
	}
}

// normals fills x with normal deviates between guard bands.
func normals(t testing.TB, r *rand.Rand, n int) []float32 {
	x, _ := guard(t, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// A ratio keeps the worst error in units of its bound.
type ratio struct {
	t     testing.TB
	what  string
	worst float64
}

// u is the unit roundoff of float32.
const u = 0x1p-24

func (r *ratio) see(got, want, bound float64) {
	q := math.Abs(got-want) / bound
	if got == want {
		q = 0
	}
	if !(q <= r.worst) {
		r.worst = q
	}
}

func (r *ratio) report() {
	r.t.Helper()
	r.t.Logf("%-28s worst error %.3f of its bound", r.what, r.worst)
	if !(r.worst <= 1) {
		r.t.Errorf("%s: an error of %v times its bound", r.what, r.worst)
	}
}

var lengths = []int{1, 3, 15, 16, 17, 31, 32, 48, 64, 70, 129, 256}

// TestElementwise holds the loops over vectors to float64. e^x is within 4 units of the last place where it is normal.
func TestElementwise(t *testing.T) {
	const exponent = 8 * u
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(3, 4))
		norm, swish, gate, scaled, add, sum := &ratio{t: t, what: "norm"}, &ratio{t: t, what: "swish"}, &ratio{t: t, what: "gate"},
			&ratio{t: t, what: "scale"}, &ratio{t: t, what: "addScaled"}, &ratio{t: t, what: "sumSquares"}
		for _, n := range lengths {
			x, w, up := normals(t, r, n), normals(t, r, n), normals(t, r, n)
			for i := range x {
				x[i] *= 8
			}
			dst, g := guard(t, n)
			k.norm(dst, x, w, 1.7)
			for i := range dst {
				want := float64(x[i]) * float64(float32(1.7)) * float64(w[i])
				norm.see(float64(dst[i]), want, 2*u*math.Abs(want))
			}
			k.swish(dst, x, up)
			for i := range dst {
				want := float64(x[i]) / (1 + math.Exp(-float64(x[i]))) * float64(up[i])
				swish.see(float64(dst[i]), want, (exponent+4*u)*math.Abs(want))
			}
			copy(dst, up)
			k.gate(dst, x)
			for i := range dst {
				want := float64(up[i]) / (1 + math.Exp(-float64(x[i])))
				gate.see(float64(dst[i]), want, (exponent+3*u)*math.Abs(want))
			}
			copy(dst, x)
			k.scale(dst, 1.7)
			for i := range dst {
				want := float64(x[i]) * float64(float32(1.7))
				scaled.see(float64(dst[i]), want, u*math.Abs(want))
			}
			copy(dst, up)
			k.addScaled(dst, x, 1.7)
			for i := range dst {
				product := float64(x[i]) * float64(float32(1.7))
				add.see(float64(dst[i]), float64(up[i])+product, 2*u*(math.Abs(float64(up[i]))+2*math.Abs(product)))
			}
			g.check("an elementwise kernel")
			want := 0.0
			for _, v := range x {
				want += float64(v) * float64(v)
			}
			sum.see(float64(k.sumSquares(x)), want, float64(n/16+6)*u*want)
			if got, want := k.most(x), slices.Max(x); got != want {
				t.Errorf("the largest of %d values is %v, want %v", n, got, want)
			}
		}
		for _, r := range []*ratio{norm, swish, gate, scaled, add, sum} {
			r.report()
		}
	})
}

// TestExponentials tries e^x over all its range, and what is beyond it.
func TestExponentials(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		e := &ratio{t: t, what: "e^x"}
		x, g := guard(t, 64)
		for from := -100.0; from < 0; from += 1.0 / 64 {
			var want [64]float64
			total := 0.0
			for i := range x {
				x[i] = float32(from + float64(i)/4096)
				want[i] = math.Exp(float64(x[i]))
				total += want[i]
			}
			sum := k.soften(x, 0)
			for i, v := range x {
				e.see(float64(v), want[i], 8*u*want[i]+0x1p-125)
			}
			e.see(float64(sum), total, 16*u*total+64*0x1p-125)
		}
		g.check("soften")
		e.report()
		up := make([]float32, 16)
		for i := range up {
			up[i] = 1
		}
		special := []float32{float32(math.NaN()), infinity, 1e30, 200, -200, -1e30, 0, float32(math.Copysign(0, -1))}
		special = append(special, make([]float32, 8)...)
		got := make([]float32, 16)
		k.swish(got, special, up)
		want := []float64{math.NaN(), math.Inf(1), 1e30, 200, 0, 0, 0, 0}
		for i, w := range want {
			if d := math.Abs(float64(got[i]) - float64(float32(w))); !(d <= 1e-6*math.Abs(w)+1e-6) && !(w != w && got[i] != got[i]) && float64(got[i]) != w {
				t.Errorf("silu(%v) is %v, want %v", special[i], got[i], w)
			}
		}
	})
}

// TestConv holds the convolution to float64.
func TestConv(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r, e := rand.New(rand.NewPCG(5, 6)), &ratio{t: t, what: "conv"}
		for _, n := range lengths {
			for _, count := range []int{2, 4} {
				stride := n + 3
				w := normals(t, r, count*stride)
				var taps [][]float32
				for range count {
					taps = append(taps, normals(t, r, n))
				}
				dst, g := guard(t, n)
				k.conv(dst, w, stride, taps)
				for c := range dst {
					var sum, size float64
					for j, x := range taps {
						p := float64(w[j*stride+c]) * float64(x[c])
						sum, size = sum+p, size+math.Abs(p)
					}
					// The slope of SiLU is at most 1.1.
					want := sum / (1 + math.Exp(-sum))
					e.see(float64(dst[c]), want, 1.1*float64(count+1)*u*size+12*u*math.Abs(want))
				}
				g.check("conv")
			}
		}
		e.report()
	})
}

// TestGDNKernels holds a step to float64, one in place and the update alone to its bits.
func TestGDNKernels(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		state, out, update := &ratio{t: t, what: "gdnStep state"}, &ratio{t: t, what: "gdnStep o"}, &ratio{t: t, what: "gdnStep delta"}
		for _, keys := range []int{4, 6, 64, 128} {
			src := normals(t, r, keys*stripWidth)
			before := &gdnUpdate{k: normals(t, r, keys), delta: normals(t, r, stripWidth), decay: 0.8}
			var guards []*guarded
			guardedOf := func(n int) []float32 {
				x, g := guard(t, n)
				guards = append(guards, g)
				return x
			}
			row := gdnRow{k: normals(t, r, keys), q: normals(t, r, keys), v: normals(t, r, stripWidth), beta: 0.7, decay: 0.9}
			row.delta, row.o = guardedOf(stripWidth), guardedOf(stripWidth)
			for i := range keys {
				row.kq += row.k[i] * row.q[i]
			}
			dst := guardedOf(keys * stripWidth)
			k.gdnStep(dst, src, before, &row, src)
			for j := range stripWidth {
				checkGDNStep(src, dst, before, &row, j, state, update, out)
			}
			alone := guardedOf(keys * stripWidth)
			if k.gdnReplay(alone, src, before); !slices.Equal(alone, dst) {
				t.Error("gdnReplay differs from gdnStep")
			}
			again := row
			again.delta, again.o = make([]float32, stripWidth), make([]float32, stripWidth)
			k.gdnStep(src, src, before, &again, src)
			if !slices.Equal(src, dst) || !slices.Equal(again.delta, row.delta) || !slices.Equal(again.o, row.o) {
				t.Error("a step in place differs")
			}
			for _, g := range guards {
				g.check("gdn")
			}
		}
		for _, r := range []*ratio{state, update, out} {
			r.report()
		}
	})
}

// checkGDNStep compares value j of a step. kq is a sum of its own, in plain order.
func checkGDNStep(src, dst []float32, before *gdnUpdate, row *gdnRow, j int, state, update, out *ratio) {
	keys := len(row.k)
	n := float64(keys + 4)
	var byKey, byQuery, keySize, querySize, kq, kqSize float64
	for i := range keys {
		old, add := float64(before.decay)*float64(src[i*stripWidth+j]), float64(before.k[i])*float64(before.delta[j])
		s, size := old+add, math.Abs(old)+math.Abs(add)
		state.see(float64(dst[i*stripWidth+j]), s, 2*u*size)
		key, query := float64(row.k[i]), float64(row.q[i])
		byKey, keySize = byKey+key*s, keySize+math.Abs(key)*size
		byQuery, querySize = byQuery+query*s, querySize+math.Abs(query)*size
		kq, kqSize = kq+key*query, kqSize+math.Abs(key*query)
	}
	beta, decay, v := float64(row.beta), float64(row.decay), float64(row.v[j])
	delta := beta * (v - decay*byKey)
	deltaBound := beta * u * (n*keySize + 3*math.Abs(v) + 3*keySize)
	update.see(float64(row.delta[j]), delta, deltaBound)
	bound := (n+3)*u*querySize + math.Abs(kq)*deltaBound + (n+3)*u*kqSize*(math.Abs(delta)+deltaBound)
	out.see(float64(row.o[j]), decay*byQuery+kq*delta, bound)
}

// TestAttentionKernels holds the products of a page to float64.
// TestPut puts tiles of results side by side into rows that are wider than they are: what lies beside them stays.
func TestPut(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		if k.put == nil {
			return
		}
		r := rand.New(rand.NewPCG(3, 4))
		for _, rows := range []int{1, 2, 8, 13} {
			for _, tiles := range []int{1, 3, 8} {
				for _, add := range []bool{false, true} {
					wide := tiles * k.lanes
					width := wide + 5
					acc := normals(t, r, tiles*rows*k.lanes)
					dst, g := guard(t, (rows-1)*width+wide)
					for i := range dst {
						dst[i] = float32(r.NormFloat64())
					}
					want := slices.Clone(dst)
					for i := range rows {
						for j := range wide {
							v := acc[j/k.lanes*rows*k.lanes+i*k.lanes+j%k.lanes]
							if add {
								v += want[i*width+j]
							}
							want[i*width+j] = v
						}
					}
					k.put(dst, width, acc, rows, tiles, add)
					g.check("put")
					if !slices.Equal(dst, want) {
						t.Errorf("%d rows, %d tiles, added %v: other results", rows, tiles, add)
					}
				}
			}
		}
	})
}

func TestAttentionKernels(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(9, 10))
		score, value := &ratio{t: t, what: "scores"}, &ratio{t: t, what: "values"}
		for _, dim := range []int{64, 128, 256} {
			keys, values := make([]uint16, pageTokens*dim), make([]uint16, pageTokens*dim)
			for i := range keys {
				keys[i], values[i] = dequant.ToBF16(float32(r.NormFloat64())), dequant.ToBF16(float32(r.NormFloat64()))
			}
			for _, queries := range []int{1, 2, 4, 5, 16} {
				for _, tokens := range []int{1, 2, 15, 16, 33, 64} {
					q := normals(t, r, queries*dim)
					scores, g := guard(t, queries*pageTokens)
					k.scores(scores, q, queries, keys, dim, tokens)
					g.check("scores")
					for i := range queries {
						for j := range tokens {
							var sum, size float64
							for d := range dim {
								p := float64(q[i*dim+d]) * float64(dequant.FromBF16(keys[keyAt(j, d, dim)]))
								sum, size = sum+p, size+math.Abs(p)
							}
							score.see(float64(scores[i*pageTokens+j]), sum, float64(dim+1)*u*size)
						}
					}
					weights := normals(t, r, queries*pageTokens)
					folds, g2 := guard(t, queries*foldWidth(dim))
					for i := range folds {
						folds[i] = float32(i % 7)
					}
					k.values(folds, weights, queries, values, dim, tokens)
					g2.check("values")
					for i := range queries {
						for d := range foldWidth(dim) {
							at := i*foldWidth(dim) + d
							sum := float64(at % 7)
							size := sum
							for j := range tokens {
								if d < dim {
									p := float64(weights[i*pageTokens+j]) * float64(dequant.FromBF16(values[valueAt(j, d, dim)]))
									sum, size = sum+p, size+math.Abs(p)
								}
							}
							value.see(float64(folds[at]), sum, float64(tokens+1)*u*size)
						}
					}
				}
			}
		}
		score.report()
		value.report()
	})
}

// TestDot holds products of floats to float64, for every kind of weights, and one pair's bits to those it has beside
// others.
func TestDot(t *testing.T) {
	formats := [...]dequant.Type{decodedRows: dequant.F32, storedF32: dequant.F32, storedF16: dequant.F16, storedBF16: dequant.BF16}
	eachKernels(t, func(t *testing.T, k *kernels) {
		r, e := rand.New(rand.NewPCG(11, 12)), &ratio{t: t, what: "dot"}
		for kind, format := range formats {
			if floatKind(kind) != decodedRows && !k.readsFloats {
				continue
			}
			for _, cols := range []int{5, 16, 64, 72, 256} {
				for _, rows := range []int{1, 3, 4, 7, k.lanes} {
					m := randomMatrix(t, dequant.Lookup(format), rows, cols, r)
					w := &floatRows{kind: floatKind(kind), data: m.Data, rows: rows, cols: cols, lanes: k.lanes}
					decoded := make([]float32, rows*cols)
					for j := range rows {
						m.DecodeRow(decoded[j*cols:(j+1)*cols], j)
					}
					w.values = decoded
					const inputs = 6
					x := normals(t, r, inputs*cols)
					acc, g := guard(t, inputs*k.lanes)
					k.dot(acc, w, x, cols, inputs)
					g.check("dot")
					one := make([]float32, k.lanes)
					for i := range inputs {
						k.dot(one, w, x[i*cols:], cols, 1)
						for j := range rows {
							var sum, size float64
							for c := range cols {
								p := float64(decoded[j*cols+c]) * float64(x[i*cols+c])
								sum, size = sum+p, size+math.Abs(p)
							}
							e.see(float64(acc[i*k.lanes+j]), sum, float64(cols/16+8)*u*size)
							if one[j] != acc[i*k.lanes+j] {
								t.Fatalf("%s, %d columns, %d rows: a product differs beside others", format, cols, rows)
							}
						}
					}
				}
			}
		}
		e.report()
	})
}

// TestAssemblyOfLevels finds registers of AVX-512 in kernels of the level below it, and in those of AVX-512 instructions
// that Go's assembler does not know.
func TestAssemblyOfLevels(t *testing.T) {
	wide := regexp.MustCompile(`\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b`)
	tiled := regexp.MustCompile(`^(productTiles|tilesBF16|dotBF16)`)
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	kernels := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "_amd64.s") {
			continue
		}
		data, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		name := ""
		for line := range strings.Lines(string(data)) {
			if text, ok := strings.CutPrefix(line, "TEXT ·"); ok {
				name, _, _ = strings.Cut(text, "(")
				kernels++
			}
			if bytes := strings.HasPrefix(line, "\tBYTE"); bytes && !tiled.MatchString(name) {
				t.Errorf("%s: %s has instructions of a level above it", f.Name(), name)
			}
			if strings.Contains(name, "256") && wide.MatchString(line) && !strings.HasPrefix(line, "//") {
				t.Errorf("%s: %s: %s", f.Name(), name, strings.TrimSpace(line))
			}
		}
	}
	if kernels == 0 {
		t.Error("no kernels were found")
	}
}
