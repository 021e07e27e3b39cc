package conformance_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/internal/safetensors"
	"splash/planner"
)

// TestSplitNamedByALaterPart opens a split by the name of its third part: the model is that of the whole file.
func TestSplitNamedByALaterPart(t *testing.T) {
	tokens := readManifest(t).Tokens[:6]
	m := inGGUF(fixtures.Recipe{Family: "tiny-qwen35moe", Formats: fixtures.Uniform(dequant.Q4_0)})
	want := m.logits(t, tokens)
	g, err := m.recipe.GGUF()
	if err != nil {
		t.Fatal(err)
	}
	n := len(g.Tensors)
	paths, err := g.Writer().WriteSplit(filepath.Join(t.TempDir(), "m"), 0, n/3, n-n/3)
	if err != nil {
		t.Fatal(err)
	}
	p, w := openFile(t, paths[2])
	got := runAll(t, build(t, p, w, len(tokens), model.Options{}), tokens)
	if at := firstDifference(want, got); at >= 0 {
		t.Errorf("the split differs from the whole file in row %d", at)
	}
}

// TestShards opens a checkpoint of several files from disk.
func TestShards(t *testing.T) {
	tokens := readManifest(t).Tokens[:6]
	m := in(fixtures.MLX, rounded("tiny-qwen35", fixtures.Projections(dequant.Affine(4, 64))))
	want := m.logits(t, tokens)
	c, err := m.recipe.Checkpoint(fixtures.MLX)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := c.WriteDir(dir, 3); err != nil {
		t.Fatal(err)
	}
	s, err := safetensors.OpenIndexed(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	config, err := c.ConfigJSON()
	if err != nil {
		t.Fatal(err)
	}
	p, err := planner.PlanSafetensors(config, s)
	if err != nil {
		t.Fatal(err)
	}
	got := runAll(t, build(t, p, planner.OpenSafetensors(s, p), len(tokens), model.Options{}), tokens)
	if at := firstDifference(want, got); at >= 0 {
		t.Errorf("the shards differ from one file in row %d", at)
	}
}

// TestModuleNamedOtherwise states a 6-bit module of a 4-bit MLX checkpoint under a name that its tensors do not have: they
// decide.
func TestModuleNamedOtherwise(t *testing.T) {
	const module = "layers.0.linear_attn.in_proj_qkv"
	const name, other = "language_model.model." + module, "model.language_model." + module
	r := rounded("tiny-qwen35", fixtures.Projections(dequant.Affine(4, 128)).Named(map[string]dequant.Type{
		"blk.0.attn_qkv.weight": dequant.Affine(6, 128),
	}))
	c, err := r.Checkpoint(fixtures.MLX)
	if err != nil {
		t.Fatal(err)
	}
	q := c.At("quantization")
	if q["bits"] != 4 || q[name] == nil {
		t.Fatalf("quantization %v", q)
	}
	q[other] = q[name]
	delete(q, name)
	p, _ := openCheckpoint(t, c)
	if got := p.Tensor("blk.0.attn_qkv.weight").Type; got != dequant.Affine(6, 128) {
		t.Errorf("loaded as %v", got)
	}
}

// TestTwoGroupsClaimAModule has an NVFP4 group whose expression matches every MLP, and an FP8 group for the last layer's:
// the tensors decide, in either order of the groups.
func TestTwoGroupsClaimAModule(t *testing.T) {
	fp8 := map[string]dequant.Type{"output.weight": dequant.FP8Rows}
	for _, part := range []string{"ffn_gate", "ffn_up", "ffn_down", "attn_q", "attn_k", "attn_v", "attn_output"} {
		fp8["blk.3."+part+".weight"] = dequant.FP8Rows
	}
	r := rounded("tiny-qwen35", fixtures.Projections(dequant.NVFP4).Named(fp8))
	r.Channels = true
	c, err := r.Checkpoint(fixtures.CompressedTensors)
	if err != nil {
		t.Fatal(err)
	}
	groups := c.At("quantization_config", "config_groups")
	c.At("quantization_config", "config_groups", "group_0")["targets"] = []any{
		`re:.*self_attn.*`, `re:.*layers\.3\.mlp\.(gate|up|down)_proj$`, "lm_head",
	}
	c.At("quantization_config", "config_groups", "group_1")["targets"] = []any{
		`re:.*mlp\.(gate|up|down)_proj$`, `re:.*linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$`,
	}
	for range 2 {
		p, _ := openCheckpoint(t, c)
		for name, want := range map[string]dequant.Type{
			"blk.3.ffn_up.weight": dequant.FP8Rows, "blk.2.ffn_up.weight": dequant.NVFP4Rows, "output.weight": dequant.FP8Rows,
		} {
			if got := p.Tensor(name).Type; got != want {
				t.Errorf("%s is planned as %v, want %v", name, got, want)
			}
		}
		groups["group_0"], groups["group_1"] = groups["group_1"], groups["group_0"]
	}
}

// TestChannelScales reads FP8 weights with a scale a row: each is its code's value times the scale that the fixture gave
// the row.
func TestChannelScales(t *testing.T) {
	r := rounded("tiny-qwen35", fixtures.Projections(dequant.FP8Rows))
	r.Channels = true
	c, err := r.Checkpoint(fixtures.CompressedTensors)
	if err != nil {
		t.Fatal(err)
	}
	const module = "model.language_model.layers.1.mlp.down_proj"
	codes, scales := c.Tensor(module+".weight").Data, c.Tensor(module+".weight_scale").Data
	p, w := openCheckpoint(t, c)
	m, err := w.Matrices(p.Tensor("blk.1.ffn_down.weight"))
	if err != nil {
		t.Fatal(err)
	}
	row, seen := make([]float32, m[0].Cols), map[float32]bool{}
	for i := range m[0].Rows {
		g := dequant.FromBF16(uint16(scales[2*i]) | uint16(scales[2*i+1])<<8)
		seen[g] = true
		m[0].DecodeRow(row, i)
		for j, v := range row {
			if want := g * dequant.FromE4M3(codes[i*len(row)+j]); v != want {
				t.Fatalf("row %d, column %d is %v, want %v", i, j, v, want)
			}
		}
	}
	if len(seen) < 5 {
		t.Errorf("%d scales", len(seen))
	}
}

// TestGeneratedDrafts gives every architecture its test draft. Its proposals are almost never taken, so that nearly every
// cycle takes rows back; the greedy text is the one without it.
func TestGeneratedDrafts(t *testing.T) {
	prompt := secondTokens(t, 14)
	const tokens = 16
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint"} {
		t.Run(family, func(t *testing.T) {
			m := inGGUF(fixtures.Recipe{Family: family, Seed: 5, Formats: fixtures.Uniform(dequant.Q8_0)})
			p, w := m.open(t)
			o := engine.Options{Context: 256, Vocab: p.Layout.Vocab}
			alone := engine.New(build(t, p, w, o.MaxRows(), model.Options{}), o)
			want := generate(t, alone, prompt, tokens)
			alone.Close()

			n, proposer := withDraft(t, p, w, o, fixtures.Draft{Family: family, Block: 16, Mask: family == "tiny-flint"})
			o.Proposer = proposer
			e := engine.New(n, o)
			defer e.Close()
			if d := cmp.Diff(want, generate(t, e, prompt, tokens)); d != "" {
				t.Error(d)
			}
			s := e.Speculation()
			if s.Counts.LaneCycles == 0 {
				t.Error("no cycle was drafted for")
			}
			t.Logf("%d tokens in %d cycles; accepted 0 to 7: %v", s.Counts.Tokens, s.Counts.LaneCycles, s.Histogram)
		})
	}
}

