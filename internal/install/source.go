package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"splash/internal/gguf"
	"splash/internal/hub"
	"splash/internal/safetensors"
)

// Limits of the small files that are read whole.
const (
	maxJSON      = 4 << 20
	maxTokenizer = 64 << 20
)

// A Source names where the files of a target or a draft are from: a repository at a commit, or a directory.
type Source struct {
	Repo     string  `json:"repo"`     // OWNER/NAME, or an absolute path
	Revision *string `json:"revision"` // the commit; null for a directory
}

// Commit is the commit; empty for a directory.
func (s Source) Commit() string {
	if s.Revision == nil {
		return ""
	}
	return *s.Revision
}

// String is REPO@COMMIT12, or the directory.
func (s Source) String() string {
	if s.Revision == nil {
		return s.Repo
	}
	return fmt.Sprintf("%s@%.12s", s.Repo, *s.Revision)
}

func (s Source) equal(o *Source) bool {
	return o != nil && s.Repo == o.Repo && s.Commit() == o.Commit()
}

// files is a source's files, read without a download where that can be.
type files interface {
	source() Source
	names() []string
	has(name string) bool
	size(name string) int64
	// open reads a file on demand.
	open(ctx context.Context, name string) (reader, error)
	// read returns a small file.
	read(ctx context.Context, name string, limit int64) ([]byte, error)
	// fetch makes files local; path and digest are of local files. An empty digest is not known.
	fetch(ctx context.Context, names []string) error
	path(name string) string
	digest(name string) string
}

type reader interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// hubFiles is a repository at a commit, listed by the Hub or by its cache.
type hubFiles struct {
	client *hub.Client
	model  *hub.Model
	index  map[string]hub.File
}

func newHubFiles(c *hub.Client, m *hub.Model) *hubFiles {
	h := &hubFiles{c, m, make(map[string]hub.File, len(m.Files))}
	for _, f := range m.Files {
		h.index[f.Path] = f
	}
	return h
}

func (h *hubFiles) source() Source         { return Source{h.model.Repo, &h.model.Commit} }
func (h *hubFiles) has(name string) bool   { _, ok := h.index[name]; return ok }
func (h *hubFiles) size(name string) int64 { return h.index[name].Size }

func (h *hubFiles) names() []string {
	names := make([]string, len(h.model.Files))
	for i, f := range h.model.Files {
		names[i] = f.Path
	}
	return names
}

func (h *hubFiles) file(name string) (hub.File, error) {
	f, ok := h.index[name]
	if !ok {
		return f, fmt.Errorf("missing %s in %s", name, h.model.Repo)
	}
	return f, nil
}

func (h *hubFiles) open(ctx context.Context, name string) (reader, error) {
	f, err := h.file(name)
	if err != nil {
		return nil, err
	}
	if path, ok := h.client.Cache.Path(h.model.Repo, h.model.Commit, f); ok {
		return openLocal(path)
	}
	return h.client.Open(ctx, h.model, f), nil
}

func (h *hubFiles) read(ctx context.Context, name string, limit int64) ([]byte, error) {
	f, err := h.file(name)
	if err != nil {
		return nil, err
	}
	return h.client.Read(ctx, h.model, f, limit)
}

func (h *hubFiles) fetch(ctx context.Context, names []string) error {
	var files []hub.File
	for _, name := range names {
		f, err := h.file(name)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	return h.client.Fetch(ctx, h.model, files)
}

func (h *hubFiles) path(name string) string {
	return filepath.Join(h.client.Cache.Snapshot(h.model.Repo, h.model.Commit), filepath.FromSlash(name))
}

// digest is the blob's name; a cache without links has no blob, and then the digest is the listing's.
func (h *hubFiles) digest(name string) string {
	if d := hub.BlobName(h.path(name)); d != "" {
		return d
	}
	return h.index[name].Digest
}

// dirFiles is the files in a local directory's root, and those below it that are asked for by name.
type dirFiles struct {
	dir   string // absolute
	sizes map[string]int64
	order []string
}

func newDirFiles(dir string) (*dirFiles, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	d := &dirFiles{dir: dir, sizes: map[string]int64{}}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err == nil && info.Mode().IsRegular() {
			d.sizes[e.Name()] = info.Size()
			d.order = append(d.order, e.Name())
		}
	}
	return d, nil
}

