package oracle

import "math"

// A Draft is the DFlash2 network that proposes a target's next tokens: a block of rows, the first of which holds the
// anchor, all others the mask token, attends to what the target's tapped layers said of the tokens before. H is the
// hidden size, D the head dimension.
//
// Source: Chen et al., DFlash, 2026, and its second form as splash and vllm run it (draft.md 4).
type Draft struct {
	Heads, KVHeads int
	Group          int       // channels that share a dynamic convolution kernel
	Window         int       // positions a row sees, its own included
	Freq           []float32 // rotary frequencies of all D dimensions, [RopeFrequencies](theta, D)
	Eps            float64

	FC         Matrix    // [H, taps*H], columns tap after tap
	HiddenNorm []float64 // [H]
	Layers     []DraftLayer
	Norm       []float64 // [H]
	Select     Matrix    // candidate_selector.hidden_projection, [rank, H]
}

// A DraftLayer is attention and a SwiGLU, each between two convolutions that share one dynamic kernel.
type DraftLayer struct {
	InputNorm    []float64 // [H]
	AttnConv     DraftConv
	Q, K, V, O   Matrix    // [Heads*D, H], [KVHeads*D, H] twice, [H, Heads*D]
	QNorm, KNorm []float64 // [D]

	PostNorm       []float64 // [H]
	FFNConv        DraftConv
	Gate, Up, Down Matrix // [I, H] twice, [H, I]
}

// A DraftConv is the kernel of a pair of convolutions, side 0 on the way into a sublayer and side 1 on the way out.
type DraftConv struct {
	Base    []float64 // [side][tap][H]
	Dynamic Matrix    // kernel_projection, [4*H/Group, H], rows [side][tap][group]
}

// A DraftCache holds the context of one lane: what every draft layer made of the tokens the target has committed.
type DraftCache interface {
	// Context returns the keys and values a layer stored for a position, [KVHeads*D] each. It is asked only for the
	// positions that a row of the block sees.
	Context(layer, position int) (k, v []float64)
}

// A DraftRing is a DraftCache of the last Window positions: position t is in slot t mod Window.
type DraftRing struct {
	window, width int
	keys, values  []float64 // [layer][slot][width]
}

// NewDraftRing returns an empty ring for a lane of d.
func (d *Draft) NewDraftRing() *DraftRing {
	width := d.KVHeads * d.dim()
	n := len(d.Layers) * d.Window * width
	return &DraftRing{window: d.Window, width: width, keys: make([]float64, n), values: make([]float64, n)}
}

// Context returns the slot of a position.
func (r *DraftRing) Context(layer, position int) (k, v []float64) {
	at := (layer*r.window + position%r.window) * r.width
	return r.keys[at : at+r.width], r.values[at : at+r.width]
}

func (d *Draft) dim() int { return 2 * len(d.Freq) }

// Commit stores the context of a position the target has committed, made of the taps of its row ([taps*H]).
func (d *Draft) Commit(r *DraftRing, taps []float64, position int) {
	h := make([]float64, len(d.HiddenNorm))
	d.ContextHidden(h, taps)
	for layer := range d.Layers {
		k, v := r.Context(layer, position)
		d.ContextKV(k, v, h, layer, position)
	}
}

// ContextHidden writes h = rms(FC taps) of a committed row to h ([H]): what every layer makes its keys and values of.
func (d *Draft) ContextHidden(h, taps []float64) {
	MatVec(h, d.FC, taps)
	RMSNorm(h, h, d.HiddenNorm, d.Eps)
}

// ContextKV writes a layer's keys (normalized and rotated) and values for a committed row of hidden h to k and v
// ([KVHeads*D] each). Neither the input norm nor a convolution stands before the projections.
func (d *Draft) ContextKV(k, v, h []float64, layer, position int) {
	l := &d.Layers[layer]
	MatVec(k, l.K, h)
	MatVec(v, l.V, h)
	d.rotate(k, l.KNorm, position)
}

// rotate normalizes and rotates the heads of x in place.
func (d *Draft) rotate(x, norm []float64, position int) {
	for at := 0; at < len(x); at += d.dim() {
		head := x[at : at+d.dim()]
		RMSNorm(head, head, norm, d.Eps)
		Rope(head, TextPosition(position), d.Freq)
	}
}

// DraftRows fills a block x ([rows*H]): the anchor's embedding in row 0, the mask token's in every other.
func DraftRows(x, anchor, mask []float64) {
	copy(x, anchor)
	for at := len(anchor); at < len(x); at += len(anchor) {
		copy(x[at:], mask)
	}
}

// Block runs the network over a block x ([rows*H], row r at position p+r) in place. Afterwards row r holds f_r =
// rms(x_r): the target's head, without the target's final norm, gives its logits, and [Draft.Select] its selector state.
// c holds the context of the positions before p.
func (d *Draft) Block(x []float64, p int, c DraftCache) {
	for l := range d.Layers {
		d.Layer(x, l, p, c)
	}
	normRows(x, x, d.Norm, d.Eps)
}

