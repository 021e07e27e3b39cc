//go:build cgo

package metal

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"splash/dequant"
	"splash/planner"
)

// A repackTable says where the bits of a container's planes come from.
type repackTable struct {
	parts [4]int // bytes of a block's data, scales and biases, and of its row's tensor scale
	bits  *Buffer
}

// A probe is a tile of rows whose blocks tell where the writer takes the bits of their planes from: one of zeros; those that hold
// one digit of every bit's own number; the even and the odd bits; bytes of 0x7f; and random ones, which tell whether the others
// tell all.
type probe struct {
	container
	matrix dequant.Matrix
	image  *planner.ImageFile
	tensor *planner.ImageTensor
	blocks [][]byte // the first of each row, its parts together
	made   [][]byte // of it: its groups in plane 0, those in plane 1, its meta unit
}

// newProbe has the writer make planes of a container.
func newProbe(c container) (*probe, error) {
	p := &probe{container: c}
	p.shape()
	p.fill()
	t := planner.Tensor{Name: "probe", Layer: -1, Role: planner.Linear, Rows: tileRows, Cols: p.matrix.Cols, Type: c.from.Type}
	plan, err := planner.PlanImages(&planner.Plan{Tensors: []planner.Tensor{t}})
	if err != nil {
		return nil, err
	}
	images, err := planner.BuildImages(context.Background(), plan, givenWeights{p.matrix})
	if err != nil {
		return nil, fmt.Errorf("metal: planes of %s: %w", c.from.Name, err)
	}
	p.image = images.Files[0]
	p.tensor = &p.image.Tensors[0]
	for row := range tileRows {
		p.made = append(p.made, p.units(row))
	}
	return p, nil
}

// shape makes a matrix of zeros.
func (p *probe) shape() {
	m := &p.matrix
	m.Format, m.Rows, m.Cols = p.from, tileRows, p.to.Columns()
	for k, to := range []*[]byte{&m.Data, &m.Scales, &m.Biases} {
		if p.parts[k] > 0 {
			*to = make([]byte, tileRows*m.Cols/p.to.Block*p.parts[k])
		}
	}
	if p.parts[3] > 0 {
		m.Global = make([]float32, tileRows)
	}
}

// digits are the bits of the number of a bit of a block; those of a byte, and two rows for each that is the byte's.
func (p *probe) digits() int { return bits.Len(uint(8*len(p.blocks[0]) - 1)) }

const (
	zerosRow = iota
	evenRow
	oddRow
	scaleRow
	digitRows
)

// fill writes the rows' first blocks. No byte of those that a digit is read from is 0x7f, which no scale of NVFP4 is, and no
// tensor scale is infinite or no number.
func (p *probe) fill() {
	size := p.parts[0] + p.parts[1] + p.parts[2] + p.parts[3]
	for range tileRows {
		p.blocks = append(p.blocks, make([]byte, size))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	random := digitRows + 3 + 2*(p.digits()-3)
	for at := range size {
		p.blocks[evenRow][at], p.blocks[oddRow][at], p.blocks[scaleRow][at] = 0x55, 0xaa, 0x7f
		for digit, pattern := range []byte{0xaa, 0xcc, 0xf0} {
			p.blocks[digitRows+digit][at] = pattern
		}
		for digit := 3; digit < p.digits(); digit++ {
			if at>>(digit-3)&1 != 0 {
				row := digitRows + 3 + 2*(digit-3)
				p.blocks[row][at], p.blocks[row+1][at] = 0x55, 0xaa
			}
		}
		for row := random; row < tileRows; row++ {
			p.blocks[row][at] = byte(rng.Uint32())
			if rng.IntN(8) == 0 {
				p.blocks[row][at] |= 0x7f
			}
		}
	}
	if p.parts[3] > 0 {
		for row := range p.blocks {
			if row >= random {
				p.blocks[row][size-1] &^= 0x40
			}
		}
	}
	for row, block := range p.blocks {
		p.store(row, block)
	}
}

// store puts a row's first block into the matrix.
func (p *probe) store(row int, block []byte) {
	m := &p.matrix
	for k, to := range [][]byte{m.Data, m.Scales, m.Biases} {
		copy(to[row*len(to)/tileRows:], block[:p.parts[k]])
		block = block[p.parts[k]:]
	}
	if p.parts[3] > 0 {
		m.Global[row] = math.Float32frombits(binary.LittleEndian.Uint32(block))
	}
}

// units are what the planes hold of a row's first block.
func (p *probe) units(row int) (all []byte) {
	f := p.to
	for _, s := range []struct {
		at          planner.Section
		units, size int
	}{{p.tensor.Plane0, f.Groups(), f.Plane0}, {p.tensor.Plane1, f.Groups(), f.Plane1}, {p.tensor.Meta, 1, f.Meta}} {
		for unit := range s.units {
			all = append(all, p.image.Bytes(s.at)[(unit*tileRows+row)*s.size:][:s.size]...)
		}
	}
	return all
}

// find returns the table's entries, of each byte of a block's planes; nil where they are not made of the block's bits.
func (p *probe) find() []uint16 {
	table := make([]uint16, len(p.made[0])*bitsEntry)
	for o := range p.made[0] {
		e := table[o*bitsEntry:][:bitsEntry]
		for b := range 8 {
			e[b] = p.source(o, b)
		}
		e[bitsEntry-1] = uint16(p.made[zerosRow][o])
		if wholeByte(e) {
			e[bitsEntry-1] |= oneByte
		}
		if e[0] != noBit && p.apply(e, scaleRow) == 0x7f && p.made[scaleRow][o] == 0 {
			e[bitsEntry-1] |= noScale
		}
		for row := range tileRows {
			if p.apply(e, row) != p.made[row][o] {
				return nil
			}
		}
	}
	return table
}

// source is the bit of a block that bit b of a byte of its planes follows, or noBit.
func (p *probe) source(o, b int) uint16 {
	fixed := p.made[zerosRow][o]
	differs := func(row int) int { return int((p.made[row][o]^fixed)>>b) & 1 }
	if differs(evenRow)|differs(oddRow) == 0 {
		return noBit
	}
	from := 0
	for digit := range 3 {
		from |= differs(digitRows+digit) << digit
	}
	for digit := 3; digit < p.digits(); digit++ {
		row := digitRows + 3 + 2*(digit-3)
		from |= (differs(row) | differs(row+1)) << digit
	}
	return uint16(min(from, 8*len(p.blocks[0])-1))
}

// apply is the byte of the planes that an entry makes of a row's block, as the kernel does.
func (p *probe) apply(e []uint16, row int) byte {
	var value byte
	for b := range 8 {
		if e[b] != noBit {
			value |= p.blocks[row][e[b]/8] >> (e[b] % 8) & 1 << b
		}
	}
	if e[bitsEntry-1]&noScale != 0 && p.blocks[row][e[0]/8] == 0x7f {
		return 0
	}
	return value ^ byte(e[bitsEntry-1])
}

// wholeByte reports whether a byte's bits are those of one byte.
func wholeByte(e []uint16) bool {
	for b := range 8 {
		if e[b] == noBit || e[b] != e[0]+uint16(b) || e[0]%8 != 0 {
			return false
		}
	}
	return true
}
