//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"math/rand/v2"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/oracle"
)

// TestTernary holds rotated inputs in codes of 8 bits to the oracle, code for code, and their products with PQ2_0's weights: a sum
// of a number a group, each the product of an integer and two scales.
func TestTernary(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(37, 1))
	const cols, outputs = 2 * codeBlock, 60
	m := randomMatrix(rng, dequant.PQ2_0, 64, cols)
	image := planes(t, map[string]dequant.Matrix{"pq20": m})
	pl := planesOf(b.wrap(image.Data), image.Tensor("pq20"))
	var r ratio
	for i, rows := range []int{1, 8, 11} {
		x, signs := normals(rng, rows*cols), make([]int8, cols)
		clear(x[:codeBlock]) // a block of zeros
		for j := range signs {
			signs[j] = int8(1 - 2*rng.IntN(2))
		}
		floats := make([]float32, cols)
		for j, s := range signs {
			floats[j] = float32(s)
		}
		before := normals(rng, rows*outputs)
		turned, codes, scales := empty[float32](b, rows*cols), empty[int8](b, rows*cols), empty[float32](b, rows*cols/codeBlock)
		dst := filled(b, before)
		add(&b.commands, b.kernel("hadamard"), grid{x: cols / hadamardBlock, y: rows, threads: 256, shared: 4 * hadamardBlock},
			hadamardParams{width: cols}, filled(b, x).from(0), filled(b, floats).from(0), turned.from(0))
		add(&b.commands, b.kernel("quantize_rows"), quantizeGrid(cols, rows), quantizeParams{width: cols}, turned.from(0), codes.from(0),
			scales.from(0))
		add(&b.commands, b.kernel("project_int8"), ternaryGrid(outputs, rows),
			projectParams{rows: cUint(rows), cols: cols, outputs: outputs, epilogue: cUint(i % 2)}, codes.from(0), scales.from(0),
			pl.plane0, pl.meta, dst.from(0))
		b.run()
		want, wantScales := make([]int8, cols), make([]float32, cols/codeBlock)
		for row := range rows {
			oracle.HadamardInt8(want, wantScales, x[row*cols:(row+1)*cols], signs)
			for j, code := range want {
				slot := j/32*32 + 8*(j/4%4) + 4*(j/16%2) + j%4
				if got := view[int8](codes)[row*cols+slot]; got != code {
					t.Fatalf("row %d, input %d: code %d, want %d", row, j, got, code)
				}
			}
			for j, s := range wantScales {
				if got := view[float32](scales)[row*cols/codeBlock+j]; got != s {
					t.Fatalf("row %d, block %d: scale %v, want %v", row, j, got, s)
				}
			}
			for n := range outputs {
				y, size := ternaryDot(m, n, want, wantScales)
				if old := float64(before[row*outputs+n]); i%2 == epilogueAdd {
					y += old
					size += math.Abs(old)
				}
				r.check(view[float32](dst)[row*outputs+n], y, (cols/ternaryGroup+6)*u*size+1e-30, "row %d, output %d", row, n)
			}
		}
	}
	r.report(t, "project_int8")
}

// ternaryDot is the oracle's product of row n, and the sum of the sizes of its parts.
func ternaryDot(m dequant.Matrix, n int, codes []int8, scales []float32) (y, size float64) {
	values := make([]float32, m.Cols)
	m.DecodeRow(values, n)
	for from := 0; from < m.Cols; from += ternaryGroup {
		sum := 0.0
		for i := from; i < from+ternaryGroup; i++ {
			sum += float64(values[i]) * float64(codes[i])
		}
		y += sum * float64(scales[from/codeBlock])
		size += math.Abs(sum * float64(scales[from/codeBlock]))
	}
	return y, size
}

// TestInt8Activations runs a rotated model with inputs in codes: each strays up to a 254th of the largest of its block.
func TestInt8Activations(t *testing.T) {
	tokens := readManifest(t).Tokens[:6]
	x := openRecipe(t, fixtures.Recipe{Family: "tiny-rotated", Seed: 7, Formats: fixtures.Uniform(dequant.PQ2_0), Rotated: true})
	b := x.backend(t, open(t, Devices()[0]), Options{MaxRows: 8, WideKV: true, Int8Activations: true})
	compareLogits(t, x.network(t, b, model.Options{}), x.network(t, reference.New(x.plan, 8), model.Options{}), tokens, 16*tolerance)
}
