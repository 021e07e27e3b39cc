package install

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/hub"
	"splash/internal/hub/hubtest"
)

// with is a repository's files with some changed; nil removes one.
func with(files map[string][]byte, changes map[string][]byte) map[string][]byte {
	all := maps.Clone(files)
	for name, data := range changes {
		if data == nil {
			delete(all, name)
		} else {
			all[name] = data
		}
	}
	return all
}

// Every refusal comes before a weight file is downloaded: of a GGUF at most the steps of its header are read, and of a
// checkpoint nothing.
func TestRefusalsDownloadNoWeights(t *testing.T) {
	const large = 6 << 20 // a weight file of which a header's step is a part
	qwen := map[string]any{"general.architecture": "qwen35", "test.family": family}
	set := func(more map[string]any) map[string]any {
		all := maps.Clone(qwen)
		maps.Copy(all, more)
		return all
	}
	good := aGGUF(t, 200, large, dequant.Q8_0, qwen)
	projector := projectorGGUF(t, 201, dequant.BF16)
	repo := map[string][]byte{"M-Q4.gguf": good, "M-Q8.gguf": good, "mmproj.gguf": projector}
	split := splitGGUF(t, large)
	for _, tt := range []struct {
		name  string
		repo  string
		files map[string][]byte
		draft map[string][]byte
		model string
		want  string
	}{
		{"no variant", ggufRepo, repo, nil, ggufRepo, "select a GGUF with OWNER/REPO:VARIANT (files in the repository root: M-Q4.gguf, M-Q8.gguf)"},
		{"no such variant", ggufRepo, repo, nil, ggufRepo + ":Q5", "no single GGUF matches :Q5 (files in the repository root: M-Q4.gguf, M-Q8.gguf)"},
		{"unquantized", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": aGGUF(t, 202, large, dequant.BF16, qwen)}), nil, ggufRepo + ":Q4",
			"this GGUF holds most of its values unquantized (3.1 M of 3.1 M in BF16, F16 or F32); choose a quantized variant"},
		{"unquantized before the family", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": aGGUF(t, 202, large, dequant.F16, nil)}), nil, ggufRepo + ":Q4",
			"this GGUF holds most of its values unquantized (3.1 M of 3.1 M in BF16, F16 or F32); choose a quantized variant"},
		{"no family", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": aGGUF(t, 203, large, dequant.Q8_0, nil), "mmproj.gguf": nil}), nil, ggufRepo + ":Q4",
			"no supported model has this architecture"},
		{"a tensor's type", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": aGGUF(t, 204, large, dequant.Q8_0, set(map[string]any{"test.refuse": "GGUF tensors this build cannot load: ffn_gate_exps.weight (Q8_1) in 40 layers"}))}), nil, ggufRepo + ":Q4",
			"GGUF tensors this build cannot load: ffn_gate_exps.weight (Q8_1) in 40 layers"},
		{"a tokenizer", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": aGGUF(t, 205, large, dequant.Q8_0, set(map[string]any{"test.tokenizer": "unsupported GGUF tokenizer profile"}))}), nil, ggufRepo + ":Q4",
			"unsupported GGUF tokenizer profile"},
		{"no GGUF", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": noise(206, large)}), nil, ggufRepo + ":Q4", "M-Q4.gguf: "},
		{"a string of 2^63-1 bytes", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": append([]byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f"), noise(207, large)...)}), nil, ggufRepo + ":Q4", "M-Q4.gguf: truncated at byte"},
		{"a cut file", ggufRepo, with(repo, map[string][]byte{"M-Q4.gguf": good[:len(good)-40]}), nil, ggufRepo + ":Q4", "M-Q4.gguf: tensor \"weight\""},
		{"no projector", ggufRepo, with(repo, map[string][]byte{"mmproj.gguf": nil}), nil, ggufRepo + ":Q4",
			"the GGUF repository has no BF16, F32 or F16 vision projector (no GGUF named mmproj); use --language-only to serve text only"},
		{"a quantized projector", ggufRepo, with(repo, map[string][]byte{"mmproj.gguf": projectorGGUF(t, 208, dequant.Q8_0)}), nil, ggufRepo + ":Q4",
			"the GGUF repository has no BF16, F32 or F16 vision projector (mmproj.gguf (clip: Q8_0)); use --language-only to serve text only"},
		{"a projector that is a model", ggufRepo, with(repo, map[string][]byte{"mmproj.gguf": targetGGUF(t, 209, 1000)}), nil, ggufRepo + ":Q4",
			"the GGUF repository has no BF16, F32 or F16 vision projector (mmproj.gguf (qwen35: Q8_0)); use --language-only to serve text only"},
		{"two projectors", ggufRepo, with(repo, map[string][]byte{"a-mmproj.gguf": projectorGGUF(t, 210, dequant.BF16)}), nil, ggufRepo + ":Q4",
			"several BF16 vision projectors, a-mmproj.gguf, mmproj.gguf, describe no single tower; use --language-only to serve text only"},
		{"a projector of another tower", ggufRepo, with(repo, map[string][]byte{"mmproj.gguf": aGGUF(t, 211, 1000, dequant.BF16, map[string]any{"general.architecture": "clip", "test.refuse": "vision metadata mismatch: clip.vision.block_count"})}), nil, ggufRepo + ":Q4",
			"mmproj.gguf: vision metadata mismatch: clip.vision.block_count"},
		{"a projector that is no GGUF", ggufRepo, with(repo, map[string][]byte{"mmproj.gguf": []byte("nothing")}), nil, ggufRepo + ":Q4", "the GGUF repository has no BF16, F32 or F16 vision projector (mmproj.gguf: "},
		{"a name with a pattern", ggufRepo, with(repo, map[string][]byte{"M[1]-Q5.gguf": good}), nil, ggufRepo + ":Q5", "unsupported file name in owner/Model-GGUF: \"M[1]-Q5.gguf\""},
		{"a missing part", ggufRepo, with(split, map[string][]byte{"Q4/M-00002-of-00002.gguf": nil}), nil, ggufRepo + ":Q4", "M-00002-of-00002.gguf is missing: M is split into 2 parts"},
		{"parts of another count", ggufRepo, with(split, map[string][]byte{"Q4/M-00001-of-00002.gguf": good}), nil, ggufRepo + ":Q4", "Q4/M-00001-of-00002.gguf: key \"split.count\" is missing"},
		{"another draft", ggufRepo, repo, with(draftRepo(212), map[string][]byte{"config.json": jsonOf(fakeConfig{Draft: "Flint"})}), ggufRepo + ":Q4",
			"draft configuration is incompatible with Qwen3.8-27B: it is of Flint"},
		{"a draft without weights", ggufRepo, repo, with(draftRepo(212), map[string][]byte{"model.safetensors": nil}), ggufRepo + ":Q4",
			draftOf + " does not contain a DFlash2 checkpoint for Qwen3.8-27B (model has no safetensors checkpoint)"},
		{"a draft without a shard", ggufRepo, repo, with(draftRepo(212), map[string][]byte{indexFile: index(map[string]string{"a": "x.safetensors"})}), ggufRepo + ":Q4",
			draftOf + " does not contain a DFlash2 checkpoint for Qwen3.8-27B (checkpoint has missing or unsupported shards: x.safetensors)"},
		{"a draft without a configuration", ggufRepo, repo, map[string][]byte{"model.safetensors": noise(1, 10)}, ggufRepo + ":Q4",
			draftOf + " does not contain a DFlash2 checkpoint for Qwen3.8-27B (no config.json)"},

		{"variant of a checkpoint", mlxRepo, mlx(213), nil, mlxRepo + ":Q4", "no single GGUF matches :Q4 (files in the repository root: none)"},
		{"no configuration", mlxRepo, with(mlx(213), map[string][]byte{"config.json": nil, "preprocessor_config.json": nil}), nil, mlxRepo,
			"target repository owner/Model-4bit is missing: config.json, preprocessor_config.json. Configuration, tokenizer and processor must come from the target repository"},
		{"no tokenizer", mlxRepo, with(mlx(213), map[string][]byte{"tokenizer.json": nil, "tokenizer_config.json": nil}), nil, mlxRepo,
			"target repository owner/Model-4bit is missing: tokenizer.json, tokenizer_config.json. Configuration, tokenizer and processor must come from the target repository"},
		{"no processor", mlxRepo, with(mlx(213), map[string][]byte{"preprocessor_config.json": nil}), nil, mlxRepo,
			"target repository owner/Model-4bit is missing: preprocessor_config.json. Configuration, tokenizer and processor must come from the target repository; use --language-only to serve text only"},
		{"a processor without images", mlxRepo, with(mlx(213), map[string][]byte{"preprocessor_config.json": nil, "processor_config.json": []byte(`{"video_processor":{}}`)}), nil, mlxRepo,
			"target repository owner/Model-4bit is missing: preprocessor_config.json. Configuration, tokenizer and processor must come from the target repository; use --language-only to serve text only"},
		{"another preprocessing", mlxRepo, with(mlx(213), map[string][]byte{"preprocessor_config.json": jsonOf(fakeConfig{Processor: "unsupported vision preprocessing configuration"})}), nil, mlxRepo,
			"unsupported vision preprocessing configuration"},
		{"another text model", mlxRepo, with(mlx(213), map[string][]byte{"config.json": jsonOf(fakeConfig{Family: family, Refuse: "text model type llama", Tower: "not asked"}), "preprocessor_config.json": jsonOf(fakeConfig{Processor: "not asked"})}), nil, mlxRepo,
			"text model type llama"},
		{"another tower", mlxRepo, with(mlx(213), map[string][]byte{"config.json": jsonOf(fakeConfig{Family: family, Tower: "vision config depth mismatch: MLX 1, runtime 27"})}), nil, mlxRepo,
			"vision config depth mismatch: MLX 1, runtime 27"},
		{"no tower", mlxRepo, with(mlx(213), map[string][]byte{indexFile: index(map[string]string{"language_model.model.a": "model-00001-of-00002.safetensors"})}), nil, mlxRepo,
			"owner/Model-4bit has no vision tower; use --language-only to serve text only"},
		{"a shard that is not there", mlxRepo, with(mlx(213), map[string][]byte{"model-00002-of-00002.safetensors": nil}), nil, mlxRepo,
			"checkpoint has missing or unsupported shards: model-00002-of-00002.safetensors"},
		{"a shard of another kind", mlxRepo, with(mlx(213), map[string][]byte{indexFile: index(map[string]string{"a": "model.bin"})}), nil, mlxRepo, "checkpoint has missing or unsupported shards: weight_map gives a the file model.bin"},
		{"an odd index", mlxRepo, with(mlx(213), map[string][]byte{indexFile: []byte(`{"weight_map":{}}`)}), nil, mlxRepo, "weight_map is missing or empty"},
		{"no checkpoint", mlxRepo, with(mlx(213), map[string][]byte{indexFile: nil}), nil, mlxRepo, "model has no safetensors checkpoint"},
		{"another tokenizer", mlxRepo, with(mlx(213), map[string][]byte{"tokenizer_config.json": jsonOf(fakeConfig{Tokenizer: "unsupported tokenizer model"})}), nil, mlxRepo, "unsupported tokenizer model"},
		{"a package", mlxRepo, with(mlx(213), map[string][]byte{manifestFile: []byte(`{"format":{"name":"splash-packed-q4"}}`)}), nil, mlxRepo,
			"owner/Model-4bit is a Splash package, which Splash no longer loads; serve the MLX model of its family instead: splash serve --model mlx-community/Qwen3.8-27B-4bit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.hub.Commit(tt.repo, "main", tt.files)
			if tt.draft == nil {
				tt.draft = draftRepo(212)
			}
			w.hub.Commit(draftOf, "main", tt.draft)
			_, log, err := w.install(sel(t, tt.model), false)
			want := "cannot install " + tt.model + ": " + tt.want
			exact := !strings.HasSuffix(tt.want, ": ") && !strings.Contains(tt.want, `"`) && !strings.Contains(tt.want, "truncated") && !strings.Contains(tt.want, "weight_map")
			if err == nil || exact && err.Error() != want || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v\n want %s", err, want)
			}
			if strings.Contains(log, "Fetching") {
				t.Errorf("logged %q", log)
			}
			noWeights(t, w, tt.repo, tt.files)
			noWeights(t, w, draftOf, tt.draft)
			// The check alone says the same, and downloads nothing either.
			in, _ := w.installer(false)
			if _, err := in.Inspect(context.Background(), sel(t, tt.model)); err == nil || exact && err.Error() != tt.want || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the check says %v\n want %s", err, tt.want)
			}
			noWeights(t, w, tt.repo, tt.files)
			if names, _ := listDir(filepath.Join(w.dir, ".resolved")); len(names) > 0 {
				t.Errorf("there are assemblies: %v", names)
			}
		})
	}
}

