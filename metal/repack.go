//go:build cgo

package metal

import (
	"bytes"
	"fmt"
	"sync"

	"splash/dequant"
	"splash/planner"
)

// A Repacker packs native rows into planes on a device, for the writer of images: those of every format whose planes are the bits
// of its rows in another order, from every container that has the format. Weights that are rounded to a format on the way, BF16
// and F16 to Q8_0 and a draft's BF16 to affine codes, are left to the writer.
type Repacker struct {
	mu     sync.Mutex // the device is one goroutine's at a time
	device *Device
	kernel *Kernel
	tables map[container]*repackTable // nil: planes that are not bits of their rows
	all    []*repackRoom
	spare  []*repackRoom
}

var _ planner.Packer = (*Repacker)(nil)

// NewRepacker returns a repacker on a device, which nothing else uses until it is closed.
func NewRepacker(d *Device) (*Repacker, error) {
	k, err := d.Kernel("repack")
	if err != nil {
		return nil, err
	}
	return &Repacker{device: d, kernel: k, tables: make(map[container]*repackTable)}, nil
}

// Close frees the repacker's memory. The device stays the caller's.
func (r *Repacker) Close() {
	for _, x := range r.all {
		x.free()
	}
	for _, t := range r.tables {
		if t != nil {
			t.bits.Free()
		}
	}
	r.all, r.spare, r.tables = nil, nil, nil
}

// Pack fills the planes of a packing.
func (r *Repacker) Pack(p *planner.Packing) (bool, error) {
	j := &repackJob{
		format: p.Format, rows: p.Rows, from: p.From, blocks: p.Blocks, row: p.Row, planes: [3][]byte{p.Plane0, p.Plane1, p.Meta},
	}
	c, ok := j.container()
	if !ok {
		return false, nil
	}
	t, err := r.table(c)
	if t == nil || err != nil {
		return false, err
	}
	if err := r.pack(j, t); err != nil {
		return false, fmt.Errorf("%s: %w", p.Name, err)
	}
	return true, nil
}

// A container is a format, and the way that weights of it are stored.
type container struct {
	to   *planner.ImageFormat
	from *dequant.Format

	// Bytes of a block in the data, the scales and the biases, and 4 where its row has a tensor scale. Together, in this order,
	// they are the block.
	parts [4]int
}

// containerOf is how a matrix stores the weights of a format; false where they are of another.
func containerOf(f *planner.ImageFormat, m *dequant.Matrix) (container, bool) {
	blocks := m.Rows * (m.Cols / f.Block)
	c := container{to: f, from: m.Format, parts: [4]int{len(m.Data) / blocks, len(m.Scales) / blocks, len(m.Biases) / blocks}}
	// NVFP4's tensor scale is 1 where there is none; FP8 has one or holds its own.
	if t := m.Format.Type; m.Global != nil || t == dequant.NVFP4 || t == dequant.NVFP4Rows && m.Scales != nil {
		c.parts[3] = 4
	}
	return c, planner.LookupImage(m.Format.Type) == f
}

// A repackJob is native blocks of whole tiles of rows, and their planes: plane 0, plane 1, meta.
type repackJob struct {
	format       *planner.ImageFormat
	rows         int
	from, blocks int
	row          func(i int) (*dequant.Matrix, int) // nil: no row
	planes       [3][]byte
}

// container is that of all rows; false where they have none, or several.
func (j *repackJob) container() (c container, ok bool) {
	var last *dequant.Matrix
	for i := range j.rows {
		m, _ := j.row(i)
		if m == nil || m == last {
			continue
		}
		this, known := containerOf(j.format, m)
		if !known || last != nil && (this != c || m.Cols != last.Cols) {
			return c, false
		}
		c, last = this, m
	}
	return c, last != nil
}

// A repackRoom is a job's memory on the device.
type repackRoom struct{ native, order, planes *Buffer }

func (x *repackRoom) free() {
	for _, b := range []*Buffer{x.native, x.order, x.planes} {
		if b != nil {
			b.Free()
		}
	}
}

// take gives a job memory of its own.
func (r *Repacker) take(native, order, planes int) (*repackRoom, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spare) == 0 {
		x := new(repackRoom)
		r.all, r.spare = append(r.all, x), append(r.spare, x)
	}
	x := r.spare[len(r.spare)-1]
	for b, size := range map[**Buffer]int{&x.native: native, &x.order: order, &x.planes: planes} {
		if *b != nil && (*b).Size() >= size {
			continue
		}
		larger, err := r.device.NewBuffer(size)
		if err != nil {
			return nil, err
		}
		if *b != nil {
			(*b).Free()
		}
		*b = larger
	}
	r.spare = r.spare[:len(r.spare)-1]
	return x, nil
}

func (r *Repacker) give(x *repackRoom) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spare = append(r.spare, x)
}

