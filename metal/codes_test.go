package metal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// A compiler is a device's, as far as a cache sees it: what it makes of a kernel is its name.
type compiler struct{ made, taken int }

func (x *compiler) get(name string) func(archive, fresh string) error {
	return func(archive, fresh string) error {
		if archive != "" {
			if data, err := os.ReadFile(archive); err == nil && string(data) == name {
				x.taken++
				return nil
			}
		}
		x.made++
		if fresh == "" {
			return nil
		}
		return os.WriteFile(fresh, []byte(name), 0o600)
	}
}

func use(t *testing.T, c codeCache, name string) (made, taken int) {
	t.Helper()
	var x compiler
	if err := c.use(name, x.get(name)); err != nil {
		t.Fatal(err)
	}
	return x.made, x.taken
}

func kept(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestCodeCache: a kernel's code is made once, for these sources on that GPU under that system.
func TestCodeCache(t *testing.T) {
	below, all := t.TempDir(), []source{{"a.metal", "kernel a"}, {"b.metal", "kernel b"}}
	c := newCodeCache(below, all, "Apple M4", "24A1")
	for i, want := range [][2]int{{1, 0}, {0, 1}} {
		made, taken := use(t, c, "norm")
		if got := [2]int{made, taken}; got != want {
			t.Errorf("time %d: made and taken %v, want %v", i, got, want)
		}
	}
	if made, _ := use(t, c, "norm_wide"); made != 1 {
		t.Error("a kernel whose name begins like another's is not made")
	}
	if _, taken := use(t, newCodeCache(below, all, "Apple M4", "24A1"), "norm"); taken != 1 {
		t.Error("the next process makes it again")
	}
	for what, other := range map[string]codeCache{
		"sources": newCodeCache(below, []source{{"a.metal", "kernel a"}, {"b.metal", "kernel B"}}, "Apple M4", "24A1"),
		"GPU":     newCodeCache(below, all, "Apple M5", "24A1"),
		"system":  newCodeCache(below, all, "Apple M4", "24A2"),
	} {
		if made, _ := use(t, other, "norm"); made != 1 {
			t.Errorf("the code of another %s is taken", what)
		}
	}
	if names := kept(t, c.dir); len(names) != 2 {
		t.Errorf("kept: %q", names)
	}
	// Without a directory, or with one that cannot be made, nothing is kept, and nothing fails.
	file := filepath.Join(below, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, none := range []codeCache{newCodeCache("", all, "", ""), newCodeCache(file, all, "", ""), {filepath.Join(below, "gone")}} {
		if made, _ := use(t, none, "norm"); made != 1 {
			t.Error("nothing is made")
		}
	}
}

// TestCodeCacheDamage: files that are not what was written, or that a device does not take, are made anew.
func TestCodeCacheDamage(t *testing.T) {
	c := newCodeCache(t.TempDir(), nil, "Apple M4", "24A1")
	use(t, c, "norm")
	path := c.find("norm")
	for name, change := range map[string]func(data []byte) []byte{
		"a bit":     func(data []byte) []byte { data[1] ^= 4; return data },
		"cut short": func(data []byte) []byte { return data[:2] },
		"empty":     func([]byte) []byte { return nil },
		"longer":    func(data []byte) []byte { return append(data, 0) },
	} {
		data, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, change(bytes.Clone(data)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if made, taken := use(t, c, "norm"); made != 1 || taken != 0 {
			t.Errorf("%s: made %d, taken %d", name, made, taken)
		}
		if _, taken := use(t, c, "norm"); taken != 1 {
			t.Errorf("%s: it is not made anew", name)
		}
	}
	// Whole, and no longer what the device wants.
	old := c.path("norm", []byte("of another compiler"))
	if err := os.WriteFile(old, []byte("of another compiler"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if made, _ := use(t, c, "norm"); made != 1 {
		t.Error("it is taken")
	}
	if names := kept(t, c.dir); len(names) != 1 || names[0] != path {
		t.Errorf("kept: %q", names)
	}
	failed := errors.New("no such kernel")
	if err := c.use("none", func(_, fresh string) error { return failed }); !errors.Is(err, failed) || len(kept(t, c.dir)) != 1 {
		t.Errorf("%v; kept: %q", err, kept(t, c.dir))
	}
}

// TestCodeCacheTogether has many processes make the same kernels: each gets them, one file is kept of each, and nothing else.
func TestCodeCacheTogether(t *testing.T) {
	below := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			c := newCodeCache(below, nil, "Apple M4", "24A1")
			for i := range 4 {
				name := fmt.Sprint("kernel", i)
				var x compiler
				if err := c.use(name, x.get(name)); err != nil || x.made+x.taken != 1 {
					t.Errorf("%s: %+v %v", name, x, err)
				}
			}
		})
	}
	all.Wait()
	if names := kept(t, newCodeCache(below, nil, "Apple M4", "24A1").dir); len(names) != 4 {
		t.Errorf("kept: %q", names)
	}
}

// TestCodeCacheSweep: what has not been used for long goes, what is used stays.
func TestCodeCacheSweep(t *testing.T) {
	below := t.TempDir()
	old, recent := newCodeCache(below, nil, "Apple M1", ""), newCodeCache(below, nil, "Apple M2", "")
	then := time.Now().Add(-2 * staleCodes)
	if err := os.Chtimes(old.dir, then, then); err != nil {
		t.Fatal(err)
	}
	c := newCodeCache(below, nil, "Apple M3", "")
	left := filepath.Join(c.dir, "norm-1.tmp")
	err := os.WriteFile(left, nil, 0o600)
	if err == nil {
		err = os.Chtimes(left, then, then)
	}
	if err != nil {
		t.Fatal(err)
	}
	newCodeCache(below, nil, "Apple M3", "")
	for path, want := range map[string]bool{old.dir: false, recent.dir: true, c.dir: true, left: false} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
