package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"splash/internal/filemap"
)

// A Checkpoint is the tensors of one or more files under one set of names.
type Checkpoint struct {
	Files   []*Header
	Tensors []Tensor // file after file, each in its header's order

	index map[string]int32
	maps  []mapping // empty where the headers alone are at hand
}

// A mapping is an opened file.
type mapping struct {
	path string // empty where the bytes were in memory
	info os.FileInfo
	data []byte
}

// Join makes a checkpoint of headers alone: its tensors have no data. A tensor in two files is refused.
func Join(headers []*Header) (*Checkpoint, error) {
	if len(headers) == 0 || len(headers) > MaxShards {
		return nil, fmt.Errorf("a checkpoint of %d safetensors files, from 1 to %d", len(headers), MaxShards)
	}
	c := &Checkpoint{}
	var bytes int64
	n := 0
	for _, h := range headers {
		n += len(h.Tensors)
		if bytes += h.DataStart; bytes > MaxCheckpointHeader {
			return nil, fmt.Errorf("%s: the checkpoint's headers exceed %d bytes", h.Name, MaxCheckpointHeader)
		}
	}
	if n > MaxTensors {
		return nil, fmt.Errorf("%s: the checkpoint has %d tensors, at most %d", headers[0].Name, n, MaxTensors)
	}
	c.Tensors, c.index = make([]Tensor, 0, n), make(map[string]int32, n)
	for i, h := range headers {
		c.Files = append(c.Files, h)
		for _, t := range h.Tensors {
			if j, ok := c.index[t.Name]; ok {
				first := c.Files[c.Tensors[j].File].Name
				return nil, fmt.Errorf("%s: tensor %s is in %s too", h.Name, clip(t.Name), first)
			}
			t.File = i
			c.index[t.Name] = int32(len(c.Tensors))
			c.Tensors = append(c.Tensors, t)
		}
	}
	return c, nil
}

// Open maps the files read-only and reads their headers. The caller closes the checkpoint, after which no tensor's data
// may be used.
func Open(paths ...string) (*Checkpoint, error) {
	if len(paths) == 0 || len(paths) > MaxShards {
		return nil, fmt.Errorf("a checkpoint of %d safetensors files, from 1 to %d", len(paths), MaxShards)
	}
	var maps []mapping
	var headers []*Header
	var bytes int64
	fail := func(err error) (*Checkpoint, error) {
		return nil, errors.Join(err, closeAll(maps))
	}
	for _, path := range paths {
		m, h, err := open(path)
		if err != nil {
			return fail(err)
		}
		maps, headers = append(maps, m), append(headers, h)
		if bytes += h.DataStart; bytes > MaxCheckpointHeader {
			return fail(fmt.Errorf("%s: the checkpoint's headers exceed %d bytes", path, MaxCheckpointHeader))
		}
	}
	c, err := Join(headers)
	if err != nil {
		return fail(err)
	}
	c.maps = maps
	return c, nil
}

func open(path string) (m mapping, h *Header, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a pipe waits
		return m, nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return m, nil, err
	}
	defer f.Close()
	m.path = path
	if m.info, err = f.Stat(); err != nil {
		return m, nil, err
	}
	if !m.info.Mode().IsRegular() {
		return m, nil, fmt.Errorf("%s: not a regular file", path)
	}
	if h, err = Parse(f, m.info.Size(), path); err != nil {
		return m, nil, err
	}
	if m.data, err = filemap.Map(f, m.info.Size()); err != nil {
		return m, nil, fmt.Errorf("%s: map: %w", path, err)
	}
	return m, h, nil
}

// OpenDir opens every *.safetensors file at the root of the directory, in the order of their names.
func OpenDir(dir string) (*Checkpoint, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".safetensors") && !e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: model has no safetensors checkpoint", dir)
	}
	return Open(paths...)
}

// OpenIndexed opens the shards that the directory's model.safetensors.index.json names, or, without one, its
// model.safetensors; and of the files beside, those that exist.
func OpenIndexed(dir string, beside ...string) (*Checkpoint, error) {
	files, err := indexed(dir)
	if err != nil {
		return nil, err
	}
	for _, path := range beside {
		if _, err := os.Stat(path); err == nil {
			files = append(files, path)
		}
	}
	return Open(files...)
}