// noWeights checks that no weight file was downloaded: of each, no more than the steps of a header were read, by ranges.
func noWeights(t *testing.T, w *world, repo string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		if !strings.HasSuffix(name, ".gguf") && !strings.HasSuffix(name, ".safetensors") {
			continue
		}
		n := w.hub.Count(repo, name)
		header := int64(0)
		if strings.HasSuffix(name, ".gguf") {
			header = 2 * hub.Step // read once by the installation and once by the check
		}
		if n.Heads > 0 || n.Bytes > min(header, 2*int64(len(data))) {
			t.Errorf("%s: %+v", name, n)
		}
		for _, at := range listing(t, filepath.Dir(w.dir)) {
			if strings.Contains(at, hubtest.Digest(name, data)) {
				t.Errorf("%s is in the cache as %s", name, at)
			}
		}
	}
}

// splitGGUF is a repository with a target split into two parts in a folder.
func splitGGUF(t testing.TB, n int) map[string][]byte {
	t.Helper()
	files := map[string][]byte{"mmproj.gguf": projectorGGUF(t, 220, dequant.BF16)}
	for i := range 2 {
		w := &gguf.Writer{}
		if i == 0 {
			w.Set("general.architecture", "qwen35")
			w.Set("test.family", family)
		}
		w.Set("split.no", uint16(i))
		w.Set("split.count", uint16(2))
		w.Set("split.tensors.count", int32(2))
		w.AddBytes(fmt.Sprint("weight.", i), dequant.Q8_0, []uint64{32, uint64(n / 34)}, noise(221+i, n/34*34))
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		files["Q4/"+gguf.PartName("M", i+1, 2)] = out.Bytes()
	}
	return files
}

