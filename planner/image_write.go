package planner

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Bounds of the writer. A worker holds the output of one job and the values of one row, so that the writer's memory
// stays below 64 MiB, whatever the tensors.
const (
	jobBytes   = 2 << 20
	maxWorkers = 8
)

// A job is a part of one tensor of an image: tiles of planes, or rows. Jobs are independent of one another, and their list
// follows from the plan alone.
type job struct {
	tensor      int
	first, last int // tiles, or rows
	from, to    int // native blocks of every row; planes only
}

// jobs cuts the tensors of an image into jobs of about size bytes.
func (m *Image) jobs(size int) []job {
	var all []job
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if t.Form != Planes {
			step := max(1, size/t.RowBytes())
			for row := 0; row < t.Rows; row += step {
				all = append(all, job{tensor: i, first: row, last: min(row+step, t.Rows)})
			}
			continue
		}
		f := LookupImage(t.Type)
		blocks, column := t.Cols/f.Block, tileRows*(f.Groups()*(f.Plane0+f.Plane1)+f.Meta)
		tiles, span := max(1, size/(column*blocks)), blocks
		if column*blocks > size {
			span = max(1, size/column)
		}
		for tile := 0; tile < t.Rows/tileRows; tile += tiles {
			for b := 0; b < blocks; b += span {
				all = append(all, job{i, tile, min(tile+tiles, t.Rows/tileRows), b, min(b+span, blocks)})
			}
		}
	}
	return all
}

// jobSize is the bytes that a job writes.
func (m *Image) jobSize(j job) int64 {
	t := &m.Tensors[j.tensor]
	if t.Form != Planes {
		return int64(j.last-j.first) * int64(t.RowBytes())
	}
	f := LookupImage(t.Type)
	return int64((j.last-j.first)*tileRows*(j.to-j.from)) * int64(f.Groups()*(f.Plane0+f.Plane1)+f.Meta)
}

// An imageWriter writes the sections of one image.
type imageWriter struct {
	image   *Image
	sources [][]*partRows // of each tensor
	out     io.WriterAt
	packer  Packer // nil: the workers pack
	workers []worker
}

// newImageWriter opens the weights of every tensor of the image.
func newImageWriter(m *Image, w Weights, out io.WriterAt) (*imageWriter, error) {
	iw := &imageWriter{
		image: m, out: out, sources: make([][]*partRows, len(m.Tensors)),
		workers: make([]worker, min(maxWorkers, runtime.GOMAXPROCS(0))),
	}
	for i := range m.Tensors {
		for _, t := range m.Tensors[i].Parts {
			p, err := openPart(w, t)
			if err != nil {
				return nil, err
			}
			iw.sources[i] = append(iw.sources[i], p)
		}
	}
	return iw, nil
}

// frame writes the header and the descriptors.
func (w *imageWriter) frame() error {
	h := w.image.header()
	if _, err := w.out.WriteAt(h[:], 0); err != nil {
		return err
	}
	for i := range w.image.Tensors {
		t := &w.image.Tensors[i]
		if t.Form == Bare {
			continue
		}
		d := t.descriptor()
		if _, err := w.out.WriteAt(d[:], t.Descriptor.Offset); err != nil {
			return err
		}
	}
	return nil
}

// run writes jobs in any order, several at once, and calls done after each, one call at a time. It returns when every
// worker has stopped.
func (w *imageWriter) run(ctx context.Context, jobs []job, done func(bytes int64)) error {
	group, running := errgroup.WithContext(ctx)
	var next atomic.Int64
	var mu sync.Mutex
	for i := range w.workers {
		group.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(jobs) || running.Err() != nil {
					return nil
				}
				bytes, err := w.workers[i].run(w, jobs[n])
				if err != nil {
					return err
				}
				mu.Lock()
				done(bytes)
				mu.Unlock()
			}
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// A worker runs jobs one after another in buffers of its own.
type worker struct {
	plane0, plane1, meta []byte
	codes                [groupSize]uint8
}

// A fault is the error of a read of mapped memory whose file has become shorter.
type fault interface {
	error
	Addr() uintptr
}

// run writes the job's bytes of its tensor and returns their number. A source that shrinks under its mapping is an error
// here, not the end of the process.
func (k *worker) run(w *imageWriter, j job) (n int64, err error) {
	t := &w.image.Tensors[j.tensor]
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch v := recover().(type) {
		case nil:
		case fault:
			err = fmt.Errorf("%s cannot be read: its file has become shorter: %w", t.Name, v)
		default:
			panic(v)
		}
	}()
	if t.Form == Planes {
		return k.planes(w, t, w.sources[j.tensor], j)
	}
	return k.rows(w, t, w.sources[j.tensor], j)
}