// pack copies a job's rows to the device, as they are, and its planes back.
func (r *Repacker) pack(j *repackJob, t *repackTable) error {
	var at [3]int64 // of the planes
	end := int64(0)
	for i, p := range j.planes {
		if len(p) > 0 { // else where nothing writes
			at[i] = end
			end += (int64(len(p)) + 15) &^ 15
		}
	}
	size := t.parts[0] + t.parts[1] + t.parts[2]
	x, err := r.take(j.rows*(j.blocks*size+t.parts[3]), 4*j.rows, int(end))
	if err != nil {
		return err
	}
	defer r.give(x)
	f := j.format
	p := repackParams{
		blocks: cUint(j.blocks), groups: cUint(f.Groups()), plane0: cUint(f.Plane0), plane1: cUint(f.Plane1), meta: cUint(f.Meta),
		data: cUint(t.parts[0]), scales: cUint(t.parts[1]), biases: cUint(t.parts[2]), scalesAt: cUint(j.rows * j.blocks * t.parts[0]),
	}
	p.biasesAt = p.scalesAt + cUint(j.rows*j.blocks)*p.scales
	p.globalsAt = p.biasesAt + cUint(j.rows*j.blocks)*p.biases
	gather(x, j, t, [4]int{0, int(p.scalesAt), int(p.biasesAt), int(p.globalsAt)})
	g := grid{x: j.blocks, y: j.rows / tileRows, threads: 256}
	if err := r.run(x, t, g, p, at); err != nil {
		return err
	}
	for i, p := range j.planes {
		copy(p, x.planes.bytes[at[i]:])
	}
	return nil
}

// tileRows are those of a tile of planes.
const tileRows = 64

func (r *Repacker) run(x *repackRoom, t *repackTable, g grid, p repackParams, at [3]int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var c Commands
	add(&c, r.kernel, g, p, x.native.from(0), x.order.from(0), t.bits.from(0), x.planes.from(at[0]), x.planes.from(at[1]),
		x.planes.from(at[2]))
	err := r.device.Run(&c)
	if w := r.device.Wait(); err == nil {
		err = w
	}
	return err
}

// gather copies the parts of a job's rows beside each other, and says which rows there are.
func gather(x *repackRoom, j *repackJob, t *repackTable, at [4]int) {
	order := view[int32](x.order)
	for i := range j.rows {
		m, row := j.row(i)
		if order[i] = noRow; m == nil {
			continue
		}
		order[i] = int32(i)
		for k, from := range [][]byte{m.Data, m.Scales, m.Biases} {
			size := t.parts[k]
			all := from[row*(m.Cols/j.format.Block)*size:]
			copy(x.native.bytes[at[k]+i*j.blocks*size:], all[j.from*size:(j.from+j.blocks)*size])
		}
		if t.parts[3] > 0 {
			view[float32](x.native)[at[3]/4+i] = globalScale(m, row)
		}
	}
}

// globalScale is the tensor scale of a row: 1 where there is none.
func globalScale(m *dequant.Matrix, row int) float32 {
	if len(m.Global) == 0 {
		return 1
	}
	return m.Global[row/(m.Rows/len(m.Global))]
}

// table finds, and keeps, where the bits of a container's planes come from. The device then makes the planes that it was found by,
// and they must be the writer's.
func (r *Repacker) table(c container) (*repackTable, error) {
	r.mu.Lock()
	t, known := r.tables[c]
	r.mu.Unlock()
	if known {
		return t, nil
	}
	p, err := newProbe(c)
	if err != nil {
		return nil, err
	}
	if entries := p.find(); entries != nil {
		t = &repackTable{parts: c.parts}
		if t.bits, err = r.upload(entries); err != nil {
			return nil, err
		}
		if err := r.check(p, t); err != nil {
			t.bits.Free()
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, known := r.tables[c]; known { // another goroutine has found it
		if t != nil {
			t.bits.Free()
		}
		return first, nil
	}
	r.tables[c] = t
	return t, nil
}

func (r *Repacker) upload(entries []uint16) (*Buffer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := r.device.NewBuffer(2 * len(entries))
	if err == nil {
		copy(view[uint16](b), entries)
	}
	return b, err
}

// check holds what the device makes of a probe to what the writer made.
func (r *Repacker) check(p *probe, t *repackTable) error {
	j := &repackJob{
		format: p.to, rows: tileRows, blocks: p.matrix.Cols / p.to.Block,
		row: func(i int) (*dequant.Matrix, int) { return &p.matrix, i },
	}
	want := [3][]byte{p.image.Bytes(p.tensor.Plane0), p.image.Bytes(p.tensor.Plane1), p.image.Bytes(p.tensor.Meta)}
	for i := range want {
		j.planes[i] = make([]byte, len(want[i]))
	}
	if err := r.pack(j, t); err != nil {
		return err
	}
	for i := range want {
		if !bytes.Equal(j.planes[i], want[i]) {
			return fmt.Errorf("metal: %s makes planes of %s that are not the writer's", r.device.Name, p.from.Name)
		}
	}
	return nil
}
