package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"splash/internal/hub"
)

// An assembly is a folder of links that never changes, named by the SHA-256 of its record:
//
//	model.json                 the record
//	config.json                the target's configuration, or the one derived from its GGUF
//	target/NAME                its weights
//	tokenizer/NAME             its tokenizer's files; a GGUF holds its own
//	draft/NAME                 the draft
//	vision/NAME                the shards of the tower, or mmproj.gguf

const recordFile = "model.json"

// A Record says what an assembly is made of.
type Record struct {
	Version      int               `json:"version"`
	Model        string            `json:"model"`
	Family       string            `json:"family"`
	ChatFormat   string            `json:"chat_format"`
	TargetFormat string            `json:"target_format"` // GGUF or Safetensors
	VisionFormat string            `json:"vision_format"` // NoVision, GGUF or Safetensors
	Sources      Sources           `json:"sources"`
	Metadata     string            `json:"metadata,omitempty"` // key of what was derived from a GGUF
	Files        map[string]Linked `json:"files"`              // by path in the assembly
}

// Sources are where an assembly's files are from.
type Sources struct {
	Target Source  `json:"target"`
	Draft  *Source `json:"draft,omitempty"`
}

// A Linked is a file as it was when it was linked.
type Linked struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	MTime  int64  `json:"mtime_ns"`
	CTime  int64  `json:"ctime_ns"`
	Digest string `json:"digest"` // of its content: of a Git blob (40 digits), or SHA-256 (64)
}

const recordVersion = 1

// encode is the record as it is written: keys in order, two spaces a level, characters as they are.
func (r *Record) encode() ([]byte, error) {
	var ordered any
	plain, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	if err := d.Decode(&ordered); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(ordered)
	return out.Bytes(), err
}

var errRecord = errors.New("invalid resolved model record")

// decodeRecord reads a record that has exactly the form encode gives it.
func decodeRecord(data []byte) (*Record, error) {
	r := &Record{}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return nil, errRecord
	}
	again, err := r.encode()
	if err != nil || !bytes.Equal(data, again) || !r.valid() {
		return nil, errRecord
	}
	return r, nil
}

var hex64 = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (r *Record) valid() bool {
	if r.Version != recordVersion || r.Model == "" || r.Family == "" || r.ChatFormat == "" || len(r.Files) == 0 ||
		(r.TargetFormat != GGUF && r.TargetFormat != Safetensors) ||
		!slices.Contains([]string{NoVision, GGUF, Safetensors}, r.VisionFormat) ||
		(r.Metadata != "") != (r.TargetFormat == GGUF) || r.Metadata != "" && !hex64.MatchString(r.Metadata) {
		return false
	}
	for name, f := range r.Files {
		if !plainPath(name) || !filepath.IsAbs(f.Path) || f.Bytes < 0 || !hub.IsDigest(f.Digest) {
			return false
		}
	}
	for _, s := range []*Source{&r.Sources.Target, r.Sources.Draft} {
		if s != nil && (s.Repo == "" || s.Revision != nil && !hub.IsCommit(*s.Revision)) {
			return false
		}
	}
	return true
}

// plainPath reports whether a path of an assembly is relative, without dots and without characters of patterns.
func plainPath(name string) bool {
	if name == "" || name != path.Clean(name) || path.IsAbs(name) || name == recordFile {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f || strings.ContainsRune(`\*?[]`, c) })
}

// identity is what the file system says of a file: it changes when the file does.
type identity struct {
	Device, Inode       uint64
	Bytes, MTime, CTime int64
}

// same reports whether a file is as it was when it was linked.
func (f Linked) same(id identity) bool {
	return f.Bytes == id.Bytes && f.MTime == id.MTime && f.CTime == id.CTime
}

// verify reads an assembly's record and holds the assembly to it: every entry is the link that the record names, to a file
// that did not change.
func verify(dir string) (*Record, error) {
	r, err := readRecord(dir)
	if err != nil {
		return nil, err
	}
	for name, f := range r.Files {
		to, err := os.Readlink(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil || to != f.Path {
			return nil, fmt.Errorf("resolved model file changed: %s", name)
		}
		if id, err := identify(f.Path); err != nil || !f.same(id) {
			return nil, fmt.Errorf("resolved model file changed: %s", name)
		}
	}
	return r, nil
}

// readRecord reads the record of an assembly, which is named by it.
func readRecord(dir string) (*Record, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	data, err := readLimited(filepath.Join(real, recordFile), maxJSON)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != filepath.Base(real) {
		return nil, errRecord
	}
	return decodeRecord(data)
}

// verifyContent computes the digest of every file anew.
func verifyContent(ctx context.Context, dir string) (*Record, error) {
	r, err := verify(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		f := r.Files[name]
		got, err := hub.Digest(ctx, f.Path, f.Digest)
		if err != nil {
			return nil, err
		}
		if got != f.Digest {
			return nil, fmt.Errorf("source content hash mismatch: %s", name)
		}
	}
	return r, nil
}

// stage writes an assembly into a new folder beside its destination, and publishes it by one rename. It returns the
// destination. The caller holds the installation lock.
func (s *store) stage(r *Record) (string, error) {
	data, err := r.encode()
	if err != nil {
		return "", err
	}
	if !r.valid() {
		return "", errRecord
	}
	sum := sha256.Sum256(data)
	dir := filepath.Join(s.resolved(), hex.EncodeToString(sum[:]))
	if _, err := verify(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(s.resolved(), 0o777); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(s.resolved(), loading)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for name, f := range r.Files {
		at := filepath.Join(tmp, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			return "", err
		}
		if err := os.Symlink(f.Path, at); err != nil {
			return "", err
		}
	}
	if err := writeSynced(filepath.Join(tmp, recordFile), data); err != nil {
		return "", err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	// A damaged assembly of this name gives way: its name is the only thing that it has in common with this one.
	if err := s.discard(dir); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", err
	}
	_, err = verify(dir)
	return dir, err
}

// discard takes a folder out of the way by one rename, then deletes it.
func (s *store) discard(dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), loading)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	err = os.Rename(dir, filepath.Join(tmp, "old"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeSynced writes a new file whose bytes are on the disk when it returns.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
