package oracle

import "math"

// A Vision is the tower that makes an image the rows a target reads in place of token embeddings: patches with their
// place, blocks of attention over the whole image, and a merger of neighbouring patches. H is the hidden size, D the
// size of a head, M the number of patches of a row.
//
// Source: Qwen3-VL's vision tower as transformers and splash run it (models.md 9).
type Vision struct {
	Heads     int
	Patch     int // pixels a side of a patch
	Frames    int // of a patch: an image fills all of them
	Merge     int // patches a side of a row; M = Merge^2
	Side      int // of the position table
	Eps       float64
	Embed     Affine    // [H, 3*Frames*Patch*Patch], columns channel, frame, row, column
	Positions []float64 // [Side*Side][H]
	Blocks    []VisionBlock
	Norm      LayerNorm // [H]
	MergeIn   Affine    // [M*H, M*H]
	MergeOut  Affine    // [output, M*H]

}

// A VisionBlock is attention and an MLP, each behind a norm and added to the residual.
type VisionBlock struct {
	Norm1, Norm2 LayerNorm
	QKV, Proj    Affine // [3H, H], rows queries, keys, values; [H, H]
	Up, Down     Affine // [F, H], [H, F]
}

// An Affine is y = W x + b.
type Affine struct {
	Weight Matrix
	Bias   []float64
}

// Apply writes W x + b to dst.
func (a *Affine) Apply(dst, x []float64) {
	MatVec(dst, a.Weight, x)
	for i, b := range a.Bias {
		dst[i] += b
	}
}

// A LayerNorm is (x - mean) / sqrt(variance + eps) * weight + bias, the variance that of the values themselves, not of a
// sample. dst may be x.
//
// Source: Ba, Kiros and Hinton, Layer Normalization, 2016.
type LayerNorm struct{ Weight, Bias []float64 }

// Apply writes the norm of x to dst.
func (n *LayerNorm) Apply(dst, x []float64, eps float64) {
	var mean, variance float64
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		variance += (v - mean) * (v - mean)
	}
	inv := 1 / math.Sqrt(variance/float64(len(x))+eps)
	for i, v := range x {
		dst[i] = (v-mean)*inv*n.Weight[i] + n.Bias[i]
	}
}

// GELUTanh is x/2 (1 + tanh(0.7978845608 (x + 0.044715 x^3))), of the blocks' MLPs. The constant is sqrt(2/pi) to ten
// digits.
//
// Source: Hendrycks and Gimpel, Gaussian Error Linear Units, 2016.
func GELUTanh(x float64) float64 {
	return x / 2 * (1 + math.Tanh(0.7978845608*(x+0.044715*x*x*x)))
}

// GELUErf is x/2 (1 + erf(x / sqrt 2)), of the merger.
func GELUErf(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }

// PatchPlace returns the row and column of patch n of a grid gridW patches wide. Patches that make one row of the result
// follow each other, row after row of them, and those of each row after row.
func PatchPlace(n, gridW, merge int) (row, col int) {
	block, in := n/(merge*merge), n%(merge*merge)
	wide := gridW / merge
	return merge*(block/wide) + in/merge, merge*(block%wide) + in%merge
}

// PatchValues writes the values of the patch at a row and column of the grid to dst, channel after channel, frame after
// frame, row after row: pixel / 127.5 - 1. pixels are RGB, rows of 16 gridW of them.
func PatchValues(dst []float64, pixels []byte, row, col, gridW, patch, frames int) {
	at := 0
	for channel := range 3 {
		for range frames {
			for y := range patch {
				for x := range patch {
					pixel := (row*patch+y)*gridW*patch + col*patch + x
					dst[at] = float64(pixels[3*pixel+channel])/127.5 - 1
					at++
				}
			}
		}
	}
}

// A Tap is a place of the position table and its weight.
type Tap struct {
	Index  int
	Weight float64
}

// PositionTaps returns the two places of a table's side, and their weights, that line i of n is between when the first and
// the last line are the table's. A place past the end counts for the last.
func PositionTaps(i, n, side int) [2]Tap {
	y := 0.0
	if n > 1 {
		y = float64(i) * float64(side-1) / float64(n-1)
	}
	first := math.Floor(y)
	return [2]Tap{
		{int(first), 1 - (y - first)},
		{min(int(first)+1, side-1), y - first},
	}
}

// AddPosition adds the table's value at a row and column of the grid to x: bilinear between its four neighbours.
func AddPosition(x, table []float64, row, col, gridH, gridW, side int) {
	for _, ty := range PositionTaps(row, gridH, side) {
		for _, tx := range PositionTaps(col, gridW, side) {
			from := table[(ty.Index*side+tx.Index)*len(x):]
			for i := range x {
				x[i] += ty.Weight * tx.Weight * from[i]
			}
		}
	}
}

// VisionFrequencies returns 10000^(-2f/(D/2)) for the D/4 pairs that turn with the row, and again with the column.
func VisionFrequencies(dim int) []float64 {
	f := make([]float64, dim/4)
	for i := range f {
		f[i] = math.Pow(10000, -2*float64(i)/float64(dim/2))
	}
	return f
}

