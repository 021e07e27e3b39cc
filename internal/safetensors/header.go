// Package safetensors reads checkpoints of the safetensors container: the headers of its files, checked against limits
// before anything is allocated, and the tensors' bytes in place.
//
// The container: a u64 header length, that many bytes of JSON which maps each tensor's name to its dtype, shape and
// offsets, then the data (huggingface/safetensors, README).
package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Limits of one file and of a checkpoint.
const (
	MaxHeader           = 64 << 20
	MaxCheckpointHeader = 256 << 20
	MaxTensors          = 1 << 20
	MaxShards           = 1024
	MaxName             = 1024
	MaxRank             = 8
)

// A DType is the element type of a tensor, by its name in the header. An unknown one is kept, and has no size.
type DType string

// Element types.
const (
	Bool   DType = "BOOL"
	I8     DType = "I8"
	U8     DType = "U8"
	F8E4M3 DType = "F8_E4M3"
	F8E5M2 DType = "F8_E5M2"
	F8E8M0 DType = "F8_E8M0"
	BF16   DType = "BF16"
	F16    DType = "F16"
	I16    DType = "I16"
	U16    DType = "U16"
	F32    DType = "F32"
	I32    DType = "I32"
	U32    DType = "U32"
	F64    DType = "F64"
	I64    DType = "I64"
	U64    DType = "U64"
)

// dtypes lists the known types, so that a header's names need no memory of their own.
var dtypes = [...]struct {
	dtype DType
	bytes int64
}{
	{Bool, 1}, {I8, 1}, {U8, 1}, {F8E4M3, 1}, {F8E5M2, 1}, {F8E8M0, 1}, {BF16, 2}, {F16, 2}, {I16, 2}, {U16, 2},
	{F32, 4}, {I32, 4}, {U32, 4}, {F64, 8}, {I64, 8}, {U64, 8},
}

// Bytes is the size of an element, or 0 for an unknown type.
func (d DType) Bytes() int64 {
	for i := range dtypes {
		if dtypes[i].dtype == d {
			return dtypes[i].bytes
		}
	}
	return 0
}

// A Header is what one file says of its tensors.
type Header struct {
	Name      string // of the file, for errors
	Size      int64  // bytes of the file
	DataStart int64  // where the data begins
	Tensors   []Tensor
}

// A Tensor is one tensor of a file.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int64 // outermost first
	Begin, End int64   // bytes of the file's data
	File       int     // index of the checkpoint's file
}

// Elements is the number of elements.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the tensor.
func (t *Tensor) Bytes() int64 { return t.End - t.Begin }

