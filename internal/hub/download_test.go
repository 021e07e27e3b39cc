package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"splash/internal/flock"
	"splash/internal/hub/hubtest"
)

// tree lists what is below a folder: links with their targets, files with their sizes.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if link, err := os.Readlink(path); err == nil {
			got[name] = "-> " + link
			return nil
		}
		info, err := d.Info()
		got[name] = fmt.Sprint(info.Size())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// fetched checks that the cache holds a commit's files, and nothing half done.
func fetched(t *testing.T, c *Client, m *Model, files map[string][]byte) {
	t.Helper()
	for p, want := range files {
		got, err := os.ReadFile(filepath.Join(c.Cache.Snapshot(m.Repo, m.Commit), p))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", p, len(got), err, len(want))
		}
	}
	for name := range tree(t, c.Cache.Dir) {
		if strings.HasSuffix(name, incomplete) {
			t.Errorf("%s is left", name)
		}
	}
}

func TestFetchLaysOutTheCache(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{"m.gguf": noise(20, 200<<10), "config.json": []byte(`{"a":1}`), "UD/x-00001-of-00001.gguf": noise(21, 5), "copy.gguf": noise(20, 200<<10), "empty.txt": {}}
	commit := s.Commit(repo, "main", files)
	c, log := client(t, s, t.TempDir())
	m := model(t, c, "")
	if err := c.Fetch(context.Background(), m, m.Files); err != nil {
		t.Fatal(err)
	}
	fetched(t, c, m, files)
	big, small := hubtest.Digest("m.gguf", files["m.gguf"]), hubtest.Digest("UD/x-00001-of-00001.gguf", files["UD/x-00001-of-00001.gguf"])
	config, empty := hubtest.Digest("config.json", files["config.json"]), hubtest.Digest("empty.txt", nil)
	folder, snapshot := "models--owner--model-GGUF/", "models--owner--model-GGUF/snapshots/"+commit+"/"
	want := map[string]string{
		folder + "blobs/" + big: "204800", folder + "blobs/" + small: "5", folder + "blobs/" + config: "7", folder + "blobs/" + empty: "0",
		folder + "refs/main":                  "40",
		snapshot + "m.gguf":                   "-> ../../blobs/" + big,
		snapshot + "copy.gguf":                "-> ../../blobs/" + big,
		snapshot + "config.json":              "-> ../../blobs/" + config,
		snapshot + "empty.txt":                "-> ../../blobs/" + empty,
		snapshot + "UD/x-00001-of-00001.gguf": "-> ../../../blobs/" + small,
		".locks/" + folder + big + ".lock":    "0",
		".locks/" + folder + small + ".lock":  "0",
		".locks/" + folder + config + ".lock": "0",
		".locks/" + folder + empty + ".lock":  "0",
	}
	if d := cmp.Diff(want, tree(t, c.Cache.Dir)); d != "" {
		t.Error(d)
	}
	if got := c.Cache.Ref(repo, "main"); got != commit {
		t.Errorf("main is at %q, want %s", got, commit)
	}
	if want := fmt.Sprintf("Fetching 5 file(s), 0.00 GB, from %s@%s; cached files are reused.", repo, commit[:12]); log.all() != want && !strings.HasPrefix(log.all(), want+"\nAnother download") {
		t.Errorf("logged %q, want %q", log.all(), want)
	}
	// The blob of two names came once.
	if a, b := s.Count(repo, "m.gguf"), s.Count(repo, "copy.gguf"); a.Bytes+b.Bytes != 200<<10 {
		t.Errorf("%d and %d bytes sent of one content", a.Bytes, b.Bytes)
	}
	s.Reset()
	if err := c.Fetch(context.Background(), m, m.Files); err != nil {
		t.Fatal(err)
	}
	if n := s.Total(); n != (hubtest.Count{}) {
		t.Errorf("%+v to fetch what is there", n)
	}
}

func TestRefsFollowTheNameAskedFor(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{"config.json": []byte("{}")}
	s.Commit(repo, "main", files)
	v := s.Commit(repo, "release/1", files)
	c, _ := client(t, s, t.TempDir())
	for _, revision := range []string{v, "release/1"} {
		m := model(t, c, revision)
		if err := c.Fetch(context.Background(), m, m.Files); err != nil {
			t.Fatal(err)
		}
		if got, want := c.Cache.Ref(repo, "release/1") == v, revision != v; got != want {
			t.Errorf("after %s the branch is recorded: %v, want %v", revision, got, want)
		}
	}
	if c.Cache.Ref(repo, "main") != "" {
		t.Error("main is recorded though nobody asked for it")
	}
}

