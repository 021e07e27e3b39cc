//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/oracle"
)

// top runs both kernels of the first candidates of rows of logits.
func (b *bench) top(logits []float32, rows, shard, count int) []candidate {
	b.t.Helper()
	items := len(logits) / rows
	shards := (items + shard - 1) / shard
	parts, all := empty[candidate](b, rows*shards*count), empty[candidate](b, rows*count)
	add(&b.commands, b.kernel("top_candidates"), topGrid(shards, rows),
		topParams{count: cUint(count), items: cUint(items), shard: cUint(shard)}, filled(b, logits).from(0), parts.from(0))
	add(&b.commands, b.kernel("top_merge"), topGrid(rows, 1),
		topParams{count: cUint(count), items: cUint(shards * count), shard: cUint(shards * count)}, parts.from(0), all.from(0))
	b.run()
	return slices.Clone(view[candidate](all))
}

// TestTop holds the first candidates to the oracle's, under ties, zeros of both signs, infinities, NaN, and vocabularies that are
// smaller than the list or fill no shard.
func TestTop(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(29, 1))
	inf := float32(math.Inf(1))
	odd := []float32{0, float32(math.Copysign(0, -1)), -inf, inf, float32(math.NaN()), 1, 1, -1, 0x1p-149, -0x1p-149}
	for _, c := range []struct{ vocab, shard, count, rows int }{
		{6, 8192, 16, 1}, {15, 4, 16, 2}, {1000, 256, 16, 3}, {2048, 8192, 20, 2}, {4099, 1000, 16, 7}, {33, 32, 1, 1}, {700, 300, 32, 1},
	} {
		logits := normals(rng, c.rows*c.vocab)
		for i := range logits {
			switch rng.IntN(4) {
			case 0:
				logits[i] = odd[rng.IntN(len(odd))]
			case 1:
				logits[i] = float32(math.Round(float64(logits[i])))
			}
		}
		if c.rows == 3 {
			for i := range c.vocab {
				logits[i] = odd[1+3*(i&1)] // -0 and NaN alone
			}
		}
		got := b.top(logits, c.rows, c.shard, c.count)
		tokens, unary := make([]int32, c.count), make([]float64, c.count)
		for row := range c.rows {
			oracle.TopCandidates(tokens, unary, wide(logits[row*c.vocab:(row+1)*c.vocab]))
			for i, want := range tokens {
				if g := got[row*c.count+i]; int32(g.token) != want || float64(g.logit) != unary[i] {
					t.Fatalf("%+v, row %d, place %d: token %d of %v, want %d of %v", c, row, i, int32(g.token), g.logit, want, unary[i])
				}
			}
		}
	}
}

// A lattice is the candidates and edges of lanes, on a device.
type lattice struct {
	p               selectParams
	lanes           int
	candidates      []candidate
	edges, selected *Buffer
}

// lattice runs the kernel of a lattice's edges.
func (b *bench) lattice(l *lattice, state []float32, anchors []uint32, before, after []float32) {
	b.t.Helper()
	k := int(l.p.candidates)
	l.selected = filled(b, l.candidates)
	l.edges = empty[float32](b, l.lanes*int(l.p.positions)*k*k)
	add(&b.commands, b.kernel("draft_edges"), edgesGrid(int(l.p.positions), l.lanes), l.p, l.selected.from(0),
		filled(b, state).from(0), filled(b, anchors).from(0), filled(b, bf16s(before)).from(0), filled(b, bf16s(after)).from(0),
		l.edges.from(0))
	b.run()
}

func bf16s(x []float32) []uint16 {
	y := make([]uint16, len(x))
	for i, v := range x {
		y[i] = dequant.ToBF16(v)
	}
	return y
}