// Parse reads a file's header. It reads no tensor, so the file may be one that is not here: size is what its server
// states. Errors name the file, the tensor, what was found and what is accepted.
func Parse(r io.ReaderAt, size int64, name string) (*Header, error) {
	h := &Header{Name: name, Size: size}
	if err := h.parse(r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

func (h *Header) parse(r io.ReaderAt) error {
	var length [8]byte
	if h.Size < 8 {
		return fmt.Errorf("truncated safetensors file: %d bytes, at least 8", h.Size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return fmt.Errorf("truncated safetensors file: %w", noEOF(err))
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n == 0 || n > uint64(h.Size-8) {
		return fmt.Errorf("safetensors header exceeds bounds: %d bytes, from 1 to the %d that follow", n, h.Size-8)
	}
	if n > MaxHeader {
		return fmt.Errorf("safetensors header exceeds bounds: %d bytes, at most %d", n, MaxHeader)
	}
	data := make([]byte, n)
	if _, err := r.ReadAt(data, 8); err != nil && err != io.EOF {
		return fmt.Errorf("truncated safetensors file: %w", err)
	} else if err == io.EOF && h.Size > int64(n)+8 {
		return fmt.Errorf("truncated safetensors file: %w", noEOF(err))
	}
	h.DataStart = 8 + int64(n)
	if err := h.tensors(&scanner{data: data}); err != nil {
		return err
	}
	return h.overlap()
}

// noEOF says that a file ended before its size.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// tensors reads the header's object.
func (h *Header) tensors(s *scanner) error {
	seen := map[string]bool{}
	err := s.members(func(name string) error {
		if seen[name] {
			return fmt.Errorf("%s appears twice in the header", clip(name))
		}
		seen[name] = true
		if name == "__metadata__" {
			return s.skip(0)
		}
		if len(name) == 0 || len(name) > MaxName {
			return fmt.Errorf("a tensor name of %d bytes, from 1 to %d", len(name), MaxName)
		}
		if len(h.Tensors) == MaxTensors {
			return fmt.Errorf("more than %d tensors", MaxTensors)
		}
		t, err := h.tensor(s, name)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", clip(name), err)
		}
		h.Tensors = append(h.Tensors, t)
		return nil
	})
	if err != nil {
		return err
	}
	if s.next(); s.pos != len(s.data) {
		return s.errorf("%w: something follows the object", errSyntax)
	}
	return nil
}

// clip is a name for a message: short, and quoted where it is not plainly printable.
func clip(name string) string {
	if len(name) > 200 {
		name = name[:200] + "..."
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			return strconv.Quote(name)
		}
	}
	return name
}

// tensor reads one tensor's object and checks it.
func (h *Header) tensor(s *scanner, name string) (Tensor, error) {
	t := Tensor{Name: name}
	var dtype, shape, offsets bool
	err := s.members(func(key string) error {
		var seen *bool
		switch key {
		case "dtype":
			seen = &dtype
		case "shape":
			seen = &shape
		case "data_offsets":
			seen = &offsets
		default:
			return s.skip(0)
		}
		if *seen {
			return fmt.Errorf("%s appears twice", key)
		}
		*seen = true
		return t.field(s, key)
	})
	switch {
	case err != nil:
		return t, err
	case !dtype:
		return t, fmt.Errorf("no dtype")
	case !shape:
		return t, fmt.Errorf("no shape")
	case !offsets:
		return t, fmt.Errorf("no data_offsets")
	}
	return t, t.check(h.Size - h.DataStart)
}

// field reads the value of one key of a tensor's object.
func (t *Tensor) field(s *scanner, key string) error {
	switch key {
	case "dtype":
		s.next()
		name, err := s.text()
		if err != nil {
			return fmt.Errorf("dtype: %w", err)
		}
		t.DType = intern(name)
		if len(name) > 64 {
			return fmt.Errorf("a dtype of %d bytes", len(name))
		}
		return nil
	case "shape":
		var dims [MaxRank]int64
		n, err := s.integers(dims[:])
		if err != nil {
			return fmt.Errorf("shape: %w", err)
		}
		t.Shape = slices.Clone(dims[:n])
		return nil
	default:
		var ends [2]int64
		n, err := s.integers(ends[:])
		if err != nil {
			return fmt.Errorf("data_offsets: %w", err)
		}
		if n != 2 {
			return fmt.Errorf("data_offsets: %d integers, expected 2", n)
		}
		t.Begin, t.End = ends[0], ends[1]
		return nil
	}
}

func intern(name string) DType {
	for i := range dtypes {
		if string(dtypes[i].dtype) == name {
			return dtypes[i].dtype
		}
	}
	return DType(name)
}

// integers reads an array of at most len(dst) integers.
func (s *scanner) integers(dst []int64) (int, error) {
	n := 0
	err := s.list('[', ']', func() error {
		if n == len(dst) {
			return s.errorf("more than %d integers", len(dst))
		}
		v, err := s.integer()
		dst[n] = v
		n++
		return err
	})
	return n, err
}

// check holds the tensor's bytes to its shape and to the file's data.
func (t *Tensor) check(data int64) error {
	if t.Begin > t.End || t.End > data {
		return fmt.Errorf("data_offsets [%d, %d] lie outside the %d bytes of data", t.Begin, t.End, data)
	}
	size := t.DType.Bytes()
	if size == 0 {
		return nil // refused by name when it is needed
	}
	for _, d := range t.Shape {
		if d != 0 && size > (1<<63-1)/d {
			return fmt.Errorf("shape %v of %s overflows", t.Shape, t.DType)
		}
		size *= d
	}
	if size != t.End-t.Begin {
		return fmt.Errorf("data_offsets [%d, %d] hold %d bytes, %s %v is %d",
			t.Begin, t.End, t.End-t.Begin, t.DType, t.Shape, size)
	}
	return nil
}

// overlap refuses tensors that share bytes. Gaps are accepted.
func (h *Header) overlap() error {
	order := make([]int32, 0, len(h.Tensors))
	for i := range h.Tensors {
		if h.Tensors[i].Begin < h.Tensors[i].End {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(h.Tensors[a].Begin, h.Tensors[b].Begin) })
	for i := 1; i < len(order); i++ {
		a, b := &h.Tensors[order[i-1]], &h.Tensors[order[i]]
		if b.Begin < a.End {
			return fmt.Errorf("tensors %s and %s overlap: [%d, %d] and [%d, %d]",
				clip(a.Name), clip(b.Name), a.Begin, a.End, b.Begin, b.End)
		}
	}
	return nil
}
