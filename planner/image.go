package planner

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"

	"splash/dequant"
)

// A weight image, MDGG0001, is what a backend with planes maps into memory: a header of 16 bytes, then sections, each at
// a multiple of 16 KiB. A tensor is one section of rows, a descriptor and rows, or a descriptor, one or two planes and
// meta units (formats.md 5).
const (
	imageMagic       = "MDGG0001"
	imageHeaderSize  = 16
	sectionAlignment = 16384
	descriptorSize   = 56
)

// imageRevision is part of every plan's digest. It goes up when the writer writes other bytes for a plan than it did, so
// that images of before are made anew.
const imageRevision = 1

// Types of images. The embedding image has the hidden size in their place, and the vocabulary's in the layer's.
const (
	imageGDN        = 0 // also every layer of a draft
	imageAttention  = 1
	imageDraftModel = 1
	imageHead       = 2
	imagePLE        = 3
)

// A Form is the way a tensor stands in an image.
type Form int

// The three forms of formats.md 5.1.
const (
	Planes    Form = iota // descriptor, plane 0, plane 1 where the format has one, meta units
	Described             // descriptor, rows
	Bare                  // rows alone
)

// String is the form's name in plans.
func (f Form) String() string { return [...]string{"planes", "described rows", "rows"}[f] }

// A Section is a run of bytes of an image.
type Section struct{ Offset, Size int64 }

func (s Section) end() int64 { return s.Offset + s.Size }

// An ImageTensor is a tensor of an image: its rows as the network orders them, every expert's and those that pad it to
// whole tiles included.
type ImageTensor struct {
	Name string
	Form Form
	Type dequant.Type // of planes, native rows or single values
	Rows int
	Cols int

	// Parts are the plan's tensors whose rows follow one another here. Rows beyond theirs are zero.
	Parts []*Tensor

	Descriptor Section // none in bare rows
	Plane0     Section // in Described and Bare: the rows
	Plane1     Section
	Meta       Section
}

// RowBytes is the size of a row of a tensor that is not planes.
func (t *ImageTensor) RowBytes() int { return dequant.Lookup(t.Type).RowBytes(t.Cols) }

// An Image is one file of a target's or a draft's weights.
type Image struct {
	Name    string // of the file: "layer-3.bin"
	Layer   uint32
	Type    uint32
	Tensors []ImageTensor
	Size    int64
}

// Tensor returns the tensor that holds the rows of the plan's tensor of that name, or nil.
func (m *Image) Tensor(name string) *ImageTensor {
	for i := range m.Tensors {
		if t := &m.Tensors[i]; t.Name == name {
			return t
		}
	}
	for i := range m.Tensors {
		for _, part := range m.Tensors[i].Parts {
			if part.Name == name {
				return &m.Tensors[i]
			}
		}
	}
	return nil
}

// header is the first bytes of the image.
func (m *Image) header() [imageHeaderSize]byte {
	var h [imageHeaderSize]byte
	copy(h[:], imageMagic)
	binary.LittleEndian.PutUint32(h[8:], m.Layer)
	binary.LittleEndian.PutUint32(h[12:], m.Type)
	return h
}

// descriptor is the 56 bytes of formats.md 5.2.
func (t *ImageTensor) descriptor() [descriptorSize]byte {
	fields := [8]uint32{uint32(t.Type), uint32(t.Rows), uint32(t.Cols)}
	if t.Form == Planes {
		f := LookupImage(t.Type)
		fields[3], fields[4] = uint32(f.Plane0), uint32(f.Plane1)
		fields[5], fields[6] = uint32(f.Meta), uint32(f.Groups())
	}
	var d [descriptorSize]byte
	for i, v := range fields {
		binary.LittleEndian.PutUint32(d[4*i:], v)
	}
	binary.LittleEndian.PutUint64(d[32:], uint64(t.Plane0.Size))
	binary.LittleEndian.PutUint64(d[40:], uint64(t.Plane1.Size))
	binary.LittleEndian.PutUint64(d[48:], uint64(t.Meta.Size))
	return d
}

// tileIndex is the place of unit b of row n among the units of a plane whose rows have units units: tiles of 64 rows,
// in them the units in order, in each unit its 64 rows.
func tileIndex(n, b, units int) int64 {
	return (int64(n/tileRows)*int64(units)+int64(b))*tileRows + int64(n%tileRows)
}

// An ImagePlan is what the images of a target or draft hold, and where: known from its plan alone.
type ImagePlan struct{ Images []Image }

// Size is the bytes of every image together.
func (p *ImagePlan) Size() int64 {
	var n int64
	for i := range p.Images {
		n += p.Images[i].Size
	}
	return n
}

// Image returns the image of that file name, or nil.
func (p *ImagePlan) Image(name string) *Image {
	for i := range p.Images {
		if p.Images[i].Name == name {
			return &p.Images[i]
		}
	}
	return nil
}

