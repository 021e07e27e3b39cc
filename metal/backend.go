//go:build cgo

package metal

import (
	"errors"
	"fmt"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A Backend runs a dense hybrid target on a device. It implements model.Backend: weights are the planes of the target's
// images, in place; activations are F32. A pass is recorded from Begin to End, which runs it.
type Backend struct {
	device  *Device
	layout  *planner.Layout
	maxRows int
	kvBytes int // of an element of the keys and values
	kernels kernelSet

	images   []image
	matrices []matrix
	vectors  []*Buffer
	buffers  []buffer

	states   []state
	lanes    []*lane // by slot; nil: free
	capacity int     // lanes that the states have room for
	pages    pagePool
	saved    []*checkpoint

	// What kernels know of the pass.
	rowBuffer, segmentBuffer, outputBuffer, everyRow, freq *Buffer

	draft draftSet

	kind          model.Kind
	commands      Commands
	rows, outputs int
	segments      []int // slots of the pass's lanes
	pending       []int // and how many rows each takes
	err           error
}

// An image is a mapped file of weights, and the device's buffer of the same memory.
type image struct {
	file   *planner.ImageFile
	buffer *Buffer
}

// A buffer holds width values a row.
type buffer struct {
	*Buffer
	width  int
	domain model.Domain
}

// kernelSet are the kernels that take no format.
type kernelSet struct{ rmsnorm, gatedNorm, copyRows, projectF32, prepare, attention, conv, gdn *Kernel }

// Options are the choices of a backend.
type Options struct {
	MaxRows int  // of a pass
	WideKV  bool // keys and values are F32 instead of BF16
}

// New returns a backend for a target of the dense architecture. The images are those of [PlanImages] and stay open until
// Close.
func New(d *Device, p *planner.Plan, images *planner.Images, o Options) (*Backend, error) {
	s := &p.Layout
	if s.Arch != planner.DenseHybrid {
		return nil, fmt.Errorf("metal: %s is of an architecture that the metal backend does not run; it runs dense hybrids",
			p.Family.Name)
	}
	if s.GDN.HeadDim != gdnDim || s.GDN.Kernel > convTaps || s.Attention.HeadDim%32 != 0 || s.Attention.HeadDim > 256 {
		return nil, fmt.Errorf("metal: heads of %d and %d and convolutions of %d taps; the kernels take heads of %d, of up to 256 in "+
			"attention, and up to %d taps", s.GDN.HeadDim, s.Attention.HeadDim, s.GDN.Kernel, gdnDim, convTaps)
	}
	b := &Backend{device: d, layout: s, maxRows: o.MaxRows, kvBytes: 2}
	if o.WideKV {
		b.kvBytes = 4
	}
	if err := b.open(images); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Backend) open(images *planner.Images) error {
	suffix := ""
	if b.kvBytes == 4 {
		suffix = "_f32"
	}
	for name, k := range map[string]**Kernel{
		"rmsnorm": &b.kernels.rmsnorm, "gated_norm": &b.kernels.gatedNorm, "copy_rows": &b.kernels.copyRows,
		"project_f32": &b.kernels.projectF32, "attention_prepare" + suffix: &b.kernels.prepare,
		"attention" + suffix: &b.kernels.attention,
		"conv":               &b.kernels.conv, "gdn": &b.kernels.gdn,
	} {
		var err error
		if *k, err = b.device.Kernel(name); err != nil {
			return err
		}
	}
	if err := b.wrap(images); err != nil {
		return err
	}
	pairs := oracle.RopeFrequencies(b.layout.Attention.RopeBase, b.layout.Attention.RopeDim)
	return errors.Join(
		allocate[rowInfo](b, &b.rowBuffer, b.maxRows), allocate[segmentInfo](b, &b.segmentBuffer, b.maxRows),
		allocate[uint32](b, &b.outputBuffer, b.maxRows), allocate[uint32](b, &b.everyRow, b.maxRows),
		allocate[float32](b, &b.freq, max(1, len(pairs))), b.fill(pairs), b.pages.open(b),
	)
}

// wrap makes images the device's.
func (b *Backend) wrap(images *planner.Images) error {
	for _, f := range images.Files {
		buf, err := b.device.Wrap(f.Data)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		b.images = append(b.images, image{f, buf})
	}
	return nil
}

// allocate makes a buffer of n values.
func allocate[T any](b *Backend, to **Buffer, n int) (err error) {
	*to, err = b.device.NewBuffer(n * int(sizeOf[T]()))
	return err
}

// fill writes what no pass changes.
func (b *Backend) fill(freq []float32) error {
	if b.freq == nil || b.everyRow == nil {
		return nil // the error is another's
	}
	copy(view[float32](b.freq), freq)
	for i := range view[uint32](b.everyRow) {
		view[uint32](b.everyRow)[i] = uint32(i)
	}
	return nil
}

// Close frees the backend's memory. The device and the images stay the caller's.
func (b *Backend) Close() {
	free := func(all ...*Buffer) {
		for _, x := range all {
			if x != nil {
				x.Free()
			}
		}
	}
	for _, m := range b.images {
		free(m.buffer)
	}
	for _, x := range b.buffers {
		free(x.Buffer)
	}
	for _, s := range b.states {
		free(s.buffers[:]...)
	}
	free(b.vectors...)
	free(b.rowBuffer, b.segmentBuffer, b.outputBuffer, b.everyRow, b.freq, b.pages.table, b.draft.freq, b.draft.sources)
	*b = Backend{}
}

var _ model.Backend = (*Backend)(nil)

// A matrix is a projection: planes, or F32 rows.
type matrix struct {
	planes               planeBuffers
	gather, small, large *Kernel // nil for F32 rows
	params               projectParams
}

// find is where an image holds a tensor: the rows of it that are the tensor's begin at first.
func (b *Backend) find(t *planner.Tensor) (m *image, in *planner.ImageTensor, first int, err error) {
	for i := range b.images {
		if in = b.images[i].file.Tensor(t.Name); in == nil {
			continue
		}
		for _, part := range in.Parts {
			if part.Name == t.Name {
				return &b.images[i], in, first, nil
			}
			first += part.Rows
		}
	}
	return nil, nil, 0, fmt.Errorf("metal: no image holds %s", t.Name)
}

// LoadMatrix finds a projection or the table in the images.
func (b *Backend) LoadMatrix(_ planner.Weights, t *planner.Tensor) (model.Matrix, error) {
	img, in, first, err := b.find(t)
	if err != nil {
		return 0, err
	}
	if t.Signs != nil {
		return 0, fmt.Errorf("metal: %s is rotated, which the metal backend does not run", t.Name)
	}
	if rounded(t, in) {
		return 0, fmt.Errorf("metal: %s is asked for in BF16; its image holds 4 bits", t.Name)
	}
	m := matrix{params: projectParams{cols: cUint(t.Cols), outputs: cUint(t.Rows), first: cUint(first)}}
	if o := t.ColOrder; o != nil {
		m.params.head, m.params.keyHeads, m.params.perKey = cUint(o.Size), cUint(o.KeyHeads), cUint(o.PerKey)
	}
	switch {
	case in.Form == planner.Planes:
		suffix := planner.LookupImage(in.Type).Name
		for name, k := range map[string]**Kernel{"gather_": &m.gather, "project_": &m.small, "project_wide_": &m.large} {
			if *k, err = b.device.Kernel(name + suffix); err != nil {
				return 0, err
			}
		}
		m.planes = planesOf(img.buffer, in)
	case in.Type == dequant.F32:
		m.planes.plane0 = img.buffer.from(in.Plane0.Offset)
	default:
		return 0, fmt.Errorf("metal: %s is %s rows, which no projection reads", t.Name, in.Type)
	}
	b.matrices = append(b.matrices, m)
	return model.Matrix(len(b.matrices) - 1), nil
}

// LoadVector copies a small tensor as F32 values.
func (b *Backend) LoadVector(_ planner.Weights, t *planner.Tensor) (model.Vector, error) {
	img, in, first, err := b.find(t)
	if err != nil {
		return 0, err
	}
	buf, err := b.device.NewBuffer(4 * t.Rows * t.Cols)
	if err != nil {
		return 0, err
	}
	for i := range t.Rows {
		img.file.DecodeRow(in, view[float32](buf)[i*t.Cols:(i+1)*t.Cols], first+i)
	}
	b.vectors = append(b.vectors, buf)
	return model.Vector(len(b.vectors) - 1), nil
}

// Buffer allocates a buffer.
func (b *Backend) Buffer(width int, d model.Domain) (model.Buffer, error) {
	if width <= 0 {
		return 0, fmt.Errorf("metal: a buffer of width %d", width)
	}
	x := buffer{width: width, domain: d}
	if err := allocate[float32](b, &x.Buffer, b.maxRows*width); err != nil {
		return 0, err
	}
	b.buffers = append(b.buffers, x)
	return model.Buffer(len(b.buffers) - 1), nil
}

// Begin starts the recording of a pass.
func (b *Backend) Begin(p *model.Pass) error {
	b.commands.Reset()
	b.kind, b.err = p.Kind, nil
	b.rows, b.outputs, b.segments, b.pending = 0, 0, b.segments[:0], b.pending[:0]
	if n, _ := p.Rows(); n == 0 || n > b.maxRows {
		return fmt.Errorf("metal: a pass of %d rows; 1 to %d are possible", n, b.maxRows)
	}
	if p.Kind != model.TargetPass && b.draft.sources == nil {
		return errors.New("metal: a draft's pass, and no draft is loaded")
	}
	for i := range p.Segments {
		if err := b.addSegment(&p.Segments[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) addSegment(s *model.Segment) error {
	l, err := b.lane(s.Lane)
	if err != nil {
		return err
	}
	if len(s.Tokens) == 0 {
		return fmt.Errorf("metal: lane %d has a segment without rows", s.Lane)
	}
	for _, slot := range b.segments {
		if slot == int(s.Lane) {
			return fmt.Errorf("metal: lane %d has two segments in one pass", s.Lane)
		}
	}
	start, err := b.place(l, s)
	if err != nil {
		return err
	}
	view[segmentInfo](b.segmentBuffer)[len(b.segments)] = segmentInfo{
		lane: cUint(s.Lane), first: cUint(b.rows), rows: cUint(len(s.Tokens)), index: cUint(start), kept: cUint(l.kept),
		slot: cUint(l.slot),
	}
	b.segments, b.pending = append(b.segments, int(s.Lane)), append(b.pending, len(s.Tokens))
	for i, token := range s.Tokens {
		if token < 0 || int(token) >= b.layout.Vocab {
			return fmt.Errorf("metal: token %d is not in the vocabulary of %d", token, b.layout.Vocab)
		}
		pos := oracle.TextPosition(start + i + s.RopeDelta)
		if s.Positions != nil {
			pos = s.Positions[i]
		}
		view[rowInfo](b.rowBuffer)[b.rows] = rowInfo{
			token: cUint(token), lane: cUint(s.Lane), index: cUint(start + i), t: cInt(pos.T), h: cInt(pos.H), w: cInt(pos.W),
		}
		if i >= len(s.Tokens)-s.Outputs {
			view[uint32](b.outputBuffer)[b.outputs] = uint32(b.rows)
			b.outputs++
		}
		b.rows++
	}
	return nil
}

// place is the index of a segment's first row, which the lane is given room for where it is to keep the rows.
func (b *Backend) place(l *lane, s *model.Segment) (index int, err error) {
	switch b.kind {
	case model.DraftPass:
		return l.length, nil
	case model.ContextPass:
		if l.firstIndex+len(s.Tokens) > l.length {
			return 0, fmt.Errorf("metal: %d context rows of lane %d, which kept %d of its last segment",
				len(s.Tokens), s.Lane, l.length-l.firstIndex)
		}
		for i := range s.Tokens {
			view[uint32](b.draft.sources)[b.rows+i] = uint32(l.firstRow + i)
		}
		return l.firstIndex, nil
	}
	l.firstRow, l.firstIndex = b.rows, l.length
	return l.length, b.pages.reserve(b, int(s.Lane), l.length+len(s.Tokens))
}

// End runs the pass and waits for it: the rows of a target's are part of their lanes.
func (b *Backend) End() error {
	if b.err != nil {
		return b.err
	}
	err := b.device.Run(&b.commands)
	if w := b.device.Wait(); err == nil {
		err = w
	}
	if err != nil {
		return err
	}
	if b.kind == model.TargetPass {
		for i, slot := range b.segments {
			b.lanes[slot].advance(b.pending[i])
		}
	}
	return nil
}

// Read returns a row of a buffer.
func (b *Backend) Read(h model.Buffer, row int) []float32 {
	x := &b.buffers[h]
	return view[float32](x.Buffer)[row*x.width : (row+1)*x.width]
}

// count is the rows that a buffer has in the pass.
func (b *Backend) count(h model.Buffer) int {
	if b.buffers[h].domain == model.OutputRows {
		return b.outputs
	}
	return b.rows
}

// at is where a buffer begins.
func (b *Backend) at(h model.Buffer) binding { return b.buffers[h].from(0) }
