//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/oracle"
)

const (
	gdnKeyHeads   = 2
	gdnValueHeads = 4
	gdnWidth      = (2*gdnKeyHeads + gdnValueHeads) * gdnDim
	gdnEpsilon    = 1e-6
)

// A gdnRun is a lane of the recurrence on a device.
type gdnRun struct {
	*bench
	decay, bias     []float32
	states, updates *Buffer
	fixed           [2]*Buffer // decay, bias
	index, kept     int
	slot            int
	chunked         bool
}

func newGDNRun(b *bench) *gdnRun {
	r := &gdnRun{bench: b, decay: []float32{-0.02, -1, -0.3, -6}, bias: []float32{0.1, -0.5, 2, -3}}
	r.states = empty[float32](b, gdnValueHeads*gdnDim*gdnDim)
	r.updates = empty[float32](b, 2*gdnKept*gdnValueHeads*gdnUpdate)
	r.fixed = [2]*Buffer{filled(b, r.decay), filled(b, r.bias)}
	return r
}

// A gdnInput is rows of what the recurrence reads.
type gdnInput struct{ qkv, beta, alpha []float32 }

func gdnInputs(rng *rand.Rand, rows int) gdnInput {
	return gdnInput{normals(rng, rows*gdnWidth), normals(rng, rows*gdnValueHeads), normals(rng, rows*gdnValueHeads)}
}

func (in gdnInput) rows(from, to int) gdnInput {
	return gdnInput{in.qkv[from*gdnWidth : to*gdnWidth], in.beta[from*gdnValueHeads : to*gdnValueHeads],
		in.alpha[from*gdnValueHeads : to*gdnValueHeads]}
}

// step runs rows of the lane and returns what they put out.
func (r *gdnRun) step(in gdnInput) []float32 {
	r.t.Helper()
	rows := len(in.beta) / gdnValueHeads
	dst := empty[float32](r.bench, rows*gdnValueHeads*gdnDim)
	segment := []segmentInfo{{rows: cUint(rows), index: cUint(r.index), kept: cUint(r.kept), slot: cUint(r.slot)}}
	bindings := []binding{
		filled(r.bench, in.qkv).from(0), filled(r.bench, in.beta).from(0), filled(r.bench, in.alpha).from(0), r.fixed[0].from(0),
		r.fixed[1].from(0), filled(r.bench, segment).from(0), r.states.from(0), r.updates.from(0), dst.from(0),
	}
	p := gdnParams{keyHeads: gdnKeyHeads, valueHeads: gdnValueHeads, epsilon: gdnEpsilon}
	if r.chunked {
		p.chunked = 1
		add(&r.commands, r.kernel("gdn_chunk"), gdnChunkGrid(gdnValueHeads, 1), p, bindings...)
	}
	add(&r.commands, r.kernel("gdn"), gdnGrid(gdnValueHeads, 1), p, bindings...)
	r.run()
	r.index, r.kept, r.slot = r.index+rows, min(rows, gdnKept), 1-r.slot
	return slices.Clone(view[float32](dst))
}

// back forgets rows.
func (r *gdnRun) back(n int) { r.index, r.kept = r.index-n, r.kept-n }

// TestGDN holds 512 rows, in passes of several sizes, to the oracle, and fewer on the device that checks every access.
//
// The bound follows the error e of a column s of the state: a step maps it by g (I - beta k k^T), which takes at least the
// share 1 - g of it away, and adds roundings: of sums of gdnDim products in gdnDim/32 steps and five levels of lanes, of keys
// and queries that were normalized by such a sum, and of a few products of numbers no larger than |s| and |v|. A decay strays
// by units of its logarithm.
func TestGDN(t *testing.T) {
	sizes := []int{1, 8, 3, 12, 1, 100, 9, 1, 64, 7}
	testGDN(t, newGDNRun(newBench(t)), 30, sizes)
	testGDN(t, newGDNRun(newFastBench(t)), 512, sizes)
}

// TestGDNChunk holds the chunked form to the same bound after as many rows.
func TestGDNChunk(t *testing.T) {
	for _, c := range []struct {
		bench *bench
		rows  int
		sizes []int
	}{
		{newBench(t), 60, []int{24, 5, 31}}, {newFastBench(t), 512, []int{40, 1, 100, 3, 8, 256, 104}},
	} {
		run := newGDNRun(c.bench)
		run.chunked = true
		testGDN(t, run, c.rows, c.sizes)
	}
}