// rows writes whole rows, one part after another.
func (k *worker) rows(w *imageWriter, t *ImageTensor, parts []*partRows, j job) (int64, error) {
	size := t.RowBytes()
	k.plane0 = sized(k.plane0, (j.last-j.first)*size)
	row := 0 // the part's first
	for _, p := range parts {
		first, last := max(j.first, row), min(j.last, row+p.rows)
		if first < last {
			rw, err := newRowWriter(p, t.Type)
			if err != nil {
				return 0, err
			}
			for n := first; n < last; n++ {
				if err := rw.write(k.plane0[(n-j.first)*size:][:size], n-row); err != nil {
					return 0, err
				}
			}
		}
		row += p.rows
	}
	return k.put(w, k.plane0, t.Plane0, int64(j.first)*int64(size))
}

// planes writes tiles: their units of plane 0, plane 1 and meta for a run of native blocks.
func (k *worker) planes(w *imageWriter, t *ImageTensor, parts []*partRows, j job) (int64, error) {
	f := LookupImage(t.Type)
	tiles, blocks, span := j.last-j.first, t.Cols/f.Block, j.to-j.from
	units := tiles * tileRows * span
	k.plane0 = sized(k.plane0, units*f.Groups()*f.Plane0)
	k.plane1 = sized(k.plane1, units*f.Groups()*f.Plane1)
	k.meta = sized(k.meta, units*f.Meta)
	if err := k.pack(w, f, t, parts, j); err != nil {
		return 0, err
	}
	// Tiles of whole rows follow one another; a run of columns stands inside its one tile.
	unit := (int64(j.first)*int64(blocks) + int64(j.from)) * tileRows
	group := unit * int64(f.Groups())
	n, err := k.put(w, k.plane0, t.Plane0, group*int64(f.Plane0))
	if err == nil && f.Plane1 > 0 {
		var n1 int64
		n1, err = k.put(w, k.plane1, t.Plane1, group*int64(f.Plane1))
		n += n1
	}
	if err != nil {
		return 0, err
	}
	nm, err := k.put(w, k.meta, t.Meta, unit*int64(f.Meta))
	return n + nm, err
}

// pack fills the job's planes.
func (k *worker) pack(w *imageWriter, f *ImageFormat, t *ImageTensor, parts []*partRows, j job) error {
	if w.packer != nil {
		packed, err := w.packer.Pack(&Packing{
			Name: t.Name, Format: f, Rows: (j.last - j.first) * tileRows, From: j.from, Blocks: j.to - j.from,
			Plane0: k.plane0, Plane1: k.plane1, Meta: k.meta, first: j.first * tileRows, parts: parts,
		})
		if packed || err != nil {
			return err
		}
	}
	row := 0
	for _, p := range parts {
		first, last := max(j.first*tileRows, row), min(j.last*tileRows, row+p.rows)
		if first < last {
			if err := k.packRows(f, t, p, j, first, last, row); err != nil {
				return err
			}
		}
		row += p.rows
	}
	return nil
}

// packRows packs the job's blocks of rows first to last of a part whose first row is row start of the tensor.
func (k *worker) packRows(f *ImageFormat, t *ImageTensor, p *partRows, j job, first, last, start int) error {
	b, err := newBlockBuilder(p.tensor.Name, f.Type, &p.matrices[0], f.Block, f.Bytes)
	if err != nil {
		return err
	}
	span := j.to - j.from
	for n := first; n < last; n++ {
		m, row := p.row(n - start)
		for i := range span {
			block, err := b.read(m, row, j.from+i)
			if err != nil {
				return err
			}
			at := int(tileIndex(n-j.first*tileRows, i, span))
			f.packMeta(k.meta[at*f.Meta:][:f.Meta], block)
			at = int(tileIndex(n-j.first*tileRows, i*f.Groups(), span*f.Groups()))
			for g := range f.Groups() {
				f.packGroup(k.plane0[at*f.Plane0:][:f.Plane0], k.plane1[at*f.Plane1:][:f.Plane1], &k.codes, block, g)
				at += tileRows
			}
		}
	}
	return nil
}

// put writes bytes at a place of a section, which they must not leave.
func (k *worker) put(w *imageWriter, b []byte, s Section, at int64) (int64, error) {
	if at < 0 || at+int64(len(b)) > s.Size {
		panic(fmt.Sprintf("planner: %d bytes at %d of a section of %d", len(b), at, s.Size))
	}
	n, err := w.out.WriteAt(b, s.Offset+at)
	return int64(n), err
}

// sized returns n zero bytes, in b's memory where it has room.
func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	b = b[:n]
	clear(b)
	return b
}