// oracle is a lane's lattice as the oracle has it, made of what the device wrote.
func (l *lattice) oracle(lane int) *oracle.Lattice {
	n, k := int(l.p.positions), int(l.p.candidates)
	o := oracle.NewLattice(n, k)
	for i := range n * k {
		c := l.candidates[lane*n*k+i]
		o.Tokens[i], o.Unary[i] = int32(c.token), float64(c.logit)
	}
	copy(o.Edges, wide(view[float32](l.edges)[lane*n*k*k:(lane+1)*n*k*k]))
	return o
}

// walks runs the walks of all lanes.
func (b *bench) walks(l *lattice, temperatures, uniforms []float32) ([]walk, []float32) {
	b.t.Helper()
	n, k := int(l.p.positions), int(l.p.candidates)
	walks, q := empty[walk](b, l.lanes), empty[float32](b, l.lanes*n*k)
	add(&b.commands, b.kernel("draft_select"), walkGrid(l.lanes, k), l.p, l.selected.from(0), l.edges.from(0),
		filled(b, temperatures).from(0), filled(b, uniforms).from(0), walks.from(0), q.from(0))
	b.run()
	return slices.Clone(view[walk](walks)), slices.Clone(view[float32](q))
}

// latticeOf is a lattice of drawn candidates: rising ranks of logits, tokens of the vocabulary, the last of them none.
func latticeOf(rng *rand.Rand, lanes, vocab int) *lattice {
	l := &lattice{p: selectParams{positions: draftProposals, candidates: 16, rank: 256, vocab: cUint(vocab)}, lanes: lanes}
	for range lanes * draftProposals {
		logits := normals(rng, 16)
		slices.SortFunc(logits, func(a, b float32) int { return int(math.Copysign(1, float64(b-a))) })
		for i, token := range rng.Perm(vocab)[:16] {
			l.candidates = append(l.candidates, candidate{token: cUint(token), logit: cFloat(5 * logits[i])})
		}
	}
	return l
}

// TestSelectorEdges holds the edges to the oracle, some of candidates that are none.
func TestSelectorEdges(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(29, 2))
	const lanes, vocab = 2, 61
	l := latticeOf(rng, lanes, vocab)
	l.candidates[15].token, l.candidates[40].token = math.MaxUint32, math.MaxUint32
	state, anchors := normals(rng, lanes*draftProposals*256), []uint32{3, 60}
	before, after := normals(rng, vocab*256), normals(rng, vocab*256)
	b.lattice(l, state, anchors, before, after)
	selector := oracle.Selector{Predecessor: roundedMatrix(before, 256), Successor: roundedMatrix(after, 256)}
	sizes := oracle.Selector{Predecessor: sizedMatrix(before, 256), Successor: sizedMatrix(after, 256)}
	var r ratio
	want, size := make([]float64, 256), make([]float64, 256)
	for lane := range lanes {
		o := l.oracle(lane)
		for j := range draftProposals {
			predecessors := []int32{int32(anchors[lane])}
			if j > 0 {
				predecessors = o.Candidates(j - 1)
			}
			s := state[(lane*draftProposals+j)*256:][:256]
			selector.Edges(want, wide(s), predecessors, o.Candidates(j))
			sizes.Edges(size, magnitudes(s), predecessors, o.Candidates(j))
			for i := range len(predecessors) * 16 {
				r.check(float32(o.Edges[j*256+i]), want[i], (256+2)*u*size[i], "lane %d, position %d, edge %d", lane, j, i)
			}
		}
	}
	r.report(t, "draft_edges")
}

// rows is a matrix of values.
type rows struct {
	data []float64
	cols int
}

func (m rows) Dims() (int, int)         { return len(m.data) / m.cols, m.cols }
func (m rows) Row(dst []float64, i int) { copy(dst, m.data[i*m.cols:(i+1)*m.cols]) }

func roundedMatrix(x []float32, cols int) rows {
	m := rows{cols: cols}
	for _, v := range x {
		m.data = append(m.data, float64(asBF16(v)))
	}
	return m
}

