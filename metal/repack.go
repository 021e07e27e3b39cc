//go:build cgo

package metal

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"

	"splash/dequant"
	"splash/planner"
)

// Planes are a matrix in the planes of its image format, on a device: rows in whole tiles, and the planes one after another.
type Planes struct {
	Format               *planner.ImageFormat
	Rows, Cols           int
	Memory               *Buffer
	Plane0, Plane1, Meta planner.Section
}

// Repack puts a matrix as a GGUF stores it into planes on the device, the bytes that the planner's writer makes of it; row n is
// row order(n) of the matrix. Formats whose planes are not made of the bits of a row alone are refused. The memory is the
// caller's to free.
func Repack(d *Device, m *dequant.Matrix, order func(row int) int) (*Planes, error) {
	f := planner.LookupImage(m.Format.Type)
	if f == nil || m.Cols%f.Columns() != 0 {
		return nil, fmt.Errorf("metal: rows of %d values in %s have no planes", m.Cols, m.Format.Name)
	}
	table, err := repackTable(f, m.Format)
	if err != nil {
		return nil, err
	}
	k, err := d.Kernel("repack")
	if err != nil {
		return nil, err
	}
	const tile = 64
	rows := (m.Rows + tile - 1) / tile * tile
	blocks := m.Cols / f.Block
	p := &Planes{Format: f, Rows: rows, Cols: m.Cols}
	end := int64(0)
	for _, s := range []struct {
		to    *planner.Section
		bytes int
	}{{&p.Plane0, f.Groups() * f.Plane0}, {&p.Plane1, f.Groups() * f.Plane1}, {&p.Meta, f.Meta}} {
		*s.to = planner.Section{Offset: end, Size: int64(rows) * int64(blocks) * int64(s.bytes)}
		end += (s.to.Size + 15) &^ 15
	}
	if p.Plane1.Size == 0 {
		p.Plane1.Offset = 0 // where nothing reads
	}
	var given []*Buffer
	defer func() {
		for _, b := range given {
			b.Free()
		}
	}()
	room := func(size int) *Buffer {
		b, e := d.NewBuffer(max(1, size))
		if e != nil {
			err = e
			return nil
		}
		given = append(given, b)
		return b
	}
	native, rowsAt, entries := room(len(m.Data)), room(4*m.Rows), room(2*len(table))
	if err != nil {
		return nil, err
	}
	copy(native.bytes, m.Data)
	copy(view[uint16](entries), table)
	for i := range m.Rows {
		view[uint32](rowsAt)[i] = uint32(order(i))
	}
	if p.Memory, err = d.NewBuffer(int(end)); err != nil {
		return nil, err
	}
	var c Commands
	add(&c, k, grid{x: blocks, y: rows / tile, threads: 256}, repackParams{
		rows: cUint(rows), source: cUint(m.Rows), blocks: cUint(blocks), blockBytes: cUint(m.Format.RowBytes(f.Block)),
		groups: cUint(f.Groups()), plane0: cUint(f.Plane0), plane1: cUint(f.Plane1), meta: cUint(f.Meta),
	}, native.from(0), rowsAt.from(0), entries.from(0), p.Memory.from(p.Plane0.Offset), p.Memory.from(p.Plane1.Offset),
		p.Memory.from(p.Meta.Offset))
	err = d.Run(&c)
	if w := d.Wait(); err == nil {
		err = w
	}
	if err != nil {
		p.Memory.Free()
		return nil, err
	}
	return p, nil
}

// Bytes are those of one of the planes.
func (p *Planes) Bytes(s planner.Section) []byte { return p.Memory.bytes[s.Offset : s.Offset+s.Size] }

// repackTable finds where each bit of a block's planes comes from, by what the planner's writer makes of blocks that are 0, of
// blocks whose bits are digits of their own numbers, and of random ones, which tell whether the others tell all.
func repackTable(f *planner.ImageFormat, native *dequant.Format) ([]uint16, error) {
	const tile = 64
	size := native.RowBytes(f.Block)
	m := dequant.Matrix{Format: native, Rows: tile, Cols: f.Columns()}
	m.Data = make([]byte, tile*native.RowBytes(m.Cols))
	row := func(i int) []byte { return m.Data[i*native.RowBytes(m.Cols):][:size] }
	digits := bits.Len(uint(8*size - 1))
	rng := rand.New(rand.NewPCG(1, 1))
	for at := range 8 * size {
		for digit := range digits {
			row(1 + digit)[at/8] |= byte(at>>digit&1) << (at % 8)
		}
		row(1 + digits)[at/8] |= 1 << (at % 8)
		for i := digits + 2; i < tile; i++ {
			row(i)[at/8] |= byte(rng.Uint32()&1) << (at % 8)
		}
	}
	made, err := probe(m)
	if err != nil {
		return nil, err
	}
	table := make([]uint16, len(made[0])*bitsEntry)
	bit := func(i, o int) int { return int(made[i][o/8]) >> (o % 8) & 1 }
	for o := range 8 * len(made[0]) {
		fixed, from := bit(0, o), noBit
		if bit(1+digits, o) != fixed { // it follows some bit
			from = 0
			for digit := range digits {
				from |= (bit(1+digit, o) ^ fixed) << digit
			}
		}
		for i := range tile {
			want := fixed
			if from != noBit {
				if from >= 8*size {
					return nil, fmt.Errorf("metal: planes of %s are not made of the bits of its rows", native.Name)
				}
				want ^= int(row(i)[from/8]) >> (from % 8) & 1
			}
			if bit(i, o) != want {
				return nil, fmt.Errorf("metal: planes of %s are not made of the bits of its rows", native.Name)
			}
		}
		table[o/8*bitsEntry+o%8] = uint16(from)
		table[o/8*bitsEntry+bitsEntry-1] |= uint16(fixed << (o % 8))
	}
	for at := 0; at < len(table); at += bitsEntry {
		if e := table[at : at+bitsEntry]; wholeByte(e) {
			e[bitsEntry-1] |= 256
		}
	}
	return table, nil
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

// probe is what the planner's writer makes of the first block of each row: its groups in plane 0, those in plane 1, its meta.
func probe(m dequant.Matrix) ([][]byte, error) {
	t := planner.Tensor{Name: "probe", Layer: -1, Role: planner.Linear, Rows: m.Rows, Cols: m.Cols, Type: m.Format.Type}
	plan, err := planner.PlanImages(&planner.Plan{Tensors: []planner.Tensor{t}})
	if err != nil {
		return nil, err
	}
	images, err := planner.BuildImages(context.Background(), plan, givenWeights{m})
	if err != nil {
		return nil, err
	}
	in := &images.Files[0].Tensors[0]
	f := planner.LookupImage(in.Type)
	out := make([][]byte, m.Rows)
	for row := range out {
		for _, s := range []struct {
			at          planner.Section
			units, size int
		}{{in.Plane0, f.Groups(), f.Plane0}, {in.Plane1, f.Groups(), f.Plane1}, {in.Meta, 1, f.Meta}} {
			if s.size == 0 {
				continue
			}
			plane := images.Files[0].Bytes(s.at)
			for unit := range s.units {
				at := (unit*m.Rows + row) * s.size
				out[row] = append(out[row], plane[at:at+s.size]...)
			}
		}
	}
	return out, nil
}
