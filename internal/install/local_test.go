package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/hub"
	"splash/internal/hub/hubtest"
)

// write fills a folder with files.
func write(t testing.TB, dir string, files map[string][]byte) string {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (w *world) prepare(target string, opt LocalOptions) (*Installed, error) {
	w.t.Helper()
	in, _ := w.installer(true)
	installed, err := in.PrepareLocal(context.Background(), target, opt)
	if installed != nil {
		w.t.Cleanup(func() { installed.Close() })
	}
	return installed, err
}

func TestPrepareGGUF(t *testing.T) {
	w := newWorld(t)
	projector, target := projectorGGUF(t, 300, dequant.F16), targetGGUF(t, 301, 50_000)
	dir := write(t, t.TempDir(), map[string][]byte{"Model-Q8_0.gguf": target, "mmproj-F16.gguf": projector})
	draft := write(t, t.TempDir(), draftRepo(302))
	opt := LocalOptions{Draft: draft, MMProj: filepath.Join(dir, "mmproj-F16.gguf")}
	first, err := w.prepare(filepath.Join(dir, "Model-Q8_0.gguf"), opt)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, first.Dir, map[string][]byte{"target/Model-Q8_0.gguf": target, "vision/mmproj.gguf": projector, "draft/model.safetensors": draftRepo(302)["model.safetensors"]})
	if f := first.Record.Files["target/Model-Q8_0.gguf"]; f.Digest != sha256Hex(target) || f.Path != filepath.Join(dir, "Model-Q8_0.gguf") {
		t.Errorf("recorded %+v", f)
	}
	// The same files: the same directory, and no content is read. An unreadable digest would show it.
	again, err := w.prepare(filepath.Join(dir, "Model-Q8_0.gguf"), opt)
	if err != nil || again.Dir != first.Dir {
		t.Fatalf("again: %v, %v", again, err)
	}
	// The folder is another way to name the target, and text alone another selection.
	text, err := w.prepare(dir, LocalOptions{Draft: draft})
	if err != nil || text.Vision() != "" || text.Dir == first.Dir {
		t.Fatalf("text alone: %v, %v", text, err)
	}
	// A file changes: another directory; the one that is held stays until nobody holds it.
	changed := targetGGUF(t, 303, 50_000)
	write(t, dir, map[string][]byte{"Model-Q8_0.gguf": changed})
	next, err := w.prepare(filepath.Join(dir, "Model-Q8_0.gguf"), opt)
	if err != nil || next.Dir == first.Dir {
		t.Fatalf("changed: %v, %v", next, err)
	}
	if _, err := os.Stat(first.Dir); err != nil {
		t.Errorf("the directory that is held: %v", err)
	}
	first.Close()
	again.Close()
	if _, err := w.prepare(filepath.Join(dir, "Model-Q8_0.gguf"), opt); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory that nobody holds: %v", err)
	}
	if n := w.hub.Total(); n != (hubtest.Count{}) {
		t.Errorf("%+v to prepare local files", n)
	}
}

// A file outside the Hub cache is read once for its digest.
func TestDigestsAreRemembered(t *testing.T) {
	s := &store{filepath.Join(t.TempDir(), "models")}
	path := filepath.Join(t.TempDir(), "f")
	os.WriteFile(path, []byte("one"), 0o666)
	first, err := s.linked(context.Background(), path, "", nil)
	if err != nil || first.Digest != sha256Hex([]byte("one")) {
		t.Fatal(first, err)
	}
	// The remembered digest is another than the content's: whoever returns it has not read the content.
	at := filepath.Join(s.digests(), must(listDir(s.digests()))[0])
	data := strings.Replace(string(must(os.ReadFile(at))), first.Digest, strings.Repeat("0", 64), 1)
	os.WriteFile(at, []byte(data), 0o666)
	again, err := s.linked(context.Background(), path, "", func(path string, _ int64) { t.Errorf("%s is read again", path) })
	if err != nil || again.Digest != strings.Repeat("0", 64) {
		t.Errorf("again: %+v, %v", again, err)
	}
	os.WriteFile(path, []byte("changed"), 0o666)
	if next, err := s.linked(context.Background(), path, "", nil); err != nil || next.Digest != sha256Hex([]byte("changed")) {
		t.Errorf("changed: %+v, %v", next, err)
	}
	if err := s.collect(); err != nil {
		t.Fatal(err)
	}
	if left := must(listDir(s.digests())); len(left) > 0 {
		t.Errorf("digests of no assembly: %v", left)
	}
}

