package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"splash/internal/flock"
	"splash/internal/hub"
)

// DataDir is where Splash keeps its own files: SPLASH_DATA_DIR, or else the system's place for an application's data.
func DataDir(getenv func(string) string) string {
	if dir := getenv("SPLASH_DATA_DIR"); dir != "" {
		return dir
	}
	if runtime.GOOS == "darwin" {
		return filepath.Join(getenv("HOME"), "Library", "Application Support", "Splash")
	}
	if dir := getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "splash")
	}
	return filepath.Join(getenv("HOME"), ".local", "share", "splash")
}

// A store is the models directory:
//
//	OWNER/NAME[:VARIANT]   link to the assembly that a model selects; .selections/KEY of any other selection
//	.resolved/SHA256/      the assemblies; .loading-* beside them, being written
//	.metadata/SHA256/      what was derived from GGUF files
//	.digests/KEY           digests of files outside the Hub cache
//	.install.lock          held while any of this is written
type store struct{ dir string }

const (
	loading = ".loading-"
	prepare = ".prepare-"
)

func (s *store) resolved() string       { return filepath.Join(s.dir, ".resolved") }
func (s *store) metadata() string       { return filepath.Join(s.dir, ".metadata") }
func (s *store) digests() string        { return filepath.Join(s.dir, ".digests") }
func (s *store) link(rel string) string { return filepath.Join(s.dir, rel) }

// lock takes the installation lock. Everything below the models directory is written while holding it.
func (s *store) lock(ctx context.Context, log func(string)) (*flock.Lock, error) {
	return flock.Acquire(ctx, filepath.Join(s.dir, ".install.lock"), func() {
		log("Another Splash model installation is running; waiting...")
	})
}

// selectAssembly makes a selection's link name an assembly, by one rename.
func (s *store) selectAssembly(rel, dir string) error {
	at := s.link(rel)
	if info, err := os.Lstat(at); err == nil && info.Mode().Type() != fs.ModeSymlink {
		return fmt.Errorf("refusing to replace non-symlink model path: %s", at)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	to, err := filepath.Rel(filepath.Dir(at), dir)
	if err != nil {
		return err
	}
	if now, err := os.Readlink(at); err == nil && now == to {
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(at), prepare)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := os.Symlink(to, filepath.Join(tmp, "link")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "link"), at)
}

// links lists the selections' links, by their path below the models directory, with the folders they name.
func (s *store) links() (map[string]string, error) {
	found := map[string]string{}
	owners, err := listDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, owner := range owners {
		if strings.HasPrefix(owner, ".") && owner != selections {
			continue
		}
		names, err := listDir(filepath.Join(s.dir, owner))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			rel := filepath.Join(owner, name)
			if to, err := os.Readlink(s.link(rel)); err == nil {
				if !filepath.IsAbs(to) {
					to = filepath.Join(s.dir, owner, to)
				}
				found[rel] = filepath.Clean(to)
			}
		}
	}
	return found, nil
}

// listDir lists the names in a folder; there are none in what is no folder.
func listDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// collect removes the assemblies that no selection links and no process holds, what was derived for none of those that
// remain, and what an interrupted installation left. The caller holds the installation lock.
func (s *store) collect() error {
	links, err := s.links()
	if err != nil {
		return err
	}
	linked := map[string]bool{}
	for _, dir := range links {
		linked[dir] = true
	}
	names, err := listDir(s.resolved())
	if err != nil {
		return err
	}
	metadata, digests := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		dir := filepath.Join(s.resolved(), name)
		if strings.HasPrefix(name, loading) {
			err = errors.Join(err, os.RemoveAll(dir))
			continue
		}
		if !linked[dir] && !held(dir) {
			err = errors.Join(err, s.discard(dir))
			continue
		}
		if r, e := readRecord(dir); e == nil {
			metadata[r.Metadata] = true
			for _, f := range r.Files {
				digests[f.Digest] = true
			}
		}
	}
	return errors.Join(err, s.sweep(s.metadata(), func(path string) bool { return metadata[filepath.Base(path)] }),
		s.sweep(s.digests(), func(path string) bool {
			var d remembered
			data, err := os.ReadFile(path)
			return err == nil && json.Unmarshal(data, &d) == nil && digests[d.Digest]
		}), s.sweepPrepared())
}

// heldAlone are the records of the assemblies that a process holds and no selection links.
func (s *store) heldAlone() []*Record {
	links, err := s.links()
	if err != nil {
		return nil
	}
	linked := map[string]bool{}
	for _, dir := range links {
		linked[dir] = true
	}
	names, _ := listDir(s.resolved())
	var records []*Record
	for _, name := range names {
		dir := filepath.Join(s.resolved(), name)
		if linked[dir] || !held(dir) {
			continue
		}
		if r, err := readRecord(dir); err == nil {
			records = append(records, r)
		}
	}
	return records
}

// sweep deletes what a folder holds but what is to stay.
func (s *store) sweep(dir string, stays func(path string) bool) error {
	names, err := listDir(dir)
	for _, name := range names {
		if path := filepath.Join(dir, name); !stays(path) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// sweepPrepared deletes what interrupted replacements of links left.
func (s *store) sweepPrepared() error {
	owners, err := listDir(s.dir)
	for _, owner := range owners {
		if strings.HasPrefix(owner, ".") && owner != selections {
			continue
		}
		err = errors.Join(err, s.sweep(filepath.Join(s.dir, owner), func(path string) bool {
			return !strings.HasPrefix(filepath.Base(path), prepare)
		}))
	}
	return err
}

// held reports whether a process holds an assembly.
func held(dir string) bool {
	lock, err := flock.Existing(filepath.Join(dir, recordFile), true)
	if errors.Is(err, flock.ErrHeld) {
		return true
	}
	if err == nil {
		lock.Unlock()
	}
	return false
}

// A remembered is the digest of a file outside the Hub cache, for as long as the file does not change.
type remembered struct {
	identity
	Digest string
}

// fileDigest is the SHA-256 of a file outside the Hub cache. It reads the file once, for as long as the file does not
// change. The caller holds the installation lock.
func (s *store) fileDigest(
	ctx context.Context, path string, id identity, reading func(path string, bytes int64),
) (string, error) {
	at := filepath.Join(s.digests(), key(fmt.Sprint(id.Device), fmt.Sprint(id.Inode)))
	var d remembered
	data, err := os.ReadFile(at)
	if err == nil && json.Unmarshal(data, &d) == nil && d.identity == id && hub.IsDigest(d.Digest) {
		return d.Digest, nil
	}
	if reading != nil {
		reading(path, id.Bytes)
	}
	digest, err := hub.Digest(ctx, path, "")
	if err != nil {
		return "", err
	}
	if now, err := identify(path); err != nil || now != id {
		return "", fmt.Errorf("%s changed while it was read", path)
	}
	if data, err = json.Marshal(remembered{id, digest}); err != nil {
		return "", err
	}
	return digest, s.write(at, data)
}

// write replaces a file of the store whole.
func (s *store) write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), loading)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := writeSynced(filepath.Join(tmp, "new"), data); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "new"), path)
}