// Layer runs one layer over a block in place.
func (d *Draft) Layer(x []float64, layer, p int, c DraftCache) {
	l := &d.Layers[layer]
	rows := len(x) / len(l.InputNorm)

	a := make([]float64, len(x))
	normRows(a, x, l.InputNorm, d.Eps)
	dynamic := matRows(l.AttnConv.Dynamic, a, rows)
	in := d.conv(&l.AttnConv, 0, a, dynamic, rows)
	q, k, v := matRows(l.Q, in, rows), matRows(l.K, in, rows), matRows(l.V, in, rows)
	for r := range rows {
		d.rotate(rowOf(q, r, rows), l.QNorm, p+r)
		d.rotate(rowOf(k, r, rows), l.KNorm, p+r)
	}
	o := make([]float64, len(q))
	d.Attend(o, q, k, v, layer, p, c)
	addTo(x, d.conv(&l.AttnConv, 1, matRows(l.O, o, rows), dynamic, rows))

	normRows(a, x, l.PostNorm, d.Eps)
	dynamic = matRows(l.FFNConv.Dynamic, a, rows)
	in = d.conv(&l.FFNConv, 0, a, dynamic, rows)
	wide, up := matRows(l.Gate, in, rows), matRows(l.Up, in, rows)
	for i := range wide {
		wide[i] = SiLU(wide[i]) * up[i]
	}
	addTo(x, d.conv(&l.FFNConv, 1, matRows(l.Down, wide, rows), dynamic, rows))
}

func (d *Draft) conv(c *DraftConv, side int, x, dynamic []float64, rows int) []float64 {
	dst := make([]float64, len(x))
	DraftConvolve(dst, x, c.Base, dynamic, side, rows, d.Group)
	return dst
}

// DraftConvolve writes the two-tap convolution of a block's rows to dst: x and dst are [rows*H], base is
// [side][tap][H], dynamic is [rows][side][tap][H/group], made of each row's normalized sublayer input:
//
//	dst_{r,i} = x_{r,i} (base[side][0][i] + dynamic_r[side][0][i/group])
//	          + x_{r-1,i} (base[side][1][i] + dynamic_r[side][1][i/group])
//
// Row 0 sees zeros before it, never the context. Both taps take the dynamic part of the row that is written.
func DraftConvolve(dst, x, base, dynamic []float64, side, rows, group int) {
	hidden := len(x) / rows
	for r := range rows {
		kernel := rowOf(dynamic, r, rows)[2*side*hidden/group:]
		now, before := base[2*side*hidden:], base[(2*side+1)*hidden:]
		for i := range hidden {
			at, g := r*hidden+i, i/group
			dst[at] = x[at] * (now[i] + kernel[g])
			if r > 0 {
				dst[at] += x[at-hidden] * (before[i] + kernel[hidden/group+g])
			}
		}
	}
}

// Attend writes the attention of a block's queries to o: q and o are [rows][Heads*D], k and v, the block's own, are
// [rows][KVHeads*D], all normalized and rotated but v. Row r sees the context positions max(0, p+r-Window+1) .. p-1 of c
// and every row of the block, later ones too; softmax over both together, scores times 1/sqrt(D).
func (d *Draft) Attend(o, q, k, v []float64, layer, p int, c DraftCache) {
	dim := d.dim()
	rows := len(q) / (d.Heads * dim)
	for r := range rows {
		var keys, values [][]float64
		for t := max(0, p+r-d.Window+1); t < p; t++ {
			ck, cv := c.Context(layer, t)
			keys, values = append(keys, ck), append(values, cv)
		}
		for i := range rows {
			keys, values = append(keys, rowOf(k, i, rows)), append(values, rowOf(v, i, rows))
		}
		for h := range d.Heads {
			at := h / (d.Heads / d.KVHeads) * dim
			query, out := rowOf(q, r, rows)[h*dim:(h+1)*dim], rowOf(o, r, rows)[h*dim:(h+1)*dim]
			scores := make([]float64, len(keys))
			for i, key := range keys {
				scores[i] = Dot(query, key[at:at+dim]) / math.Sqrt(float64(dim))
			}
			Softmax(scores)
			clear(out)
			for i, w := range scores {
				for e, x := range values[i][at : at+dim] {
					out[e] += w * x
				}
			}
		}
	}
}

// rowOf is row r of x, which has so many of equal length.
func rowOf(x []float64, r, rows int) []float64 {
	n := len(x) / rows
	return x[r*n : (r+1)*n]
}

// matRows is W x of every row of x. A row of weights is decoded once for all of them.
func matRows(w Matrix, x []float64, rows int) []float64 {
	outputs, inputs := w.Dims()
	dst, weights := make([]float64, rows*outputs), make([]float64, inputs)
	for i := range outputs {
		w.Row(weights, i)
		for r := range rows {
			dst[r*outputs+i] = Dot(weights, rowOf(x, r, rows))
		}
	}
	return dst
}

func normRows(dst, x, w []float64, eps float64) {
	for at := 0; at < len(x); at += len(w) {
		RMSNorm(dst[at:at+len(w)], x[at:at+len(w)], w, eps)
	}
}

func addTo(dst, x []float64) {
	for i, v := range x {
		dst[i] += v
	}
}