func (d *dirFiles) source() Source            { return Source{Repo: d.dir} }
func (d *dirFiles) names() []string           { return d.order }
func (d *dirFiles) size(name string) int64    { return d.sizes[name] }
func (d *dirFiles) path(name string) string   { return filepath.Join(d.dir, filepath.FromSlash(name)) }
func (d *dirFiles) digest(name string) string { return hub.BlobName(d.path(name)) }

func (d *dirFiles) has(name string) bool {
	if _, ok := d.sizes[name]; ok {
		return true
	}
	if !strings.Contains(name, "/") || !filepath.IsLocal(filepath.FromSlash(name)) {
		return false
	}
	info, err := os.Stat(d.path(name))
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	d.sizes[name] = info.Size()
	return true
}

func (d *dirFiles) open(_ context.Context, name string) (reader, error) {
	return openLocal(d.path(name))
}

func (d *dirFiles) read(_ context.Context, name string, limit int64) ([]byte, error) {
	return readLimited(d.path(name), limit)
}

func (d *dirFiles) fetch(_ context.Context, names []string) error {
	for _, name := range names {
		if !d.has(name) {
			return fmt.Errorf("missing %s in %s", name, d.dir)
		}
	}
	return nil
}

type localFile struct {
	*os.File
	size int64
}

func (f *localFile) Size() int64 { return f.size }

func openLocal(path string) (reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &localFile{f, info.Size()}, nil
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := openLocal(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, over %d", path, f.Size(), limit)
	}
	data := make([]byte, f.Size())
	n, err := f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// faulty remembers the error of a reader: a parser's error is about the file only where reading it did not fail.
type faulty struct {
	io.ReaderAt
	err error
}

func (f *faulty) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.ReaderAt.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// ggufHeader reads the header of a GGUF, of all parts as one. unreadable says that the error is of reading, not of the
// file.
func ggufHeader(ctx context.Context, src files, names []string) (h *gguf.Header, unreadable bool, err error) {
	var headers []*gguf.Header
	for _, name := range names {
		h, unreadable, err := ggufPart(ctx, src, name)
		if err != nil {
			return nil, unreadable, err
		}
		headers = append(headers, h)
	}
	h, err = gguf.Join(headers)
	return h, false, err
}

// ggufPart reads the header of one file. Of a file on the Hub it is parsed from the first range alone, then from the first
// two, and so on: a parser that reads ahead then fetches no range that its header does not reach.
func ggufPart(ctx context.Context, src files, name string) (h *gguf.Header, unreadable bool, err error) {
	r, err := src.open(ctx, name)
	if err != nil {
		return nil, true, err
	}
	defer r.Close()
	f := &faulty{ReaderAt: r}
	for ranges := 1; ; ranges++ {
		limit := r.Size()
		if _, remote := r.(*hub.Remote); remote {
			limit = min(limit, hub.Reach(ranges))
		}
		h, err = gguf.Parse(upTo{f, limit}, r.Size(), name)
		switch {
		case f.err != nil:
			return nil, true, f.err
		case limit == r.Size() || !errors.Is(err, errFurther):
			return h, false, err
		}
	}
}

// errFurther says that a header reaches beyond what is read of its file so far.
var errFurther = errors.New("the header goes on")

// upTo reads no byte beyond a limit.
type upTo struct {
	io.ReaderAt
	limit int64
}

func (u upTo) ReadAt(p []byte, off int64) (int, error) {
	if int64(len(p)) <= u.limit-off {
		return u.ReaderAt.ReadAt(p, off)
	}
	n, err := u.ReaderAt.ReadAt(p[:max(0, u.limit-off)], off)
	if err == nil {
		err = errFurther
	}
	return n, err
}

// holdsTower reports whether the header of a safetensors file names a tensor of a vision tower.
func holdsTower(ctx context.Context, src files, name string) (bool, error) {
	r, err := src.open(ctx, name)
	if err != nil {
		return false, err
	}
	defer r.Close()
	f := &faulty{ReaderAt: r}
	h, err := safetensors.Parse(f, r.Size(), name)
	if f.err != nil {
		return false, f.err
	}
	if err != nil {
		return false, err
	}
	for i := range h.Tensors {
		if isTower(h.Tensors[i].Name) {
			return true, nil
		}
	}
	return false, nil
}

// isTower reports whether a tensor belongs to a vision tower: in MLX's names, or in those of transformers.
func isTower(tensor string) bool {
	return strings.HasPrefix(tensor, "vision_tower.") || strings.HasPrefix(tensor, "model.visual.")
}
