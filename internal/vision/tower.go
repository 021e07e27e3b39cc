package vision

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"splash/dequant"
	"splash/oracle"
)

// chunkRows is how many patches a worker takes at once: enough that reading a weight is little beside multiplying by it.
const chunkRows = 32

// Encode returns the rows of an image of gridH x gridW patches, one after another, [gridH*gridW/4][Width], as BF16 holds
// them. pixels are RGB, 16 gridH rows of 16 gridW. It returns early with the context's cause.
func (t *Tower) Encode(ctx context.Context, pixels []byte, gridH, gridW int) ([]float32, error) {
	v := &t.layout
	if gridH < 1 || gridW < 1 || gridH%v.Merge != 0 || gridW%v.Merge != 0 || len(pixels) != 3*v.Patch*v.Patch*gridH*gridW {
		return nil, fmt.Errorf("vision: %d bytes are no image of %d x %d patches", len(pixels), gridH, gridW)
	}
	r := t.run(ctx, gridH, gridW)
	r.pixels = pixels
	r.each(r.embedPatches)
	for i := range t.blocks {
		b := &t.blocks[i]
		r.each(func(w *worker, first, last int) { r.project(w, b, first, last) })
		r.attend()
		r.each(func(w *worker, first, last int) { r.feed(w, b, first, last) })
	}
	rows := make([]float32, gridH*gridW/(v.Merge*v.Merge)*v.Out)
	r.each(func(w *worker, first, last int) { r.merge(w, rows, first, last) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return rows, nil
}

// A run is one image on its way.
type run struct {
	*Tower
	ctx          context.Context
	pixels       []byte
	gridH, gridW int

	x, h []float32 // [patches][hidden]: the residual, and what is added to it
	// Queries and keys are [heads][patches][pad], zeros after the head's own values; values are [heads][dim][patches].
	q, k, v []float32
	pad     int
}

// padded is the width of a head's queries and keys: a whole number of what kernels multiply at once.
func padded(dim int) int { return (dim + 15) / 16 * 16 }

func (t *Tower) run(ctx context.Context, gridH, gridW int) *run {
	v, n := &t.layout, gridH*gridW
	pad := padded(v.HeadDim())
	return &run{
		Tower: t, ctx: ctx, gridH: gridH, gridW: gridW, pad: pad,
		x: make([]float32, n*v.Hidden), h: make([]float32, n*v.Hidden),
		q: make([]float32, n*v.Heads*pad), k: make([]float32, n*v.Heads*pad), v: make([]float32, n*v.Hidden),
	}
}

// patches is the number of them.
func (r *run) patches() int { return r.gridH * r.gridW }

// A worker's memory.
type worker struct {
	a, b     []float32 // rows of a chunk
	weights  []float32 // of wideRows rows
	scores   []float32
	sums     []float32 // of weights
	sin, cos []float64 // of a patch's pairs
}

// each calls f with chunks of the patches on all cores. Each patch is computed by itself, so that the result does not
// depend on who computes it.
func (r *run) each(f func(w *worker, first, last int)) {
	n := r.patches()
	r.parallel((n+chunkRows-1)/chunkRows, func(w *worker, i int) { f(w, i*chunkRows, min((i+1)*chunkRows, n)) })
}

// parallel calls f for the numbers below n, until the context ends.
func (r *run) parallel(n int, f func(w *worker, i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		all.Go(func() {
			w := &worker{}
			for r.ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(w, i)
			}
		})
	}
	all.Wait()
}

func grown(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

func (r *run) hiddenRows(of []float32, first, last int) []float32 {
	return of[first*r.layout.Hidden : last*r.layout.Hidden]
}

// place is the row and column of patch n.
func (r *run) place(n int) (row, col int) { return oracle.PatchPlace(n, r.gridW, r.layout.Merge) }

// embedPatches makes the residual of patches.
func (r *run) embedPatches(w *worker, first, last int) {
	v := &r.layout
	cols := r.embed.cols
	w.a = grown(w.a, (last-first)*cols)
	for n := first; n < last; n++ {
		row, col := r.place(n)
		r.patch(w.a[(n-first)*cols:][:cols], row, col)
	}
	r.apply(&r.embed, w, r.hiddenRows(r.x, first, last), w.a)
	for n := first; n < last; n++ {
		row, col := r.place(n)
		x := r.x[n*v.Hidden : (n+1)*v.Hidden]
		for _, ty := range oracle.PositionTaps(row, r.gridH, v.Side) {
			for _, tx := range oracle.PositionTaps(col, r.gridW, v.Side) {
				weight := float32(ty.Weight * tx.Weight)
				for i, p := range r.positions[(ty.Index*v.Side+tx.Index)*v.Hidden:][:v.Hidden] {
					x[i] += weight * p
				}
			}
		}
	}
}

// patch writes the values of a patch (oracle.PatchValues).
func (r *run) patch(dst []float32, row, col int) {
	v := &r.layout
	plane := v.Patch * v.Patch
	for y := range v.Patch {
		from := r.pixels[3*((row*v.Patch+y)*r.gridW*v.Patch+col*v.Patch):]
		for x := range v.Patch {
			for channel := range 3 {
				value := float32(from[3*x+channel])/127.5 - 1
				for frame := range v.Temporal {
					dst[(channel*v.Temporal+frame)*plane+y*v.Patch+x] = value
				}
			}
		}
	}
}

// project makes the queries, keys and values of patches, the first two rotated, and the queries scaled.
func (r *run) project(w *worker, b *block, first, last int) {
	v, dim := &r.layout, r.layout.HeadDim()
	w.a, w.b = grown(w.a, (last-first)*v.Hidden), grown(w.b, 3*(last-first)*v.Hidden)
	b.norm1.apply(w.a, r.hiddenRows(r.x, first, last), v.Epsilon)
	r.apply(&b.qkv, w, w.b, w.a)
	for n := first; n < last; n++ {
		row, col := r.place(n)
		w.angles(row, col, r.freq)
		r.keep(w, n, w.b[3*(n-first)*v.Hidden:][:3*v.Hidden], float32(1/math.Sqrt(float64(dim))))
	}
}

// keep puts the queries, keys and values of patch n in their places.
func (r *run) keep(w *worker, n int, qkv []float32, scale float32) {
	hidden, dim, patches := r.layout.Hidden, r.layout.HeadDim(), r.patches()
	for head := range r.layout.Heads {
		at := (head*patches + n) * r.pad
		q, k := r.q[at:at+dim], r.k[at:at+dim]
		copy(q, qkv[head*dim:])
		copy(k, qkv[hidden+head*dim:])
		w.rotate(q)
		w.rotate(k)
		for i := range q {
			q[i] *= scale
		}
		for i, x := range qkv[2*hidden+head*dim:][:dim] {
			r.v[(head*dim+i)*patches+n] = x
		}
	}
}

// attend writes every head's attention to h.
func (r *run) attend() {
	n := r.patches()
	chunks := (n + chunkRows - 1) / chunkRows
	r.parallel(r.layout.Heads*chunks, func(w *worker, i int) {
		first := i % chunks * chunkRows
		r.attendChunk(w, i/chunks, first, min(first+chunkRows, n))
	})
}

// attendChunk is one head's attention of some patches to all.
func (r *run) attendChunk(w *worker, head, first, last int) {
	n, dim := r.patches(), r.layout.HeadDim()
	all := head * n * r.pad
	w.scores, w.a = grown(w.scores, (last-first)*n), grown(w.a, (last-first)*dim)
	r.products(w.scores, r.k[all:all+n*r.pad], r.pad, r.q[all+first*r.pad:all+last*r.pad])
	w.sums = w.sums[:0]
	for q := range last - first {
		w.sums = append(w.sums, r.soften(w.scores[q*n:(q+1)*n]))
	}
	r.products(w.a, r.v[head*dim*n:(head+1)*dim*n], n, w.scores)
	for q, sum := range w.sums {
		out := r.h[(first+q)*r.layout.Hidden+head*dim:][:dim]
		for i, x := range w.a[q*dim : (q+1)*dim] {
			out[i] = x / sum
		}
	}
}

// feed adds the attention's projection and the MLP to the residual of patches.
func (r *run) feed(w *worker, b *block, first, last int) {
	v := &r.layout
	x, h := r.hiddenRows(r.x, first, last), r.hiddenRows(r.h, first, last)
	w.a = grown(w.a, max(len(x), (last-first)*v.FFN))
	r.apply(&b.proj, w, w.a[:len(x)], h)
	add(x, w.a)
	b.norm2.apply(h, x, v.Epsilon)
	wide := w.a[:(last-first)*v.FFN]
	r.apply(&b.up, w, wide, h)
	for i, u := range wide {
		wide[i] = geluTanh(u)
	}
	r.apply(&b.down, w, h, wide)
	add(x, h)
}

// merge makes the rows of patches, which are whole rows' as chunkRows is a multiple of a row's.
func (r *run) merge(w *worker, rows []float32, first, last int) {
	v := &r.layout
	each := v.Merge * v.Merge
	w.a, w.b = grown(w.a, (last-first)*v.Hidden), grown(w.b, (last-first)*v.Hidden)
	r.norm.apply(w.a, r.hiddenRows(r.x, first, last), v.Epsilon)
	r.apply(&r.in, w, w.b, w.a)
	for i, u := range w.b {
		w.b[i] = geluErf(u)
	}
	dst := rows[first/each*v.Out : last/each*v.Out]
	r.apply(&r.out, w, dst, w.b)
	for i, u := range dst {
		dst[i] = dequant.FromBF16(dequant.ToBF16(u))
	}
}