func TestPrepareSafetensors(t *testing.T) {
	w := newWorld(t)
	files := mlx(310)
	files["optiq/tower.safetensors"] = aSafetensors(312, "vision_tower.d")
	files[indexFile] = index(map[string]string{
		"language_model.model.a": "model-00001-of-00002.safetensors", "language_model.model.b": "model-00002-of-00002.safetensors", "vision_tower.d": "optiq/tower.safetensors",
	})
	dir := write(t, t.TempDir(), files)
	fill(t, w.cache, draftOf, draftRepo(313))
	installed, err := w.prepare(dir, LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holds(t, installed.Dir, map[string][]byte{"vision/optiq-tower.safetensors": files["optiq/tower.safetensors"], "tokenizer/tokenizer.json": files["tokenizer.json"]})
	commit := installed.Record.Sources.Draft.Commit()
	if pins := (hub.Cache{Dir: w.cache}).Pins(draftOf, pinOwner(only(t, w.dir))); len(pins) != 1 || pins[0] != commit {
		t.Errorf("pins %v of the draft, want %s", pins, commit)
	}
	text, err := w.prepare(dir, LocalOptions{LanguageOnly: true})
	if err != nil || text.Vision() != "" {
		t.Errorf("text alone: %v, %v", text, err)
	}
	// The cache's draft moves: another directory.
	next := draftRepo(314)
	next["README.md"] = []byte("moved")
	moved := strings.Repeat("d", 40)
	folder := hub.Cache{Dir: w.cache}.Folder(draftOf)
	write(t, filepath.Join(folder, "snapshots", moved), next)
	hub.Cache{Dir: w.cache}.SetRef(draftOf, "main", moved)
	other, err := w.prepare(dir, LocalOptions{})
	if err != nil || other.Dir == installed.Dir || other.Record.Sources.Draft.Commit() != moved {
		t.Errorf("a draft that moved: %v, %v", other, err)
	}
}

// only is the one selection of a models directory.
func only(t testing.TB, models string) string {
	t.Helper()
	links := must((&store{models}).links())
	if len(links) != 1 {
		t.Fatalf("links %v", links)
	}
	for rel := range links {
		return filepath.Join(models, rel)
	}
	return ""
}

// Any part of a split names all of it, whatever the order of the folder; a stray part of another count confuses nothing.
func TestPrepareSplit(t *testing.T) {
	w := newWorld(t)
	files := splitGGUF(t, 50_000)
	dir := write(t, t.TempDir(), map[string][]byte{"M-00001-of-00002.gguf": files["Q4/M-00001-of-00002.gguf"], "M-00002-of-00002.gguf": files["Q4/M-00002-of-00002.gguf"]})
	draft := write(t, t.TempDir(), draftRepo(320))
	stray := func() { write(t, dir, map[string][]byte{"M-00002-of-00004.gguf": files["Q4/M-00002-of-00002.gguf"]}) }
	for i, path := range []string{dir + "/M-00002-of-00002.gguf", dir + "/M-00001-of-00002.gguf", dir, dir + "/M-00002-of-00002.gguf", dir} {
		if i == 3 {
			stray()
		}
		installed, err := w.prepare(path, LocalOptions{Draft: draft})
		if err != nil {
			t.Fatal(err)
		}
		if d := installed.Record.under("target/"); len(d) != 2 || d[0] != "target/M-00001-of-00002.gguf" {
			t.Errorf("%s: %v", path, d)
		}
	}
	os.Remove(dir + "/M-00001-of-00002.gguf")
	_, err := w.prepare(dir+"/M-00002-of-00002.gguf", LocalOptions{Draft: draft})
	var e *ModelError
	if !errors.As(err, &e) || !strings.Contains(e.Error(), `M-00001-of-00002.gguf: part 1 of 2 of the split "M" is missing`) {
		t.Errorf("error %v", err)
	}
}

// Every refusal names the file and the reason, and links nothing.
func TestPrepareRefusals(t *testing.T) {
	w := newWorld(t)
	draft := write(t, t.TempDir(), draftRepo(330))
	other := write(t, t.TempDir(), map[string][]byte{"config.json": jsonOf(fakeConfig{Draft: "Flint"}), "model.safetensors": nil})
	two := write(t, t.TempDir(), map[string][]byte{"A-Q8.gguf": targetGGUF(t, 331, 1000), "B-Q8.gguf": targetGGUF(t, 332, 1000)})
	one := write(t, t.TempDir(), map[string][]byte{
		"M-Q8.gguf": targetGGUF(t, 333, 1000), "M.GGUF": nil, "mmproj-Q8.gguf": projectorGGUF(t, 334, dequant.Q8_0),
	})
	text := write(t, t.TempDir(), map[string][]byte{"M-Q8.gguf": aGGUF(t, 335, 1000, dequant.Q8_0, map[string]any{"test.family": textOnly})})
	mlxDir := write(t, t.TempDir(), mlx(336))
	old := write(t, t.TempDir(), map[string][]byte{manifestFile: []byte(`{"format":{"name":"splash-packed-q4"}}`)})
	odd := write(t, t.TempDir(), map[string][]byte{"mmproj.gguf": aGGUF(t, 337, 1000, dequant.F32, map[string]any{"general.architecture": "clip", "test.refuse": "vision metadata mismatch"})})
	for _, tt := range []struct {
		name, target string
		opt          LocalOptions
		file, want   string
	}{
		{"no file", one + "/none.gguf", LocalOptions{Draft: draft}, one + "/none.gguf", "no such file or directory"},
		{"no GGUF", one + "/M.GGUF", LocalOptions{Draft: draft}, one + "/M.GGUF", "not the name of a GGUF"},
		{"an empty folder", t.TempDir(), LocalOptions{Draft: draft}, "", "no GGUF target here"},
		{"two names", two, LocalOptions{Draft: draft}, two, "GGUF targets of 2 names"},
		{"a projector as target", one + "/mmproj-Q8.gguf", LocalOptions{Draft: draft}, one + "/mmproj-Q8.gguf", "a vision projector (its name has mmproj), not a target"},
		{"another draft", one, LocalOptions{Draft: other}, other, "draft configuration is incompatible with Qwen3.8-27B: it is of Flint"},
		{"no draft's folder", one, LocalOptions{Draft: one + "/none"}, one + "/none", "local draft directory not found"},
		{"no draft in the cache", one, LocalOptions{}, draftOf, "the family's draft is not in the Hub cache; download it with: hf download " + draftOf},
		{"a projector of a text model", text, LocalOptions{MMProj: one + "/mmproj-Q8.gguf"}, one + "/mmproj-Q8.gguf", "Qwen3.5-4B has no vision tower, so it takes no projector"},
		{"a projector that is not there", one, LocalOptions{Draft: draft, MMProj: one + "/mmproj-F16.gguf"}, one + "/mmproj-F16.gguf", "no such file or directory"},
		{"a projector of another tower", one, LocalOptions{Draft: draft, MMProj: odd + "/mmproj.gguf"}, odd + "/mmproj.gguf", "vision metadata mismatch"},
		{"a projector of a checkpoint", mlxDir, LocalOptions{Draft: draft, MMProj: one + "/mmproj-Q8.gguf"}, one + "/mmproj-Q8.gguf", "a safetensors target takes no projector: its tower is in its own checkpoint"},
		{"a projector and text alone", one, LocalOptions{Draft: draft, MMProj: one + "/mmproj-Q8.gguf", LanguageOnly: true}, one + "/mmproj-Q8.gguf", "a projector cannot be combined with text only"},
		{"a package", old, LocalOptions{}, old, "is a Splash package, which Splash no longer loads; serve the MLX model of its family instead: splash serve --model mlx-community/Qwen3.8-27B-4bit"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.prepare(tt.target, tt.opt)
			var e *ModelError
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want a ModelError", err)
			}
			if tt.file != "" && e.File != tt.file || !strings.Contains(e.Error(), tt.want) || !strings.Contains(e.Error(), e.File) || strings.Contains(e.Error(), "\n") {
				t.Errorf("error %q of %s\n want %q of %s", e, e.File, tt.want, tt.file)
			}
			in, _ := w.installer(true)
			if tt.name != "a projector and text alone" {
				if _, err := in.InspectLocal(context.Background(), tt.target, tt.opt); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("the check says %v", err)
				}
			}
		})
	}
	if n := w.hub.Total(); n != (hubtest.Count{}) {
		t.Errorf("%+v to prepare local files", n)
	}
}