// Digest names everything that decides the images' bytes but for the weights themselves. Images of one source and one
// digest are equal.
func (p *ImagePlan) Digest() string {
	h := sha256.New()
	fmt.Fprintln(h, imageMagic, imageRevision, tileRows)
	e := json.NewEncoder(h) // an encoder of plain values into a hash does not fail
	for i := range p.Images {
		m := &p.Images[i]
		fmt.Fprintln(h, m.Name, m.Layer, m.Type, m.Size, len(m.Tensors))
		for k := range m.Tensors {
			t := m.Tensors[k]
			fmt.Fprintln(h, t.Name, t.Form, uint32(t.Type), t.Rows, t.Cols, t.Plane0, t.Plane1, t.Meta)
			for _, p := range t.Parts {
				unsigned := *p // a rotation's signs apply to inputs, not to the bytes here
				unsigned.Signs = nil
				_ = e.Encode(unsigned)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// maxRow bounds the bytes of a row that is written whole, and so the memory of the writer.
const maxRow = 1 << 20

// A placer lays the tensors of one image one after another.
type placer struct {
	image *Image
	end   int64
}

func placeImage(m *Image) *placer { return &placer{image: m, end: imageHeaderSize} }

// section takes the next section of so many bytes.
func (p *placer) section(size int64) Section {
	s := Section{Offset: alignSection(p.end), Size: size}
	p.end = s.end()
	p.image.Size = alignSection(p.end)
	return s
}

func alignSection(n int64) int64 { return (n + sectionAlignment - 1) &^ (sectionAlignment - 1) }

// add places a tensor whose parts, type and form are set. pad says that its rows may be padded to whole tiles.
func (p *placer) add(t ImageTensor, pad bool) error {
	rows, err := stackedRows(&t)
	if err != nil {
		return err
	}
	t.Rows, t.Cols = rows, t.Parts[0].Cols
	if t.Form == Planes {
		if pad {
			t.Rows = (rows + tileRows - 1) / tileRows * tileRows
		}
		err = p.planes(&t, pad)
	} else {
		err = p.rows(&t)
	}
	if err != nil {
		return err
	}
	p.image.Tensors = append(p.image.Tensors, t)
	return nil
}

// stackedRows is the rows of the parts together, experts stacked.
func stackedRows(t *ImageTensor) (int, error) {
	var rows int64
	for _, part := range t.Parts {
		if part.Rows <= 0 || part.Cols <= 0 || part.Experts < 0 || part.Cols != t.Parts[0].Cols {
			return 0, fmt.Errorf("unexpected shape for %s: [%d, %d]", part.Name, part.Rows, part.Cols)
		}
		n, ok := mulSize(int64(part.Rows), int64(max(1, part.Experts)))
		if rows += n; !ok || rows > math.MaxUint32 || part.Cols > math.MaxUint32 {
			return 0, fmt.Errorf("%s is too large for an image: %d x [%d, %d]", part.Name, max(1, part.Experts), part.Rows,
				part.Cols)
		}
	}
	return int(rows), nil
}

// planes places a descriptor and the planes of the tensor's format.
func (p *placer) planes(t *ImageTensor, padded bool) error {
	f := LookupImage(t.Type)
	if f == nil {
		return fmt.Errorf("%s is %s, which has no planes", t.Name, t.Type)
	}
	t.Type = f.Type
	for _, part := range t.Parts {
		if !padded && part.Rows%tileRows != 0 || t.Cols%f.Columns() != 0 {
			return fmt.Errorf("tensor is not tile aligned: %s is [%d, %d] in %s; its planes take rows in tiles of %d and "+
				"columns in units of %d", part.Name, part.Rows, part.Cols, f.Name, tileRows, f.Columns())
		}
	}
	groups, ok := mulSize(int64(t.Rows), int64(t.Cols/groupSize))
	if !ok || groups > maxImage/int64(f.Plane0) {
		return fmt.Errorf("%s is too large for an image: [%d, %d]", t.Name, t.Rows, t.Cols)
	}
	t.Descriptor = p.section(descriptorSize)
	t.Plane0 = p.section(groups * int64(f.Plane0))
	if f.Plane1 > 0 {
		t.Plane1 = p.section(groups * int64(f.Plane1))
	}
	t.Meta = p.section(groups / int64(f.Groups()) * int64(f.Meta))
	return nil
}

// rows places the rows of a tensor, after a descriptor where its form has one.
func (p *placer) rows(t *ImageTensor) error {
	f := dequant.Lookup(t.Type)
	if f == nil {
		return fmt.Errorf("%s is of unknown %s", t.Name, t.Type)
	}
	if t.Cols%f.Block != 0 {
		return fmt.Errorf("%s's rows of %d are not whole %s blocks of %d elements", t.Name, t.Cols, f.Name, f.Block)
	}
	size, ok := mulSize(int64(t.Rows), int64(t.RowBytes()))
	if !ok || size > maxImage || 4*t.Cols > maxRow {
		return fmt.Errorf("%s is too large for an image: [%d, %d]", t.Name, t.Rows, t.Cols)
	}
	if t.Form == Described {
		t.Descriptor = p.section(descriptorSize)
	}
	t.Plane0 = p.section(size)
	return nil
}

// maxImage bounds a plane's bytes, so that sums of sections stay far from overflow.
const maxImage = 1 << 50

// mulSize multiplies sizes that are not negative and reports whether the product is below 2^50.
func mulSize(a, b int64) (int64, bool) {
	high, low := bits.Mul64(uint64(a), uint64(b))
	return int64(low), high == 0 && low <= maxImage
}
