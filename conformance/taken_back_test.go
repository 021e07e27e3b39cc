package conformance_test

import (
	"slices"
	"testing"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A stateful is every operator that carries something from row to row, on one backend. Row i of a lane reads row i of the inputs
// if its token is i, and others if it is another.
type stateful struct {
	b    model.Backend
	in   [9]input
	out  [4]model.Buffer
	conv model.Vector
	g    *model.GDN
	n    *model.NGram
	a    *model.Attention
	s    model.State // of the convolution

	gathered model.Buffer
	table    model.Matrix
}

// statefulLayout are the sizes of its operators.
func statefulLayout() planner.Layout {
	return planner.Layout{
		Hidden: 128, Hyper: planner.HyperLayout{Streams: 2}, GDN: planner.GDNLayout{KeyHeads: 1, ValueHeads: 2, HeadDim: 128, Kernel: 4},
		Attention: planner.AttentionLayout{Heads: 2, KVHeads: 1, HeadDim: 64, RopeDim: 32, RopeBase: 1e7},
		QSA:       planner.QSALayout{Heads: 1, HeadDim: 64, Block: 4, Budget: 3},
		PLE: planner.PLELayout{
			NGram: 3, Heads: 1, Width: 32, Kernel: 4, Dilation: 3, EOS: 1, Vocab: []uint64{11, 13}, Multipliers: []uint64{1000003, 2000003, 3000017},
			Offsets: []uint64{0, 11}, Rows: 24,
		},
	}
}

// newStateful makes the operators of a pair: of both its backends the same.
func newStateful(p *pair) (truth, got *stateful) {
	l := &p.layout
	rows := p.rows
	vectors := func(n int) model.Vector { return p.vector(p.normals(n)) }
	s := stateful{conv: vectors(256 * 4)}
	for i, width := range []int{512, 256, 2, 2, 128, 64, 64, 64, 64} {
		s.in[i] = p.input(p.normals(rows*width), width)
	}
	for i, width := range []int{256, 256, 256, 128} {
		s.out[i] = p.buffer(width)
	}
	s.gathered = p.buffer(64)
	s.table = p.matrix(planner.Tensor{Name: "per_layer_token_embd.weight", Role: planner.TokenTable}, floatMatrix(p.normals(24*32), 24, 32))
	s.g = &model.GDN{Layout: &l.GDN, Decay: p.vector([]float32{-0.1, -1}), Bias: p.vector([]float32{0.5, -1})}
	s.n = &model.NGram{Layout: &l.PLE, KeyNorm: vectors(256), QueryNorm: vectors(256), ConvNorm: vectors(256), Conv: vectors(256 * 4)}
	s.a = &model.Attention{
		Layout: &l.Attention, QNorm: model.None, KNorm: model.None, Sinks: model.None, Rotate: true,
		Index: &model.Indexer{Layout: &l.QSA, Q: s.in[7].buffer, K: s.in[8].buffer, QNorm: vectors(64), KNorm: vectors(64)},
	}
	p.each(func(b model.Backend) {
		s.s = b.ConvState(256, 4)
		s.g.State, s.n.State = b.GDNState(2, 128, 128), b.NGramState(&l.PLE, 256)
		s.a.KV, s.a.Index.State = b.KVState(1, 64), b.IndexState(64)
	})
	truth, got = new(stateful), new(stateful)
	*truth, *got = s, s
	truth.b, got.b = p.truth, p.got
	return truth, got
}

// run runs rows of a lane and returns what every operator gave for each of them.
func (s *stateful) run(t *testing.T, lane model.Lane, tokens []int32) (rows [][]float32) {
	t.Helper()
	b := s.b
	if err := b.Begin(&model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens}}}); err != nil {
		t.Fatal(err)
	}
	for i := range s.in {
		s.in[i].set(b)
	}
	b.Conv(s.out[0], s.in[1].buffer, s.conv, s.s)
	b.GDN(s.out[1], s.in[0].buffer, s.in[2].buffer, s.in[3].buffer, s.g)
	b.NGramRows(s.gathered, s.table, s.n)
	b.Expand(s.out[2], s.in[4].buffer)
	b.NGramAdd(s.out[2], s.in[1].buffer, s.in[4].buffer, s.n)
	b.Attention(s.out[3], s.in[4].buffer, s.in[5].buffer, s.in[6].buffer, s.a)
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		var row []float32
		for _, h := range s.out {
			row = append(row, slices.Clone(b.Read(h, i))...)
		}
		rows = append(rows, append(row, slices.Clone(b.Read(s.gathered, i))...))
	}
	return rows
}

// TestTakenBack runs rows in passes, takes rows back and goes on. What every stateful operator then gives has the
// bits that it gives on a lane that never ran the rows, in one pass; and is near what the oracle gives.
func TestTakenBack(t *testing.T) {
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		const rows = 40
		p := newPair(t, b, rows, statefulLayout())
		truth, s := newStateful(p)
		var tokens []int32
		for i := range int32(rows) {
			tokens = append(tokens, i)
		}
		lane := func(s *stateful) model.Lane {
			l, err := s.b.NewLane()
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		exact, want := truth.run(t, lane(truth), tokens), s.run(t, lane(s), tokens)
		for i, row := range exact {
			for j, v := range row {
				d := max(float64(want[i][j]-v), float64(v-want[i][j]))
				if !(d <= 0.05*max(1, oracle.Dot(widened(row), widened(row))/float64(len(row)))) {
					t.Fatalf("row %d, element %d is %v, want %v", i, j, want[i][j], v)
				}
			}
		}
		for _, c := range [][2]int{{1, 0}, {1, 1}, {5, 2}, {8, 8}, {12, 5}} {
			n, back := c[0], c[1]
			l := lane(s)
			s.run(t, l, tokens[:14])
			wrong := slices.Clone(tokens[14 : 14+n-back])
			for i := range back {
				wrong = append(wrong, int32(39-i))
			}
			s.run(t, l, wrong)
			if err := s.b.Rollback(l, back); err != nil {
				t.Fatal(err)
			}
			at := 14 + n - back
			for i, row := range s.run(t, l, tokens[at:at+9]) {
				if !slices.Equal(row, want[at+i]) {
					t.Fatalf("%d of %d rows taken back: row %d differs", back, n, at+i)
				}
			}
			s.b.FreeLane(l)
		}
	})
}
