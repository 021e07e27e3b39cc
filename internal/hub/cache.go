package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Cache is the folder that the Hub's tools share:
//
//	models--OWNER--NAME/
//	  blobs/DIGEST               a file's content, named by the digest the Hub lists; DIGEST.incomplete while written
//	  snapshots/COMMIT/PATH      a relative link to its blob, or the file itself where there are no links
//	  refs/BRANCH                the commit a branch named when it was last fetched
//	  refs/splash/OWNER/COMMIT   a pin: the commit, so that pruning keeps the snapshot
//	.locks/models--OWNER--NAME/DIGEST.lock
type Cache struct{ Dir string }

// Folder is a repository's folder.
func (c Cache) Folder(repo string) string { return filepath.Join(c.Dir, folderName(repo)) }

func folderName(repo string) string { return "models--" + strings.ReplaceAll(repo, "/", "--") }

// Snapshot is the folder of a commit's files.
func (c Cache) Snapshot(repo, commit string) string {
	return filepath.Join(c.Folder(repo), "snapshots", commit)
}

func (c Cache) blob(repo, digest string) string {
	return filepath.Join(c.Folder(repo), "blobs", digest)
}

func (c Cache) lock(repo, digest string) string {
	return filepath.Join(c.Dir, ".locks", folderName(repo), digest+".lock")
}

// Has reports whether the snapshot of a commit holds any file.
func (c Cache) Has(repo, commit string) bool {
	entries, err := os.ReadDir(c.Snapshot(repo, commit))
	return err == nil && len(entries) > 0
}

// Path returns where a commit's file is, when it is there and of the listed size.
func (c Cache) Path(repo, commit string, f File) (string, bool) {
	path := filepath.Join(c.Snapshot(repo, commit), filepath.FromSlash(f.Path))
	info, err := os.Stat(path)
	return path, err == nil && info.Mode().IsRegular() && (f.Size < 0 || info.Size() == f.Size)
}

// Model lists the files that the cache holds of a commit, with the digests that their blobs are named by; a file that is
// not a link has none.
func (c Cache) Model(repo, commit string) (*Model, error) {
	root := c.Snapshot(repo, commit)
	m := &Model{Repo: repo, Commit: commit, Cached: true}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			return nil // a link whose blob is gone
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		m.add(File{Path: filepath.ToSlash(name), Size: info.Size(), Digest: BlobName(path)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the Hub cache's snapshot %s of %s: %w", commit, repo, err)
	}
	return m, nil
}

// BlobName is the digest that the blob behind a snapshot's link is named by; empty for a file that is no such link.
func BlobName(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(filepath.Dir(real)) != "blobs" || !digestPattern.MatchString(filepath.Base(real)) {
		return ""
	}
	return filepath.Base(real)
}

// SnapshotOf tells which snapshot of which cache a path lies in. Folder is the name of the repository's folder there.
func SnapshotOf(path string) (c Cache, folder, commit string, ok bool) {
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		above := filepath.Dir(dir)
		if commit := filepath.Base(dir); filepath.Base(above) == "snapshots" && IsCommit(commit) {
			repo := filepath.Dir(above)
			return Cache{filepath.Dir(repo)}, filepath.Base(repo), commit, true
		}
	}
	return Cache{}, "", "", false
}

// Ref is the commit that the cache recorded for a branch or tag; empty: none.
func (c Cache) Ref(repo, name string) string {
	if !safePath(name) {
		return ""
	}
	data, err := os.ReadFile(filepath.Join(c.Folder(repo), "refs", filepath.FromSlash(name)))
	if commit := strings.TrimSpace(string(data)); err == nil && IsCommit(commit) {
		return commit
	}
	return ""
}

// SetRef records the commit of a branch or tag.
func (c Cache) SetRef(repo, name, commit string) error {
	if !safePath(name) {
		return fmt.Errorf("%q is no name for a reference in the Hub cache", name)
	}
	if c.Ref(repo, name) == commit {
		return nil
	}
	return replaceFile(filepath.Join(c.Folder(repo), "refs", filepath.FromSlash(name)), []byte(commit))
}

func (c Cache) pins(repo, owner string) string {
	return filepath.Join(c.Folder(repo), "refs", "splash", owner)
}

// Pin keeps a snapshot for owner (a word of hex digits): tools that prune the cache spare what a reference names.
func (c Cache) Pin(repo, commit, owner string) error {
	return c.SetRef(repo, "splash/"+owner+"/"+commit, commit)
}

// Pins lists the commits that owner has pinned, the newest pin first.
func (c Cache) Pins(repo, owner string) []string {
	type pin struct {
		commit string
		at     time.Time
	}
	var pins []pin
	entries, _ := os.ReadDir(c.pins(repo, owner))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && IsCommit(e.Name()) {
			pins = append(pins, pin{e.Name(), info.ModTime()})
		}
	}
	slices.SortStableFunc(pins, func(a, b pin) int { return b.at.Compare(a.at) })
	commits := make([]string, len(pins))
	for i, p := range pins {
		commits[i] = p.commit
	}
	return commits
}

// Unpin drops owner's pins of a repository but those of keep.
func (c Cache) Unpin(repo, owner string, keep ...string) error {
	var errs []error
	for _, commit := range c.Pins(repo, owner) {
		if !slices.Contains(keep, commit) {
			errs = append(errs, os.Remove(filepath.Join(c.pins(repo, owner), commit)))
		}
	}
	os.Remove(c.pins(repo, owner)) // where it is empty now
	return errors.Join(errs...)
}

// Remove deletes the snapshot of a commit that no pin names, the references to it, and the blobs that no other snapshot
// of the repository links. It returns the bytes of the blobs.
func (c Cache) Remove(repo, commit string) (freed int64, err error) {
	refs, err := c.refs(repo)
	if err != nil {
		return 0, err
	}
	for name, at := range refs {
		if at == commit && strings.HasPrefix(name, "splash/") {
			return 0, nil
		}
	}
	mine, others, err := c.links(repo, commit)
	if err != nil {
		return 0, err
	}
	for name, at := range refs {
		if at == commit {
			if err := os.Remove(filepath.Join(c.Folder(repo), "refs", filepath.FromSlash(name))); err != nil {
				return 0, err
			}
		}
	}
	if err := os.RemoveAll(c.Snapshot(repo, commit)); err != nil {
		return 0, err
	}
	for digest, size := range mine {
		if !others[digest] {
			if err := os.Remove(c.blob(repo, digest)); err != nil {
				return freed, err
			}
			freed += size
		}
	}
	return freed, nil
}

// refs lists every reference of a repository, by its path below refs.
func (c Cache) refs(repo string) (map[string]string, error) {
	root := filepath.Join(c.Folder(repo), "refs")
	refs := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			refs[filepath.ToSlash(name)] = c.Ref(repo, filepath.ToSlash(name))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return refs, err
}

// links lists the blobs that a commit's snapshot links, with their sizes, and those that other snapshots link.
func (c Cache) links(repo, commit string) (mine map[string]int64, others map[string]bool, err error) {
	mine, others = map[string]int64{}, map[string]bool{}
	snapshots, err := os.ReadDir(filepath.Join(c.Folder(repo), "snapshots"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, s := range snapshots {
		m, err := c.Model(repo, s.Name())
		if err != nil {
			return nil, nil, err
		}
		for _, f := range m.Files {
			if f.Digest == "" {
				continue
			}
			if s.Name() == commit {
				mine[f.Digest] = f.Size
			} else {
				others[f.Digest] = true
			}
		}
	}
	return mine, others, nil
}

// replaceFile writes a small file whole or not at all.
func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