// What is in the incomplete file when a download starts, and what becomes of it.
func TestResume(t *testing.T) {
	data := noise(22, 1<<20)
	wrong := bytes.Clone(data)
	wrong[1000] ^= 1
	for _, tt := range []struct {
		name string
		left []byte
		sent int64 // bytes of content
		log  string
	}{
		{"nothing", nil, 1 << 20, ""},
		{"the first part", data[:700_000], 1<<20 - 700_000, ""},
		{"all but one byte", data[:1<<20-1], 1, ""},
		{"all", data, 0, ""},
		{"more than all", append(bytes.Clone(data), 1, 2, 3), 1 << 20, "Threw away an incomplete m.gguf: 1048579 bytes, the Hub lists 1048576."},
		{"all, wrong", wrong, 1 << 20, "Threw away an incomplete m.gguf: its content has the digest " + hubtest.Digest("m.gguf", wrong) + ", the Hub lists " + hubtest.Digest("m.gguf", data) + "."},
		{"the first part, wrong", wrong[:700_000], 2<<20 - 700_000, "Threw away an incomplete m.gguf: its content has the digest " + hubtest.Digest("m.gguf", wrong) + ", the Hub lists " + hubtest.Digest("m.gguf", data) + "."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := hubtest.New(t)
			files := map[string][]byte{"m.gguf": data}
			s.Commit(repo, "main", files)
			c, log := client(t, s, t.TempDir())
			progress := &recorded{}
			c.Progress = progress.start
			m := model(t, c, "")
			blob := c.Cache.blob(repo, m.Files[0].Digest)
			os.MkdirAll(filepath.Dir(blob), 0o777)
			if tt.left != nil {
				if err := os.WriteFile(blob+incomplete, tt.left, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Fetch(context.Background(), m, m.Files); err != nil {
				t.Fatal(err)
			}
			fetched(t, c, m, files)
			if n := s.Count(repo, "m.gguf"); n.Bytes != tt.sent {
				t.Errorf("%d bytes sent, want %d", n.Bytes, tt.sent)
			}
			if got := unannounced(log); got != tt.log {
				t.Errorf("logged %q, want %q", got, tt.log)
			}
			if progress.started && progress.added != progress.total {
				t.Errorf("the progress ends at %d of %d", progress.added, progress.total)
			}
		})
	}
}

// unannounced is what was logged beside the line that announces a download.
func unannounced(l *logged) string {
	var kept []string
	for _, line := range l.lines {
		if !strings.HasPrefix(line, "Fetching ") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// recorded is a progress that remembers.
type recorded struct {
	mu           sync.Mutex
	started      bool
	total, added int64
}

func (r *recorded) start(bytes int64) Progress {
	r.started, r.total = true, bytes
	return r
}

func (r *recorded) Add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added += n
}

func (r *recorded) Grow(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += n
}

func (r *recorded) Close() {}

func TestBlobOfAnotherSize(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{"m.gguf": noise(23, 100<<10)}
	s.Commit(repo, "main", files)
	c, log := client(t, s, t.TempDir())
	m := model(t, c, "")
	blob := c.Cache.blob(repo, m.Files[0].Digest)
	os.MkdirAll(filepath.Dir(blob), 0o777)
	os.WriteFile(blob, []byte("short"), 0o666)
	if err := c.Fetch(context.Background(), m, m.Files); err != nil {
		t.Fatal(err)
	}
	fetched(t, c, m, files)
	if want := "Threw away m.gguf in the Hub cache: 5 bytes, the Hub lists 102400."; !strings.Contains(log.all(), want) {
		t.Errorf("logged %q, want %q", log.all(), want)
	}
}

func TestFetchSurvivesFaults(t *testing.T) {
	data := noise(24, 1<<20)
	for name, fault := range map[string]hubtest.Fault{
		"broken connections":  {Place: hubtest.CDN, Truncate: 20_000, Times: 30},
		"broken at once":      {Place: hubtest.CDN, Truncate: -1, Times: 4},
		"silence":             {Place: hubtest.CDN, Truncate: 100, Stall: true, Times: 2},
		"busy CDN":            {Place: hubtest.CDN, Status: 503, Times: 4},
		"limited CDN":         {Place: hubtest.CDN, Status: 429, RetryAfter: "2", Times: 4},
		"limited Hub":         {Place: hubtest.Resolve, Status: 429, RetryAfter: "2", Times: 4},
		"busy when asked":     {Place: hubtest.Head, Status: 500, Times: 4},
		"signature has ended": {Place: hubtest.CDN, Status: 403, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := hubtest.New(t)
			files := map[string][]byte{"m.gguf": data}
			s.Commit(repo, "main", files)
			c, _ := client(t, s, t.TempDir())
			c.stall = 50 * time.Millisecond
			if fault.Status == 403 {
				c.window = 1
				s.SignedFor = 3
				fault = hubtest.Fault{}
			}
			s.Inject(fault)
			m := model(t, c, "")
			if err := c.Fetch(context.Background(), m, m.Files); err != nil {
				t.Fatal(err)
			}
			fetched(t, c, m, files)
		})
	}
}

func TestFetchRefusals(t *testing.T) {
	data := noise(25, 300<<10)
	digest := hubtest.Digest("m.gguf", data)
	wrong := bytes.Clone(data)
	wrong[0] ^= 0xff
	for _, tt := range []struct {
		name  string
		fault hubtest.Fault
		want  string
		sent  int64 // most bytes of content
	}{
		{"another ETag", hubtest.Fault{Place: hubtest.Head, ETag: strings.Repeat("a", 64), Times: -1},
			`fetch m.gguf of owner/model-GGUF: the Hub serves it with ETag "` + strings.Repeat("a", 64) + `" and lists ` + digest, 0},
		{"another content", hubtest.Fault{Place: hubtest.CDN, Corrupt: true, Times: 1}, "fetch m.gguf of owner/model-GGUF: its content has the digest ", 300 << 10},
		{"no ranges", hubtest.Fault{Place: hubtest.CDN, IgnoreRange: true, Times: -1}, "does not serve ranges", 2 << 20},
		{"gone", hubtest.Fault{Place: hubtest.Head, Status: 404, Times: -1}, "404 Not Found", 0},
		{"denied", hubtest.Fault{Place: hubtest.Resolve, Status: 403, Times: -1}, "set HF_TOKEN or run 'hf auth login'", 0},
		{"busy for ever", hubtest.Fault{Place: hubtest.CDN, Status: 503, Times: -1}, "503 Service Unavailable", 0},
		{"broken for ever", hubtest.Fault{Place: hubtest.CDN, Truncate: -1, Times: -1}, "a range ended after 0 of 65536 bytes", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := hubtest.New(t)
			s.Commit(repo, "main", map[string][]byte{"m.gguf": data})
			c, _ := client(t, s, t.TempDir())
			m := model(t, c, "")
			s.Inject(tt.fault)
			err := c.Fetch(context.Background(), m, m.Files)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			if n := s.Count(repo, "m.gguf"); n.Bytes > tt.sent {
				t.Errorf("%d bytes sent, want at most %d", n.Bytes, tt.sent)
			}
			for name := range tree(t, c.Cache.Dir) {
				if strings.Contains(name, "snapshots") || strings.Contains(name, "blobs") && !strings.HasSuffix(name, incomplete) {
					t.Errorf("%s is visible", name)
				}
			}
			s.Heal()
			if err := c.Fetch(context.Background(), m, m.Files); err != nil {
				t.Errorf("once mended: %v", err)
			}
		})
	}
}

