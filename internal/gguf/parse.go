package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"

	"splash/dequant"
)

// Options change what is kept of a header. The zero value keeps everything that Parse describes.
type Options struct {
	// SkipTokenizer keeps no arrays of tokenizer.* but numeric ones of at most 1024 elements. Their types and lengths
	// still stand, and the same bounds hold.
	SkipTokenizer bool

	// HeaderOnly takes a file that ends with its header, as one copied before a download does: tensors are not held to
	// the data that the file has.
	HeaderOnly bool

	window int // bytes read at once, where it is not chunk
}

// Parse reads the header of a file of size bytes from src: of a plain GGUF, or of one part of a split. Name stands for the
// file in errors. It reads in order, at most 1 MiB at once, nothing twice, and nothing more after a refusal; it may read
// up to 1 MiB beyond the header, where src need not hold the bytes that size promises.
func Parse(src io.ReaderAt, size int64, name string) (*Header, error) {
	return Options{}.Parse(src, size, name)
}

// Parse reads a header as the function Parse does.
func (o Options) Parse(src io.ReaderAt, size int64, name string) (*Header, error) {
	if size < 0 {
		return nil, fmt.Errorf("%s: a size of %d bytes is not one", name, size)
	}
	window := chunk
	if o.window > 0 {
		window = o.window
	}
	p := parser{
		reader:        newReader(src, size, name, window),
		skipTokenizer: o.SkipTokenizer,
		headerOnly:    o.HeaderOnly,
		h: &Header{
			Name: name, Size: size, Alignment: defaultAlignment,
			keys: make(map[string]int), tensors: make(map[string]int),
		},
	}
	p.parse()
	if p.err != nil {
		return nil, p.err
	}
	return p.h, nil
}

type parser struct {
	reader
	h             *Header
	skipTokenizer bool
	headerOnly    bool
	kept          int // bytes of kept strings
}

func (p *parser) parse() {
	tensors, keys := p.preamble()
	for i := 0; i < keys && p.err == nil; i++ {
		p.subject = subject{kind: "key", index: i}
		p.key()
	}
	for i := 0; i < tensors && p.err == nil; i++ {
		p.subject = subject{kind: "tensor", index: i}
		p.tensor()
	}
	if p.err == nil {
		p.h.End = p.pos()
		p.h.DataStart = (p.h.End + p.h.Alignment - 1) / p.h.Alignment * p.h.Alignment
		p.err = p.h.checkPlaces(p.headerOnly)
	}
}

// preamble reads magic, version and counts.
func (p *parser) preamble() (tensors, keys int) {
	p.subject = subject{kind: "magic", index: -1}
	if magic := p.uint32(); p.err == nil && magic != 0x46554747 {
		p.failf(0, "is %q; a GGUF begins with \"GGUF\"", binary.LittleEndian.AppendUint32(nil, magic))
	}
	p.subject.kind = "version"
	pos := p.pos()
	p.h.Version = p.uint32()
	switch v := p.h.Version; {
	case p.err != nil || v == 2 || v == 3:
	case v&0xffff == 0 && v != 0:
		p.failf(pos, "is %#x, that of a big-endian file; versions 2 and 3, little-endian, are accepted", v)
	default:
		p.failf(pos, "is %d; versions 2 and 3 are accepted", v)
	}
	tensors = p.count("tensor count", maxTensors)
	keys = p.count("key count", maxKeys)
	return tensors, keys
}

func (p *parser) count(what string, most uint64) int {
	p.subject.kind = what
	pos := p.pos()
	n := p.uint64()
	if n > most {
		p.failf(pos, "is %d; at most %d are accepted", n, most)
	}
	if p.err != nil {
		return 0
	}
	return int(n)
}

// identifier reads the name of a key or tensor: valid UTF-8, not empty, and new to seen. It enters the name there.
func (p *parser) identifier(seen map[string]int) (name string, ok bool) {
	pos := p.pos()
	name = p.text()
	switch {
	case p.err != nil:
		return "", false
	case name == "":
		p.failf(pos, "has an empty name")
	case p.subject.kind == "tensor" && len(name) > maxName:
		p.failf(pos, "has a name of %d bytes; at most %d are accepted", len(name), maxName)
	case !utf8.ValidString(name):
		p.failf(pos, "has the name %s, which is not UTF-8", quote(name))
	}
	if p.err != nil {
		return "", false
	}
	p.subject.name = name
	if _, ok := seen[name]; ok {
		p.failf(pos, "is there twice")
		return "", false
	}
	seen[name] = len(seen)
	return name, true
}

