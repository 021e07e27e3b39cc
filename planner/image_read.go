package planner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"splash/dequant"
	"splash/internal/filemap"
)

// CheckImage holds the bytes of an image to its plan: size, magic, layer, type, and every descriptor against the format
// table and the expected shape and totals. It reads a few bytes a tensor.
func CheckImage(r io.ReaderAt, size int64, m *Image) error {
	if size != m.Size {
		return fmt.Errorf("%s: %d bytes, expected %d", m.Name, size, m.Size)
	}
	var h [imageHeaderSize]byte
	if err := readAt(r, h[:], 0); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if string(h[:8]) != imageMagic {
		return fmt.Errorf("%s: not a weight image: it starts with %q, not %s", m.Name, h[:8], imageMagic)
	}
	layer, kind := binary.LittleEndian.Uint32(h[8:]), binary.LittleEndian.Uint32(h[12:])
	if layer != m.Layer || kind != m.Type {
		return fmt.Errorf("%s: layer %d of type %d, expected layer %d of type %d", m.Name, layer, kind, m.Layer, m.Type)
	}
	for i := range m.Tensors {
		if err := checkDescriptor(r, &m.Tensors[i], size); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// checkDescriptor holds a tensor's descriptor to the plan, and its sections to the image.
func checkDescriptor(r io.ReaderAt, t *ImageTensor, size int64) error {
	for _, s := range []Section{t.Descriptor, t.Plane0, t.Plane1, t.Meta} {
		if s.Offset < 0 || s.Size < 0 || s.Offset > size || s.Size > size-s.Offset {
			return fmt.Errorf("%s: a section of %d bytes at %d is past the image's %d", t.Name, s.Size, s.Offset, size)
		}
	}
	if t.Form == Bare {
		return nil
	}
	var got [descriptorSize]byte
	if err := readAt(r, got[:], t.Descriptor.Offset); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	want := t.descriptor()
	if got == want {
		return nil
	}
	fields := [...]string{"type", "rows", "columns", "plane 0 unit", "plane 1 unit", "meta unit", "groups", "reserved field",
		"plane 0 bytes", "plane 1 bytes", "meta bytes"}
	for i, name := range fields {
		if g, w := descriptorField(got, i), descriptorField(want, i); g != w {
			return fmt.Errorf("%s: the descriptor's %s is %d, expected %d", t.Name, name, g, w)
		}
	}
	return fmt.Errorf("%s: descriptor %x, expected %x", t.Name, got, want)
}

// descriptorField is field i of a descriptor: eight of 4 bytes, then three of 8.
func descriptorField(d [descriptorSize]byte, i int) uint64 {
	if i < 8 {
		return uint64(binary.LittleEndian.Uint32(d[4*i:]))
	}
	return binary.LittleEndian.Uint64(d[8*i-32:])
}

func readAt(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("truncated at byte %d", at+int64(n))
	}
	return err
}

// An ImageFile is an image in memory.
type ImageFile struct {
	*Image
	Data []byte // the whole image, mapped read-only; its start is page aligned

	unmap func() error
}

// OpenImage maps an image file and holds it to its plan.
func OpenImage(path string, m *Image) (*ImageFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := CheckImage(f, info.Size(), m); err != nil {
		return nil, err
	}
	data, err := filemap.Map(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &ImageFile{Image: m, Data: data, unmap: func() error { return filemap.Unmap(data) }}, nil
}

// ParseImage is the image whose bytes are data, held to its plan.
func ParseImage(data []byte, m *Image) (*ImageFile, error) {
	if err := CheckImage(bytes.NewReader(data), int64(len(data)), m); err != nil {
		return nil, err
	}
	return &ImageFile{Image: m, Data: data}, nil
}

// Close gives the memory back. Data is not to be used after it.
func (f *ImageFile) Close() error {
	if f.unmap == nil {
		return nil
	}
	unmap := f.unmap
	f.unmap, f.Data = nil, nil
	return unmap()
}

// Bytes is a section's bytes.
func (f *ImageFile) Bytes(s Section) []byte { return f.Data[s.Offset:s.end():s.end()] }

// DecodeRow writes the values of a row of a tensor of the image to dst, which must hold its columns. They are the values
// that dequant has of the source, converted as the plan says.
func (f *ImageFile) DecodeRow(t *ImageTensor, dst []float32, row int) {
	if row < 0 || row >= t.Rows || len(dst) != t.Cols {
		panic(fmt.Sprintf("planner: row %d in %d elements of %s, [%d, %d]", row, len(dst), t.Name, t.Rows, t.Cols))
	}
	if t.Form != Planes {
		n := t.RowBytes()
		dequant.Lookup(t.Type).Decode(dst, f.Bytes(t.Plane0)[row*n:][:n])
		return
	}
	format := LookupImage(t.Type)
	plane0, plane1, meta := f.Bytes(t.Plane0), f.Bytes(t.Plane1), f.Bytes(t.Meta)
	groups, units := t.Cols/groupSize, t.Cols/format.Block
	var values [groupSize]float32
	for g := range groups {
		at, unit := tileIndex(row, g, groups), tileIndex(row, g/format.Groups(), units)
		p0 := plane0[at*int64(format.Plane0):][:format.Plane0]
		p1 := plane1[at*int64(format.Plane1):][:format.Plane1]
		format.values(&values, p0, p1, meta[unit*int64(format.Meta):][:format.Meta], g%format.Groups())
		copy(dst[g*groupSize:], values[:])
	}
}
