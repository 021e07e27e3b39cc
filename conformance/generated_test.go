package conformance_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/planner"
)

// A stored model is a recipe in a container: a GGUF where the container is nil.
type storedModel struct {
	recipe    fixtures.Recipe
	container *fixtures.Container
}

func inGGUF(r fixtures.Recipe) storedModel { return storedModel{r, nil} }

func in(c fixtures.Container, r fixtures.Recipe) storedModel { return storedModel{r, &c} }

func (m storedModel) String() string {
	if m.container == nil {
		return m.recipe.Family + " as GGUF"
	}
	return fmt.Sprintf("%s as %s", m.recipe.Family, *m.container)
}

// open makes the model in memory and plans it.
func (m storedModel) open(t testing.TB) (*planner.Plan, planner.Weights) {
	t.Helper()
	if m.container == nil {
		g, err := m.recipe.GGUF()
		if err != nil {
			t.Fatal(err)
		}
		return openGGUF(t, g)
	}
	c, err := m.recipe.Checkpoint(*m.container)
	if err != nil {
		t.Fatal(err)
	}
	return openCheckpoint(t, c)
}

func openGGUF(t testing.TB, g *fixtures.GGUF) (*planner.Plan, planner.Weights) {
	t.Helper()
	f, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	return planned(t, f)
}

func openCheckpoint(t testing.TB, c *fixtures.Checkpoint) (*planner.Plan, planner.Weights) {
	t.Helper()
	s, err := c.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	config, err := c.ConfigJSON()
	if err != nil {
		t.Fatal(err)
	}
	p, err := planner.PlanSafetensors(config, s)
	if err != nil {
		t.Fatal(err)
	}
	return p, planner.OpenSafetensors(s, p)
}

// network builds the model on the oracle backend.
func (m storedModel) network(t testing.TB, maxRows int, o model.Options) (*planner.Plan, model.Network) {
	t.Helper()
	p, w := m.open(t)
	return p, build(t, p, w, maxRows, o)
}