// VisionRope rotates the head x in place: pair i is the elements i and i + D/2; the first half of the pairs turns by row
// times their frequency, the second by column.
func VisionRope(x []float64, row, col int, freq []float64) {
	half := 2 * len(freq)
	for i := range half {
		angle := float64(row) * freq[i%len(freq)]
		if i >= len(freq) {
			angle = float64(col) * freq[i%len(freq)]
		}
		sin, cos := math.Sincos(angle)
		a, b := x[i], x[i+half]
		x[i] = a*cos - b*sin
		x[i+half] = b*cos + a*sin
	}
}

// VisionAttention writes softmax(q . k / sqrt(D)) v of one head to dst ([n][D]), every patch over all of them.
func VisionAttention(dst, q, k, v [][]float64) {
	scores := make([]float64, len(k))
	for i := range q {
		for j := range k {
			scores[j] = Dot(q[i], k[j]) / math.Sqrt(float64(len(q[i])))
		}
		Softmax(scores)
		clear(dst[i])
		for j, p := range scores {
			for d, x := range v[j] {
				dst[i][d] += p * x
			}
		}
	}
}

// Encode returns the rows of an image of gridH x gridW patches, both multiples of Merge: one of the target's hidden size
// for Merge^2 patches, row after row of the merged grid.
func (t *Vision) Encode(pixels []byte, gridH, gridW int) [][]float64 {
	hidden := len(t.Embed.Bias)
	x := make([][]float64, gridH*gridW)
	patch := make([]float64, 3*t.Frames*t.Patch*t.Patch)
	for n := range x {
		x[n] = make([]float64, hidden)
		row, col := PatchPlace(n, gridW, t.Merge)
		PatchValues(patch, pixels, row, col, gridW, t.Patch, t.Frames)
		t.Embed.Apply(x[n], patch)
		AddPosition(x[n], t.Positions, row, col, gridH, gridW, t.Side)
	}
	for i := range t.Blocks {
		t.attend(x, &t.Blocks[i], gridW)
		t.feed(x, &t.Blocks[i])
	}
	return t.merge(x)
}

// attend adds the attention of a block to the patches.
func (t *Vision) attend(x [][]float64, b *VisionBlock, gridW int) {
	hidden := len(x[0])
	dim := hidden / t.Heads
	freq := VisionFrequencies(dim)
	qkv, out := make([][]float64, len(x)), make([][]float64, len(x))
	h := make([]float64, hidden)
	for n := range x {
		qkv[n], out[n] = make([]float64, 3*hidden), make([]float64, hidden)
		b.Norm1.Apply(h, x[n], t.Eps)
		b.QKV.Apply(qkv[n], h)
		row, col := PatchPlace(n, gridW, t.Merge)
		for at := 0; at < 2*hidden; at += dim { // queries and keys
			VisionRope(qkv[n][at:at+dim], row, col, freq)
		}
	}
	head := func(of [][]float64, at int) [][]float64 {
		all := make([][]float64, len(of))
		for n := range of {
			all[n] = of[n][at : at+dim]
		}
		return all
	}
	for at := 0; at < hidden; at += dim {
		VisionAttention(head(out, at), head(qkv, at), head(qkv, hidden+at), head(qkv, 2*hidden+at))
	}
	for n := range x {
		b.Proj.Apply(h, out[n])
		addTo(x[n], h)
	}
}

// feed adds the MLP of a block to the patches.
func (t *Vision) feed(x [][]float64, b *VisionBlock) {
	h, wide := make([]float64, len(x[0])), make([]float64, len(b.Up.Bias))
	for n := range x {
		b.Norm2.Apply(h, x[n], t.Eps)
		b.Up.Apply(wide, h)
		for i, v := range wide {
			wide[i] = GELUTanh(v)
		}
		b.Down.Apply(h, wide)
		addTo(x[n], h)
	}
}

// merge makes the rows of the patches.
func (t *Vision) merge(x [][]float64) [][]float64 {
	hidden, m := len(x[0]), t.Merge*t.Merge
	rows := make([][]float64, len(x)/m)
	merged, wide := make([]float64, m*hidden), make([]float64, m*hidden)
	for r := range rows {
		for i := range m {
			t.Norm.Apply(merged[i*hidden:(i+1)*hidden], x[m*r+i], t.Eps)
		}
		t.MergeIn.Apply(wide, merged)
		for i, v := range wide {
			wide[i] = GELUErf(v)
		}
		rows[r] = make([]float64, len(t.MergeOut.Bias))
		t.MergeOut.Apply(rows[r], wide)
	}
	return rows
}

// ImagePositions appends the rotary positions of an image of rows x cols tokens after text that ends before position
// start, row after row, and returns the position of the text that follows.
//
// Source: the M-RoPE of Qwen2-VL (models.md 10).
func ImagePositions(dst []Position, start int32, rows, cols int) ([]Position, int32) {
	for r := range rows {
		for c := range cols {
			dst = append(dst, Position{start, start + int32(r), start + int32(c)})
		}
	}
	return dst, start + int32(max(rows, cols))
}
