package conformance_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"splash/bench"
	"splash/dequant"
	"splash/fixtures"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/internal/safetensors"
	"splash/planner"
)

// TestQuantizationOrders compares the demonstration model's files with the weights it was trained to: the more a format
// rounds, the farther its distributions are.
func TestQuantizationOrders(t *testing.T) {
	var tokens []int32
	for _, p := range demoPrompts(t)[:6] {
		tokens = append(append(tokens, p.IDs...), p.Greedy...)
	}
	_, ref := load(t, demoPath("pebble-BF16.gguf"), 64, model.Options{})
	measure := func(name string, n model.Network) *bench.KLResult {
		r, err := bench.KL(context.Background(), ref, n, tokens, bench.KLOptions{Window: 512, Rows: 64, NearTie: 0.05})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-10s mean KL %.3e, p99 %.3e, top-1 the same %.2f%%, perplexity %.4f of %.4f",
			name, r.Mean, r.P99, 100*r.Top1, r.Perplexity, r.ReferencePerplexity)
		return r
	}
	_, q8 := load(t, demoPath("pebble-Q8_0.gguf"), 64, model.Options{})
	_, q4k := load(t, demoPath("pebble-Q4_K_M.gguf"), 64, model.Options{})
	same := measure("BF16", ref)
	eight := measure("Q8_0", q8)
	four := measure("Q4_K_M", q4k)
	mlx := measure("MLX 4-bit", pebbleMLX(t))
	if same.Mean > 1e-12 || same.Top1 != 1 {
		t.Errorf("the reference is %g from itself", same.Mean)
	}
	if !(eight.Mean < four.Mean/10 && four.Mean < mlx.Mean && mlx.Mean < 0.1) {
		t.Errorf("mean KL: Q8_0 %g, Q4_K_M %g, MLX 4-bit %g", eight.Mean, four.Mean, mlx.Mean)
	}
}

// pebbleMLX is the demonstration model as mlx-lm would quantize it: every matrix affine in 4 bits and groups of 64, all else
// in BF16.
func pebbleMLX(t *testing.T) model.Network {
	t.Helper()
	recipe := fixtures.Recipe{Family: "pebble", Formats: fixtures.Uniform(dequant.Affine(4, 64)), Rounded: true}
	c, err := recipe.Checkpoint(fixtures.MLX)
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.ConfigJSON()
	if err != nil {
		t.Fatal(err)
	}
	plan := func() (*safetensors.Checkpoint, *planner.Plan) {
		files, err := c.Open()
		if err != nil {
			t.Fatal(err)
		}
		p, err := planner.PlanSafetensors(config, files)
		if err != nil {
			t.Fatal(err)
		}
		return files, p
	}
	_, p := plan()
	from, err := gguf.Open(demoPath("pebble-BF16.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close() })
	source, err := planner.PlanGGUF(from.Header)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Tensors {
		to := &p.Tensors[i]
		fill(t, c, to, values(t, planner.OpenGGUF(from, source), source.Tensor(to.Name)))
	}
	files, p := plan()
	n, err := model.New(reference.New(p, 64), p, planner.OpenSafetensors(files, p), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// values are a tensor's in the network's order, row after row.
func values(t *testing.T, w planner.Weights, tensor *planner.Tensor) []float32 {
	t.Helper()
	m, err := w.Matrices(tensor)
	if err != nil {
		t.Fatal(err)
	}
	out, row := []float32(nil), make([]float32, tensor.Cols)
	for r := range tensor.Rows {
		m[0].DecodeRow(row, tensor.RowOrder.Source(r))
		for c := range row {
			out = append(out, row[tensor.ColOrder.Source(c)])
		}
	}
	return out
}

// fill writes values to the tensors of a checkpoint that hold one of its plan.
func fill(t *testing.T, c *fixtures.Checkpoint, to *planner.Tensor, values []float32) {
	t.Helper()
	piece := &to.Source[0]
	data := c.Tensor(piece.Name)
	if to.Type == dequant.Affine(4, 64) {
		blocks := make([]byte, len(values)/64*36)
		if err := dequant.QuantizeAffine4(to.Name, blocks, values); err != nil {
			t.Fatal(err)
		}
		scales, biases := c.Tensor(piece.Scales), c.Tensor(piece.Biases)
		for g := range len(values) / 64 {
			b := blocks[g*36:]
			copy(scales.Data[2*g:], b[:2])
			copy(biases.Data[2*g:], b[2:4])
			copy(data.Data[32*g:], b[4:36])
		}
		return
	}
	for i, v := range values {
		if to.Conversion == planner.NegativeExp {
			v = float32(math.Log(-float64(v)))
		}
		switch data.DType {
		case safetensors.BF16:
			binary.LittleEndian.PutUint16(data.Data[2*i:], dequant.ToBF16(v))
		case safetensors.F32:
			binary.LittleEndian.PutUint32(data.Data[4*i:], math.Float32bits(v))
		default:
			t.Fatalf("%s is %s", data.Name, data.DType)
		}
	}
}
