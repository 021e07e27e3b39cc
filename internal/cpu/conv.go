package cpu

import "splash/internal/model"

// Conv runs the causal convolution over the rows of each lane, channels apart.
func (b *Backend) Conv(dst, x model.Buffer, w model.Vector, s model.State) {
	t := &b.ops.conv
	width := b.buffers[x].width
	*t = convTask{b: b, dst: dst, x: x, w: b.taps(w, width), parts: t.parts[:0]}
	t.cut(width)
	for i := range b.segments {
		t.seg = &b.segments[i]
		t.win = t.seg.lane.states[s].(*window)
		b.pool.run(t, len(t.parts), max(1, 4/t.seg.n))
		t.win.rows += t.seg.n
	}
}

// convChannels are the channels of a part, maxTaps the most taps of a convolution.
const (
	convChannels = 512
	maxTaps      = 8
)

// taps returns the taps of a convolution one after another, [taps][channels]; a vector holds them [channels][taps].
func (b *Backend) taps(w model.Vector, channels int) []float32 {
	for len(b.tapsOf) < len(b.vectors) {
		b.tapsOf = append(b.tapsOf, nil)
	}
	if b.tapsOf[w] == nil {
		v := b.vectors[w]
		n := len(v) / channels
		t := floats(len(v))
		for c := range channels {
			for j := range n {
				t[j*channels+c] = v[c*n+j]
			}
		}
		b.tapsOf[w] = t
	}
	return b.tapsOf[w]
}

type convTask struct {
	b      *Backend
	dst, x model.Buffer
	w      []float32
	seg    *segment
	win    *window
	parts  []channels
}

// channels are those from lo to hi-1.
type channels struct{ lo, hi int }

// cut makes the parts, in the order that the product which made the channels was cut in.
func (t *convTask) cut(width int) {
	workers := t.b.pool.workers
	for w := range workers {
		for lo, end := range t.b.cuts(width, w, workers, vector) {
			for ; lo < end; lo += convChannels {
				t.parts = append(t.parts, channels{lo, min(lo+convChannels, end)})
			}
		}
	}
}

func (t *convTask) run(w, first, last int) {
	for _, c := range t.parts[first:last] {
		t.convolve(w, c.lo, c.hi)
	}
}

// convolve does channels of a segment. dst may be x: the rows are taken from the last to the first, after the window has
// kept what it needs of them.
func (t *convTask) convolve(w, lo, hi int) {
	b, width := t.b, t.win.width
	history := t.history(b.workers[w], lo, hi)
	taps := t.b.workers[w].taps[:]
	before, n := t.win.before, hi-lo
	for r := t.seg.n - 1; r >= 0; r-- {
		for j := range before + 1 {
			if i := r - before + j; i < 0 {
				taps[j] = history[(before+i)*n : (before+i+1)*n]
			} else {
				taps[j] = b.row(t.x, t.seg.first+i)[lo:hi]
			}
		}
		b.k.conv(b.row(t.dst, t.seg.first+r)[lo:hi], t.w[lo:], width, taps[:before+1])
	}
}

// history returns channels of the rows before the segment, oldest first, and has the window keep those of its last rows.
func (t *convTask) history(w *worker, lo, hi int) []float32 {
	win, n := t.win, hi-lo
	w.row = grown(w.row, win.before*n)
	for i := range win.before {
		copy(w.row[i*n:(i+1)*n], win.row(win.rows - win.before + i)[lo:hi])
	}
	for i := win.oldest(t.seg.n); i < t.seg.n; i++ {
		copy(win.row(win.rows + i)[lo:hi], t.b.row(t.x, t.seg.first+i)[lo:hi])
	}
	return w.row
}