func TestMovedBranch(t *testing.T) {
	s := hubtest.New(t)
	old := map[string][]byte{"m.gguf": noise(26, 300<<10), "same.gguf": noise(27, 200<<10)}
	s.Commit(repo, "main", old)
	c, _ := client(t, s, t.TempDir())
	before := model(t, c, "")
	fresh := map[string][]byte{"m.gguf": noise(28, 300<<10), "same.gguf": old["same.gguf"]}
	s.Commit(repo, "main", fresh)
	// The listing's commit is what is fetched, wherever the branch is now.
	if err := c.Fetch(context.Background(), before, before.Files); err != nil {
		t.Fatal(err)
	}
	fetched(t, c, before, old)
	after := model(t, c, "")
	s.Reset()
	if err := c.Fetch(context.Background(), after, after.Files); err != nil {
		t.Fatal(err)
	}
	fetched(t, c, after, fresh)
	fetched(t, c, before, old)
	if n := s.Count(repo, "same.gguf"); n != (hubtest.Count{}) {
		t.Errorf("%+v for a file that did not change", n)
	}
}

func TestFetchStopsAndResumes(t *testing.T) {
	s := hubtest.New(t)
	data := noise(29, 2<<20)
	files := map[string][]byte{"m.gguf": data}
	s.Commit(repo, "main", files)
	c, _ := client(t, s, t.TempDir())
	m := model(t, c, "")
	s.Inject(hubtest.Fault{Place: hubtest.CDN, Rate: 1 << 20, Times: -1})
	blob := c.Cache.blob(repo, m.Files[0].Digest)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for {
			if info, err := os.Stat(blob + incomplete); err == nil && info.Size() > 100_000 {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if err := c.Fetch(ctx, m, m.Files); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want the context's", err)
	}
	left, err := os.ReadFile(blob + incomplete)
	if err != nil || len(left) == 0 || !bytes.Equal(left, data[:len(left)]) {
		t.Fatalf("%d bytes left, %v; want the file's first bytes", len(left), err)
	}
	lock, err := flock.Try(c.Cache.lock(repo, m.Files[0].Digest))
	if err != nil {
		t.Fatalf("the lock is still held: %v", err)
	}
	lock.Unlock()
	// Another server of the same commit counts what the rest costs.
	s = hubtest.New(t)
	s.Commit(repo, "main", files)
	c, _ = client(t, s, c.Cache.Dir)
	if err := c.Fetch(context.Background(), m, m.Files); err != nil {
		t.Fatal(err)
	}
	fetched(t, c, m, files)
	if n := s.Count(repo, "m.gguf"); n.Bytes != int64(len(data)-len(left)) {
		t.Errorf("%d bytes sent after %d were there of %d", n.Bytes, len(left), len(data))
	}
}

func TestTwoDownloadsOfOneFile(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{"m.gguf": noise(30, 500<<10)}
	s.Commit(repo, "main", files)
	s.Inject(hubtest.Fault{Place: hubtest.CDN, Rate: 4 << 20, Times: -1})
	dir := t.TempDir()
	var group sync.WaitGroup
	var logs [3]*logged
	for i := range logs {
		c, log := client(t, s, dir)
		logs[i] = log
		m := model(t, c, "")
		group.Go(func() {
			if err := c.Fetch(context.Background(), m, m.Files); err != nil {
				t.Error(err)
			}
			fetched(t, c, m, files)
		})
	}
	group.Wait()
	if n := s.Count(repo, "m.gguf"); n.Bytes != 500<<10 || n.Heads != 1 {
		t.Errorf("%+v; want the file once", n)
	}
	waits := 0
	for _, log := range logs {
		waits += strings.Count(log.all(), "Another download of m.gguf is running; waiting...")
	}
	if waits != 2 {
		t.Errorf("%d were told that they wait, want 2", waits)
	}
}

func TestOffline(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{"m.gguf": noise(31, 1000), "config.json": []byte("{}")}
	commit := s.Commit(repo, "main", files)
	c, _ := client(t, s, t.TempDir())
	m := model(t, c, "")
	if err := c.Fetch(context.Background(), m, m.Files[:1]); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	off, _ := clientOf(t, Config{Endpoint: s.URL(), Cache: c.Cache, Offline: true})
	if _, err := off.Model(context.Background(), repo, ""); !errors.Is(err, ErrOffline) {
		t.Errorf("Model: %v, want ErrOffline", err)
	}
	if err := off.Fetch(context.Background(), m, m.Files[:1]); err != nil {
		t.Errorf("Fetch of what is there: %v", err)
	}
	if err := off.Fetch(context.Background(), m, m.Files); !errors.Is(err, ErrOffline) || err.Error() != "m.gguf of owner/model-GGUF is not in the Hub cache and HF_HUB_OFFLINE is set" {
		t.Errorf("Fetch of what is not: %v", err)
	}
	if got, err := off.Read(context.Background(), m, *m.File("config.json"), 10); err != nil || string(got) != "{}" {
		t.Errorf("Read of what is there: %q, %v", got, err)
	}
	if _, err := off.Read(context.Background(), m, *m.File("m.gguf"), 10000); !errors.Is(err, ErrOffline) {
		t.Errorf("Read of what is not: %v", err)
	}
	off.Sleep = func(int, time.Duration) time.Duration {
		t.Error("a request is to be tried again though offline")
		return 0
	}
	if _, err := off.Open(context.Background(), m, *m.File("m.gguf")).ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrOffline) {
		t.Errorf("ReadAt: %v", err)
	}
	cached, err := off.Cache.Model(repo, commit)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&Model{Repo: repo, Commit: commit, Cached: true, Files: m.Files[:1]}, cached); d != "" {
		t.Error(d)
	}
	if n := s.Total(); n != (hubtest.Count{}) {
		t.Errorf("%+v though offline", n)
	}
}