func sizedMatrix(x []float32, cols int) rows {
	m := roundedMatrix(x, cols)
	for i, v := range m.data {
		m.data[i] = math.Abs(v)
	}
	return m
}

// TestSelectorWalks holds greedy and sampled walks to the oracle: the same tokens, confidences and shares within a few units.
func TestSelectorWalks(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(29, 3))
	const lanes, vocab = 24, 40
	l := latticeOf(rng, lanes, vocab)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	n := draftProposals * 16
	for i := range 16 {
		l.candidates[3*n+i].logit = cFloat(-inf)            // a position without a finite score
		l.candidates[4*n+i].logit = l.candidates[4*n].logit // all equal
	}
	l.candidates[5*n+2].logit, l.candidates[6*n+37].logit = cFloat(nan), cFloat(inf)
	l.candidates[7*n+2].logit = cFloat(nan)
	before := make([]float32, vocab*256)
	for i, x := range normals(rng, len(before)) {
		before[i] = x / 8
	}
	after := before
	b.lattice(l, normals(rng, lanes*draftProposals*256), make([]uint32, lanes), before, after)
	temperatures, uniforms := make([]float32, lanes), make([]float32, lanes*draftDraws)
	for i := range temperatures {
		temperatures[i] = []float32{0, 0.7, 1, 2.5}[i%4]
	}
	for i := range uniforms {
		uniforms[i] = float32(rng.IntN(1<<24)) / (1 << 24)
	}
	uniforms[9*draftDraws+1] = 1 - 0x1p-24
	walks, q := b.walks(l, temperatures, uniforms)
	var r ratio
	for lane, got := range walks {
		o := l.oracle(lane)
		want := o.Greedy()
		if temperatures[lane] > 0 {
			want = o.Sample(float64(temperatures[lane]), wide(uniforms[lane*draftDraws+oracle.DrawProposal:]))
		}
		for j, token := range want.Tokens {
			if int32(got.tokens[j]) != token || int(got.choices[j]) != want.Choices[j] {
				t.Fatalf("lane %d, position %d: token %d, choice %d, want %d and %d", lane, j, got.tokens[j], got.choices[j], token, want.Choices[j])
			}
			c := want.Confidence[j]
			if math.IsNaN(c) != math.IsNaN(float64(got.confidence[j])) {
				t.Errorf("lane %d, position %d: confidence %v, want %v", lane, j, got.confidence[j], c)
			} else if !math.IsNaN(c) {
				// Scores are of order 10: their differences stray by units of that.
				r.check(float32(got.confidence[j]), c, 200*u*c, "lane %d, position %d, confidence", lane, j)
			}
			for i := range want.Q[min(len(want.Q), j*16):min(len(want.Q), (j+1)*16)] {
				share, g := want.Q[j*16+i], q[(lane*draftProposals+j)*16+i]
				if !math.IsNaN(share) || g == g {
					r.check(g, share, 400*u*share+0x1p-126, "lane %d, position %d, share %d", lane, j, i)
				}
			}
		}
	}
	r.report(t, "draft_select")
}

