package reference

import (
	"slices"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// Expand writes x to every stream.
func (b *Backend) Expand(streams, x model.Buffer) {
	b.each(x, func(i int) {
		in, out := b.row(x, i), b.row(streams, i)
		for at := 0; at < len(out); at += len(in) {
			copy(out[at:], in)
		}
	})
}

// HyperRead reads the streams.
func (b *Backend) HyperRead(h, inject, streams model.Buffer, m *model.HyperMix) {
	mix := oracle.HyperMix{Norm: b.vectors[m.Norm], Down: b.matrices[m.Down], Up: b.matrices[m.Up]}
	if m.Inject != model.NoMatrix {
		mix.Inject = b.matrices[m.Inject]
	}
	b.each(h, func(i int) { mix.Read(b.row(h, i), b.row(inject, i), b.row(streams, i), b.layout.Epsilon) })
}

// HyperWrite writes to the streams.
func (b *Backend) HyperWrite(streams, y, inject model.Buffer) {
	b.each(y, func(i int) { oracle.HyperWrite(b.row(streams, i), b.row(inject, i), b.row(y, i)) })
}

// StreamMean writes the mean of the streams.
func (b *Backend) StreamMean(dst, streams model.Buffer) {
	b.each(dst, func(i int) { oracle.HyperMean(b.row(dst, i), b.row(streams, i)) })
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

func (s *ngramState) clone() state {
	return &ngramState{*s.window.clone().(*window), s.context, slices.Clone(s.tokens[max(0, len(s.tokens)-s.context):])}
}

func (s *ngramState) size() int { return s.window.size() + 4*s.context }

func (s *ngramState) back(n int) {
	s.window.back(n)
	s.tokens = s.tokens[:len(s.tokens)-n]
}

// NGramRows gathers the table rows of each token's n-grams.
func (b *Backend) NGramRows(dst model.Buffer, table model.Matrix, n *model.NGram) {
	p, m := n.Layout, b.matrices[table]
	hash := oracle.PLEHash{EOS: p.EOS, Multipliers: p.Multipliers, Vocab: p.Vocab, Offsets: p.Offsets}
	context, rows := make([]int32, p.NGram), make([]uint64, (p.NGram-1)*p.Heads)
	for i, r := range b.rows {
		s := r.lane.states[n.State].(*ngramState)
		s.tokens = append(s.tokens, r.token)
		hash.Context(context, s.tokens)
		hash.Rows(rows, context)
		out := b.row(dst, i)
		for j, id := range rows {
			m.gather(out[j*p.Width:(j+1)*p.Width], int(id))
		}
	}
}

// NGramAdd adds the n-gram embedding to the streams.
func (b *Backend) NGramAdd(streams, key, value model.Buffer, n *model.NGram) {
	ple := oracle.PLE{
		KeyNorm: b.vectors[n.KeyNorm], QueryNorm: b.vectors[n.QueryNorm], ConvNorm: b.vectors[n.ConvNorm],
		Conv: b.vectors[n.Conv], Dilation: n.Layout.Dilation,
	}
	for i, r := range b.rows {
		s := r.lane.states[n.State].(*ngramState)
		history := append([]float64(nil), s.history()...)
		ple.Add(b.row(streams, i), history, b.row(key, i), b.row(value, i), b.layout.Epsilon)
		s.push(history[len(history)-s.width:])
	}
}
