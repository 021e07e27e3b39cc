package hub

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/hub/hubtest"
)

func TestPins(t *testing.T) {
	c := Cache{t.TempDir()}
	commits := []string{strings.Repeat("a", 40), strings.Repeat("b", 40), strings.Repeat("c", 40)}
	owner, other := strings.Repeat("1", 64), strings.Repeat("2", 64)
	for i, commit := range commits {
		if err := c.Pin(repo, commit, owner); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i) * time.Minute)
		path := filepath.Join(c.Folder(repo), "refs", "splash", owner, commit)
		if data, err := os.ReadFile(path); err != nil || string(data) != commit {
			t.Errorf("the pin holds %q, %v", data, err)
		}
		os.Chtimes(path, at, at)
	}
	if err := c.Pin(repo, commits[0], other); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{commits[2], commits[1], commits[0]}, c.Pins(repo, owner)); d != "" {
		t.Error(d)
	}
	if err := c.Unpin(repo, owner, commits[1]); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{commits[1]}, c.Pins(repo, owner)); d != "" {
		t.Error(d)
	}
	if err := c.Unpin(repo, owner); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.pins(repo, owner)); !os.IsNotExist(err) {
		t.Errorf("the folder of no pins: %v", err)
	}
	if len(c.Pins(repo, other)) != 1 {
		t.Error("another owner's pin is gone")
	}
}

func TestRefs(t *testing.T) {
	c := Cache{t.TempDir()}
	commit := strings.Repeat("a", 40)
	for _, name := range []string{"main", "refs/pr/3"} {
		if err := c.SetRef(repo, name, commit); err != nil || c.Ref(repo, name) != commit {
			t.Errorf("%s: %v, %q", name, err, c.Ref(repo, name))
		}
	}
	for _, name := range []string{"../main", "", "/x", "a//b"} {
		if err := c.SetRef(repo, name, commit); err == nil {
			t.Errorf("%q is a reference", name)
		}
		if c.Ref(repo, name) != "" {
			t.Errorf("%q has a commit", name)
		}
	}
	os.WriteFile(filepath.Join(c.Folder(repo), "refs", "odd"), []byte("main"), 0o666)
	if got := c.Ref(repo, "odd"); got != "" {
		t.Errorf("a reference to no commit is %q", got)
	}
	if got := c.Ref("no/repo", "main"); got != "" {
		t.Errorf("an unknown repository is at %q", got)
	}
}

func TestRemove(t *testing.T) {
	s := hubtest.New(t)
	shared, first, second := noise(40, 1000), noise(41, 100), noise(42, 10)
	c, _ := client(t, s, t.TempDir())
	var models []*Model
	for _, own := range [][]byte{first, second} {
		s.Commit(repo, "main", map[string][]byte{"shared.gguf": shared, "own.gguf": own})
		m := model(t, c, "")
		if err := c.Fetch(context.Background(), m, m.Files); err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	owner := strings.Repeat("1", 64)
	if err := c.Cache.Pin(repo, models[0].Commit, owner); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Cache.Remove(repo, models[0].Commit); n != 0 || err != nil {
		t.Fatalf("a pinned snapshot is removed: %d, %v", n, err)
	}
	fetched(t, c, models[0], map[string][]byte{"shared.gguf": shared, "own.gguf": first})
	if err := c.Cache.Unpin(repo, owner); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Cache.Remove(repo, models[0].Commit); n != 100 || err != nil {
		t.Fatalf("%d bytes freed, %v; want 100", n, err)
	}
	fetched(t, c, models[1], map[string][]byte{"shared.gguf": shared, "own.gguf": second})
	if c.Cache.Has(repo, models[0].Commit) || !c.Cache.Has(repo, models[1].Commit) {
		t.Error("the wrong snapshot is gone")
	}
	if c.Cache.Ref(repo, "main") != models[1].Commit {
		t.Error("main is gone")
	}
	if n, err := c.Cache.Remove(repo, models[1].Commit); n != 1010 || err != nil {
		t.Fatalf("%d bytes freed, %v; want 1010", n, err)
	}
	if c.Cache.Ref(repo, "main") != "" {
		t.Error("main is at a snapshot that is gone")
	}
	if n, err := c.Cache.Remove("no/repo", models[1].Commit); n != 0 || err != nil {
		t.Errorf("of no repository: %d, %v", n, err)
	}
}

func TestCachedModelSkipsBrokenLinks(t *testing.T) {
	c := Cache{t.TempDir()}
	commit := strings.Repeat("a", 40)
	dir := c.Snapshot(repo, commit)
	os.MkdirAll(filepath.Join(dir, "sub"), 0o777)
	os.WriteFile(filepath.Join(dir, "sub", "plain"), []byte("12"), 0o666)
	os.Symlink("../../blobs/"+strings.Repeat("b", 40), filepath.Join(dir, "broken"))
	m, err := c.Model(repo, commit)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]File{{Path: "sub/plain", Size: 2}}, m.Files); d != "" {
		t.Error(d)
	}
	if _, err := c.Model(repo, strings.Repeat("c", 40)); err == nil {
		t.Error("a snapshot that is not there has files")
	}
}