// indexed lists a directory's shards by its index.
func indexed(dir string) ([]string, error) {
	path := filepath.Join(dir, "model.safetensors.index.json")
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return []string{filepath.Join(dir, "model.safetensors")}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	index, err := ReadIndex(f, path)
	if err != nil {
		return nil, err
	}
	files := index.Files()
	for i := range files {
		files[i] = filepath.Join(dir, filepath.FromSlash(files[i]))
		if _, err := os.Stat(files[i]); err != nil {
			return nil, fmt.Errorf("%s: checkpoint has missing or unsupported shards: %w", path, err)
		}
	}
	return files, nil
}

// Close unmaps the files.
func (c *Checkpoint) Close() error {
	maps := c.maps
	c.maps = nil
	return closeAll(maps)
}

func closeAll(maps []mapping) error {
	var errs []error
	for _, m := range maps {
		if m.path == "" {
			continue
		}
		if err := filemap.Unmap(m.data); err != nil {
			errs = append(errs, fmt.Errorf("%s: unmap: %w", m.path, err))
		}
	}
	return errors.Join(errs...)
}

// Changed returns an error where a file is no longer the one that was opened: another file stands at its path, or its
// size or time is another. A loader asks after it has read its tensors.
func (c *Checkpoint) Changed() error {
	for _, m := range c.maps {
		if m.path == "" {
			continue
		}
		now, err := os.Stat(m.path)
		if err != nil {
			return fmt.Errorf("%s: the file changed while it was read: %w", m.path, err)
		}
		if !os.SameFile(m.info, now) || now.Size() != m.info.Size() || !now.ModTime().Equal(m.info.ModTime()) {
			return fmt.Errorf("%s: the file changed while it was read", m.path)
		}
	}
	return nil
}

// Tensor returns the tensor of that name, or nil.
func (c *Checkpoint) Tensor(name string) *Tensor {
	if i, ok := c.index[name]; ok {
		return &c.Tensors[i]
	}
	return nil
}

// Data is the tensor's bytes in the mapped file, or nil where the checkpoint is of headers alone.
func (c *Checkpoint) Data(t *Tensor) []byte {
	if c.maps == nil {
		return nil
	}
	start := c.Files[t.File].DataStart
	return c.maps[t.File].data[start+t.Begin : start+t.End : start+t.End]
}

// An Index says which file holds each tensor of a sharded checkpoint. It only chooses files: what they hold, their own
// headers say.
type Index map[string]string

// MaxIndex bounds an index file: a checkpoint that names every expert has a long one.
const MaxIndex = 64 << 20

// ReadIndex reads a model.safetensors.index.json. Its files must be local paths that end in .safetensors.
func ReadIndex(r io.Reader, name string) (Index, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxIndex+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(data) > MaxIndex {
		return nil, fmt.Errorf("%s: more than %d bytes", name, MaxIndex)
	}
	index, err := parseIndex(&scanner{data: data})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return index, nil
}

func parseIndex(s *scanner) (Index, error) {
	var index Index
	err := s.members(func(key string) error {
		if key != "weight_map" {
			return s.skip(0)
		}
		if index != nil {
			return fmt.Errorf("weight_map appears twice")
		}
		index = Index{}
		return s.members(func(tensor string) error { return index.add(s, tensor) })
	})
	if err != nil {
		return nil, err
	}
	if s.next(); s.pos != len(s.data) {
		return nil, s.errorf("%w: something follows the object", errSyntax)
	}
	if len(index) == 0 {
		return nil, fmt.Errorf("weight_map is missing or empty")
	}
	if n := len(index.Files()); n > MaxShards {
		return nil, fmt.Errorf("weight_map names %d files, at most %d", n, MaxShards)
	}
	return index, nil
}

// add reads the file of a tensor.
func (x Index) add(s *scanner, tensor string) error {
	s.next()
	file, err := s.text()
	if err != nil {
		return fmt.Errorf("weight_map %s: %w", clip(tensor), err)
	}
	if _, ok := x[tensor]; ok {
		return fmt.Errorf("weight_map names %s twice", clip(tensor))
	}
	if len(x) == MaxTensors {
		return fmt.Errorf("weight_map names more than %d tensors", MaxTensors)
	}
	if !strings.HasSuffix(file, ".safetensors") || !filepath.IsLocal(filepath.FromSlash(file)) {
		return fmt.Errorf("checkpoint has missing or unsupported shards: weight_map gives %s the file %s",
			clip(tensor), clip(file))
	}
	x[tensor] = file
	return nil
}

// Files lists the files of the index, each once, sorted.
func (x Index) Files() []string {
	seen := map[string]bool{}
	var files []string
	for _, f := range x {
		if !seen[f] {
			seen[f] = true
			files = append(files, f)
		}
	}
	slices.Sort(files)
	return files
}
