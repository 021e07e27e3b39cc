package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"splash/internal/flock"
	"splash/internal/hub"
	"splash/internal/hub/hubtest"
)

// childModel tells the test's program to install a model and nothing else.
const childModel = "SPLASH_TEST_INSTALL"

func TestMain(m *testing.M) {
	if model := os.Getenv(childModel); model != "" {
		os.Exit(child(model))
	}
	os.Exit(m.Run())
}

// child installs a model as `splash serve` does, and prints the lines it logs and then the assembly.
func child(model string) int {
	fail := func(err error) int {
		fmt.Println("error:", err)
		return 1
	}
	cfg, err := hub.Environment(os.Getenv)
	if err != nil {
		return fail(err)
	}
	client, err := hub.New(cfg)
	if err != nil {
		return fail(err)
	}
	m, err := ParseModel(model)
	if err != nil {
		return fail(err)
	}
	log := func(line string) { fmt.Println(line) }
	client.Log = log
	in := &Installer{Hub: client, Models: filepath.Join(DataDir(os.Getenv), "models"), Check: fakeCheck{}, Log: log}
	installed, err := in.Install(context.Background(), Selection{Model: m})
	if err != nil {
		return fail(err)
	}
	fmt.Println("assembly:", installed.Dir)
	if os.Getenv("SPLASH_TEST_HOLD") != "" {
		io.Copy(io.Discard, os.Stdin) // until the parent lets go
	}
	return 0
}

// command is a child on the world, with its lines.
func (w *world) command(model string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	w.t.Helper()
	cmd := exec.Command(must(os.Executable()), "-test.run=^$")
	cmd.Env = append(append(os.Environ(), env...), childModel+"="+model, "HF_ENDPOINT="+w.hub.URL(), "HF_HUB_CACHE="+w.cache,
		"HF_HOME="+w.cache, "HF_TOKEN=", "HF_HUB_OFFLINE=", "SPLASH_DATA_DIR="+filepath.Dir(w.dir))
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	return cmd, bufio.NewScanner(out)
}

// spawn starts a child on the world.
func (w *world) spawn(model string) (*exec.Cmd, *bufio.Scanner) {
	w.t.Helper()
	cmd, lines := w.command(model)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return cmd, lines
}

// finish reads a child to its end and returns its lines and the assembly it names.
func finish(t testing.TB, cmd *exec.Cmd, lines *bufio.Scanner) (log []string, dir string) {
	t.Helper()
	for lines.Scan() {
		log = append(log, lines.Text())
		if d, ok := strings.CutPrefix(lines.Text(), "assembly: "); ok {
			dir = d
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, strings.Join(log, "\n"))
	}
	return log, dir
}

// An install killed at any moment (row 123 of serving.md 8) leaves nothing half done: what is selected verifies, no file of
// another content has a final name, and the next start works or goes on where it was.
func TestKilledInstalls(t *testing.T) {
	const seed = 20260101
	random := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	model := ggufRepo + ":Q4_K_M"
	publish := func(seed int) map[string][]byte {
		files := map[string][]byte{"M-Q4_K_M.gguf": targetGGUF(t, seed, 9<<20), "mmproj.gguf": projectorGGUF(t, seed+1, 30), "config.json": []byte("{}")}
		w.hub.Commit(ggufRepo, "main", files)
		draft := draftRepo(seed + 2)
		draft["model.safetensors"] = append(draft["model.safetensors"], noise(seed+3, 300_000)...)
		w.hub.Commit(draftOf, "main", draft)
		return map[string][]byte{"target/M-Q4_K_M.gguf": files["M-Q4_K_M.gguf"], "vision/mmproj.gguf": files["mmproj.gguf"], "draft/model.safetensors": draft["model.safetensors"]}
	}
	w.hub.Inject(hubtest.Fault{Place: hubtest.CDN, Rate: 120 << 20, Times: -1})
	publish(1000)
	start := time.Now()
	cmd, lines := w.spawn(model)
	finish(t, cmd, lines)
	whole := time.Since(start)
	kill := func(within time.Duration, want map[string][]byte) {
		cmd, lines := w.spawn(model)
		at := time.Duration(random.Float64() * float64(within))
		timer := time.AfterFunc(at, func() { cmd.Process.Kill() })
		last := ""
		for lines.Scan() {
			last = lines.Text()
		}
		cmd.Wait()
		timer.Stop()
		intact(t, w.dir)
		final(t, w.cache)
		cmd, lines = w.spawn(model)
		log, dir := finish(t, cmd, lines)
		t.Logf("killed after %v, at %q; then %q", at.Round(time.Millisecond), last, log[len(log)-2])
		holds(t, dir, want)
		intact(t, w.dir)
		final(t, w.cache)
		if left := leftovers(t, w); len(left) > 0 {
			t.Errorf("left after the next start: %v", left)
		}
	}
	var want map[string][]byte
	for i := range 20 {
		if i%3 == 0 { // from nothing; otherwise an update of what is there
			os.RemoveAll(w.cache)
			os.RemoveAll(w.dir)
		}
		want = publish(1010 + 10*i)
		kill(whole*11/10, want)
	}
	// Every file is there: most of the time goes into the publication.
	for range 8 {
		os.RemoveAll(w.dir)
		kill(whole/4, want)
	}
}

