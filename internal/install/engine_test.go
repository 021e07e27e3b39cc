package install

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/fixtures"
	"splash/internal/gguf"
	"splash/internal/hub/hubtest"
	"splash/planner"
)

const pebbleRepo, pebbleDraft = "owner/pebble-GGUF", "owner/pebble-draft"

// pebble publishes the demonstration model and its draft.
func (w *world) pebble(name string) {
	w.t.Helper()
	data := fixtures.Pebble
	if name != "pebble-Q8_0.gguf" {
		data = must(os.ReadFile(filepath.Join("..", "..", "fixtures", "pebble", name)))
	}
	w.hub.Commit(pebbleRepo, "main", map[string][]byte{name: data})
	w.hub.Commit(pebbleDraft, "main", map[string][]byte{"config.json": fixtures.PebbleDraftConfig, "model.safetensors": fixtures.PebbleDraft})
}

// With the engine's own check: what is installed is what the engine plans.
func TestEngineInstall(t *testing.T) {
	w := newWorld(t)
	w.pebble("pebble-Q8_0.gguf")
	in, log := w.installer(false)
	in.Check = nil
	s := sel(t, pebbleRepo)
	s.Draft = pebbleDraft
	installed, err := in.Install(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	defer installed.Close()
	if !strings.Contains(log.text(), "Installing owner/pebble-GGUF as pebble (gguf); draft owner/pebble-draft; vision disabled.") {
		t.Errorf("logged %q", log.text())
	}
	f, err := gguf.Open(installed.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plan, err := planner.PlanGGUF(f.Header)
	if err != nil || plan.Family.Name != installed.Record.Family || plan.Family.Chat != installed.Record.ChatFormat {
		t.Errorf("planned as %v, %v; recorded %+v", plan, err, installed.Record)
	}
	c, err := planner.OpenDraft(installed.Draft())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d, err := planner.PlanDraft(must(os.ReadFile(filepath.Join(installed.Draft(), "config.json"))), plan)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := planner.PlanDraftTensors(d, c); err != nil {
		t.Error(err)
	}
}

// With the engine's own check: the refusals of the seed, before any weight.
func TestEngineRefusals(t *testing.T) {
	tiny := func(name string) []byte {
		return must(os.ReadFile(filepath.Join("..", "..", "fixtures", "tiny", name)))
	}
	for _, tt := range []struct {
		name  string
		files map[string][]byte
		draft string
		want  string
	}{
		{"whole BF16", map[string][]byte{"m.gguf": tiny("tiny-qwen35-BF16.gguf")}, "", "this GGUF holds most of its values unquantized"},
		{"a draft of another target", map[string][]byte{"m.gguf": tiny("tiny-qwen35-Q8_0.gguf")}, pebbleDraft, "draft configuration is incompatible with tiny-qwen35: draft config "},
		{"no projector", map[string][]byte{"m.gguf": tiny("tiny-qwen35-Q8_0.gguf")}, "", "the GGUF repository has no BF16, F32 or F16 vision projector (no GGUF named mmproj)"},
		{"a foreign architecture", map[string][]byte{"m.gguf": aGGUF(t, 400, 10_000, 8, map[string]any{"general.architecture": "llama"})}, "", "unsupported GGUF model architecture: llama"},
		{"a foreign configuration", with(mlx(401), map[string][]byte{"config.json": []byte(`{"model_type":"llama"}`)}), "", "no supported model has this architecture (its config has no text_config)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.pebble("pebble-Q8_0.gguf")
			w.hub.Commit(ggufRepo, "main", tt.files)
			in, log := w.installer(false)
			in.Check = nil
			s := sel(t, ggufRepo)
			s.Draft, s.LanguageOnly = tt.draft, tt.draft != ""
			_, err := in.Install(context.Background(), s)
			if err == nil || !strings.HasPrefix(err.Error(), "cannot install "+ggufRepo+": "+tt.want) {
				t.Errorf("error %v\n want %s", err, tt.want)
			}
			if strings.Contains(log.text(), "Fetching") {
				t.Errorf("logged %q", log.text())
			}
			noWeights(t, w, ggufRepo, tt.files)
		})
	}
}

// A stop in mid-download is an error at once, also where an installation could be kept, and leaves what the next start goes
// on from.
func TestStopAndGoOn(t *testing.T) {
	w := newWorld(t)
	w.hub.Commit(ggufRepo, "main", map[string][]byte{"M.gguf": targetGGUF(t, 500, 100_000), "mmproj.gguf": projectorGGUF(t, 501, 30)})
	w.hub.Commit(draftOf, "main", draftRepo(502))
	w.mustInstall(sel(t, ggufRepo))
	fresh := targetGGUF(t, 510, 4<<20)
	w.hub.Commit(ggufRepo, "main", map[string][]byte{"M.gguf": fresh, "mmproj.gguf": projectorGGUF(t, 501, 30)})
	w.hub.Inject(hubtest.Fault{Place: hubtest.CDN, Path: "M.gguf", Rate: 8 << 20, Times: -1})
	in, log := w.installer(false)
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by Ctrl+C")
	in.Hub.Log = func(line string) {
		if strings.HasPrefix(line, "Fetching") {
			time.AfterFunc(100*time.Millisecond, func() { cancel(stop) })
		}
	}
	if _, err := in.Install(ctx, sel(t, ggufRepo)); !errors.Is(err, stop) {
		t.Errorf("error %v, want the stop", err)
	}
	if strings.Contains(log.text(), "keeping") {
		t.Errorf("logged %q", log.text())
	}
	intact(t, w.dir)
	w.hub.Heal()
	installed, _ := w.mustInstall(sel(t, ggufRepo))
	holds(t, installed.Dir, map[string][]byte{"target/M.gguf": fresh})
}

// The configuration that stands for a GGUF, in the keys of the published ones.
func TestDeriveConfig(t *testing.T) {
	derive := func(name string, vision bool) map[string]any {
		f := planner.FamilyByName(name)
		data, err := deriveConfig(&planner.Plan{Family: f, Layout: f.Layout, Stop: f.Stop}, vision)
		if err != nil {
			t.Fatal(err)
		}
		if f.Vision != nil && vision {
			if err := planner.CheckVisionConfig(data, f.Vision); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		var got map[string]any
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	parse := func(text string) (want map[string]any) {
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		return want
	}
	// Qwen3.8-27B's own config.json, as far as a GGUF states it.
	want := parse(`{"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text","hidden_size":5120,"max_position_embeddings":262144,
		"num_attention_heads":24,"num_key_value_heads":4,"head_dim":256,"num_hidden_layers":64,"vocab_size":248320},
		"vision_config":{"depth":27,"hidden_size":1152,"num_heads":16,"intermediate_size":4304,"out_hidden_size":5120,"patch_size":16,"spatial_merge_size":2,
		"temporal_patch_size":2,"num_position_embeddings":2304,"in_channels":3,"hidden_act":"gelu_pytorch_tanh","deepstack_visual_indexes":[]}}`)
	if d := cmp.Diff(want, derive("Qwen3.8-27B", true)); d != "" {
		t.Error(d)
	}
	want = parse(`{"model_type":"qwen3_5_moe","text_config":{"model_type":"qwen3_5_moe_text","hidden_size":2048,"max_position_embeddings":262144,
		"num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,"num_hidden_layers":40,"vocab_size":248320,"num_experts":256,"num_experts_per_tok":8}}`)
	if d := cmp.Diff(want, derive("Qwen3.6-35B-A3B", false)); d != "" {
		t.Error(d)
	}
	f := planner.FamilyByName("tiny-flint")
	got := derive("tiny-flint", true)
	if got["model_type"] != "flint" || got["text_config"] != nil || got["vision_config"] != nil || got["softmax_type"] != "learnable" {
		t.Errorf("Flint's configuration: %v", got)
	}
	types, _ := got["layer_types"].([]any)
	for i, sliding := range f.Layout.Attention.Sliding {
		if kind := map[bool]string{true: "sliding_attention", false: "full_attention"}[sliding]; len(types) != f.Layout.Layers || types[i] != kind {
			t.Errorf("layer %d of %v: want %s", i, types, kind)
		}
	}
}

// A derived entry is checked when it is used, and made anew where it is damaged.
func TestDerivedEntries(t *testing.T) {
	s := &store{t.TempDir()}
	files := map[string][]byte{"config.json": []byte("{}")}
	dir, err := s.derived("k", files)
	if err != nil {
		t.Fatal(err)
	}
	before := must(identify(filepath.Join(dir, "config.json")))
	if again := must(s.derived("k", files)); again != dir || must(identify(filepath.Join(dir, "config.json"))) != before {
		t.Error("an undamaged entry is written again")
	}
	for what, damage := range map[string]func(){
		"content": func() { os.WriteFile(filepath.Join(dir, "config.json"), []byte("[]"), 0o666) },
		"sums":    func() { os.WriteFile(filepath.Join(dir, sumsFile), []byte("{}"), 0o666) },
		"missing": func() { os.Remove(filepath.Join(dir, "config.json")) },
		"folder":  func() { os.RemoveAll(dir) },
	} {
		damage()
		if _, err := s.derived("k", files); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, files)
		if sums := string(must(os.ReadFile(filepath.Join(dir, sumsFile)))); !strings.Contains(sums, sha256Hex(files["config.json"])) {
			t.Errorf("%s: sums %s", what, sums)
		}
	}
	if names := must(listDir(s.metadata())); len(names) != 1 {
		t.Errorf("left %v", names)
	}
}
