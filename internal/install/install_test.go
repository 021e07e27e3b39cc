package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/hub"
	"splash/internal/hub/hubtest"
)

func TestInstallGGUF(t *testing.T) {
	w := newWorld(t)
	target, projector, draft := targetGGUF(t, 1, 300_000), projectorGGUF(t, 2, 30), draftRepo(3)
	commit := w.hub.Commit(ggufRepo, "main", map[string][]byte{
		"Model-Q4_K_M.gguf": target, "Model-Q8_0.gguf": targetGGUF(t, 4, 100_000), "mmproj-BF16.gguf": projector,
	})
	draftCommit := w.hub.Commit(draftOf, "main", draft)
	installed, log := w.mustInstall(sel(t, ggufRepo+":Q4_K_M"))
	want := []string{
		"Selected Model-Q4_K_M.gguf from owner/Model-GGUF.",
		"Installing owner/Model-GGUF:Q4_K_M as Qwen3.8-27B (gguf); draft incoai/Qwen3.8-27B-DFlash2; vision enabled.",
		"Fetching 1 file(s), 0.00 GB, from incoai/Qwen3.8-27B-DFlash2@" + draftCommit[:12] + "; cached files are reused.",
		"Fetching 2 file(s), 0.00 GB, from owner/Model-GGUF@" + commit[:12] + "; cached files are reused.",
	}
	if d := cmp.Diff(want, strings.Split(log, "\n")); d != "" {
		t.Error(d)
	}
	holds(t, installed.Dir, map[string][]byte{
		"target/Model-Q4_K_M.gguf": target, "vision/mmproj.gguf": projector,
		"draft/config.json": draft["config.json"], "draft/model.safetensors": draft["model.safetensors"],
	})
	files := []string{"config.json", "draft/config.json", "draft/model.safetensors", "model.json", "target/Model-Q4_K_M.gguf", "vision/mmproj.gguf"}
	if d := cmp.Diff(files, listing(t, installed.Dir)); d != "" {
		t.Error(d)
	}
	r := installed.Record
	if r.Family != family || r.ChatFormat != "qwen" || r.TargetFormat != GGUF || r.VisionFormat != GGUF || r.Model != ggufRepo+":Q4_K_M" ||
		r.Sources.Target.String() != ggufRepo+"@"+commit[:12] || r.Sources.Draft.String() != draftOf+"@"+draftCommit[:12] {
		t.Errorf("record %+v", r)
	}
	if got := r.Files["target/Model-Q4_K_M.gguf"]; got.Digest != hubtest.Digest("m.gguf", target) || got.Bytes != int64(len(target)) {
		t.Errorf("the target is recorded as %+v", got)
	}
	for path, want := range map[string]string{installed.Target(): "target/Model-Q4_K_M.gguf", installed.Vision(): "vision/mmproj.gguf",
		installed.Draft(): "draft", installed.Config(): "config.json", installed.Tokenizer(): ""} {
		if want != "" {
			want = filepath.Join(installed.Dir, want)
		}
		if path != want {
			t.Errorf("path %s, want %s", path, want)
		}
	}
	link := filepath.Join(w.dir, "owner", "Model-GGUF:Q4_K_M")
	if real, err := filepath.EvalSymlinks(link); err != nil || real != installed.Dir || filepath.Base(real) != sha256Hex(must(os.ReadFile(filepath.Join(real, recordFile)))) {
		t.Errorf("the link names %s, %v; want %s", real, err, installed.Dir)
	}
	cache := hub.Cache{Dir: w.cache}
	for repo, commit := range map[string]string{ggufRepo: commit, draftOf: draftCommit} {
		if d := cmp.Diff([]string{commit}, cache.Pins(repo, pinOwner(link))); d != "" {
			t.Errorf("pins of %s: %s", repo, d)
		}
	}
	if cache.Ref(draftOf, "main") != draftCommit || cache.Ref(ggufRepo, "main") != commit {
		t.Error("the default branches are not recorded")
	}

	// Once more: one request for the target, one for the draft, nothing else.
	w.hub.Reset()
	again, log := w.mustInstall(sel(t, ggufRepo+":Q4_K_M"))
	if again.Dir != installed.Dir || log != "Splash model owner/Model-GGUF:Q4_K_M is already installed in "+link {
		t.Errorf("again: %s, %q", again.Dir, log)
	}
	if n := w.hub.Total(); n != (hubtest.Count{Hub: 2}) {
		t.Errorf("again: %+v, want two listings", n)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestInstallSafetensors(t *testing.T) {
	w := newWorld(t)
	files := mlx(10)
	w.hub.Commit(mlxRepo, "main", files)
	w.hub.Commit(draftOf, "main", draftRepo(12))
	installed, _ := w.mustInstall(sel(t, mlxRepo))
	one, two := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	want := map[string][]byte{
		"config.json": files["config.json"], "target/" + one: files[one], "target/" + two: files[two], "vision/" + two: files[two], "vision/config.json": files["config.json"],
		"tokenizer/config.json": files["config.json"], "tokenizer/tokenizer.json": files["tokenizer.json"], "tokenizer/chat_template.jinja": files["chat_template.jinja"],
		"tokenizer/tokenizer_config.json": files["tokenizer_config.json"], "draft/config.json": draftRepo(12)["config.json"], "draft/model.safetensors": draftRepo(12)["model.safetensors"],
	}
	holds(t, installed.Dir, want)
	if n := len(listing(t, installed.Dir)); n != len(want)+1 {
		t.Errorf("%d files, want %d", n, len(want)+1)
	}
	if installed.Target() != installed.Dir+"/target" || installed.Vision() != installed.Dir+"/vision" || installed.Tokenizer() != installed.Dir+"/tokenizer" {
		t.Error("the folders of the target, vision and tokenizer")
	}
	if installed.Record.Metadata != "" || installed.Record.TargetFormat != Safetensors || installed.Record.VisionFormat != Safetensors {
		t.Errorf("record %+v", installed.Record)
	}
	if w.hub.Count(mlxRepo, "preprocessor_config.json").Hub == 0 || r(installed).Files["vision/preprocessor_config.json"].Path != "" {
		t.Error("the processor is checked and not installed")
	}
}

func r(i *Installed) *Record { return &i.Record }

// A start follows the branch, and fetches only what changed.
func TestFollowBranch(t *testing.T) {
	w := newWorld(t)
	files := mlx(20)
	old := w.hub.Commit(mlxRepo, "main", files)
	w.hub.Commit(draftOf, "main", draftRepo(22))
	first, _ := w.mustInstall(sel(t, mlxRepo))
	first.Close()
	one, two := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	moved := mlx(20)
	moved[one] = aSafetensors(25, "language_model.model.a")
	fresh := w.hub.Commit(mlxRepo, "main", moved)
	w.hub.Reset()
	second, log := w.mustInstall(sel(t, mlxRepo))
	if second.Dir == first.Dir || second.Record.Sources.Target.Commit() != fresh {
		t.Error("the new commit is not installed")
	}
	if !strings.HasPrefix(log, fmt.Sprintf("%s moved from %s to %s.\n", mlxRepo, old[:12], fresh[:12])) {
		t.Errorf("logged %q", log)
	}
	holds(t, second.Dir, map[string][]byte{"target/" + one: moved[one], "target/" + two: moved[two]})
	if n := w.hub.Count(mlxRepo, one).Bytes; n != int64(len(moved[one])) {
		t.Errorf("%d bytes of the shard that changed", n)
	}
	if n := w.hub.Count(mlxRepo, two); n != (hubtest.Count{}) {
		t.Errorf("%+v for the shard that did not change", n)
	}
	if _, err := os.Stat(first.Dir); !os.IsNotExist(err) {
		t.Errorf("the assembly that nobody selects and nobody holds: %v", err)
	}
	owner := pinOwner(filepath.Join(w.dir, mlxRepo))
	if d := cmp.Diff([]string{fresh}, hub.Cache{Dir: w.cache}.Pins(mlxRepo, owner)); d != "" {
		t.Error(d)
	}
}

// What starts when the Hub, the new commit or the new draft cannot be had, and the line that says so.
func TestKeepingTheInstalled(t *testing.T) {
	host := func(w *world) string { return strings.TrimPrefix(w.hub.URL(), "http://") }
	busy := hubtest.Fault{Place: hubtest.API, Status: 503, Times: -1}
	for _, tt := range []struct {
		name     string
		change   func(w *world)
		offline  bool
		revision string
		log      func(w *world, target, draft string) string
		listings int
	}{
		{
			name:   "the Hub is busy",
			change: func(w *world) { w.hub.Inject(busy) },
			log: func(w *world, target, draft string) string {
				return "Could not reach the Hub (503 Service Unavailable for " + host(w) + "/api/models/owner/Model-4bit); using the installed owner/Model-4bit@" + target + "."
			},
			listings: 5,
		},
		{
			name:    "offline",
			change:  func(w *world) { w.hub.Commit(mlxRepo, "main", mlx(40)) },
			offline: true,
			log:     func(w *world, target, draft string) string { return "" },
		},
		{
			name: "the draft's repository is busy",
			change: func(w *world) {
				f := busy
				f.Path = draftOf
				w.hub.Inject(f)
			},
			log: func(w *world, target, draft string) string {
				return "Could not reach the Hub (503 Service Unavailable for " + host(w) + "/api/models/" + draftOf + "); using the installed draft " + draftOf + "@" + draft + "."
			},
			listings: 6,
		},
		{
			name: "the new commit is refused",
			change: func(w *world) {
				bad := mlx(30)
				bad["config.json"] = jsonOf(fakeConfig{Family: family, Refuse: "text config hidden_size mismatch: MLX 1, runtime 2"})
				w.hub.Commit(mlxRepo, "main", bad)
			},
			log: func(w *world, target, draft string) string {
				fresh := mustCommit(w, mlxRepo)
				return fmt.Sprintf("%s moved from %s to %s.\nWarning: keeping the installed %s@%s; cannot install %s@%s: cannot install %s: text config hidden_size mismatch: MLX 1, runtime 2",
					mlxRepo, target, fresh[:12], mlxRepo, target, mlxRepo, fresh, mlxRepo)
			},
			listings: 1,
		},
		{
			name: "the new draft is refused",
			change: func(w *world) {
				bad := draftRepo(31)
				bad["config.json"] = jsonOf(fakeConfig{Draft: "Flint"})
				w.hub.Commit(draftOf, "main", bad)
			},
			log: func(w *world, target, draft string) string {
				fresh := mustCommit(w, draftOf)[:12]
				return fmt.Sprintf("Updating %s: %s moved from %s to %s.\nWarning: cannot use the %s draft %s@%s; keeping the installed one: draft configuration is incompatible with %s: it is of Flint\n"+
					"Installing %s as %s (safetensors); draft %s; vision enabled.", mlxRepo, draftOf, draft, fresh, family, draftOf, fresh, family, mlxRepo, family, draftOf)
			},
			listings: 2,
		},
		{
			name:     "the revision is a commit",
			revision: "commit",
			change: func(w *world) {
				w.hub.Commit(mlxRepo, "main", mlx(41))
				w.hub.Commit(draftOf, "main", draftRepo(42))
			},
			log: func(w *world, target, draft string) string { return "" },
		},
		{
			name:     "the repository is gone",
			revision: "branch",
			change:   func(w *world) {},
			log: func(w *world, target, draft string) string {
				return "Could not reach the Hub (404 Not Found for " + host(w) + "/api/models/owner/Model-4bit/revision/v1: owner/Model-4bit v1 not found); using the installed owner/Model-4bit@" + target + "."
			},
			listings: 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			commit := w.hub.Commit(mlxRepo, "main", mlx(30))
			draft := w.hub.Commit(draftOf, "main", draftRepo(32))
			s := sel(t, mlxRepo)
			switch tt.revision {
			case "commit":
				s.Revision = commit
			case "branch":
				w.hub.Commit(mlxRepo, "v1", mlx(30))
				s.Revision = "v1"
			}
			first, _ := w.mustInstall(s)
			commit = first.Record.Sources.Target.Commit()
			if tt.revision == "branch" {
				w.hub.Drop(mlxRepo, "v1")
			}
			w.hub.Reset()
			tt.change(w)
			installed, log, err := w.install(s, tt.offline)
			if err != nil {
				t.Fatal(err)
			}
			if got := installed.Record.Sources.Target.Commit(); got != commit {
				t.Errorf("serves %s, want %s", got, commit)
			}
			if got := installed.Record.Sources.Draft.Commit(); got != draft {
				t.Errorf("drafts with %s, want %s", got, draft)
			}
			want := tt.log(w, commit[:12], draft[:12])
			log = strings.TrimSuffix(log, "Splash model "+mlxRepo+" is already installed in "+filepath.Join(w.dir, s.link()))
			if got := strings.TrimSuffix(log, "\n"); got != want {
				t.Errorf("logged %s\n  want %s", got, want)
			}
			if n := w.hub.Total().Hub - contentRequests(w); n != tt.listings {
				t.Errorf("%d listings, want %d", n, tt.listings)
			}
			intact(t, w.dir)
		})
	}
}

func mustCommit(w *world, repo string) string {
	c, err := hub.New(hub.Config{Endpoint: w.hub.URL(), Cache: hub.Cache{Dir: w.cache}})
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.hub.Total().Hub
	m, err := c.Model(context.Background(), repo, "")
	if err != nil || w.hub.Total().Hub != before+1 {
		w.t.Fatal(err)
	}
	w.asked++
	return m.Commit
}

// contentRequests counts the requests to the Hub that are not of an installation's listings.
func contentRequests(w *world) int { return w.hub.Files() + w.asked }

// The draft moves, another is wanted, or none: the assembly is another, the target the same.
func TestFollowDraft(t *testing.T) {
	w := newWorld(t)
	w.hub.Commit(mlxRepo, "main", mlx(50))
	old := w.hub.Commit(draftOf, "main", draftRepo(52))
	first, _ := w.mustInstall(sel(t, mlxRepo))
	moved := draftRepo(53)
	moved[maskFile] = aSafetensors(54, "mask_embedding")
	fresh := w.hub.Commit(draftOf, "main", moved)
	w.hub.Reset()
	second, log := w.mustInstall(sel(t, mlxRepo))
	if !strings.HasPrefix(log, fmt.Sprintf("Updating %s: %s moved from %s to %s.\n", mlxRepo, draftOf, old[:12], fresh[:12])) {
		t.Errorf("logged %q", log)
	}
	holds(t, second.Dir, map[string][]byte{"draft/model.safetensors": moved["model.safetensors"], "draft/" + maskFile: moved[maskFile]})
	if n := w.hub.Count(mlxRepo, "model-00001-of-00002.safetensors"); n != (hubtest.Count{}) {
		t.Errorf("%+v for a target that did not change", n)
	}
	if _, err := os.Stat(first.Dir); err != nil {
		t.Errorf("an assembly that is held is gone: %v", err)
	}
	// Another repository, and a directory, are selections of their own.
	other := sel(t, mlxRepo)
	other.Draft = "someone/draft"
	w.hub.Commit("someone/draft", "main", draftRepo(55))
	third, _ := w.mustInstall(other)
	dir := t.TempDir()
	for name, data := range draftRepo(56) {
		os.WriteFile(filepath.Join(dir, name), data, 0o666)
	}
	local := sel(t, mlxRepo)
	local.Draft = dir
	fourth, log := w.mustInstall(local)
	if !strings.Contains(log, "draft "+dir+"; vision enabled.") {
		t.Errorf("logged %q", log)
	}
	if third.Record.Sources.Draft.Repo != "someone/draft" || fourth.Record.Sources.Draft.Repo != dir || fourth.Record.Sources.Draft.Revision != nil {
		t.Errorf("drafts %v and %v", third.Record.Sources.Draft, fourth.Record.Sources.Draft)
	}
	holds(t, fourth.Dir, map[string][]byte{"draft/model.safetensors": draftRepo(56)["model.safetensors"]})
	if again, log := w.mustInstall(local); again.Dir != fourth.Dir {
		t.Errorf("again: another assembly, %q", log)
	}
	// The directory's draft changes.
	os.WriteFile(filepath.Join(dir, "model.safetensors"), draftRepo(57)["model.safetensors"], 0o666)
	fifth, log := w.mustInstall(local)
	if fifth.Dir == fourth.Dir || !strings.HasPrefix(log, "Reinstalling "+mlxRepo+": resolved model file changed: draft/model.safetensors") {
		t.Errorf("a draft that changed: %q", log)
	}
	if in, _ := w.installer(false); len(must(in.List())) != 3 {
		t.Errorf("%d installations, want 3", len(must(in.List())))
	}
}

// A family without a draft or vision: nothing of them is read or asked for.
func TestFamilyWithoutDraftOrVision(t *testing.T) {
	w := newWorld(t)
	data := aGGUF(t, 60, 100_000, 8, map[string]any{"general.architecture": "qwen35", "test.family": textOnly})
	w.hub.Commit(ggufRepo, "main", map[string][]byte{"M-Q8_0.gguf": data, "mmproj-BF16.gguf": []byte("no projector")})
	installed, log := w.mustInstall(sel(t, ggufRepo))
	if installed.Record.Sources.Draft != nil || installed.Record.VisionFormat != NoVision || installed.Draft() != "" || installed.Vision() != "" {
		t.Errorf("record %+v", installed.Record)
	}
	if !strings.Contains(log, "Installing owner/Model-GGUF as Qwen3.5-4B (gguf); draft none; vision disabled.") {
		t.Errorf("logged %q", log)
	}
	if n := w.hub.Count(ggufRepo, "mmproj-BF16.gguf"); n != (hubtest.Count{}) {
		t.Errorf("%+v for a projector that nothing reads", n)
	}
}

func TestLanguageOnly(t *testing.T) {
	w := newWorld(t)
	files := mlx(70)
	files["tower.safetensors"] = aSafetensors(73, "vision_tower.d")
	files[indexFile] = index(map[string]string{
		"language_model.model.a": "model-00001-of-00002.safetensors", "language_model.model.b": "model-00002-of-00002.safetensors", "vision_tower.d": "tower.safetensors",
	})
	delete(files, "preprocessor_config.json")
	w.hub.Commit(mlxRepo, "main", files)
	w.gguf(74)
	w.hub.Commit(draftOf, "main", draftRepo(72))
	for _, model := range []string{mlxRepo, ggufRepo + ":Q8_0"} {
		s := sel(t, model)
		s.LanguageOnly = true
		installed, log := w.mustInstall(s)
		if installed.Vision() != "" || len(installed.Record.under("vision/")) > 0 || !strings.Contains(log, "vision disabled.") {
			t.Errorf("%s: %q, %v", model, log, installed.Record.under("vision/"))
		}
		if !strings.HasPrefix(installed.Dir, w.dir) || must(os.Readlink(filepath.Join(w.dir, s.link()))) == "" {
			t.Error("a selection of its own")
		}
	}
	for repo, file := range map[string]string{mlxRepo: "tower.safetensors", ggufRepo: "mmproj-BF16.gguf"} {
		if n := w.hub.Count(repo, file); n != (hubtest.Count{}) {
			t.Errorf("%+v for %s", n, file)
		}
	}
}

// Offline, from a cache that another tool filled: references and snapshots of links, nothing of this project. It starts
// without a request.
func TestOfflineFromTheCacheOfAnotherTool(t *testing.T) {
	w := newWorld(t)
	fill(t, w.cache, mlxRepo, mlx(80))
	fill(t, w.cache, draftOf, draftRepo(82))
	start := time.Now()
	installed, log, err := w.install(sel(t, mlxRepo), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("started in %v", time.Since(start))
	holds(t, installed.Dir, map[string][]byte{"target/model-00001-of-00002.safetensors": mlx(80)["model-00001-of-00002.safetensors"]})
	if want := "Could not reach the Hub (HF_HUB_OFFLINE is set); installing " + mlxRepo + "@"; !strings.HasPrefix(log, want) {
		t.Errorf("logged %q, want %q", log, want)
	}
	if _, log, err = w.install(sel(t, mlxRepo), true); err != nil || log != "Splash model "+mlxRepo+" is already installed in "+filepath.Join(w.dir, mlxRepo) {
		t.Errorf("again: %q, %v", log, err)
	}
	if n := w.hub.Total(); n != (hubtest.Count{}) {
		t.Errorf("%+v though offline", n)
	}
}

// fill writes a repository into a cache as `hf download` leaves it.
func fill(t testing.TB, cache, repo string, files map[string][]byte) (commit string) {
	t.Helper()
	commit = sha256Hex([]byte(repo))[:40]
	folder := hub.Cache{Dir: cache}.Folder(repo)
	for name, data := range files {
		digest := hubtest.Digest(name, data)
		path := filepath.Join(folder, "snapshots", commit, name)
		for _, dir := range []string{filepath.Join(folder, "blobs"), filepath.Join(folder, "refs"), filepath.Dir(path)} {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		to, _ := filepath.Rel(filepath.Dir(path), filepath.Join(folder, "blobs", digest))
		for _, err := range []error{
			os.WriteFile(filepath.Join(folder, "blobs", digest), data, 0o666),
			os.Symlink(to, path),
			os.WriteFile(filepath.Join(folder, "refs", "main"), []byte(commit), 0o666),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return commit
}

func TestOfflineWithoutAnything(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ revision, want string }{
		{"", "cannot resolve owner/Model-4bit: HF_HUB_OFFLINE is set; neither this installation nor the Hub cache records a commit for the default branch"},
		{"v1", "cannot resolve owner/Model-4bit: HF_HUB_OFFLINE is set; neither this installation nor the Hub cache records a commit for v1"},
		{strings.Repeat("A", 40), "cannot resolve owner/Model-4bit: HF_HUB_OFFLINE is set; the Hub cache has no snapshot of " + strings.Repeat("a", 40)},
	} {
		s := sel(t, mlxRepo)
		s.Revision = tt.revision
		if _, _, err := w.install(s, true); err == nil || err.Error() != tt.want {
			t.Errorf("error %v\n want %s", err, tt.want)
		}
	}
	// The target is there, its draft is not.
	fill(t, w.cache, mlxRepo, mlx(85))
	_, _, err := w.install(sel(t, mlxRepo), true)
	if want := "cannot install owner/Model-4bit: cannot resolve " + draftOf + ": HF_HUB_OFFLINE is set; neither this installation nor the Hub cache records a commit for the default branch"; err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
}

// Another revision is never put in the place of the one asked for.
func TestUnreachableAndAnotherRevision(t *testing.T) {
	w := newWorld(t)
	fill(t, w.cache, mlxRepo, mlx(90))
	fill(t, w.cache, draftOf, draftRepo(91))
	s := sel(t, mlxRepo)
	s.Revision = "v2"
	if _, _, err := w.install(s, true); err == nil {
		t.Error("main is served for v2")
	}
}

// A file of the installation is damaged or gone: it is fetched again, also where the model has moved away since.
func TestReinstall(t *testing.T) {
	w := newWorld(t)
	files := mlx(100)
	commit := w.hub.Commit(mlxRepo, "main", files)
	w.hub.Commit(draftOf, "main", draftRepo(102))
	first, _ := w.mustInstall(sel(t, mlxRepo))
	first.Close()
	name := "model-00001-of-00002.safetensors"
	blob := must(filepath.EvalSymlinks(filepath.Join(first.Dir, "target", name)))
	for what, damage := range map[string]func(){
		"gone":         func() { os.Remove(blob) },
		"cut":          func() { os.Truncate(blob, 5) },
		"another link": func() { at := filepath.Join(first.Dir, "target", name); os.Remove(at); os.Symlink("/dev/null", at) },
		"no record":    func() { os.Remove(filepath.Join(first.Dir, recordFile)) },
		"odd record":   func() { os.WriteFile(filepath.Join(first.Dir, recordFile), []byte("{}"), 0o666) },
		"no link":      func() { os.Remove(filepath.Join(w.dir, mlxRepo)) },
		"no cache":     func() { os.RemoveAll(w.cache) },
	} {
		damage()
		installed, log := w.mustInstall(sel(t, mlxRepo))
		if reinstalled := strings.HasPrefix(log, "Reinstalling "+mlxRepo+": "); reinstalled != (what != "no link") {
			t.Errorf("%s: logged %q", what, log)
		}
		holds(t, installed.Dir, map[string][]byte{"target/" + name: files[name]})
		if got := installed.Record.Sources.Target.Commit(); got != commit {
			t.Errorf("%s: serves %s, want %s", what, got, commit)
		}
		intact(t, w.dir)
		installed.Close()
		first = installed
		blob = must(filepath.EvalSymlinks(filepath.Join(first.Dir, "target", name)))
	}
}

// A damaged installation is rebuilt offline from the commit that it recorded, though the branch's reference is another.
func TestReinstallOffline(t *testing.T) {
	w := newWorld(t)
	commit := w.hub.Commit(mlxRepo, "main", mlx(110))
	w.hub.Commit(draftOf, "main", draftRepo(112))
	first, _ := w.mustInstall(sel(t, mlxRepo))
	first.Close()
	hub.Cache{Dir: w.cache}.SetRef(mlxRepo, "main", strings.Repeat("0", 40))
	os.Remove(filepath.Join(first.Dir, "target", "model-00001-of-00002.safetensors"))
	installed, log, err := w.install(sel(t, mlxRepo), true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(log, "Reinstalling "+mlxRepo+": resolved model file changed: target/model-00001-of-00002.safetensors\nCould not reach the Hub (HF_HUB_OFFLINE is set); installing "+mlxRepo+"@"+commit[:12]+" from the Hub cache.") {
		t.Errorf("logged %q", log)
	}
	intact(t, w.dir)
	if installed.Record.Sources.Target.Commit() != commit {
		t.Error("another commit is served")
	}
}

// What is not a link is not replaced, and a package of an earlier release is not served.
func TestPlacesThatAreTaken(t *testing.T) {
	w := newWorld(t)
	w.hub.Commit(mlxRepo, "main", mlx(120))
	w.hub.Commit(draftOf, "main", draftRepo(122))
	at := filepath.Join(w.dir, mlxRepo)
	os.MkdirAll(at, 0o777)
	_, _, err := w.install(sel(t, mlxRepo), false)
	if want := "cannot install " + mlxRepo + ": refusing to replace non-symlink model path: " + at; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	manifest := []byte(`{"format":{"name":"splash-packed-q4-moe","version":1}}`)
	commit := fill(t, w.cache, "incoai/Old-Splash", map[string][]byte{manifestFile: manifest})
	folder := hub.Cache{Dir: w.cache}.Folder("incoai/Old-Splash")
	os.MkdirAll(filepath.Join(w.dir, "incoai"), 0o777)
	os.Symlink(filepath.Join(folder, "snapshots", commit), filepath.Join(w.dir, "incoai", "Old-Splash"))
	_, _, err = w.install(sel(t, "incoai/Old-Splash"), false)
	want := "incoai/Old-Splash is a Splash package, which Splash no longer loads (its files in " + folder + " can be deleted); serve the MLX model of its family instead: splash serve --model mlx-community/Qwen3.6-35B-A3B-4bit"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
}

func TestListAndRemove(t *testing.T) {
	w := newWorld(t)
	w.hub.Commit(mlxRepo, "main", mlx(130))
	w.gguf(131)
	w.hub.Commit(draftOf, "main", draftRepo(132))
	text := sel(t, mlxRepo)
	text.LanguageOnly = true
	for _, s := range []Selection{sel(t, mlxRepo), text, sel(t, ggufRepo+":Q8_0")} {
		i, _ := w.mustInstall(s)
		i.Close()
	}
	in, _ := w.installer(false)
	all := must(in.List())
	var names []string
	for _, i := range all {
		names = append(names, i.Record.Model)
		if i.Fault != nil || i.Bytes == 0 {
			t.Errorf("%s: %v, %d bytes", i.Record.Model, i.Fault, i.Bytes)
		}
		if err := in.Verify(context.Background(), i); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff([]string{mlxRepo, mlxRepo, ggufRepo + ":Q8_0"}, names); d != "" {
		t.Error(d)
	}
	serving, _ := w.mustInstall(text)
	if _, _, err := in.Remove(context.Background(), mlxRepo, true); err == nil || err.Error() != mlxRepo+" is being served; stop its server first" {
		t.Errorf("removed while it is served: %v", err)
	}
	serving.Close()
	removed, freed, err := in.Remove(context.Background(), mlxRepo, true)
	if err != nil || removed != 2 || freed == 0 {
		t.Errorf("removed %d, freed %d, %v", removed, freed, err)
	}
	if all := must(in.List()); len(all) != 1 || all[0].Fault != nil {
		t.Errorf("left %+v", all)
	}
	cache := hub.Cache{Dir: w.cache}
	if cache.Ref(mlxRepo, "main") != "" || cache.Ref(draftOf, "main") == "" {
		t.Error("the target's snapshot goes and the draft's, which another model pins, stays")
	}
	if removed, freed, err = in.Remove(context.Background(), "no/model", true); removed != 0 || freed != 0 || err != nil {
		t.Errorf("of no model: %d, %d, %v", removed, freed, err)
	}
	if removed, freed, err = in.Remove(context.Background(), ggufRepo+":Q8_0", false); removed != 1 || freed != 0 || err != nil {
		t.Errorf("without files: %d, %d, %v", removed, freed, err)
	}
	if left := listing(t, w.dir); !slices.Equal(left, []string{".install.lock"}) {
		t.Errorf("left %v", left)
	}
	if cache.Ref(ggufRepo, "main") == "" {
		t.Error("files that were to stay are gone")
	}
}

// Content that changed under an unchanged size and time is found when it is asked for.
func TestVerifyContent(t *testing.T) {
	w := newWorld(t)
	w.hub.Commit(mlxRepo, "main", mlx(140))
	w.hub.Commit(draftOf, "main", draftRepo(142))
	i, _ := w.mustInstall(sel(t, mlxRepo))
	r := i.Record
	name := "draft/model.safetensors"
	f := r.Files[name]
	data := must(os.ReadFile(f.Path))
	data[len(data)-1] ^= 1
	os.WriteFile(must(filepath.EvalSymlinks(f.Path)), data, 0o666)
	id := must(identify(f.Path))
	r.Files[name] = Linked{f.Path, id.Bytes, id.MTime, id.CTime, f.Digest}
	s := &store{w.dir}
	dir, err := s.stage(&r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifyContent(context.Background(), dir); err == nil || err.Error() != "source content hash mismatch: "+name {
		t.Errorf("error %v", err)
	}
}

func TestRecordForm(t *testing.T) {
	commit := strings.Repeat("c", 40)
	r := &Record{
		Version: 1, Model: "a/b:Q4_K_M", Family: family, ChatFormat: "qwen", TargetFormat: GGUF, VisionFormat: NoVision, Metadata: strings.Repeat("d", 64),
		Sources: Sources{Target: Source{"a/b", &commit}, Draft: &Source{Repo: "/draft <é>"}},
		Files:   map[string]Linked{"target/m.gguf": {"/x/<y>&é", 1, 2, 3, strings.Repeat("e", 64)}},
	}
	want := `{
  "chat_format": "qwen",
  "family": "Qwen3.8-27B",
  "files": {
    "target/m.gguf": {
      "bytes": 1,
      "ctime_ns": 3,
      "digest": "` + strings.Repeat("e", 64) + `",
      "mtime_ns": 2,
      "path": "/x/<y>&é"
    }
  },
  "metadata": "` + strings.Repeat("d", 64) + `",
  "model": "a/b:Q4_K_M",
  "sources": {
    "draft": {
      "repo": "/draft <é>",
      "revision": null
    },
    "target": {
      "repo": "a/b",
      "revision": "` + commit + `"
    }
  },
  "target_format": "gguf",
  "version": 1,
  "vision_format": "none"
}
`
	data, err := r.encode()
	if err != nil || string(data) != want {
		t.Errorf("%v, %s", err, cmp.Diff(want, string(data)))
	}
	again, err := decodeRecord(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r, again); d != "" {
		t.Error(d)
	}
	for what, change := range map[string][2]string{
		"another version":    {`"version": 1`, `"version": 2`},
		"no model":           {`"model": "a/b:Q4_K_M"`, `"model": ""`},
		"another key":        {`"version": 1`, `"version": 1,` + "\n" + `  "zzz": 1`},
		"another format":     {`"target_format": "gguf"`, `"target_format": "ggml"`},
		"no metadata":        {`"target_format": "gguf"`, `"target_format": "safetensors"`},
		"a path above":       {`"target/m.gguf"`, `"../m.gguf"`},
		"an absolute path":   {`"target/m.gguf"`, `"/m.gguf"`},
		"a path of dots":     {`"target/m.gguf"`, `"target/./m.gguf"`},
		"a pattern":          {`"target/m.gguf"`, `"target/*.gguf"`},
		"a backslash":        {`"target/m.gguf"`, `"target\\m.gguf"`},
		"a control":          {`"target/m.gguf"`, `"target\u0001m.gguf"`},
		"the record itself":  {`"target/m.gguf"`, `"model.json"`},
		"a relative target":  {`"path": "/x`, `"path": "x`},
		"a negative size":    {`"bytes": 1`, `"bytes": -1`},
		"no digest":          {strings.Repeat("e", 64), strings.Repeat("e", 63)},
		"no commit":          {commit, "main"},
		"other white space":  {`"version": 1`, `"version":  1`},
		"a number as text":   {`"bytes": 1`, `"bytes": "1"`},
		"something after it": {"\n}\n", "\n}\n\n"},
	} {
		if _, err := decodeRecord(bytes.Replace(data, []byte(change[0]), []byte(change[1]), 1)); err != errRecord {
			t.Errorf("%s: %v, want %v", what, err, errRecord)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("a record that is written otherwise: %v", err)
		}
		for name := range r.Files {
			if !filepath.IsLocal(name) {
				t.Errorf("%q leaves the assembly", name)
			}
		}
	})
}