func testGDN(t *testing.T, run *gdnRun, rows int, sizes []int) {
	const sum = (gdnDim/32 + 5) * u // roundings of a sum over a head
	in := gdnInputs(rand.New(rand.NewPCG(19, 1)), rows)
	var got []float32
	for at, i := 0, 0; at < rows; i++ {
		n := min(sizes[i%len(sizes)], rows-at)
		got = append(got, run.step(in.rows(at, at+n))...)
		at += n
	}
	var r ratio
	for head := range gdnValueHeads {
		state := make([]float64, gdnDim*gdnDim)
		stray, length := make([]float64, gdnDim), make([]float64, gdnDim)
		o, delta, q, k := make([]float64, gdnDim), make([]float64, gdnDim), make([]float64, gdnDim), make([]float64, gdnDim)
		for i := range rows {
			x := wide(in.qkv[i*gdnWidth : (i+1)*gdnWidth])
			keyHead := head / (gdnValueHeads / gdnKeyHeads)
			oracle.L2Norm(q, x[keyHead*gdnDim:(keyHead+1)*gdnDim], gdnEpsilon)
			for j := range q {
				q[j] /= math.Sqrt(gdnDim)
			}
			oracle.L2Norm(k, x[(gdnKeyHeads+keyHead)*gdnDim:(gdnKeyHeads+keyHead+1)*gdnDim], gdnEpsilon)
			v := x[2*gdnKeyHeads*gdnDim+head*gdnDim:][:gdnDim]
			at := i*gdnValueHeads + head
			g := oracle.GDNDecay(float64(in.alpha[at]), float64(run.bias[head]), float64(run.decay[head]))
			oracle.GDNStep(o, delta, state, q, k, v, oracle.GDNBeta(float64(in.beta[at])), g)
			for j := range o {
				before, squares := g*length[j], 0.0
				for d := range gdnDim {
					squares += state[d*gdnDim+j] * state[d*gdnDim+j]
				}
				length[j] = math.Sqrt(squares)
				stray[j] = g*stray[j] + (2*u-8*u*math.Log(g))*before + (2*sum+8*u)*(before+math.Abs(v[j])) + u*length[j]
				r.check(got[at*gdnDim+j], o[j], (stray[j]+(2*sum+6*u)*length[j])/math.Sqrt(gdnDim), "row %d, head %d, value %d", i, head, j)
			}
		}
	}
	r.report(t, fmt.Sprintf("gdn, %d rows", rows))
}

// TestGDNChunkRollback takes back rows after chunks: what follows has the bits of a lane whose pass ended there, where its chunks are
// the same.
func TestGDNChunkRollback(t *testing.T) {
	b := newFastBench(t)
	rng := rand.New(rand.NewPCG(19, 3))
	right, wrong := gdnInputs(rng, 64), gdnInputs(rng, 8)
	chunked := func() *gdnRun {
		run := newGDNRun(b)
		run.chunked = true
		return run
	}
	whole, cut := chunked(), chunked()
	whole.step(right.rows(0, 40))
	want := whole.step(right.rows(40, 64))
	keep := right.rows(0, 40)
	cut.step(gdnInput{
		slices.Concat(keep.qkv, wrong.rows(0, 7).qkv), slices.Concat(keep.beta, wrong.rows(0, 7).beta),
		slices.Concat(keep.alpha, wrong.rows(0, 7).alpha),
	})
	cut.back(7)
	if got := cut.step(right.rows(40, 64)); !slices.Equal(got, want) {
		t.Error("7 of 47 rows taken back: what follows differs")
	}
}

// TestGDNRollback takes back every number of rows of segments up to 12 and goes on: the bits are those of a lane that never
// ran the rows.
func TestGDNRollback(t *testing.T) {
	b := newFastBench(t)
	rng := rand.New(rand.NewPCG(19, 2))
	right, wrong := gdnInputs(rng, 30), gdnInputs(rng, 8)
	want := newGDNRun(b).step(right)
	for _, rows := range []int{1, 2, 5, 8, 12} {
		for back := range min(rows, gdnKept) + 1 {
			run := newGDNRun(b)
			run.step(right.rows(0, 10))
			keep := right.rows(10, 10+rows-back)
			bad := wrong.rows(0, back)
			run.step(gdnInput{
				slices.Concat(keep.qkv, bad.qkv), slices.Concat(keep.beta, bad.beta), slices.Concat(keep.alpha, bad.alpha),
			})
			run.back(back)
			at := 10 + rows - back
			if got := run.step(right.rows(at, at+3)); !slices.Equal(got, want[at*gdnValueHeads*gdnDim:(at+3)*gdnValueHeads*gdnDim]) {
				t.Fatalf("%d of %d rows taken back: what follows differs", back, rows)
			}
		}
	}
}
