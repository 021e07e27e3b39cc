// Package gguf reads and writes GGUF files, the container of the GGML project.
//
// The layout is that of ggml/include/gguf.h and ggml/src/gguf.cpp of llama.cpp, versions 2 and 3, little-endian: magic,
// version, tensor count, key count, the key-value pairs, the tensor infos, zero bytes up to the alignment, and the
// tensors' data. A model too large for one file is a split: parts named NAME-00001-of-0000N.gguf that are read as one.
//
// A file is outside data. Parse holds it to fixed bounds, allocates nothing from a count it has not checked against the
// bytes that are there, and refuses with one line that names the file, the key or tensor, the place, what was found and
// what is accepted.
package gguf

import (
	"slices"

	"splash/dequant"
)

// Bounds of the reader.
const (
	maxHeader        = 128 << 20 // bytes from the start of the file to the end of the tensor infos
	maxTensors       = 16384
	maxKeys          = 16384
	maxString        = 8 << 20   // bytes of one string
	maxKept          = 8 << 20   // bytes of all kept strings, those of tokenizer arrays aside
	maxTokenizer     = 1_000_000 // elements of an array of tokenizer.*
	maxHadamard      = 1 << 20   // elements of an array of prism.hadamard.*
	maxSmallArray    = 1024      // elements of any other numeric array that is kept
	maxNesting       = 16        // arrays within one another
	maxName          = 1024      // bytes of a tensor's name
	maxRank          = 4
	maxAlignment     = 65536
	defaultAlignment = 32
)

// Keys that are the container's own.
const (
	keyAlignment    = "general.alignment"
	keySplitNo      = "split.no"
	keySplitCount   = "split.count"
	keySplitTensors = "split.tensors.count"
)

// A Header is everything of a GGUF but its tensors' data: of one file, or of all parts of a split as one.
type Header struct {
	Name      string // of the file, as errors give it; of a split, its first part's
	Version   uint32
	Alignment int64
	DataStart int64 // where the data section starts in the file; of a split, that of the first part
	End       int64 // where the tensor infos end; nothing beyond it was needed to read the header
	Size      int64 // bytes of the file; of a split, of all parts

	Keys    []KeyValue // in file order; of a split, those of the first part
	Tensors []Tensor   // in file order, part after part

	Parts []*Header // the parts of a split as they were parsed; nil for a single file

	keys    map[string]int
	tensors map[string]int
}

// A Tensor is one tensor info. Dims[0] is the fastest dimension: a weight of N rows and K columns has dimensions [K, N].
type Tensor struct {
	Name   string
	Dims   []uint64
	Type   dequant.Type
	Offset uint64 // from the data start of its part
	Bytes  int64
	Part   int // index of the part that holds it, 0 for a single file
}

// Cols is the length of a row, the first dimension.
func (t *Tensor) Cols() int { return int(t.Dims[0]) }

// Rows is the number of rows, the product of the dimensions after the first.
func (t *Tensor) Rows() int { return int(product(t.Dims[1:])) }

// Elements is the number of values.
func (t *Tensor) Elements() int64 { return int64(product(t.Dims)) }

func product(dims []uint64) uint64 {
	n := uint64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// Tensor returns the tensor of that name, or nil.
func (h *Header) Tensor(name string) *Tensor {
	i, ok := h.tensors[name]
	if h.tensors == nil {
		i = slices.IndexFunc(h.Tensors, func(t Tensor) bool { return t.Name == name })
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return &h.Tensors[i]
}

// Key returns the key-value pair of that key, or nil.
func (h *Header) Key(key string) *KeyValue {
	i, ok := h.keys[key]
	if h.keys == nil {
		i = slices.IndexFunc(h.Keys, func(kv KeyValue) bool { return kv.Key == key })
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return &h.Keys[i]
}

// Part returns the header of the file that holds the tensors of that Tensor.Part.
func (h *Header) Part(i int) *Header {
	if h.Parts == nil {
		return h
	}
	return h.Parts[i]
}

// place returns the file that holds a tensor, and the range of its bytes there.
func (h *Header) place(t *Tensor) (part *Header, from, to int64) {
	part = h.Part(t.Part)
	from = part.DataStart + int64(t.Offset)
	return part, from, from + t.Bytes
}
