package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// A Writer makes safetensors files, for fixtures. Tensors are written in the order they were given. The first that cannot
// be written is reported when the file is.
//
// WriteTo writes what it was told, legal or not; WriteFile and WriteShards publish only files that Parse accepts.
type Writer struct {
	Metadata map[string]string // of the file; nil: none

	tensors []source
	err     error
}

// A source is a tensor to be written.
type source struct {
	Tensor
	data io.Reader
}

// Add adds a tensor whose bytes are read from data when the file is written.
func (w *Writer) Add(name string, dtype DType, shape []int64, data io.Reader) {
	size := dtype.Bytes()
	for _, d := range shape {
		size *= d
	}
	if dtype.Bytes() == 0 && w.err == nil {
		w.err = fmt.Errorf("tensor %s: no element size of dtype %s", name, dtype)
	}
	t := Tensor{Name: name, DType: dtype, Shape: append([]int64{}, shape...), End: size}
	w.tensors = append(w.tensors, source{t, data})
}

// AddBytes adds a tensor of those bytes.
func (w *Writer) AddBytes(name string, dtype DType, shape []int64, data []byte) {
	w.Add(name, dtype, shape, bytes.NewReader(data))
}

// entry is a tensor in the header.
type entry struct {
	DType   DType    `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// header is the length and the JSON, padded with spaces to a multiple of eight as the library writes it.
func (w *Writer) header() ([]byte, error) {
	b := []byte{'{'}
	member := func(name string, value any) error {
		if len(b) > 1 {
			b = append(b, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		b = append(append(append(b, key...), ':'), text...)
		return err
	}
	err := w.err
	if w.Metadata != nil {
		err = errors.Join(err, member("__metadata__", w.Metadata))
	}
	at := int64(0)
	for i := range w.tensors {
		t := &w.tensors[i]
		err = errors.Join(err, member(t.Name, entry{t.DType, t.Shape, [2]int64{at, at + t.End}}))
		at += t.End
	}
	b = append(b, '}')
	b = append(b, bytes.Repeat([]byte{' '}, -len(b)&7)...)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(b))), b...), err
}

// WriteTo writes the file to out. The tensors' data is consumed.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	header, err := w.header()
	if err != nil {
		return 0, err
	}
	n, err := out.Write(header)
	total := int64(n)
	for i := range w.tensors {
		if err != nil {
			break
		}
		n, e := w.tensors[i].copy(out)
		total, err = total+n, e
	}
	return total, err
}

// copy writes the tensor's data, which must be of its size.
func (s *source) copy(out io.Writer) (int64, error) {
	n, err := io.CopyN(out, s.data, s.End)
	if errors.Is(err, io.EOF) {
		return n, fmt.Errorf("tensor %s: its data ends after %d of %d bytes", s.Name, n, s.End)
	}
	if err != nil {
		return n, err
	}
	if more, err := io.CopyN(io.Discard, s.data, 1); more > 0 || !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("tensor %s: its data goes on after %d bytes", s.Name, n)
	}
	return n, nil
}

// WriteFile writes the file and then puts it at path, whole or not at all.
func (w *Writer) WriteFile(path string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // gone where it was renamed
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, 1<<20)
	size, err := w.WriteTo(out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := Parse(file, size, path); err != nil {
		return err
	}
	if err := errors.Join(file.Chmod(0o644), file.Sync()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// WriteShards writes a checkpoint of so many files to the directory, tensors in turn, with the index that names the file
// of each. One file is model.safetensors, without an index.
func (w *Writer) WriteShards(dir string, files int) error {
	if files == 1 {
		return w.WriteFile(filepath.Join(dir, "model.safetensors"))
	}
	index := struct {
		Metadata map[string]int64  `json:"metadata"`
		Map      map[string]string `json:"weight_map"`
	}{map[string]int64{}, map[string]string{}}
	share := (len(w.tensors) + files - 1) / max(files, 1)
	i := 0
	for part := range slices.Chunk(w.tensors, max(share, 1)) {
		i++
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i, files)
		for j := range part {
			index.Map[part[j].Name] = name
			index.Metadata["total_size"] += part[j].End
		}
		if err := (&Writer{Metadata: w.Metadata, tensors: part, err: w.err}).WriteFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if i != files {
		return fmt.Errorf("%s: %d tensors make %d shards, not %d", dir, len(w.tensors), i, files)
	}
	text, err := json.MarshalIndent(&index, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), text, 0o644)
}