func TestInspect(t *testing.T) {
	w := newWorld(t)
	w.gguf(340)
	w.hub.Commit(draftOf, "main", draftRepo(344))
	in, _ := w.installer(false)
	r, err := in.Inspect(context.Background(), sel(t, ggufRepo+":Q8_0"))
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, f := range r.Files {
		bytes += f.Bytes
	}
	if r.Plan.Family.Name != family || r.Format != GGUF || r.Vision != GGUF || r.DraftOf.Repo != draftOf || r.Draft.Layers != 5 || len(r.Files) != 4 ||
		bytes-r.Download != int64(len(draftRepo(344)["config.json"])) || len(r.Notes) != 1 {
		t.Errorf("%+v, %d bytes", r, bytes)
	}
	installed, _ := w.mustInstall(sel(t, ggufRepo+":Q8_0"))
	if r, err = in.Inspect(context.Background(), sel(t, ggufRepo+":Q8_0")); err != nil || r.Download != 0 {
		t.Errorf("once installed: %d bytes to download, %v", r.Download, err)
	}
	local, err := in.InspectLocal(context.Background(), installed.Target(), LocalOptions{Draft: installed.Draft()})
	if err != nil || local.Plan.Family.Name != family || local.Vision != NoVision || len(local.Files) != 3 || local.Download != 0 {
		t.Errorf("local: %+v, %v", local, err)
	}
}