func TestInstallSplit(t *testing.T) {
	w := newWorld(t)
	files := splitGGUF(t, 50_000)
	w.hub.Commit(ggufRepo, "main", files)
	w.hub.Commit(draftOf, "main", draftRepo(222))
	installed, log := w.mustInstall(sel(t, ggufRepo+":q4"))
	if !strings.HasPrefix(log, "Selected Q4/M-00001-of-00002.gguf from owner/Model-GGUF.") {
		t.Errorf("logged %q", log)
	}
	holds(t, installed.Dir, map[string][]byte{"target/M-00001-of-00002.gguf": files["Q4/M-00001-of-00002.gguf"], "target/M-00002-of-00002.gguf": files["Q4/M-00002-of-00002.gguf"]})
	if filepath.Base(installed.Target()) != "M-00001-of-00002.gguf" {
		t.Errorf("the target loads from %s", installed.Target())
	}
	f, err := gguf.Open(installed.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors) != 2 {
		t.Errorf("%d tensors", len(f.Tensors))
	}
}

// The projector of the preferred type is chosen whatever its name.
func TestChooseProjector(t *testing.T) {
	mixed := func(kinds ...dequant.Type) []byte {
		w := &gguf.Writer{}
		w.Set("general.architecture", "clip")
		for i, k := range kinds {
			w.Add(fmt.Sprint("t", i), k, []uint64{32}, nil)
		}
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	bf16, f32, f16 := mixed(dequant.BF16, dequant.F32), mixed(dequant.F32), mixed(dequant.F16, dequant.F32)
	for _, tt := range []struct {
		name  string
		files map[string][]byte
		want  string
	}{
		{"the only one", map[string][]byte{"mmproj.gguf": f16}, "mmproj.gguf"},
		{"BF16 first", map[string][]byte{"mmproj-BF16.gguf": bf16, "mmproj-F16.gguf": f16, "mmproj-F32.gguf": f32}, "mmproj-BF16.gguf"},
		{"F32 before F16", map[string][]byte{"mmproj-F16.gguf": f16, "mmproj-F32.gguf": f32}, "mmproj-F32.gguf"},
		{"by the header, not the name", map[string][]byte{"mmproj-BF16.gguf": f16, "mmproj-F16.gguf": bf16}, "mmproj-F16.gguf"},
		{"BF16 and F16 together", map[string][]byte{"mmproj-a.gguf": mixed(dequant.BF16, dequant.F16), "mmproj-b.gguf": f32}, "mmproj-b.gguf"},
		{"two F16 beside one BF16", map[string][]byte{"mmproj-a.gguf": f16, "mmproj-b.gguf": f16, "mmproj-c.gguf": bf16}, "mmproj-c.gguf"},
		{"named by the model, in capitals", map[string][]byte{"Model-MMPROJ-BF16.gguf": bf16}, "Model-MMPROJ-BF16.gguf"},
		{"quantized ones aside", map[string][]byte{"mmproj-Q8_0.gguf": mixed(dequant.Q8_0), "mmproj-F16.gguf": f16}, "mmproj-F16.gguf"},
		{"one in a folder does not count", map[string][]byte{"sub/mmproj-BF16.gguf": bf16, "mmproj-F16.gguf": f16}, "mmproj-F16.gguf"},
		{"an empty one does not count", map[string][]byte{"mmproj-0.gguf": mixed(), "mmproj-F16.gguf": f16}, "mmproj-F16.gguf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.hub.Commit(ggufRepo, "main", tt.files)
			in, _ := w.installer(false)
			m, err := in.Hub.Model(context.Background(), ggufRepo, "")
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := chooseProjector(context.Background(), newHubFiles(in.Hub, m))
			if err != nil || got != tt.want {
				t.Errorf("%s, %v; want %s", got, err, tt.want)
			}
		})
	}
	// A Hub that fails is not a repository without a projector.
	w := newWorld(t)
	w.hub.Commit(ggufRepo, "main", map[string][]byte{"mmproj.gguf": bf16})
	w.hub.Inject(hubtest.Fault{Place: hubtest.Resolve, Status: 500, Times: -1})
	in, _ := w.installer(false)
	m := must(in.Hub.Model(context.Background(), ggufRepo, ""))
	if _, _, err := chooseProjector(context.Background(), newHubFiles(in.Hub, m)); err == nil || !strings.Contains(err.Error(), "500 Internal Server Error") {
		t.Errorf("error %v", err)
	}
}