// TestSelectorWorked is the worked example of the specification: rank 4, 4 candidates, 3 positions, exact scores (draft.md 13.4).
func TestSelectorWorked(t *testing.T) {
	b := newBench(t)
	before := []float32{1, .5, 1, -.75, .5, 1, -.5, -.75, -.75, .25, -.25, -.75, -.25, .25, .75, .25, -1, 1, -.25, .75, 1, -.75, 0, .75}
	after := []float32{.25, .25, 0, .25, 0, 1, .75, 1, -.5, -1, -.25, .75, -.25, -.25, .5, 0, 0, -.5, .75, -.75, -.75, .5, .75, -.5}
	state := []float32{-.5, .5, 0, 1, -1, -1, 1.5, -1, -.5, 1, 1, -1}
	logits := []float32{-1.5, 3, -.5, -1.75, 1.25, 1.75, -1.25, -1, 2.5, 2, 0, 1, .5, 3, .5, -1.5, -1.25, -.5}
	l := &lattice{p: selectParams{positions: 3, candidates: 4, rank: 4, vocab: 6}, lanes: 1, candidates: b.top(logits, 3, 8192, 4)}
	b.lattice(l, state, []uint32{0}, before, after)
	edges := view[float32](l.edges)
	want := []float32{
		-0.5, 0.875, 0.4375, -0.5625, // position 0, after the anchor
		2, 0, -1.0625, -0.625, -0.8125, 0.0625, 1.5, 0.1875, 0.03125, -0.1875, -1.15625, 0.78125, 0.53125, -0.3125, -1.34375, -0.71875,
		0.8125, 0.34375, 0.1875, -0.71875, 0.5625, 0.03125, -0.6875, 0.71875, -1.5, -0.5, 0.4375, 0.375, 0.0625, 0.1875, -1.75, 0.3125,
	}
	if diff := cmp.Diff(want, slices.Concat(edges[:4], edges[16:48])); diff != "" {
		t.Errorf("edges: %s", diff)
	}
	for _, c := range []struct {
		temperature float32
		uniforms    []float32
		tokens      []cUint
		confidence  []float64
	}{
		{0, nil, []cUint{5, 5, 1}, []float64{0.4349458, 0.456952922, 0.502556843}},
		{0.8, []float32{0, 0.25, 0.75, 0.999}, []cUint{1, 2, 5}, []float64{0.4349458, 0.910359493, 0.90757686}},
	} {
		got, _ := b.walks(l, []float32{c.temperature}, append(c.uniforms, make([]float32, draftDraws)...))
		if diff := cmp.Diff(fmt.Sprint(c.tokens), fmt.Sprint(got[0].tokens[:3])); diff != "" {
			t.Errorf("temperature %v: %s", c.temperature, diff)
		}
		for j, want := range c.confidence {
			if math.Abs(float64(got[0].confidence[j])-want) > 1e-6 {
				t.Errorf("temperature %v: confidence %v at %d, want %v", c.temperature, got[0].confidence[j], j, want)
			}
		}
	}
}

// verified runs the choice of rows.
func (b *bench) verified(confidence [][draftProposals]float32, limits []uint32, p verifyParams) []verifyRows {
	b.t.Helper()
	walks := make([]walk, len(confidence))
	for i, c := range confidence {
		for j, x := range c {
			walks[i].confidence[j] = cFloat(x)
		}
	}
	dst := empty[verifyRows](b, len(walks))
	p.lanes = cUint(len(walks))
	add(&b.commands, b.kernel("draft_verify_rows"), grid{x: 1, y: 1, threads: 32}, p, filled(b, walks).from(0),
		filled(b, limits).from(0), dst.from(0))
	b.run()
	return slices.Clone(view[verifyRows](dst))
}

