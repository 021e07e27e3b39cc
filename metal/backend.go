//go:build cgo

package metal

import (
	"errors"
	"fmt"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A Backend runs a target on a device. It implements model.Backend: weights are the planes of the target's images, in place;
// activations are F32. A pass is recorded from Begin to End, which runs it; one whose shape has come before is run as it was
// recorded then (graph.go).
type Backend struct {
	device          *Device
	layout          *planner.Layout
	maxRows         int
	kvBytes         int // of an element of the keys and values
	chunked         bool
	int8Activations bool
	kernels         kernelSet

	images   []image
	matrices []matrix
	experts  []expertMatrix
	vectors  []*Buffer
	buffers  []buffer
	signs    map[string]*Buffer // of rotations, by their bytes
	owned    []*Buffer          // weights that no image has as the kernels read them
	retired  []*Buffer          // scratch that larger scratch took the place of in the last pass

	states   []state
	past     []state // of the network before, whose pages checkpoints hold
	lanes    []*lane // by slot; nil: free
	capacity int     // lanes that the states have room for
	pages    pagePool
	saved    []*checkpoint

	// What kernels know of the pass.
	rowBuffer, segmentBuffer, outputBuffer, everyRow, freq *Buffer

	draft   draftSet
	chooser *Chooser
	ngram   *ngramSet // nil: no n-gram layer
	scratch scratchSet
	rotated rotation

	embedded embedding

	kind          model.Kind
	commands      Commands
	traffic       Traffic            // but for what depends on how far lanes are
	attends       []*model.Attention // whose traffic does
	gathers       []ngramGather      // of n-grams, which the CPU runs
	rows, outputs int
	segments      []int // slots of the pass's lanes
	pending       []int // and how many rows each takes
	err           error

	graphs    graphSet
	passShape shape
	playing   *recorded // the pass as it was recorded before; nil: it is being recorded
	keeping   bool      // and will be kept
	started   bool      // the device has its operators

	operators       int // dispatches of the operators among commands, before those that choose tokens; -1: more may come
	operatorTraffic Traffic
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
	rows   int // it has room for
}

// kernelSet are the kernels that take no format.
type kernelSet struct {
	rmsnorm, gatedNorm, copyRows, projectF32, projectSum, gatherF32, prepare, attention, conv, gdn, gdnChunk, hadamard *Kernel
	quantize, projectInt8                                                                                              *Kernel
	route, group, combine, addGated                                                                                    *Kernel
	expand, groupedNorm, mix, write, mean                                                                              *Kernel
	ngramGate, ngramConv                                                                                               *Kernel
	indexPrepare, indexPool, indexScore, indexSelect                                                                   *Kernel
}

// Options are the choices of a backend.
type Options struct {
	MaxRows int  // of a pass
	WideKV  bool // keys and values are F32 instead of BF16
	Int8KV  bool // keys and values are codes of 8 bits, with a scale for each token and head

	// ChunkedGDN takes long segments of recurrent layers a chunk of rows at a time. A row's numbers then depend, in their last bits,
	// on how its lane's rows are cut into passes.
	ChunkedGDN bool

	// RecordAlways records every pass anew, to see that replaying changes nothing.
	RecordAlways bool

	// Int8Activations multiplies the rotated inputs of a cycle's rows in codes of 8 bits, one scale a block of 1024 (formats.md 6.4).
	Int8Activations bool
}

// New returns a backend for a target. The images are those of [PlanImages] and stay open until Close; without them, or for a
// tensor that they lack, weights become planes in memory as they are loaded.
func New(d *Device, p *planner.Plan, images *planner.Images, o Options) (*Backend, error) {
	if err := check(&p.Layout); err != nil {
		return nil, err
	}
	b := &Backend{
		device: d, layout: &p.Layout, maxRows: o.MaxRows, kvBytes: 2, chunked: o.ChunkedGDN, int8Activations: o.Int8Activations,
		signs: make(map[string]*Buffer), graphs: graphSet{off: o.RecordAlways},
	}
	switch {
	case o.WideKV:
		b.kvBytes = 4
	case o.Int8KV:
		b.kvBytes = 1
	}
	if images == nil {
		images = new(planner.Images)
	}
	if err := b.open(images); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Device names the device.
func (b *Backend) Device() (name string, features []string) { return b.device.Name, nil }

// check holds a layout to what the kernels are built for.
func check(s *planner.Layout) error {
	switch a, g, m, q := &s.Attention, &s.GDN, &s.MoE, &s.QSA; {
	case a.HeadDim%32 != 0 || a.HeadDim > 256:
		return fmt.Errorf("metal: attention heads of %d; the kernels take multiples of 32 up to 256", a.HeadDim)
	case g.HeadDim != 0 && g.HeadDim != gdnDim || g.Kernel > convTaps:
		return fmt.Errorf("metal: GDN heads of %d and convolutions of %d taps; the kernels take heads of %d and up to %d taps",
			g.HeadDim, g.Kernel, gdnDim, convTaps)
	case m.Experts > maxExperts || m.Taken > maxTaken:
		return fmt.Errorf("metal: %d of %d experts; the kernels take up to %d of %d", m.Taken, m.Experts, maxTaken, maxExperts)
	case q.Heads != 0 && (q.HeadDim%32 != 0 || q.HeadDim > 128 || q.Block < 1 || pageTokens%q.Block != 0):
		return fmt.Errorf("metal: an index of heads of %d over blocks of %d; the kernels take multiples of 32 up to 128 and blocks "+
			"that divide %d", q.HeadDim, q.Block, pageTokens)
	case s.PLE.Heads != 0 && (s.PLE.Kernel-1)*s.PLE.Dilation+model.RollbackRows >= ngramKept:
		return fmt.Errorf("metal: n-gram convolutions of %d taps %d apart; the kernels keep %d rows", s.PLE.Kernel, s.PLE.Dilation, ngramKept)
	}
	return nil
}

func (b *Backend) open(images *planner.Images) error {
	suffix := map[int]string{1: "_int8", 2: "", 4: "_f32"}[b.kvBytes]
	k := &b.kernels
	for name, k := range map[string]**Kernel{
		"rmsnorm": &k.rmsnorm, "gated_norm": &k.gatedNorm, "copy_rows": &k.copyRows, "project_f32": &k.projectF32, "project_sum": &k.projectSum,
		"gather_f32": &k.gatherF32, "attention_prepare" + suffix: &k.prepare, "attention" + suffix: &k.attention,
		"conv": &k.conv, "gdn": &k.gdn, "gdn_chunk": &k.gdnChunk, "hadamard": &k.hadamard, "quantize_rows": &k.quantize, "project_int8": &k.projectInt8,
		"moe_route": &k.route, "moe_group": &k.group, "moe_combine": &k.combine, "add_gated": &k.addGated,
		"expand": &k.expand, "grouped_norm": &k.groupedNorm, "hyper_mix": &k.mix, "hyper_write": &k.write, "stream_mean": &k.mean,
		"ngram_gate": &k.ngramGate, "ngram_conv": &k.ngramConv,
		"index_prepare": &k.indexPrepare, "index_pool": &k.indexPool, "index_score": &k.indexScore, "index_select": &k.indexSelect,
	} {
		var err error
		if *k, err = b.device.Kernel(name); err != nil {
			return err
		}
	}
	if err := b.wrap(images); err != nil {
		return err
	}
	var err error
	if b.chooser, err = NewChooser(b.device, b.layout.Vocab, nil); err != nil {
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
		if f.Name == ngramImage {
			b.images = append(b.images, image{file: f})
			continue
		}
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
func (b *Backend) Close() error {
	b.moved()
	for _, m := range b.images {
		free(m.buffer)
	}
	for _, x := range b.buffers {
		free(x.Buffer)
	}
	for _, s := range append(b.states, b.past...) {
		free(s.buffers[:]...)
	}
	for _, x := range b.signs {
		free(x)
	}
	free(b.vectors...)
	free(b.owned...)
	b.release()
	if b.chooser != nil {
		b.chooser.Close()
	}
	free(b.scratch[:]...)
	free(b.rowBuffer, b.segmentBuffer, b.outputBuffer, b.everyRow, b.freq, b.pages.table, b.draft.freq, b.draft.sources,
		b.embedded.values)
	*b = Backend{}
	return nil
}

var _ model.Backend = (*Backend)(nil)

// Buffer allocates a buffer.
func (b *Backend) Buffer(width int, d model.Domain) (model.Buffer, error) {
	if width <= 0 {
		return 0, fmt.Errorf("metal: a buffer of width %d", width)
	}
	x := buffer{width: width, domain: d, rows: b.maxRows}
	if d == model.OutputRows {
		x.rows = min(b.maxRows, model.RollbackRows) // logits are wide; a pass that wants more of them gets them
	}
	if err := allocate[float32](b, &x.Buffer, x.rows*width); err != nil {
		return 0, err
	}
	b.buffers = append(b.buffers, x)
	return model.Buffer(len(b.buffers) - 1), nil
}

// growOutputs gives the buffers of output rows room for those of the pass.
func (b *Backend) growOutputs() error {
	for i := range b.buffers {
		x := &b.buffers[i]
		if x.domain != model.OutputRows || x.rows >= b.outputs {
			continue
		}
		rows := min(b.maxRows, max(2*x.rows, b.outputs))
		larger, err := b.device.NewBuffer(4 * rows * x.width)
		if err != nil {
			return err
		}
		b.moved()
		x.Free()
		x.Buffer, x.rows = larger, rows
	}
	return nil
}

// Begin starts the recording of a pass.
func (b *Backend) Begin(p *model.Pass) error {
	b.commands.Reset()
	b.release()
	b.kind, b.err, b.rotated, b.traffic = p.Kind, nil, rotation{}, Traffic{}
	b.attends, b.gathers, b.playing, b.keeping = b.attends[:0], b.gathers[:0], nil, false
	b.operators, b.started = -1, false
	b.rows, b.outputs, b.segments, b.pending = 0, 0, b.segments[:0], b.pending[:0]
	b.embedded.runs = b.embedded.runs[:0]
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
	return b.growOutputs()
}

func (b *Backend) addSegment(s *model.Segment) error {
	l, err := b.lane(s.Lane)
	if err != nil {
		return err
	}
	if len(s.Tokens) == 0 {
		return fmt.Errorf("metal: lane %d has a segment without rows", s.Lane)
	}
	if err := s.CheckRows(b.layout.Hidden); err != nil {
		return fmt.Errorf("metal: %w", err)
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
			padding: bit(s.Routed != 0 && i >= s.Routed),
		}
		if s.Embedded != nil && s.Embedded[i] != nil {
			if err := b.embed(s.Embedded[i]); err != nil {
				return err
			}
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
	err := b.start()
	if err == nil {
		err = b.device.encode(b.commands.list[b.operators:])
	}
	for _, f := range [2]func() error{b.device.commit, b.device.Wait} { // what was encoded is run, whatever else is
		if e := f(); err == nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	if b.kind == model.TargetPass {
		row := 0
		for i, slot := range b.segments {
			b.lanes[slot].advance(b.pending[i])
			b.remember(b.lanes[slot], row, b.pending[i])
			row += b.pending[i]
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

// at is where a buffer begins, which an operator reads or writes once.
func (b *Backend) at(h model.Buffer) binding {
	b.traffic.Activations += 4 * int64(b.count(h)) * int64(b.buffers[h].width)
	return b.buffers[h].from(0)
}
