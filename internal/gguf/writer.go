package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"splash/dequant"
)

// A Writer makes GGUF files, for fixtures. Keys and tensors are written in the order they were given. The first value that
// cannot be written is reported when the file is.
//
// WriteTo writes what it was told, legal or not; WriteFile and WriteSplit publish only files that Parse accepts.
type Writer struct {
	Version uint32 // 0 writes version 3

	keys    []pair
	tensors []source
	err     error
}

type pair struct {
	key   string
	value []byte // type and value
}

// A source is a tensor to be written. Offsets are set when the file is laid out.
type source struct {
	Tensor
	data io.Reader // nil: zeros
}

// Set adds a key, or changes the value of one that is there. The value's Go type decides the value type: uint8 to uint64,
// int8 to int64, float32, float64, bool, string, or a slice of those; a slice of slices is an array of arrays. A uint32
// general.alignment aligns the tensors too.
func (w *Writer) Set(key string, value any) {
	v := reflect.ValueOf(value)
	t, err := typeOf(v)
	if err != nil {
		w.fail(fmt.Errorf("key %s: %w", quote(key), err))
		return
	}
	b := appendValue(binary.LittleEndian.AppendUint32(nil, uint32(t)), v)
	if i := slices.IndexFunc(w.keys, func(p pair) bool { return p.key == key }); i >= 0 {
		w.keys[i].value = b
		return
	}
	w.keys = append(w.keys, pair{key, b})
}

// Add adds a tensor whose bytes are read from data when the file is written; nil gives zeros, which take no room on disk
// where the system has sparse files.
func (w *Writer) Add(name string, t dequant.Type, dims []uint64, data io.Reader) {
	format := dequant.Lookup(t)
	if format == nil || len(dims) == 0 || dims[0]%uint64(format.Block) != 0 {
		w.fail(fmt.Errorf("tensor %s: dimensions %d are no whole blocks of %s", quote(name), dims, t))
		return
	}
	size := int64(product(dims) / uint64(format.Block) * uint64(format.Bytes))
	w.tensors = append(w.tensors, source{Tensor{Name: name, Dims: slices.Clone(dims), Type: t, Bytes: size}, data})
}

// AddBytes adds a tensor of those bytes.
func (w *Writer) AddBytes(name string, t dequant.Type, dims []uint64, data []byte) {
	w.Add(name, t, dims, bytes.NewReader(data))
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// WriteTo writes the file to out. The tensors' data is consumed.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	return w.write(out, func(n int64) error {
		_, err := io.CopyN(out, zeros{}, n)
		return err
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// write writes the file to out, and has hole write the zeros of tensors without data.
func (w *Writer) write(out io.Writer, hole func(int64) error) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	alignment := w.alignment()
	header := w.header(alignment)
	if len(w.tensors) > 0 {
		header = append(header, make([]byte, padding(int64(len(header)), alignment))...)
	}
	if _, err := out.Write(header); err != nil {
		return 0, err
	}
	total := int64(len(header))
	for i := range w.tensors {
		t := &w.tensors[i]
		if err := t.copy(out, hole); err != nil {
			return total, fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
		pad := padding(t.Bytes, alignment)
		if _, err := out.Write(make([]byte, pad)); err != nil {
			return total, err
		}
		total += t.Bytes + pad
	}
	return total, nil
}

// copy writes the tensor's data, which must be of its size.
func (s *source) copy(out io.Writer, hole func(int64) error) error {
	if s.data == nil {
		return hole(s.Bytes)
	}
	n, err := io.CopyN(out, s.data, s.Bytes)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("its data ends after %d of %d bytes", n, s.Bytes)
	}
	if err != nil {
		return err
	}
	if n, err := io.CopyN(io.Discard, s.data, 1); n > 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("its data goes on after %d bytes", s.Bytes)
	}
	return nil
}

// alignment is that of general.alignment, where the key can be one.
func (w *Writer) alignment() int64 {
	for _, p := range w.keys {
		if p.key == keyAlignment && len(p.value) == 8 {
			return max(1, int64(binary.LittleEndian.Uint32(p.value[4:])))
		}
	}
	return defaultAlignment
}

func padding(size, alignment int64) int64 { return (alignment - size%alignment) % alignment }