func build(t testing.TB, p *planner.Plan, w planner.Weights, maxRows int, o model.Options) model.Network {
	t.Helper()
	n, err := model.New(reference.New(p, maxRows), p, w, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// logits are those of every token, in one pass.
func (m storedModel) logits(t testing.TB, tokens []int32) [][]float32 {
	t.Helper()
	_, n := m.network(t, len(tokens), model.Options{})
	return runAll(t, n, tokens)
}

func runAll(t testing.TB, n model.Network, tokens []int32) [][]float32 {
	t.Helper()
	forward(t, n, newLane(t, n), tokens)
	out := make([][]float32, len(tokens))
	for i := range out {
		out[i] = slices.Clone(n.Logits(i))
		for _, v := range out[i] {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				t.Fatalf("row %d has a logit of %v", i, v)
			}
		}
	}
	return out
}

// rounded is a recipe whose values every container holds.
func rounded(family string, f fixtures.Formats) fixtures.Recipe {
	return fixtures.Recipe{Family: family, Seed: 7, Formats: f, Rounded: true}
}

// TestSameWeights stores the same values in several containers: norms as w and as w - 1, value heads tiled and grouped,
// decays as they are and as A_log, experts stacked, fused and one by one, scales inside blocks and beside them, tensor
// scales as factors and as divisors. The logits have the same bits.
func TestSameWeights(t *testing.T) {
	tokens := readManifest(t).Tokens[:8]
	scaled := func(r fixtures.Recipe) fixtures.Recipe { r.Scaled = true; return r }
	fused := func(r fixtures.Recipe) fixtures.Recipe { r.Fused = true; return r }
	predicting := func(r fixtures.Recipe) fixtures.Recipe { r.Predict = 1; return r }
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe"} {
		recipe := func(kind dequant.Type) fixtures.Recipe { return rounded(family, fixtures.Projections(kind)) }
		everywhere := func(kind dequant.Type) fixtures.Recipe { return rounded(family, fixtures.Uniform(kind)) }
		nvfp4, fp8 := recipe(dequant.NVFP4), recipe(dequant.FP8Rows)
		equal := map[string][]storedModel{
			"NVFP4": {
				inGGUF(nvfp4), in(fixtures.MLX, nvfp4), in(fixtures.ModelOptimizer, nvfp4), in(fixtures.CompressedTensors, nvfp4),
			},
			"NVFP4 with tensor scales": {
				inGGUF(scaled(nvfp4)), in(fixtures.ModelOptimizer, scaled(nvfp4)), in(fixtures.CompressedTensors, scaled(nvfp4)),
			},
			"FP8":   {in(fixtures.ModelOptimizer, fp8), in(fixtures.CompressedTensors, fp8)},
			"MXFP4": {inGGUF(everywhere(dequant.MXFP4)), in(fixtures.MLX, everywhere(dequant.MXFP4))},
		}
		if family == "tiny-qwen35moe" {
			equal["Q4_0, fused"] = []storedModel{inGGUF(everywhere(dequant.Q4_0)), inGGUF(fused(everywhere(dequant.Q4_0)))}
			equal["NVFP4 with tensor scales"] = append(equal["NVFP4 with tensor scales"], inGGUF(fused(scaled(nvfp4))))
		} else {
			equal["NVFP4"] = append(equal["NVFP4"], inGGUF(predicting(nvfp4)), in(fixtures.MLX, predicting(nvfp4)))
			for name, pair := range map[string][2]dequant.Type{
				"4-bit":              {dequant.Q4_0, dequant.Q4_0},
				"4-bit with offsets": {dequant.Q4_1, dequant.Affine(4, 32)},
				"5-bit":              {dequant.Q5_0, dequant.Q5_0},
				"5-bit with offsets": {dequant.Q5_1, dequant.Affine(5, 32)},
				"2-bit by 64":        {dequant.Q2_0, dequant.Q2_0},
				"2-bit by 128":       {dequant.PQ2_0, dequant.PQ2_0},
			} {
				equal[name] = []storedModel{inGGUF(everywhere(pair[0])), in(fixtures.MLX, everywhere(pair[1]))}
			}
		}
		for name, all := range equal {
			t.Run(family+" "+name, func(t *testing.T) {
				want := all[0].logits(t, tokens)
				for _, m := range all[1:] {
					if at := firstDifference(want, m.logits(t, tokens)); at >= 0 {
						t.Errorf("%s differs from %s in row %d", m, all[0], at)
					}
				}
			})
		}
	}
}

// TestEveryFormat stores the tiny dense model in every format of the three lists the project reads, and runs it. The
// logits point where those of the unquantized weights point, as far as the format's bits go.
func TestEveryFormat(t *testing.T) {
	tokens := readManifest(t).Tokens[:6]
	want := inGGUF(rounded("tiny-qwen35", nil)).logits(t, tokens)
	var all []storedModel
	for _, kind := range fixtures.LinearTypes() {
		all = append(all, inGGUF(rounded("tiny-qwen35", fixtures.Uniform(kind))))
	}
	for _, kind := range fixtures.MLXTypes() {
		all = append(all, in(fixtures.MLX, rounded("tiny-qwen35", fixtures.Uniform(kind))))
	}
	channels := rounded("tiny-qwen35", fixtures.Projections(dequant.FP8Rows))
	channels.Channels = true
	all = append(all,
		in(fixtures.ModelOptimizer, rounded("tiny-qwen35", fixtures.Projections(dequant.NVFP4))),
		in(fixtures.ModelOptimizer, rounded("tiny-qwen35", fixtures.Projections(dequant.FP8Rows))),
		in(fixtures.CompressedTensors, rounded("tiny-qwen35", fixtures.Projections(dequant.NVFP4))),
		in(fixtures.CompressedTensors, rounded("tiny-qwen35", fixtures.Projections(dequant.FP8Rows))),
		in(fixtures.CompressedTensors, channels),
	)
	for _, m := range all {
		p, n := m.network(t, len(tokens), model.Options{})
		kind := dequant.Lookup(p.Tensor("blk.0.ffn_down.weight").Type)
		got, least := cosine(want, runAll(t, n, tokens)), leastCosine(kind)
		t.Logf("%-36s %-10s %6.3f bits: cosine %.5f, at least %.5f", m, kind, kind.BitsPerWeight(), got, least)
		if !(got >= least) {
			t.Errorf("%s in %s: cosine %.5f, at least %.5f", m, kind, got, least)
		}
	}
}