// A target is prepared without its family's draft where none is wanted, as another installation.
func TestPrepareWithoutDraft(t *testing.T) {
	w := newWorld(t)
	dir := write(t, t.TempDir(), map[string][]byte{"M-Q8.gguf": targetGGUF(t, 360, 1000)})
	installed, err := w.prepare(dir, LocalOptions{NoDraft: true})
	if err != nil {
		t.Fatal(err)
	}
	defer installed.Close()
	if installed.Draft() != "" || (LocalOptions{NoDraft: true}).link(dir) == (LocalOptions{}).link(dir) {
		t.Errorf("prepared with the draft %q", installed.Draft())
	}
	in, _ := w.installer(true)
	if r, err := in.InspectLocal(context.Background(), dir, LocalOptions{NoDraft: true}); err != nil || r.DraftOf != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// Hold is what a server does with the directory that a preparation returned.
func TestHold(t *testing.T) {
	w := newWorld(t)
	dir := write(t, t.TempDir(), map[string][]byte{"M-Q8.gguf": targetGGUF(t, 350, 1000)})
	draft := write(t, t.TempDir(), draftRepo(351))
	installed, err := w.prepare(dir, LocalOptions{Draft: draft})
	if err != nil {
		t.Fatal(err)
	}
	installed.Close()
	in, _ := w.installer(true)
	held, err := in.Hold(context.Background(), installed.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	write(t, dir, map[string][]byte{"M-Q8.gguf": targetGGUF(t, 352, 1000)})
	if _, err := w.prepare(dir, LocalOptions{Draft: draft}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(held.Dir, recordFile)); err != nil {
		t.Errorf("the assembly that is held: %v", err)
	}
	if _, err := in.Hold(context.Background(), held.Dir); err == nil || err.Error() != "resolved model file changed: target/M-Q8.gguf" {
		t.Errorf("hold of what changed: %v", err)
	}
	if _, err := in.Hold(context.Background(), dir); err == nil {
		t.Error("hold of what is no assembly")
	}
}

func TestDataDir(t *testing.T) {
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if got := DataDir(env(map[string]string{"SPLASH_DATA_DIR": "/d", "HOME": "/h"})); got != "/d" {
		t.Error(got)
	}
	if got := DataDir(env(map[string]string{"HOME": "/h"})); !strings.HasPrefix(got, "/h/") || !strings.EqualFold(filepath.Base(got), "splash") {
		t.Error(got)
	}
}

// The library call reads its environment and returns a folder that a server can hold.
func TestPrepareLocalModel(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("SPLASH_DATA_DIR", filepath.Join(home, "data"))
	for _, name := range []string{"HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_ENDPOINT", "XDG_CACHE_HOME"} {
		t.Setenv(name, "")
	}
	fixtures := filepath.Join("..", "..", "fixtures", "pebble")
	dir, err := PrepareLocalModel(context.Background(), filepath.Join(fixtures, "pebble-Q4_K_M.gguf"), LocalOptions{Draft: filepath.Join(fixtures, "draft")})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(dir, filepath.Join(home, "data", "models", ".resolved")) {
		t.Errorf("prepared in %s", dir)
	}
	in := &Installer{Models: filepath.Join(home, "data", "models")}
	held, err := in.Hold(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if held.Record.Family != "pebble" || held.Record.ChatFormat != "qwen" {
		t.Errorf("record %+v", held.Record)
	}
	_, err = PrepareLocalModel(context.Background(), filepath.Join(fixtures, "pebble-BF16.gguf"), LocalOptions{Draft: filepath.Join(fixtures, "draft")})
	var e *ModelError
	if !errors.As(err, &e) || !strings.Contains(e.Reason, "choose a quantized variant") {
		t.Errorf("error %v", err)
	}
}