// TestSelectorVerifyRows holds survivals and rows to the oracle. Rows may differ where a row is worth its cost to 1e-5.
func TestSelectorVerifyRows(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(29, 4))
	var r ratio
	for n := range 60 {
		lanes := 1 + n%5
		m := oracle.AcceptanceModel{Slope: 0.5 + rng.Float64()}
		p := verifyParams{base: cFloat(1 + 10*rng.Float32()), row: cFloat(0.5 + rng.Float32()), slope: cFloat(m.Slope)}
		m.Slope = float64(p.slope)
		for j := range m.Intercept {
			p.intercept[j] = cFloat(rng.NormFloat64() / 2)
			m.Intercept[j] = float64(p.intercept[j])
		}
		confidence, limits := make([][draftProposals]float32, lanes), make([]uint32, lanes)
		survival, ints := make([][oracle.Proposals]float64, lanes), make([]int, lanes)
		for l := range confidence {
			limits[l] = uint32(1 + rng.IntN(8))
			for j := range confidence[l] {
				confidence[l][j] = float32(math.Round(20*rng.Float64()) / 20) // with ties
			}
			if n%7 == 3 {
				confidence[l][l%7] = float32(math.NaN())
			}
			if n%11 == 5 && l > 0 {
				confidence[l] = confidence[0]
			}
			ints[l] = int(limits[l])
			m.Survival(&survival[l], wide(confidence[l][:]))
		}
		if n == 59 {
			p.full = 1
		}
		got, want := b.verified(confidence, limits, p), make([]int, lanes)
		device := make([][oracle.Proposals]float64, lanes)
		for l := range got {
			for j, s := range got[l].survival {
				device[l][j] = float64(s)
				r.check(float32(s), survival[l][j], float64(j+1)*64*u*survival[l][j]+1e-30, "case %d, lane %d, survival %d", n, l, j)
			}
		}
		// Equal survivals are equal on the device too, but sums of them round: the rule is held on the device's own.
		oracle.VerifyRows(want, device, ints, float64(p.base), float64(p.row))
		for l := range got {
			if p.full != 0 {
				want[l] = ints[l]
			}
			if int(got[l].rows) != want[l] && !closeChoice(device, ints, want, float64(p.base), float64(p.row)) {
				t.Errorf("case %d, lane %d of %d: %d rows, want %d of at most %d", n, l, lanes, got[l].rows, want[l], limits[l])
			}
		}
	}
	r.report(t, "draft_verify_rows")
}

// closeChoice reports whether the last row taken or the first not taken is worth its cost to 1e-5.
func closeChoice(survival [][oracle.Proposals]float64, limits, rows []int, base, row float64) bool {
	expected, n, next, last := 0.0, 0.0, 0.0, math.Inf(1)
	for l, v := range rows {
		expected, n = expected+1, n+float64(v)
		for j := range v - 1 {
			expected += survival[l][j]
			last = min(last, survival[l][j])
		}
		if v < limits[l] {
			next = max(next, survival[l][v-1])
		}
	}
	near := func(s, e, n float64) bool { return math.Abs(s*(base+row*n)-e*row) <= 1e-5*e*row }
	return near(next, expected, n) || near(last, expected-last, n-1)
}

// TestSelectorVerifyWorked is the worked example of the specification (draft.md 13.8, 13.9).
func TestSelectorVerifyWorked(t *testing.T) {
	b := newBench(t)
	m := oracle.Prior()
	p := verifyParams{slope: cFloat(m.Slope)}
	for j, x := range m.Intercept {
		p.intercept[j] = cFloat(x)
	}
	nan := float32(math.NaN())
	first := [draftProposals]float32{.9, .8, .6, .95, .5, .7, .4}
	second := [draftProposals]float32{.99, .97, .2, .9, .9, .9, .9}
	for _, c := range []struct {
		confidence [][draftProposals]float32
		limits     []uint32
		base, row  cFloat
		want       []cUint
	}{
		{[][draftProposals]float32{first, second}, []uint32{8, 8}, 12, 1, []cUint{3, 3}},
		{[][draftProposals]float32{first, second}, []uint32{8, 2}, 12, 1, []cUint{5, 2}},
		{[][draftProposals]float32{first}, []uint32{8}, 6, 1, []cUint{4}},
		{[][draftProposals]float32{first}, []uint32{8}, 20, 8, []cUint{3}},
		{[][draftProposals]float32{{.9, nan, .6, .95, .5, .7, .4}}, []uint32{8}, 6, 1, []cUint{2}},
	} {
		p.base, p.row = c.base, c.row
		for l, got := range b.verified(c.confidence, c.limits, p) {
			if got.rows != c.want[l] {
				t.Errorf("%+v: lane %d verifies %d rows, want %d", c, l, got.rows, c.want[l])
			}
		}
	}
}
