package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/planner"
)

// A stored is a generated model: a GGUF, or a checkpoint of a container.
type stored struct {
	recipe    fixtures.Recipe
	container *fixtures.Container
}

func (s stored) String() string {
	if s.container == nil {
		return s.recipe.Family + " as GGUF"
	}
	return fmt.Sprintf("%s as %s", s.recipe.Family, *s.container)
}

func (s stored) open(t testing.TB) (*planner.Plan, planner.Weights) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.container == nil {
		g, err := s.recipe.GGUF()
		check(err)
		f, err := g.Open()
		check(err)
		t.Cleanup(func() { f.Close() })
		p, err := planner.PlanGGUF(f.Header)
		check(err)
		return p, planner.OpenGGUF(f, p)
	}
	c, err := s.recipe.Checkpoint(*s.container)
	check(err)
	f, err := c.Open()
	check(err)
	t.Cleanup(func() { f.Close() })
	config, err := c.ConfigJSON()
	check(err)
	p, err := planner.PlanSafetensors(config, f)
	check(err)
	return p, planner.OpenSafetensors(f, p)
}

var everyFormat = []dequant.Type{
	dequant.Q4_K, dequant.Q6_K, dequant.Q8_0, dequant.IQ4XS, dequant.Q5_K, dequant.Q3_K, dequant.IQ3S, dequant.Q4_0, dequant.Q2_K,
	dequant.Q4_1, dequant.IQ4NL, dequant.Q5_0, dequant.MXFP4, dequant.Q5_1, dequant.NVFP4, dequant.IQ3XXS, dequant.BF16,
	dequant.IQ2S, dequant.F16, dequant.IQ2XS, dequant.PQ2_0, dequant.IQ2XXS, dequant.Q2_0, dequant.IQ1M, dequant.IQ1S,
}

func generated() []stored {
	mlx, opt, ct := fixtures.MLX, fixtures.ModelOptimizer, fixtures.CompressedTensors
	var affine []dequant.Type
	for _, bits := range []int{4, 6, 8, 3, 5, 2} {
		for _, group := range []int{64, 32, 128} {
			affine = append(affine, dequant.Affine(bits, group))
		}
	}
	affine = append(affine, dequant.MXFP4, dequant.NVFP4)
	float := func(t dequant.Type) fixtures.Formats {
		return fixtures.Uniform(t).Except(map[planner.Role]dequant.Type{
			planner.TokenTable: dequant.BF16, planner.AlphaBeta: dequant.BF16, planner.Router: dequant.BF16, planner.SharedGate: dequant.BF16,
		})
	}
	mixed := fixtures.Mixed(everyFormat...)
	return []stored{
		{fixtures.Recipe{Family: "tiny-qwen35-tied", Formats: mixed}, nil},
		{fixtures.Recipe{Family: "tiny-qwen35moe", Formats: fixtures.Uniform(dequant.Q3_K), Fused: true, Predict: 2}, nil},
		{fixtures.Recipe{Family: "tiny-qwen35moe", Formats: mixed}, nil},
		{fixtures.Recipe{Family: "tiny-qwen4exp", Formats: fixtures.Mixed(dequant.Q4_K, dequant.Q8_0, dequant.BF16, dequant.Q6_K), Experts: 8}, nil},
		{fixtures.Recipe{Family: "tiny-rotated", Seed: 13, Rotated: true, Formats: fixtures.Uniform(dequant.PQ2_0)}, nil},
		{fixtures.Recipe{Family: "tiny-flint", Formats: mixed, Scaled: true}, nil},
		{fixtures.Recipe{Family: "tiny-qwen35", Rounded: true, Formats: fixtures.Mixed(affine...)}, &mlx},
		{fixtures.Recipe{Family: "tiny-qwen35moe", Rounded: true, Formats: fixtures.Mixed(affine...)}, &mlx},
		{fixtures.Recipe{Family: "tiny-qwen35moe", Rounded: true, Formats: float(dequant.NVFP4), Scaled: true}, &opt},
		{fixtures.Recipe{Family: "tiny-qwen35", Rounded: true, Formats: float(dequant.FP8Rows), Channels: true}, &ct},
	}
}

// TestGeneratedModels runs models of every architecture and container beside the oracle backend, under the exact options.
func TestGeneratedModels(t *testing.T) {
	tokens := readManifest(t).Tokens
	for _, s := range generated() {
		t.Run(s.String(), func(t *testing.T) {
			p, w := s.open(t)
			want, err := model.New(reference.New(p, 64), p, w, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			tokens := tokens
			if s.recipe.Rotated {
				tokens = tokens[:8]
			}
			rows := rowsOf(t, want, tokens, []int{len(tokens)})
			for _, l := range cpu.Levels() {
				b, err := cpu.New(p, 64, exact(l))
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				n, err := model.New(b, p, w, model.Options{})
				if err != nil {
					t.Fatal(err)
				}
				worst := 0.0
				for i, row := range rowsOf(t, n, tokens, []int{20, 5, 1}) {
					worst = math.Max(worst, maxDiff(row, rows[i]))
				}
				t.Logf("%s within %.2g", l, worst)
				if !(worst <= goldenTolerance) {
					t.Errorf("%s: logits stray %g", l, worst)
				}
			}
		})
	}
}