// key reads one key-value pair.
func (p *parser) key() {
	pos := p.pos()
	name, ok := p.identifier(p.h.keys)
	if !ok || !p.keep(pos, len(name)) {
		return
	}
	kv := KeyValue{Key: name, Kept: true}
	pos = p.pos()
	switch kv.Type = p.valueType("a value"); {
	case p.err != nil:
		return
	case kv.Type == TypeString:
		kv.text = p.text()
		if p.keep(pos, len(kv.text)) && !utf8.ValidString(kv.text) {
			p.failf(pos, "is a string that is not UTF-8")
		}
	case kv.Type == TypeArray:
		p.array(&kv)
	default:
		kv.data = p.append(nil, uint64(kv.Type.width()))
	}
	if p.err == nil && name == keyAlignment {
		p.alignment(&kv, pos)
	}
	p.h.Keys = append(p.h.Keys, kv)
}

// keep counts n bytes of a kept string.
func (p *parser) keep(pos int64, n int) bool {
	p.kept += n
	if p.err == nil && p.kept > maxKept {
		p.failf(pos, "brings the strings outside the tokenizer to %d bytes; at most %d are accepted", p.kept, maxKept)
	}
	return p.err == nil
}

// valueType reads the type of what, a value or elements.
func (p *parser) valueType(what string) ValueType {
	pos := p.pos()
	t := ValueType(p.uint32())
	if p.err == nil && t >= numTypes {
		p.failf(pos, "has %s of type %d; types 0 to %d are accepted", what, uint32(t), numTypes-1)
	}
	return t
}

func (p *parser) alignment(kv *KeyValue, pos int64) {
	if kv.Type != TypeUint32 {
		p.failf(pos, "is of type %s; a uint32 is accepted", kv.Type)
		return
	}
	a := integer(kv.Type, kv.data)
	if bits.OnesCount64(a) != 1 || a > maxAlignment {
		p.failf(pos, "is %d; powers of two from 1 to %d are accepted", a, maxAlignment)
		return
	}
	p.h.Alignment = int64(a)
}

// array reads an array, keeping its elements or not.
func (p *parser) array(kv *KeyValue) {
	pos := p.pos()
	kv.Elem = p.valueType("elements")
	count := p.uint64()
	if p.err != nil || !p.need(count, uint64(kv.Elem.smallest())) {
		return
	}
	keep, most := p.rule(kv, count)
	switch {
	case most > 0 && count > most:
		p.failf(pos, "has %d elements; at most %d are accepted", count, most)
		return
	case most > 0 && keep && kv.Elem == TypeArray:
		p.failf(pos, "is an array of arrays; numbers or strings are accepted")
		return
	}
	kv.Kept, kv.Len = keep, int(count)
	switch {
	case keep && kv.Elem == TypeString:
		kv.strings = p.strings(kv, pos)
	case keep:
		kv.data = p.append(nil, count*uint64(kv.Elem.width()))
	default:
		p.skipElements(kv.Elem, count, 1)
	}
}

// rule says whether an array's elements are kept and how many it may have, 0 for any number.
func (p *parser) rule(kv *KeyValue, count uint64) (keep bool, most uint64) {
	small := kv.Elem.width() > 0 && count <= maxSmallArray
	switch {
	case strings.HasPrefix(kv.Key, "prism.hadamard."):
		return true, maxHadamard
	case strings.HasPrefix(kv.Key, "tokenizer.") && kv.Elem != TypeArray:
		return small || !p.skipTokenizer, maxTokenizer
	}
	return small, 0
}

// strings reads the elements of an array of strings.
func (p *parser) strings(kv *KeyValue, pos int64) []string {
	counted := !strings.HasPrefix(kv.Key, "tokenizer.")
	s := slab{out: []string{}}
	for i := range kv.Len {
		from := len(s.bytes)
		s.bytes = p.append(s.bytes, p.length())
		if counted {
			p.keep(pos, len(s.bytes)-from)
		}
		if p.err == nil && !utf8.Valid(s.bytes[from:]) {
			p.failf(pos, "has an element, %d, that is not UTF-8", i)
		}
		if p.err != nil {
			return nil
		}
		s.add(kv.Len - i - 1)
	}
	return s.out
}