// header lays the tensors out and returns everything before their data but the padding.
func (w *Writer) header(alignment int64) []byte {
	version := w.Version
	if version == 0 {
		version = 3
	}
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.keys)))
	for _, p := range w.keys {
		b = append(appendString(b, p.key), p.value...)
	}
	var offset int64
	for i := range w.tensors {
		t := &w.tensors[i]
		t.Offset = uint64(offset)
		offset += t.Bytes + padding(t.Bytes, alignment)
		b = binary.LittleEndian.AppendUint32(appendString(b, t.Name), uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, t.Offset)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

var typeOfKind = map[reflect.Kind]ValueType{
	reflect.Uint8: TypeUint8, reflect.Int8: TypeInt8, reflect.Uint16: TypeUint16, reflect.Int16: TypeInt16,
	reflect.Uint32: TypeUint32, reflect.Int32: TypeInt32, reflect.Float32: TypeFloat32, reflect.Bool: TypeBool,
	reflect.String: TypeString, reflect.Slice: TypeArray, reflect.Uint64: TypeUint64, reflect.Int64: TypeInt64,
	reflect.Float64: TypeFloat64,
}

// typeOf is the value type of a Go value, whose elements must have one too.
func typeOf(v reflect.Value) (ValueType, error) {
	if !v.IsValid() {
		return 0, fmt.Errorf("nil is no GGUF value")
	}
	elem := v.Type()
	for elem.Kind() == reflect.Slice {
		elem = elem.Elem()
	}
	if _, ok := typeOfKind[elem.Kind()]; !ok {
		return 0, fmt.Errorf("%s has no GGUF value type; sized integers, floats, bool, string and slices of them do", v.Type())
	}
	return typeOfKind[v.Kind()], nil
}

// appendValue appends a value that typeOf accepts, without its type.
func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Slice:
		b = binary.LittleEndian.AppendUint32(b, uint32(typeOfKind[v.Type().Elem().Kind()]))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.Len()))
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	}
	b, err := binary.Append(b, binary.LittleEndian, v.Interface())
	if err != nil {
		panic(err) // every other kind has a fixed size
	}
	return b
}

// WriteFile writes the file and then puts it at path, whole or not at all.
func (w *Writer) WriteFile(path string) error {
	return publish([]*Writer{w}, []string{path})
}

// WriteSplit writes the tensors as a split: the first counts[0] in part 1, which has all keys, and so on. Its parts are
// prefix-00001-of-0000N.gguf; they have the keys split.no, split.count (uint16) and split.tensors.count (int32) that
// llama.cpp's splitter writes, and the alignment. It returns their paths.
func (w *Writer) WriteSplit(prefix string, counts ...int) ([]string, error) {
	if len(counts) == 0 {
		return nil, fmt.Errorf("a split of no parts")
	}
	var parts []*Writer
	var paths []string
	rest := w.tensors
	for i, count := range counts {
		if count < 0 || count > len(rest) {
			return nil, fmt.Errorf("part %d of %d of %d tensors cannot take %d", i+1, len(counts), len(w.tensors), count)
		}
		part := &Writer{Version: w.Version, err: w.err, tensors: rest[:count]}
		rest = rest[count:]
		for _, p := range w.keys {
			if i == 0 || p.key == keyAlignment {
				part.keys = append(part.keys, p)
			}
		}
		part.Set(keySplitNo, uint16(i))
		part.Set(keySplitCount, uint16(len(counts)))
		part.Set(keySplitTensors, int32(len(w.tensors)))
		parts = append(parts, part)
		paths = append(paths, PartName(prefix, i+1, len(counts)))
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d parts leave %d of %d tensors", len(counts), len(rest), len(w.tensors))
	}
	return paths, publish(parts, paths)
}

// publish writes every file beside its place, checks that they can be read as one, and only then renames them.
func publish(writers []*Writer, paths []string) error {
	var temps []string
	defer func() {
		for _, temp := range temps {
			os.Remove(temp) // those that were renamed are gone
		}
	}()
	var headers []*Header
	for i, w := range writers {
		temp, header, err := w.writeTemp(paths[i])
		if temp != "" {
			temps = append(temps, temp)
		}
		if err != nil {
			return err
		}
		headers = append(headers, header)
	}
	if _, err := Join(headers); err != nil {
		return err
	}
	for i, temp := range temps {
		if err := os.Rename(temp, paths[i]); err != nil {
			return err
		}
	}
	return syncFolder(filepath.Dir(paths[0]))
}

// writeTemp writes the file beside path, to the disk, and reads its header back. It returns the name of what it created
// even when it fails.
func (w *Writer) writeTemp(path string) (temp string, header *Header, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := w.write(file, func(n int64) error {
		_, err := file.Seek(n, io.SeekCurrent)
		return err
	})
	if err != nil {
		return file.Name(), nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, step := range []func() error{
		func() error { return file.Truncate(size) }, // a hole at the end
		func() error { return file.Chmod(0o644) },
		file.Sync,
	} {
		if err := step(); err != nil {
			return file.Name(), nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	header, err = Parse(file, size, path)
	return file.Name(), header, err
}