// The shards of a checkpoint are told apart by what they hold.
func TestShards(t *testing.T) {
	for _, tt := range []struct {
		name          string
		files         map[string][]byte
		target, tower string
	}{
		{"one file with a tower", map[string][]byte{"model.safetensors": aSafetensors(1, "a", "vision_tower.b")}, "model.safetensors", "model.safetensors"},
		{"one file in transformers' names", map[string][]byte{"model.safetensors": aSafetensors(1, "model.language_model.a", "model.visual.b")}, "model.safetensors", "model.safetensors"},
		{"one file without", map[string][]byte{"model.safetensors": aSafetensors(1, "a", "xvision_tower.b")}, "model.safetensors", ""},
		{"a shard of both", map[string][]byte{indexFile: index(map[string]string{"a": "1.safetensors", "vision_tower.b": "1.safetensors", "c": "2.safetensors"}), "1.safetensors": nil, "2.safetensors": nil}, "1.safetensors 2.safetensors", "1.safetensors"},
		{"the tower apart, in a folder", map[string][]byte{indexFile: index(map[string]string{"a": "1.safetensors", "vision_tower.b": "optiq/2.safetensors"}), "1.safetensors": nil, "optiq/2.safetensors": nil}, "1.safetensors", "optiq/2.safetensors"},
		{"an index before a file", map[string][]byte{indexFile: index(map[string]string{"a": "1.safetensors"}), "1.safetensors": nil, "model.safetensors": aSafetensors(1, "a")}, "1.safetensors", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.hub.Commit(mlxRepo, "main", tt.files)
			in, _ := w.installer(false)
			m := must(in.Hub.Model(context.Background(), mlxRepo, ""))
			src := newHubFiles(in.Hub, m)
			got, err := readShards(context.Background(), src)
			if err != nil || strings.Join(got.target, " ") != tt.target || strings.Join(got.tower, " ") != tt.tower {
				t.Errorf("%v, %v; want %s and %s", got, err, tt.target, tt.tower)
			}
			c := &candidate{}
			if err := c.addShards("vision/", src, got.tower); err != nil {
				t.Error(err)
			}
			for path := range c.links {
				if strings.Count(path, "/") != 1 {
					t.Errorf("%s is in a folder of its own", path)
				}
			}
		})
	}
	c := &candidate{}
	if err := c.addShards("target/", nil, []string{"a/b.safetensors", "a-b.safetensors"}); err == nil {
		t.Error("two shards of one name")
	}
}