// skipElements passes over the elements of an array that lies within depth - 1 others.
func (p *parser) skipElements(t ValueType, count uint64, depth int) {
	if !p.need(count, uint64(t.smallest())) {
		return
	}
	if width := uint64(t.width()); width > 0 {
		p.skip(count * width)
		return
	}
	for ; count > 0 && p.err == nil; count-- {
		if t == TypeString {
			p.skip(p.length())
			continue
		}
		pos := p.pos()
		elem, n := p.valueType("elements"), p.uint64()
		if depth == maxNesting {
			p.failf(pos, "nests arrays deeper than %d", maxNesting)
		}
		p.skipElements(elem, n, depth+1)
	}
}

// tensor reads one tensor info.
func (p *parser) tensor() {
	pos := p.pos()
	name, ok := p.identifier(p.h.tensors)
	if !ok {
		return
	}
	t := Tensor{Name: name}
	rank := p.uint32()
	if p.err == nil && (rank < 1 || rank > maxRank) {
		p.failf(pos, "has rank %d; 1 to %d are accepted", rank, maxRank)
	}
	if p.err != nil {
		return
	}
	t.Dims = make([]uint64, rank)
	for i := range t.Dims {
		t.Dims[i] = p.uint64()
	}
	t.Type = dequant.Type(p.uint32())
	t.Offset = p.uint64()
	if p.err == nil {
		p.measure(&t, pos)
	}
	p.h.Tensors = append(p.h.Tensors, t)
}

// measure checks dimensions and type, and sets the tensor's size.
func (p *parser) measure(t *Tensor, pos int64) {
	elements := uint64(1)
	for i, d := range t.Dims {
		if d == 0 {
			p.failf(pos, "has dimension %d of %d zero; at least 1 is accepted", i+1, len(t.Dims))
			return
		}
		high, low := bits.Mul64(elements, d)
		if high != 0 || low > math.MaxInt64 {
			p.failf(pos, "has dimensions %d; a product of at most 2^63-1 is accepted", t.Dims)
			return
		}
		elements = low
	}
	format := dequant.Lookup(t.Type)
	if format == nil {
		p.failf(pos, "has unknown ggml type %d", uint32(t.Type))
		return
	}
	block := uint64(format.Block)
	if t.Dims[0]%block != 0 {
		p.failf(pos, "has %d columns; %s takes a multiple of %d", t.Dims[0], format.Name, block)
		return
	}
	high, size := bits.Mul64(elements/block, uint64(format.Bytes))
	if high != 0 || size > math.MaxInt64 {
		p.failf(pos, "has dimensions %d of %s; at most 2^63-1 bytes are accepted", t.Dims, format.Name)
		return
	}
	t.Bytes = int64(size)
}

// checkPlaces holds offsets and sizes to the data that the file has. A file without tensors may end unpadded.
func (h *Header) checkPlaces(headerOnly bool) error {
	data := uint64(max(0, h.Size-h.DataStart))
	if headerOnly {
		data = math.MaxInt64
	}
	order := make([]*Tensor, len(h.Tensors))
	for i := range h.Tensors {
		t := &h.Tensors[i]
		order[i] = t
		if t.Offset%uint64(h.Alignment) != 0 {
			return fmt.Errorf("%s: tensor %s at offset %d of the data is not aligned; multiples of %d are accepted",
				h.Name, quote(t.Name), t.Offset, h.Alignment)
		}
		if t.Offset > data || uint64(t.Bytes) > data-t.Offset {
			return fmt.Errorf("%s: tensor %s has %d bytes at offset %d of the data, which is %d bytes long",
				h.Name, quote(t.Name), t.Bytes, t.Offset, data)
		}
	}
	slices.SortStableFunc(order, func(a, b *Tensor) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; b.Offset < a.Offset+uint64(a.Bytes) {
			return fmt.Errorf("%s: tensor %s at offset %d of the data overlaps %s, %d bytes at offset %d",
				h.Name, quote(b.Name), b.Offset, quote(a.Name), a.Bytes, a.Offset)
		}
	}
	return nil
}