func TestReadIsBounded(t *testing.T) {
	s := hubtest.New(t)
	s.Commit(repo, "main", map[string][]byte{"config.json": []byte("{    }")})
	c, _ := client(t, s, t.TempDir())
	m := model(t, c, "")
	if _, err := c.Read(context.Background(), m, m.Files[0], 5); err == nil || err.Error() != "config.json of owner/model-GGUF has 6 bytes, over 5" {
		t.Errorf("error %v", err)
	}
	if n := s.Total(); n.Heads != 0 {
		t.Error("the file was asked for")
	}
	if got, err := c.Read(context.Background(), m, m.Files[0], 6); err != nil || string(got) != "{    }" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFullDisk(t *testing.T) {
	s := hubtest.New(t)
	s.Commit(repo, "main", map[string][]byte{"m.gguf": noise(32, 1000)})
	c, _ := client(t, s, t.TempDir())
	c.space = func(string) (int64, error) { return 999, nil }
	m := model(t, c, "")
	err := c.Fetch(context.Background(), m, m.Files)
	if err == nil || !strings.Contains(err.Error(), "0.00 GB to fetch and 0.00 GB free in ") {
		t.Errorf("error %v", err)
	}
	if n := s.Count(repo, "m.gguf"); n != (hubtest.Count{}) {
		t.Errorf("%+v though the disk is full", n)
	}
}

// Where there are no symbolic links, the snapshot holds the files themselves.
// TestLink: what stands where a link belongs is replaced, and nothing is left beside it.
func TestLink(t *testing.T) {
	c, _ := client(t, hubtest.New(t), t.TempDir())
	for name, before := range map[string]func(path string) error{
		"nothing":        func(string) error { return nil },
		"the link":       func(path string) error { return os.Symlink(filepath.Join("..", "blobs", "b"), path) },
		"a broken link":  func(path string) error { return os.Symlink(filepath.Join("..", "blobs", "gone"), path) },
		"another's file": func(path string) error { return os.WriteFile(path, []byte("old"), 0o600) },
	} {
		dir := t.TempDir()
		blob, path := filepath.Join(dir, "blobs", "b"), filepath.Join(dir, "snapshot", "m.gguf")
		for _, p := range []string{blob, path} {
			if err := os.Mkdir(filepath.Dir(p), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(blob, []byte("new"), 0o600), before(path)); err != nil {
			t.Fatal(err)
		}
		if err := c.link(blob, path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := os.ReadFile(path)
		names, _ := filepath.Glob(filepath.Join(dir, "snapshot", "*"))
		if err != nil || string(got) != "new" || len(names) != 1 {
			t.Errorf("%s: %q in %q, %v", name, got, names, err)
		}
	}
}

func TestCacheWithoutLinks(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{"m.gguf": noise(33, 100<<10)}
	s.Commit(repo, "main", files)
	c, _ := client(t, s, t.TempDir())
	c.symlink = func(string, string) error { return &os.LinkError{Op: "symlink", Err: unix.EPERM} }
	m := model(t, c, "")
	for range 2 {
		if err := c.Fetch(context.Background(), m, m.Files); err != nil {
			t.Fatal(err)
		}
		fetched(t, c, m, files)
	}
	if n := s.Count(repo, "m.gguf"); n.Bytes != 100<<10 {
		t.Errorf("%d bytes sent", n.Bytes)
	}
	path, ok := c.Cache.Path(repo, m.Commit, m.Files[0])
	if !ok || BlobName(path) != "" {
		t.Errorf("%s, %v, blob %q", path, ok, BlobName(path))
	}
	c.symlink = func(string, string) error { return &os.LinkError{Op: "symlink", Err: unix.EIO} }
	os.Remove(path)
	if err := c.Fetch(context.Background(), m, m.Files); !errors.Is(err, unix.EIO) {
		t.Errorf("error %v, want EIO", err)
	}
}

func TestDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	data := noise(34, 70_000)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.gguf", "x.json"} {
		want := hubtest.Digest(name, data)
		if got, err := Digest(context.Background(), path, want); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Digest(ctx, path, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if _, err := Digest(ctx, path+"x", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// A repository that was renamed is found under its old name, with the token.
func TestRenamedRepository(t *testing.T) {
	s := hubtest.New(t)
	s.Token = "hf_secret"
	s.Renamed = map[string]string{repo: "owner/renamed"}
	files := map[string][]byte{"m.gguf": noise(50, 100<<10), "config.json": []byte("{}")}
	s.Commit("owner/renamed", "main", files)
	c, _ := client(t, s, t.TempDir())
	m := model(t, c, "")
	if err := c.Fetch(context.Background(), m, m.Files); err != nil {
		t.Fatal(err)
	}
	fetched(t, c, m, files)
}
