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
	r := &run{Tower: t, ctx: ctx, pixels: pixels, gridH: gridH, gridW: gridW}
	r.x = make([]float32, gridH*gridW*v.Hidden)
	r.h = make([]float32, gridH*gridW*v.Hidden)
	r.qkv = make([]float32, 3*gridH*gridW*v.Hidden)
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

	x   []float32 // [patches][hidden], the residual
	h   []float32 // [patches][hidden]
	qkv []float32 // [patches][3*hidden]
}

// A worker's memory.
type worker struct {
	a, b     []float32 // rows of a chunk
	weights  []float32 // of wideRows rows
	scores   []float32
	sin, cos []float64 // of a patch's pairs
}

// each calls f with chunks of the patches on all cores. Each patch is computed by itself, so that the result does not
// depend on who computes it.
func (r *run) each(f func(w *worker, first, last int)) {
	n := r.gridH * r.gridW
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
	r.embed.apply(w, r.hiddenRows(r.x, first, last), w.a)
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

// project makes the queries, keys and values of patches, rotated, and the queries scaled.
func (r *run) project(w *worker, b *block, first, last int) {
	v := &r.layout
	w.a = grown(w.a, (last-first)*v.Hidden)
	b.norm1.apply(w.a, r.hiddenRows(r.x, first, last), v.Epsilon)
	b.qkv.apply(w, r.qkv[3*first*v.Hidden:3*last*v.Hidden], w.a)
	dim := v.HeadDim()
	scale := float32(1 / math.Sqrt(float64(dim)))
	for n := first; n < last; n++ {
		row, col := r.place(n)
		w.angles(row, col, r.freq)
		qkv := r.qkv[3*n*v.Hidden:]
		for at := 0; at < 2*v.Hidden; at += dim {
			w.rotate(qkv[at : at+dim])
		}
		for i := range qkv[:v.Hidden] {
			qkv[i] *= scale
		}
	}
}

// attend writes every head's attention to h.
func (r *run) attend() {
	v := &r.layout
	n, dim := r.gridH*r.gridW, v.HeadDim()
	chunks := (n + chunkRows - 1) / chunkRows
	r.parallel(v.Heads*chunks, func(w *worker, i int) {
		head, first := i/chunks, i%chunks*chunkRows
		w.scores = grown(w.scores, n)
		for q := first; q < min(first+chunkRows, n); q++ {
			query := r.qkv[3*q*v.Hidden+head*dim:][:dim]
			for k := range n {
				w.scores[k] = dot(query, r.qkv[(3*k+1)*v.Hidden+head*dim:][:dim])
			}
			softmax(w.scores)
			out := r.h[q*v.Hidden+head*dim:][:dim]
			clear(out)
			for k, p := range w.scores {
				for d, x := range r.qkv[(3*k+2)*v.Hidden+head*dim:][:dim] {
					out[d] += p * x
				}
			}
		}
	})
}

// feed adds the attention's projection and the MLP to the residual of patches.
func (r *run) feed(w *worker, b *block, first, last int) {
	v := &r.layout
	x, h := r.hiddenRows(r.x, first, last), r.hiddenRows(r.h, first, last)
	w.a = grown(w.a, max(len(x), (last-first)*v.FFN))
	b.proj.apply(w, w.a[:len(x)], h)
	add(x, w.a)
	b.norm2.apply(h, x, v.Epsilon)
	wide := w.a[:(last-first)*v.FFN]
	b.up.apply(w, wide, h)
	for i, u := range wide {
		wide[i] = geluTanh(u)
	}
	b.down.apply(w, h, wide)
	add(x, h)
}

// merge makes the rows of patches, which are whole rows' as chunkRows is a multiple of a row's.
func (r *run) merge(w *worker, rows []float32, first, last int) {
	v := &r.layout
	each := v.Merge * v.Merge
	w.a, w.b = grown(w.a, (last-first)*v.Hidden), grown(w.b, (last-first)*v.Hidden)
	r.norm.apply(w.a, r.hiddenRows(r.x, first, last), v.Epsilon)
	r.in.apply(w, w.b, w.a)
	for i, u := range w.b {
		w.b[i] = geluErf(u)
	}
	dst := rows[first/each*v.Out : last/each*v.Out]
	r.out.apply(w, dst, w.b)
	for i, u := range dst {
		dst[i] = dequant.FromBF16(dequant.ToBF16(u))
	}
}
