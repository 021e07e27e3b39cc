package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"splash/bench"
	"splash/dequant"
	"splash/fixtures"
	"splash/internal/engine"
	"splash/internal/target"
	"splash/planner"
)

// invoke runs a command line and returns its exit status and what it wrote.
func invoke(t *testing.T, args ...string) (status int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status = run(context.Background(), args, console{strings.NewReader(""), &stdout, &stderr})
	return status, stdout.String(), stderr.String()
}

func pebblePath(name string) string { return filepath.Join("..", "..", "fixtures", "pebble", name) }

// threePrompts is a prompt file with the first three of the demonstration model's prompts.
func threePrompts(t *testing.T) string {
	t.Helper()
	var file struct{ Prompts []map[string]any }
	if err := json.Unmarshal(fixtures.PebblePrompts, &file); err != nil {
		t.Fatal(err)
	}
	file.Prompts = file.Prompts[:3]
	data, err := json.Marshal(map[string]any{"prompts": file.Prompts})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "prompts.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBenchCommands(t *testing.T) {
	prompts := threePrompts(t)
	plot := filepath.Join(t.TempDir(), "plot.svg")
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"tokens": {[]string{"bench", "tokens", "--prompts", prompts, "--compare", "--plot", plot},
			[]string{"3 prompts", "tokens a cycle", "3 of 3 texts are the same without the draft"}},
		"without a draft": {[]string{"bench", "tokens", "--prompts", prompts, "--no-draft"}, []string{"1.000 tokens a cycle"}},
		"tokens, JSON":    {[]string{"bench", "tokens", "--prompts", prompts, "--json"}, []string{`"tokens_per_cycle":`, `"histogram":`}},
		"kl": {[]string{"bench", "kl", "--text", prompts, "--reference", pebblePath("pebble-BF16.gguf"), "--model", pebblePath("pebble-Q8_0.gguf"), "--plot", plot},
			[]string{"pebble-Q8_0.gguf", "KL in nats"}},
		"kl of arguments": {[]string{"bench", "kl", pebblePath("pebble-BF16.gguf"), pebblePath("pebble-Q8_0.gguf") + "@cpu", "--tokens", "100"},
			[]string{"pebble-Q8_0.gguf@cpu         99 ", "reference: " + pebblePath("pebble-BF16.gguf")}},
		"draft of an argument": {[]string{"bench", "draft", pebblePath("pebble-Q8_0.gguf"), "--prompts", prompts, "--no-draft"}, []string{"3 prompts"}},
		"kl of backends, JSON": {[]string{"bench", "kl", "--text", prompts, "--reference", pebblePath("pebble-Q8_0.gguf") + "@oracle", "--model", pebblePath("pebble-Q8_0.gguf") + "@cpu", "--json"},
			[]string{`"top1_agreement": 1,`}},
		"speed": {[]string{"bench", "speed", "--lanes", "1,2", "--prompt", "16", "--tokens", "4", "--runs", "1", "--starts", "0", "--passes", "1", "--conversation", "40", "--plot", plot},
			[]string{"prefill tok/s", "a pass: one row", "of its second turn"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, stderr := invoke(t, c.args...)
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			for _, s := range c.says {
				if !strings.Contains(out, s) {
					t.Errorf("%q is not in %s", s, out)
				}
			}
			if strings.HasSuffix(name, "JSON") && !json.Valid([]byte(out)) {
				t.Errorf("not JSON: %s", out)
			}
		})
	}
}

func TestMeasureUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"bench", "kl"}, 2, "error: a reference and at least one model beside it are needed"},
		{[]string{"bench", "kl", "a.gguf"}, 2, "error: a reference and at least one model beside it are needed"},
		{[]string{"bench", "kl", "a.gguf", ""}, 2, "error: a reference and at least one model beside it are needed"},
		{[]string{"bench", "kl", "none.gguf", "none.gguf"}, 1, "none.gguf"},
		{[]string{"bench", "kl", "a.gguf", "b.gguf", "--tokens", "1"}, 2, "error: --tokens is 1; at least 2 are needed"},
		{[]string{"bench", "kl", pebblePath("pebble-Q8_0.gguf") + "@", "b.gguf"}, 2, "names no backend behind its @"},
		{[]string{"bench", "kl", pebblePath("pebble-Q8_0.gguf"), filepath.Join("..", "..", "fixtures", "tiny", "tiny-qwen35-Q8_0.gguf")}, 1,
			"has a vocabulary of "},
		{[]string{"bench", "kl", "a.gguf", "b.gguf", "--plot", filepath.Join("none", "a.svg")}, 1, "none"},
		{[]string{"bench", "draft", "a.gguf", "--model-dir", "b.gguf"}, 2, "name two"},
		{[]string{"bench", "speed", ""}, 2, "the model's name is empty"},
		{[]string{"bench", "throughput", "owner/absent"}, 1, "owner/absent"},
		{[]string{"bench", "tokens", "--walk", "drunken"}, 2, `error: --walk is "drunken"; greedy, lookahead are known`},
		{[]string{"bench", "tokens", "--lanes", "0"}, 2, "error: --lanes is 0; 1 to 64 are possible"},
		{[]string{"bench", "tokens", "--plot", "x.gif"}, 2, "a plot ends in .svg, .png or .pdf"},
		{[]string{"bench", "speed", "--lanes", "1,x"}, 2, `error: --lanes has "x"`},
		{[]string{"bench", "speed", "--prompt", "5000"}, 2, "the model's context is 4096"},
		{[]string{"bench", "tokens", "--prompts", "none.json"}, 1, "none.json"},
		{[]string{"bench", "tokens", "none.gguf", "extra"}, 2, "accepts at most 1 arg"},
		{[]string{"model-check"}, 2, "one model is checked"},
		{[]string{"model-check", pebblePath("pebble-Q8_0.gguf"), "--kv-format", "fp8"}, 2, `error: --kv-format is "fp8"; int8 and bf16 are known`},
		{[]string{"model-check", pebblePath("pebble-Q8_0.gguf"), "--context", "5000"}, 2, "the model has 1 to 4096 tokens"},
		{[]string{"plan", "none.gguf"}, 1, "none.gguf"},
	} {
		status, _, stderr := invoke(t, c.args...)
		if status != c.status || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: status %d, %s", c.args, status, stderr)
		}
	}
}

