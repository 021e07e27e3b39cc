package metal

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A codeCache keeps what a device's compiler made of kernels for its GPU, a file a kernel, in a directory for each set of sources,
// GPU and system. A file's name has the digest of its bytes: one that is damaged is not used, and processes that write
// at the same time do not harm each other. Nothing fails because of it.
type codeCache struct{ dir string } // empty: nothing is kept

// staleCodes is how long directories of other sources, GPUs or systems stay after they were used.
const staleCodes = 30 * 24 * time.Hour

// newCodeCache is the cache below a directory for these sources on a GPU under a system.
func newCodeCache(below string, all []source, gpu, system string) codeCache {
	if below == "" {
		return codeCache{}
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", gpu, system)
	for _, s := range all {
		fmt.Fprintf(h, "%q %q\n", s.name, s.text)
	}
	c := codeCache{filepath.Join(below, hex.EncodeToString(h.Sum(nil)[:16]))}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return codeCache{}
	}
	now := time.Now()
	_ = os.Chtimes(c.dir, now, now)
	c.sweep(now)
	return c
}

// sweep removes what nothing has used for long: the caches beside this one, and files that a process did not finish.
func (c codeCache) sweep(now time.Time) {
	for _, pattern := range []string{filepath.Join(filepath.Dir(c.dir), "*"), filepath.Join(c.dir, "*.tmp")} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return
		}
		for _, name := range names {
			if info, err := os.Lstat(name); err == nil && name != c.dir && now.Sub(info.ModTime()) > staleCodes {
				_ = os.RemoveAll(name)
			}
		}
	}
}

// use calls get with the file that a kernel's code is kept in and one to write it to, either of them empty where there is none, and
// keeps what get wrote.
func (c codeCache) use(name string, get func(archive, fresh string) error) error {
	if c.dir == "" {
		return get("", "")
	}
	archive, fresh := c.find(name), ""
	if f, err := os.CreateTemp(c.dir, name+"-*.tmp"); err == nil {
		fresh = f.Name()
		f.Close()
		os.Remove(fresh)
		defer os.Remove(fresh)
	}
	if err := get(archive, fresh); err != nil {
		return err
	}
	if fresh == "" {
		return nil
	}
	if data, err := os.ReadFile(fresh); err == nil && len(data) > 0 {
		if archive != "" {
			os.Remove(archive) // it did not serve
		}
		_ = os.Rename(fresh, c.path(name, data))
	}
	return nil
}

// path is where a kernel's code is kept.
func (c codeCache) path(name string, data []byte) string {
	sum := sha256.Sum256(data)
	return filepath.Join(c.dir, name+"-"+hex.EncodeToString(sum[:])+".metalarchive")
}

// find is the file of a kernel whose bytes are what its name says; others are removed. Empty: there is none.
func (c codeCache) find(name string) string {
	names, err := filepath.Glob(filepath.Join(c.dir, name+"-*.metalarchive"))
	if err != nil {
		return ""
	}
	for _, path := range names {
		if data, err := os.ReadFile(path); err == nil && c.path(name, data) == path {
			return path
		}
		os.Remove(path)
	}
	return ""
}