// final checks that every blob's content is the one it is named by.
func final(t testing.TB, cache string) {
	t.Helper()
	blobs, _ := filepath.Glob(filepath.Join(cache, "models--*", "blobs", "*"))
	for _, path := range blobs {
		if strings.HasSuffix(path, ".incomplete") {
			continue
		}
		if got, err := hub.Digest(context.Background(), path, filepath.Base(path)); err != nil || got != filepath.Base(path) {
			t.Errorf("%s holds %s, %v", path, got, err)
		}
	}
}

// leftovers are files that an interrupted installation leaves and a finished one does not.
func leftovers(t testing.TB, w *world) (left []string) {
	for _, root := range []string{w.dir, w.cache} {
		for _, name := range listing(t, root) {
			for _, mark := range []string{loading, prepare, ".incomplete", ".link-"} {
				if strings.Contains(name, mark) && !staleDownload(w, name) {
					left = append(left, name)
				}
			}
		}
	}
	return left
}

// staleDownload reports whether a file is the beginning of one that no branch holds any more: it stays for a start that
// asks for its commit.
func staleDownload(w *world, name string) bool {
	digest := strings.TrimSuffix(filepath.Base(name), ".incomplete")
	return strings.HasSuffix(name, ".incomplete") && !w.hub.Current(digest)
}

// Two processes install one model: the Hub sends it once, and both have it.
func TestConcurrentInstalls(t *testing.T) {
	w := newWorld(t)
	files := map[string][]byte{"M-Q4_K_M.gguf": targetGGUF(t, 1500, 3<<20), "mmproj.gguf": projectorGGUF(t, 1501, 30)}
	w.hub.Commit(ggufRepo, "main", files)
	draft := draftRepo(1502)
	w.hub.Commit(draftOf, "main", draft)
	w.hub.Inject(hubtest.Fault{Place: hubtest.CDN, Rate: 10 << 20, Times: -1})
	var group sync.WaitGroup
	var dirs [3]string
	for i := range dirs {
		cmd, lines := w.spawn(ggufRepo)
		group.Go(func() { _, dirs[i] = finish(t, cmd, lines) })
	}
	group.Wait()
	for _, dir := range dirs {
		if dir != dirs[0] {
			t.Errorf("installed in %s and %s", dirs[0], dir)
		}
		holds(t, dir, map[string][]byte{"target/M-Q4_K_M.gguf": files["M-Q4_K_M.gguf"], "draft/model.safetensors": draft["model.safetensors"]})
	}
	// One download, and the steps of the header that each of the others read where the file was not there yet.
	n := w.hub.Count(ggufRepo, "M-Q4_K_M.gguf")
	if n.Heads != 1 || n.Bytes > int64(len(files["M-Q4_K_M.gguf"]))+3*hub.Step {
		t.Errorf("%+v of a file of %d bytes", n, len(files["M-Q4_K_M.gguf"]))
	}
	if n := w.hub.Count(draftOf, "model.safetensors"); n.Heads != 1 || n.Bytes != int64(len(draft["model.safetensors"])) {
		t.Errorf("%+v of the draft", n)
	}
}