// leastCosine is what logits of weights in a format must reach. Weights of R bits stray about 2.1 2^-R of their deviation,
// logits of four layers a few times that, and a cosine falls short of 1 by half the square of it. Below two bits little is
// left but more than the 0.01 of unrelated logits. E4M3 has four significant bits and a sign.
func leastCosine(f *dequant.Format) float64 {
	bits := f.BitsPerWeight()
	if f.Type == dequant.FP8Rows {
		bits = 5
	}
	return max(0.05, 1-96*math.Pow(4, -bits))
}

// cosine is that of the angle between two sets of rows.
func cosine(a, b [][]float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		for j := range a[i] {
			x, y := float64(a[i][j]), float64(b[i][j])
			ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
		}
	}
	return ab / math.Sqrt(aa*bb)
}

// TestGeneratedStates does to the architectures without a public implementation what TestCutsAgree, TestRollback and
// TestLanesShareAPass do to the others: raw indexer keys, n-gram rows, context tokens and windows come back as they were.
func TestGeneratedStates(t *testing.T) {
	for _, family := range []string{"tiny-qwen4exp", "tiny-flint"} {
		t.Run(family, func(t *testing.T) {
			tokens := secondTokens(t, 48)
			r := fixtures.Recipe{Family: family, Seed: 3, Formats: fixtures.Uniform(dequant.Q4_0)}
			_, n := inGGUF(r).network(t, 128, model.Options{})
			cutsAgree(t, family, n, tokens)
			rollsBack(t, family, n, tokens, 1, 8, 12)
			lanesShareAPass(t, family, n, tokens)
		})
	}
}

// TestEveryArchitecture makes each family in mixed formats and runs 48 tokens.
func TestEveryArchitecture(t *testing.T) {
	tokens := secondTokens(t, 48)
	for _, m := range []storedModel{
		inGGUF(fixtures.Recipe{Family: "tiny-qwen35-tied", Formats: fixtures.Mixed(fixtures.LinearTypes()...)}),
		inGGUF(fixtures.Recipe{Family: "tiny-qwen35moe", Formats: fixtures.Mixed(fixtures.LinearTypes()...), Fused: true, Predict: 2}),
		inGGUF(fixtures.Recipe{Family: "tiny-qwen4exp", Formats: fixtures.Mixed(fixtures.LinearTypes()...), Experts: 8}),
		inGGUF(fixtures.Recipe{Family: "tiny-flint", Formats: fixtures.Mixed(fixtures.LinearTypes()...), Scaled: true}),
		in(fixtures.MLX, rounded("tiny-qwen35", fixtures.Mixed(fixtures.MLXTypes()...))),
		in(fixtures.MLX, rounded("tiny-qwen35-tied", fixtures.Mixed(fixtures.MLXTypes()...))),
		in(fixtures.MLX, rounded("tiny-qwen35moe", fixtures.Mixed(fixtures.MLXTypes()...))),
		in(fixtures.ModelOptimizer, rounded("tiny-qwen35moe", byLayer(dequant.NVFP4, dequant.FP8Rows))),
		in(fixtures.CompressedTensors, rounded("tiny-qwen35-tied", byLayer(dequant.FP8Rows, dequant.NVFP4))),
		in(fixtures.CompressedTensors, rounded("tiny-qwen35moe", byLayer(dequant.FP8Rows, dequant.NVFP4))),
	} {
		t.Run(m.String(), func(t *testing.T) {
			p, _ := m.open(t)
			rows := m.logits(t, tokens)
			if p.Family.Name != m.recipe.Family {
				t.Errorf("planned as %s", p.Family.Name)
			}
			if cos := cosine(rows[:1], rows[47:]); cos > 0.9 {
				t.Errorf("first and last token have logits of cosine %.3f", cos)
			}
		})
	}
}

// byLayer stores projections in one format or, in odd layers and the head, another; the rest as checkpoints do.
func byLayer(even, odd dequant.Type) fixtures.Formats {
	return func(role planner.Role, name string) dequant.Type {
		t := even
		if name == "output.weight" || len(name) > 4 && name[:4] == "blk." && name[4]%2 == 1 {
			t = odd
		}
		return fixtures.Projections(t)(role, name)
	}
}
