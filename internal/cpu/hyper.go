package cpu

import (
	"math"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// streams is what a mix of residual streams works with.
type streams struct {
	normed, gate []float32 // [rows][streams * hidden]
	low          []float32 // [rows][rank]
	inject       []float32
}

// Expand writes x to every stream.
func (b *Backend) Expand(streams, x model.Buffer) {
	for i := range b.rowsOf(x) {
		in, out := b.row(x, i), b.row(streams, i)
		for at := 0; at < len(out); at += len(in) {
			copy(out[at:], in)
		}
	}
}

// HyperRead reads the streams (oracle.HyperMix.Read).
func (b *Backend) HyperRead(h, inject, streams model.Buffer, m *model.HyperMix) {
	s, rows := &b.hyper, b.rowsOf(streams)
	wide, down, up := b.buffers[streams].width, b.matrices[m.Down], b.matrices[m.Up]
	s.normed, s.gate, s.low = grown(s.normed, rows*wide), grown(s.gate, rows*wide), grown(s.low, rows*down.rows)
	t := &b.ops.mix
	*t = mixTask{b: b, m: m, h: h, inject: inject, streams: streams, n: m.Layout.Streams}
	t.stage = mixNorm
	b.pool.run(t, rows, 2)
	b.multiply(down, s.low, down.rows, s.normed, rows)
	t.stage = mixLow
	b.pool.run(t, rows, normGrain)
	b.multiply(up, s.gate, wide, s.low, rows)
	if m.Inject != model.NoMatrix {
		b.multiply(b.matrices[m.Inject], b.all(inject), b.buffers[inject].width, s.normed, rows)
		t.stage = mixInject
		b.pool.run(t, rows, normGrain)
	}
	t.stage = mixRead // the normalized streams are gated in place
	b.pool.run(t, rows, 2)
}

// mixTask is what lies between the products of a mix.
type mixTask struct {
	b                  *Backend
	m                  *model.HyperMix
	h, inject, streams model.Buffer
	n                  int
	stage              mixStage
}

type mixStage int

const (
	mixNorm mixStage = iota
	mixLow
	mixRead
	mixInject
)

func (t *mixTask) run(_, first, last int) {
	b, s := t.b, &t.b.hyper
	wide, rank := b.buffers[t.streams].width, b.matrices[t.m.Down].rows
	for i := first; i < last; i++ {
		switch t.stage {
		case mixNorm:
			b.groupedNorm(s.normed[i*wide:(i+1)*wide], b.row(t.streams, i), b.vectors[t.m.Norm], t.n)
		case mixLow:
			low := s.low[i*rank : (i+1)*rank]
			b.k.scale(low, 1/float32(t.n))
			for j, v := range low {
				low[j] = v / (1 + exp(-v))
			}
		case mixRead:
			t.read(b.row(t.h, i), s.gate[i*wide:(i+1)*wide], s.normed[i*wide:(i+1)*wide])
		case mixInject:
			inject := b.row(t.inject, i)
			for j, v := range inject {
				inject[j] = float32(2 * sigmoid(float64(v)/float64(t.n)))
			}
		}
	}
}

// read writes the mean of the gated streams.
func (t *mixTask) read(h, gate, normed []float32) {
	t.b.k.gate(normed, gate)
	copy(h, normed[:len(h)])
	for at := len(h); at < len(normed); at += len(h) {
		t.b.k.addScaled(h, normed[at:at+len(h)], 1)
	}
	t.b.k.scale(h, 1/float32(t.n))
}

// groupedNorm normalizes each of groups parts of x by itself.
func (b *Backend) groupedNorm(dst, x, w []float32, groups int) {
	n := len(x) / groups
	for at := 0; at < len(x); at += n {
		b.rmsNorm(dst[at:at+n], x[at:at+n], w[at:at+n], b.layout.Epsilon)
	}
}

// HyperWrite writes to the streams.
func (b *Backend) HyperWrite(streams, y, inject model.Buffer) {
	b.ops.write = writeTask{b, streams, y, inject}
	b.pool.run(&b.ops.write, b.rowsOf(y), normGrain)
}

type writeTask struct {
	b                  *Backend
	streams, y, inject model.Buffer
}

func (t *writeTask) run(_, first, last int) {
	for i := first; i < last; i++ {
		y, out := t.b.row(t.y, i), t.b.row(t.streams, i)
		for s, w := range t.b.row(t.inject, i) {
			t.b.k.addScaled(out[s*len(y):(s+1)*len(y)], y, w)
		}
	}
}

// StreamMean writes the mean of the streams.
func (b *Backend) StreamMean(dst, streams model.Buffer) {
	for i := range b.rowsOf(dst) {
		out, in := b.row(dst, i), b.row(streams, i)
		copy(out, in)
		for at := len(out); at < len(in); at += len(out) {
			b.k.addScaled(out, in[at:at+len(out)], 1)
		}
		b.k.scale(out, 1/float32(len(in)/len(out)))
	}
}

// ngramState is the last rows of the n-gram convolution's input, and the tokens that the next one's context may need.
type ngramState struct {
	window
	context int
	tokens  []int32
}

func newNGramState(p *planner.PLELayout, width int) *ngramState {
	return &ngramState{window: *newWindow(width, (p.Kernel-1)*p.Dilation), context: p.NGram}
}

func (s *ngramState) begin(rows int) {
	s.window.begin(rows)
	if keep := s.context + model.RollbackRows; len(s.tokens) > 8*keep {
		s.tokens = s.tokens[:copy(s.tokens, s.tokens[len(s.tokens)-keep:])]
	}
}

func (s *ngramState) back(n int) {
	s.window.back(n)
	s.tokens = s.tokens[:len(s.tokens)-n]
}

func (s *ngramState) reset() {
	s.window.reset()
	s.tokens = s.tokens[:0]
}

// NGramRows gathers the table rows of each token's n-grams.
func (b *Backend) NGramRows(dst model.Buffer, table model.Matrix, n *model.NGram) {
	p, m := n.Layout, b.matrices[table]
	hash := oracle.PLEHash{EOS: p.EOS, Multipliers: p.Multipliers, Vocab: p.Vocab, Offsets: p.Offsets}
	if len(b.context) < p.NGram {
		b.context, b.hashed = make([]int32, p.NGram), make([]uint64, (p.NGram-1)*p.Heads)
	}
	scratch := b.workers[0].rowOf(m.cols)
	for i := range b.rows {
		s := b.rows[i].lane.states[n.State].(*ngramState)
		s.tokens = append(s.tokens, b.rows[i].token)
		hash.Context(b.context, s.tokens)
		hash.Rows(b.hashed, b.context)
		out := b.row(dst, i)
		for j, id := range b.hashed {
			m.gather(out[j*p.Width:(j+1)*p.Width], int(id), scratch)
		}
	}
}

// NGramAdd adds the n-gram embedding to the streams (oracle.PLE.Add).
func (b *Backend) NGramAdd(streams, key, value model.Buffer, n *model.NGram) {
	t := &b.ops.ngram
	wide, hidden := b.buffers[streams].width, b.buffers[value].width
	*t = ngramTask{b: b, n: n, streams: streams, key: key, value: value, groups: wide / hidden}
	s := &b.hyper
	s.normed, s.gate = grown(s.normed, len(b.rows)*wide), grown(s.gate, len(b.rows)*wide)
	b.pool.run(t, len(b.rows), 2)
	taps := b.taps(n.Conv, wide)
	for i := range b.rows {
		t.convolve(i, taps)
	}
}

// ngramTask makes Y and Z of each row.
type ngramTask struct {
	b                   *Backend
	n                   *model.NGram
	streams, key, value model.Buffer
	groups              int
}

func (t *ngramTask) run(w, first, last int) {
	b, s := t.b, &t.b.hyper
	wide := b.buffers[t.streams].width
	for i := first; i < last; i++ {
		y, z, x, value := s.gate[i*wide:(i+1)*wide], s.normed[i*wide:(i+1)*wide], b.row(t.streams, i), b.row(t.value, i)
		b.groupedNorm(y, b.row(t.key, i), b.vectors[t.n.KeyNorm], t.groups)
		b.groupedNorm(z, x, b.vectors[t.n.QueryNorm], t.groups)
		for at := 0; at < wide; at += len(value) {
			dot := b.dotOne(b.workers[w], y[at:at+len(value)], z[at:at+len(value)])
			gate := oracle.PLEGate(float64(dot) / math.Sqrt(float64(len(value))))
			copy(y[at:], value)
			b.k.scale(y[at:at+len(value)], float32(gate))
		}
		b.groupedNorm(z, y, b.vectors[t.n.ConvNorm], t.groups)
	}
}

// convolve adds Y and the convolution of Z of row i, and keeps Z.
func (t *ngramTask) convolve(i int, weights []float32) {
	b, w := t.b, t.b.workers[0]
	wide := b.buffers[t.streams].width
	win := &b.rows[i].lane.states[t.n.State].(*ngramState).window
	copy(win.row(win.rows), b.hyper.normed[i*wide:(i+1)*wide])
	count := t.n.Layout.Kernel
	for j := range count {
		w.taps[j] = win.row(win.rows - t.n.Layout.Dilation*(count-1-j))
	}
	win.rows++
	out := w.rowOf(wide)
	b.k.conv(out, weights, wide, w.taps[:count])
	x := b.row(t.streams, i)
	b.k.addScaled(x, b.hyper.gate[i*wide:(i+1)*wide], 1)
	b.k.addScaled(x, out, 1)
}