// TestMeasurementsAreInterrupted: Ctrl+C before anything was done is the signal's status, without a word.
func TestMeasurementsAreInterrupted(t *testing.T) {
	for _, args := range [][]string{
		{"kl", pebblePath("pebble-Q8_0.gguf"), pebblePath("pebble-Q8_0.gguf")}, {"tokens"}, {"tokens", "--no-draft"}, {"speed", "--starts", "1"},
		{"speed", "--starts", "0", "--passes", "0"}, {"speed", "--starts", "0", "--passes", "1"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(signalled{syscall.SIGINT})
		var stdout, stderr bytes.Buffer
		status := run(ctx, append([]string{"bench"}, args...), console{strings.NewReader(""), &stdout, &stderr})
		if status != 128+int(syscall.SIGINT) || stdout.Len() > 0 || strings.Contains(stderr.String(), "error") {
			t.Errorf("%v: status %d, %s%s", args, status, &stdout, &stderr)
		}
	}
}

// TestInterruptedMeasurementSaysSo reads what is printed of a part.
func TestInterruptedMeasurementSaysSo(t *testing.T) {
	const says = "interrupted: these are the "
	one := []namedKL{{"a", &bench.KLResult{Positions: 1}}}
	part := []namedKL{{"a", &bench.KLResult{Positions: 1, Interrupted: true}}}
	for name, c := range map[string]struct {
		print func(*bytes.Buffer) error
		part  bool
	}{
		"kl":                {func(b *bytes.Buffer) error { return printKL(b, "r", one, false) }, false},
		"kl, models left":   {func(b *bytes.Buffer) error { return printKL(b, "r", one, true) }, true},
		"kl, part of one":   {func(b *bytes.Buffer) error { return printKL(b, "r", part, false) }, true},
		"without proposals": {func(b *bytes.Buffer) error { return printTokens(b, &bench.TokensResult{Prompts: 1, Interrupted: true}) }, true},
		"tokens": {func(b *bytes.Buffer) error {
			return printTokens(b, &bench.TokensResult{Prompts: 1, Drafted: 1, Interrupted: true})
		}, true},
		"all tokens": {func(b *bytes.Buffer) error { return printTokens(b, &bench.TokensResult{Prompts: 1, Drafted: 1}) }, false},
	} {
		var b bytes.Buffer
		if err := c.print(&b); err != nil || strings.Contains(b.String(), says) != c.part {
			t.Errorf("%s: %v, %s", name, err, &b)
		}
	}
}

func TestModelCheckTakesADraft(t *testing.T) {
	for _, flag := range []string{"--draft", "--draft-model"} {
		status, out, stderr := invoke(t, "model-check", pebblePath("pebble-Q8_0.gguf"), flag, pebblePath("draft"), "--context", "4096", "--lanes", "4")
		if status != 0 || !strings.Contains(out, "reads target layers [1 4 7]") {
			t.Errorf("%s: status %d: %s%s", flag, status, out, stderr)
		}
	}
}

func TestPlanCommand(t *testing.T) {
	status, out, stderr := invoke(t, "plan", filepath.Join("..", "..", "fixtures", "tiny", "tiny-qwen35-MIX.gguf"), "--json")
	if status != 0 {
		t.Fatal(stderr)
	}
	var plan struct {
		Tensors []plannedTensor
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	// Bits per weight that the formats' document states for the image (formats.md 5.5).
	want := map[string]float64{
		"blk.0.attn_qkv.weight": 4.0625, "blk.0.ssm_out.weight": 3.5, "blk.0.ffn_up.weight": 4.625, "blk.1.attn_qkv.weight": 2.625,
		"blk.1.ssm_out.weight": 1.75, "blk.2.attn_qkv.weight": 6.625, "blk.2.ffn_gate.weight": 1.5625, "blk.3.attn_q.weight": 2.5625,
		"blk.3.ffn_gate.weight": 4.25, "token_embd.weight": 3.0625,
	}
	for _, tensor := range plan.Tensors {
		if bits, ok := want[tensor.Name]; ok {
			delete(want, tensor.Name)
			if tensor.BitsPerWeight != bits {
				t.Errorf("%s takes %v bits a weight, want %v", tensor.Name, tensor.BitsPerWeight, bits)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not planned: %v", want)
	}
}

// TestEveryArchitectureIsServed makes a tiny model of every architecture and container, checks it, and lets it talk: random
// weights say nothing, but the path is real.
func TestEveryArchitectureIsServed(t *testing.T) {
	q8 := fixtures.Uniform(dequant.Q8_0).Except(map[planner.Role]dequant.Type{planner.Router: dequant.F32, planner.SharedGate: dequant.F32})
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint"} {
		path := filepath.Join(t.TempDir(), family+".gguf")
		g, err := (&fixtures.Recipe{Family: family, Formats: q8}).GGUF()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		talk(t, family, path)
	}
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe"} {
		for kind, formats := range map[fixtures.Container]fixtures.Formats{
			fixtures.MLX: fixtures.Uniform(dequant.Affine(4, 64)), fixtures.ModelOptimizer: fixtures.Projections(dequant.NVFP4),
			fixtures.CompressedTensors: fixtures.Projections(dequant.FP8Rows),
		} {
			c, err := (&fixtures.Recipe{Family: family, Formats: formats, Rounded: true}).Checkpoint(kind)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := c.WriteDir(dir, 2); err != nil {
				t.Fatal(err)
			}
			talk(t, family, dir, "--language-only")
		}
	}
}

func talk(t *testing.T, family, path string, flags ...string) {
	t.Helper()
	if status, out, stderr := invoke(t, "model-check", path); status != 0 || !strings.Contains(out, family) {
		t.Errorf("model-check %s: status %d: %s%s", path, status, out, stderr)
	}
	args := append([]string{"run", "--model-dir", path, "--model", "local/tiny", "--greedy", "--max-tokens", "4", "--json", "Hello"}, flags...)
	status, out, stderr := invoke(t, args...)
	if status != 0 || !strings.Contains(out, `"tokens": `) {
		t.Errorf("run %s: status %d: %s%s", path, status, out, stderr)
	}
}

// TestPlanWritesImages makes the images of a model, finds them there the second time, and makes them again for a file that
// has changed.
func TestPlanWritesImages(t *testing.T) {
	model, dir := filepath.Join(t.TempDir(), "model.gguf"), filepath.Join(t.TempDir(), "images")
	data, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "tiny", "tiny-qwen35-MIX.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	write := func() map[string]os.FileInfo {
		t.Helper()
		status, out, stderr := invoke(t, "plan", model, "--write", dir)
		if status != 0 || !strings.Contains(out, "6 images") {
			t.Fatalf("status %d: %s%s", status, out, stderr)
		}
		files := map[string]os.FileInfo{}
		for _, name := range []string{"layer-0.bin", "layer-3.bin", "head.bin", "embedding.bin"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			files[name] = info
		}
		return files
	}
	if err := os.WriteFile(model, data, 0o644); err != nil {
		t.Fatal(err)
	}
	first, again := write(), write()
	for name := range first {
		if !os.SameFile(first[name], again[name]) || !first[name].ModTime().Equal(again[name].ModTime()) {
			t.Errorf("%s was made again", name)
		}
	}
	data[len(data)-1]++
	if err := os.WriteFile(model, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, info := range write() {
		if os.SameFile(first[name], info) && first[name].ModTime().Equal(info.ModTime()) {
			t.Errorf("%s is that of the file as it was", name)
		}
	}
}

func TestVerifyRowsLine(t *testing.T) {
	dense, moe := &planner.Plan{}, &planner.Plan{}
	moe.Layout.MoE.Experts = 8
	draft := &planner.Draft{}
	for want, at := range map[string]*target.Target{
		"Verify rows: 1 (no draft)":       {Plan: moe},
		"Verify rows: all (dense target)": {Plan: dense, Draft: draft},
		"Verify rows: budget (MoE target; --verify-rows all verifies every row)": {
			Plan: moe, Draft: draft, Engine: engine.Options{Rows: engine.BudgetRows},
		},
		"Verify rows: all (--verify-rows all)": {Plan: moe, Draft: draft},
	} {
		if got := verifyRows(at); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