func TestReplacement(t *testing.T) {
	for manifest, want := range map[string]string{
		`{"format":{"name":"splash-packed-q4"}}`:     "mlx-community/Qwen3.8-27B-4bit",
		`{"format":{"name":"splash-packed-q4-moe"}}`: "mlx-community/Qwen3.6-35B-A3B-4bit",
		`{"format":{"name":"splash-packed-q8"}}`:     "",
		`{"format":"splash-packed-q4"}`:              "",
		`{"name":"a web page"}`:                      "",
		`[]`:                                         "",
		``:                                           "",
	} {
		if got := replacement([]byte(manifest)); got != want {
			t.Errorf("%s: %q, want %q", manifest, got, want)
		}
	}
}

// A header of 12 MB costs at most 12 MiB and six requests, redirects among them, and is parsed right.
func TestHeaderCost(t *testing.T) {
	w := newWorld(t)
	writer := &gguf.Writer{}
	writer.Set("general.architecture", "qwen35")
	tokens, merges := make([]string, 248_320), make([]string, 247_587)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token%08d", i)
	}
	for i := range merges {
		merges[i] = fmt.Sprintf("tok %08d", i)
	}
	writer.Set("tokenizer.ggml.tokens", tokens)
	writer.Set("tokenizer.ggml.token_type", make([]int32, len(tokens)))
	writer.Set("tokenizer.ggml.merges", merges)
	writer.Set("tokenizer.chat_template", strings.Repeat("x", 1_250_000))
	writer.Add("weight", dequant.Q8_0, []uint64{32, 400_000}, nil)
	var file bytes.Buffer
	if _, err := writer.WriteTo(&file); err != nil {
		t.Fatal(err)
	}
	w.hub.Commit(ggufRepo, "main", map[string][]byte{"M.gguf": file.Bytes()})
	in, _ := w.installer(false)
	m := must(in.Hub.Model(context.Background(), ggufRepo, ""))
	h, _, err := ggufHeader(context.Background(), newHubFiles(in.Hub, m), []string{"M.gguf"})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := h.ArrayLen("tokenizer.ggml.merges"); n != len(merges) || h.Tensor("weight") == nil {
		t.Error("the header is read wrong")
	}
	steps := (h.End + hub.Step - 1) / hub.Step
	n := w.hub.Count(ggufRepo, "M.gguf")
	if h.End < 11_900_000 || h.End > 12_500_000 || n.Requests() > 6 || n.Bytes > steps*hub.Step {
		t.Errorf("a header of %d bytes: %+v, want at most 6 requests and %d MiB", h.End, n, steps)
	}
}