// An installation waits for another one's writes, and says so.
func TestWaitForTheInstallationLock(t *testing.T) {
	w := newWorld(t)
	w.hub.Commit(mlxRepo, "main", mlx(1700))
	w.hub.Commit(draftOf, "main", draftRepo(1702))
	first := must(flock.Try(filepath.Join(w.dir, ".install.lock")))
	in, log := w.installer(false)
	told := make(chan struct{})
	in.Log = func(line string) {
		log.add(line)
		if line == "Another Splash model installation is running; waiting..." {
			close(told)
		}
	}
	go func() {
		<-told
		first.Unlock()
	}()
	installed, err := in.Install(context.Background(), sel(t, mlxRepo))
	if err != nil {
		t.Fatal(err)
	}
	installed.Close()
	if strings.Count(log.text(), "waiting...") != 1 {
		t.Errorf("logged %q", log.text())
	}
	// A wait that is ended installs nothing.
	second := must(flock.Try(filepath.Join(w.dir, ".install.lock")))
	defer second.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	in.Log = func(line string) {
		if strings.HasSuffix(line, "waiting...") {
			cancel()
		}
	}
	if _, err := in.Install(ctx, sel(t, mlxRepo)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

// A pin that cannot be written leaves the model usable; another fault of the cache does not pass.
func TestPinsThatCannotBeWritten(t *testing.T) {
	for err, want := range map[error]bool{
		&os.PathError{Op: "open", Path: "/x", Err: syscall.EACCES}:  true,
		&os.PathError{Op: "open", Path: "/x", Err: syscall.EPERM}:   true,
		&os.PathError{Op: "open", Path: "/x", Err: syscall.EROFS}:   true,
		&os.PathError{Op: "open", Path: "/x", Err: syscall.ENOSPC}:  false,
		&os.PathError{Op: "open", Path: "/x", Err: syscall.ENOTDIR}: false,
	} {
		if got := unwritable(fmt.Errorf("pin: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	w := newWorld(t)
	w.hub.Commit(mlxRepo, "main", mlx(1710))
	w.hub.Commit(draftOf, "main", draftRepo(1712))
	installed, _ := w.mustInstall(sel(t, mlxRepo))
	pins := filepath.Join(hub.Cache{Dir: w.cache}.Folder(mlxRepo), "refs", "splash")
	os.RemoveAll(pins)
	os.WriteFile(pins, nil, 0o666)
	if _, _, err := w.install(sel(t, mlxRepo), false); err == nil {
		t.Error("a pin is lost without a word")
	}
	// A lost pin is written again by the next start.
	os.Remove(pins)
	w.mustInstall(sel(t, mlxRepo))
	if got := (hub.Cache{Dir: w.cache}).Pins(mlxRepo, pinOwner(filepath.Join(w.dir, mlxRepo))); len(got) != 1 || got[0] != installed.Record.Sources.Target.Commit() {
		t.Errorf("pins %v", got)
	}
}

// While a process serves an assembly, the model moves, other starts collect what is not used, and the cache is pruned of all
// that no reference names: the assembly and its files stay until the process ends.
func TestPruneWhileServing(t *testing.T) {
	w := newWorld(t)
	one := "model-00001-of-00002.safetensors"
	old, fresh := mlx(1600), mlx(1610)
	commit := w.hub.Commit(mlxRepo, "main", old)
	w.hub.Commit(draftOf, "main", draftRepo(1602))
	cmd, lines := w.command(mlxRepo, "SPLASH_TEST_HOLD=1")
	stdin := must(cmd.StdinPipe())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := ""
	for dir == "" && lines.Scan() {
		dir, _ = strings.CutPrefix(lines.Text(), "assembly: ")
		if !filepath.IsAbs(dir) {
			dir = ""
		}
	}
	prune(t, w.cache)
	holds(t, dir, map[string][]byte{"target/" + one: old[one]})
	w.hub.Commit(mlxRepo, "main", fresh)
	w.hub.Commit(draftOf, "main", draftRepo(1612))
	for range 2 {
		installed, _ := w.mustInstall(sel(t, mlxRepo))
		installed.Close()
		prune(t, w.cache)
		holds(t, installed.Dir, map[string][]byte{"target/" + one: fresh[one]})
		holds(t, dir, map[string][]byte{"target/" + one: old[one], "draft/model.safetensors": draftRepo(1602)["model.safetensors"]})
		intact(t, w.dir)
	}
	stdin.Close()
	finish(t, cmd, lines)
	// Nobody holds it any more: the next start lets its assembly and its pins go.
	w.mustInstall(sel(t, mlxRepo))
	prune(t, w.cache)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the assembly: %v", err)
	}
	if (hub.Cache{Dir: w.cache}).Has(mlxRepo, commit) {
		t.Error("the snapshot is still pinned")
	}
	intact(t, w.dir)
}

// prune removes from a cache every snapshot that no reference names, and the blobs that no snapshot links, as the pruning
// of the Hub's own tool does.
func prune(t testing.TB, cache string) {
	t.Helper()
	repos, _ := filepath.Glob(filepath.Join(cache, "models--*"))
	for _, repo := range repos {
		named := map[string]bool{}
		for _, name := range listing(t, filepath.Join(repo, "refs")) {
			named[strings.TrimSpace(string(must(os.ReadFile(filepath.Join(repo, "refs", name)))))] = true
		}
		linked := map[string]bool{}
		for _, commit := range must(listDir(filepath.Join(repo, "snapshots"))) {
			dir := filepath.Join(repo, "snapshots", commit)
			if !named[commit] {
				os.RemoveAll(dir)
				continue
			}
			for _, name := range listing(t, dir) {
				if real, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
					linked[real] = true
				}
			}
		}
		for _, blob := range must(listDir(filepath.Join(repo, "blobs"))) {
			if path := filepath.Join(repo, "blobs", blob); !linked[path] {
				os.Remove(path)
			}
		}
	}
}