// withDraft builds the target and its generated draft on the oracle backend.
func withDraft(
	t *testing.T, p *planner.Plan, w planner.Weights, o engine.Options, d fixtures.Draft,
) (model.Network, engine.Proposer) {
	t.Helper()
	source := generatedDraft(t, p, d)
	return besides(t, reference.New(p, o.MaxRows()), p, w, source)
}

// generatedDraft makes a draft for a target and opens it.
func generatedDraft(t *testing.T, p *planner.Plan, d fixtures.Draft) model.DraftSource {
	t.Helper()
	dir := t.TempDir()
	if err := d.WriteDir(dir); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := planner.PlanDraft(config, p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := planner.OpenDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	tensors, err := planner.PlanDraftTensors(sizes, c)
	if err != nil {
		t.Fatal(err)
	}
	if has := slices.ContainsFunc(tensors, func(t planner.Tensor) bool { return t.Name == "mask_embedding" }); has != d.Mask {
		t.Errorf("mask embedding %v", has)
	}
	return model.DraftSource{Sizes: sizes, Tensors: tensors, Weights: planner.OpenSafetensors(c, p)}
}

// besides builds a target and a draft on a backend.
func besides(
	t *testing.T, b model.Backend, p *planner.Plan, w planner.Weights, source model.DraftSource,
) (model.Network, engine.Proposer) {
	t.Helper()
	n, err := model.New(b, p, w, model.Options{Taps: source.Sizes.Taps})
	if err != nil {
		t.Fatal(err)
	}
	draft, err := model.NewDraft(n, source)
	if err != nil {
		t.Fatal(err)
	}
	proposer, err := engine.NewProposer(draft, source, engine.GreedyWalk)
	if err != nil {
		t.Fatal(err)
	}
	return n, proposer
}