func TestLines(t *testing.T) {
	var got []string
	p := Lines(func(line string) { got = append(got, line) }, 10*time.Second)(4e9).(*lines)
	now := p.start
	p.now = func() time.Time { return now }
	step := func(seconds int, bytes int64) {
		now = now.Add(time.Duration(seconds) * time.Second)
		p.Add(bytes)
	}
	step(5, 1e9)
	step(5, 0)
	p.Grow(1e9)
	step(10, 3e9)
	step(20, -2e9)
	step(0, 3e9)
	p.Close()
	want := []string{
		"Fetched 1.00 of 4.00 GB (25%) · 100.0 MB/s · 30s left",
		"Fetched 4.00 of 5.00 GB (80%) · 200.0 MB/s · 5s left",
		"Fetched 2.00 of 5.00 GB (40%) · 50.0 MB/s · 1m0s left",
		"Fetched 5.00 GB in 40s.",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if percent(0, 0) != 100 {
		t.Error("nothing of nothing is not all")
	}
}

func TestBar(t *testing.T) {
	var out bytes.Buffer
	p := Bar(&out)(2_000_000)
	p.Add(500_000)
	p.Grow(0)
	p.Add(1_500_000)
	p.Close()
	for _, want := range []string{"2.0/2.0 MB", "100%", "/s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	if !strings.HasSuffix(out.String(), "\n") {
		t.Error("the bar leaves the line open")
	}
}

// FuzzListing holds every listing to names below the snapshot and to sizes that are there.
func FuzzListing(f *testing.F) {
	f.Add(`{"sha":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","siblings":[{"rfilename":"a.gguf","size":3,"blobId":"x","lfs":{"sha256":"y","size":3}}]}`)
	f.Add(`{"sha":"../../x","siblings":[{"rfilename":"../a"}]}`)
	f.Add(`{"siblings":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var l listing
		if err := decodeListing([]byte(text), &l); err != nil {
			return
		}
		m, err := l.model(repo, "")
		if err != nil {
			return
		}
		root := Cache{"/c"}.Snapshot(repo, m.Commit)
		for _, f := range m.Files {
			path := filepath.Join(root, filepath.FromSlash(f.Path))
			if !strings.HasPrefix(path, root+string(filepath.Separator)) {
				t.Errorf("%q leaves the snapshot", f.Path)
			}
		}
	})
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-9/100", int64(0), int64(10), int64(100))
	f.Add("bytes 18446744073709551615-9/*", int64(0), int64(10), int64(100))
	f.Fuzz(func(t *testing.T, value string, from, to, size int64) {
		resp := &http.Response{StatusCode: http.StatusPartialContent, Header: http.Header{"Content-Range": {value}}, Request: &http.Request{URL: &url.URL{Host: "h"}}}
		if checkRange(resp, from, to, size) == nil && value != fmt.Sprintf("bytes %d-%d/%d", from, to-1, size) && !strings.Contains(value, "*") && !strings.Contains(value, " 0") && !strings.Contains(value, "-0") && !strings.Contains(value, "/0") {
			t.Errorf("%q answers [%d, %d) of %d", value, from, to, size)
		}
	})
}
