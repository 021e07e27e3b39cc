package oracle_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/oracle"
)

// testWeights are the values of the test drafts (draft.md 12.1): element i of a tensor in row-major order, columns its
// last dimension.
func testWeights(name string, n, columns int) []float64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	seed := h.Sum64()
	c := float64(columns)
	out := make([]float64, n)
	for i := range out {
		x := 2*oracle.Uniform(seed, uint64(i+1)) - 1
		switch {
		case strings.HasSuffix(name, "norm.weight"):
			x = 1 + 0.25*x
		case strings.HasSuffix(name, "base_kernel") && i/columns%2 == 0:
			x = 1 + 0.1*x
		case strings.HasSuffix(name, "base_kernel"):
			x = 0.2 * x
		case strings.HasSuffix(name, "kernel_projection.weight"):
			x = 0.1 * math.Sqrt(3/c) * x
		case strings.HasSuffix(name, "codebook"):
			x = 4 / math.Sqrt(c) * x
		case strings.HasSuffix(name, ".weight"):
			x = math.Sqrt(3/c) * x
		}
		out[i] = float64(dequant.FromBF16(dequant.ToBF16(float32(x))))
	}
	return out
}

func TestTestWeights(t *testing.T) {
	for _, c := range []struct {
		name       string
		n, columns int
		want       []uint16
	}{
		{"fc.weight", 256 * 768, 768, []uint16{0xbafc, 0x3d3f, 0x3cf9, 0x3ccd}},
		{"layers.0.input_layernorm.weight", 256, 256, []uint16{0x3f8e, 0x3f8d, 0x3f91, 0x3f80}},
		{"layers.0.attention_conv.base_kernel", 1024, 256, []uint16{0x3f80, 0x3f83, 0x3f6d, 0x3f85}},
		{"candidate_selector.predecessor_codebook", 2048, 256, []uint16{0xbe11, 0x3953, 0xbe20, 0x3e68}},
		{"mask_embedding", 256, 256, []uint16{0x3f2f, 0x3e02, 0x3f0e, 0xbf14}},
	} {
		var got []uint16
		for _, v := range testWeights(c.name, c.n, c.columns)[:4] {
			got = append(got, dequant.ToBF16(float32(v)))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.name, diff)
		}
	}
}

// draftSizes are those of a test draft.
type draftSizes struct {
	hidden, inner, layers, taps, heads, kvHeads, dim, window, vocab, rank int
	theta                                                                 float64
}

var microSizes = draftSizes{
	hidden: 32, inner: 48, layers: 2, taps: 2, heads: 4, kvHeads: 2, dim: 8, window: 6, vocab: 24, rank: 8, theta: 1e4,
}

// newDraft builds a draft of tensors by name, with their shapes.
func newDraft(s draftSizes, matrix func(name string, rows, columns int) oracle.Dense) *oracle.Draft {
	vector := func(name string, n int) []float64 { return matrix(name, 1, n).Values }
	d := &oracle.Draft{
		Heads: s.heads, KVHeads: s.kvHeads, Group: 16, Window: s.window,
		Freq: oracle.RopeFrequencies(s.theta, s.dim), Eps: 1e-6,
		FC:         matrix("fc.weight", s.hidden, s.taps*s.hidden),
		HiddenNorm: vector("hidden_norm.weight", s.hidden),
		Norm:       vector("norm.weight", s.hidden),
		Select:     matrix("candidate_selector.hidden_projection.weight", s.rank, s.hidden),
	}
	for l := range s.layers {
		at := fmt.Sprintf("layers.%d.", l)
		conv := func(name string) oracle.DraftConv {
			return oracle.DraftConv{
				Base:    matrix(at+name+".base_kernel", 4, s.hidden).Values,
				Dynamic: matrix(at+name+".kernel_projection.weight", s.hidden/4, s.hidden),
			}
		}
		d.Layers = append(d.Layers, oracle.DraftLayer{
			InputNorm: vector(at+"input_layernorm.weight", s.hidden),
			AttnConv:  conv("attention_conv"),
			Q:         matrix(at+"self_attn.q_proj.weight", s.heads*s.dim, s.hidden),
			K:         matrix(at+"self_attn.k_proj.weight", s.kvHeads*s.dim, s.hidden),
			V:         matrix(at+"self_attn.v_proj.weight", s.kvHeads*s.dim, s.hidden),
			O:         matrix(at+"self_attn.o_proj.weight", s.hidden, s.heads*s.dim),
			QNorm:     vector(at+"self_attn.q_norm.weight", s.dim),
			KNorm:     vector(at+"self_attn.k_norm.weight", s.dim),
			PostNorm:  vector(at+"post_attention_layernorm.weight", s.hidden),
			FFNConv:   conv("mlp_conv"),
			Gate:      matrix(at+"mlp.gate_proj.weight", s.inner, s.hidden),
			Up:        matrix(at+"mlp.up_proj.weight", s.inner, s.hidden),
			Down:      matrix(at+"mlp.down_proj.weight", s.hidden, s.inner),
		})
	}
	return d
}

func testMatrix(name string, rows, columns int) oracle.Dense {
	return dense(rows, columns, testWeights(name, rows*columns, columns)...)
}

func testSelector(s draftSizes) *oracle.Selector {
	return &oracle.Selector{
		Predecessor: testMatrix("candidate_selector.predecessor_codebook", s.vocab, s.rank),
		Successor:   testMatrix("candidate_selector.successor_codebook", s.vocab, s.rank),
	}
}

// workedDraft is testdata/micro_draft.json, which draft.py beside it worked out.
type workedDraft struct {
	Context [][]float64
	Layers  [][][]float64
	Final   [][]float64
	Logits  [][]float64
	Walk    []struct {
		Candidates   []int32
		Unary, State []float64
		Score        []float64
		Confidence   float64
		Token        int32
	}
	MaskEmbedding struct{ Final, Logits [][]float64 } `json:"mask_embedding"`
}

func readMicroDraft(t *testing.T) *workedDraft {
	t.Helper()
	data, err := os.ReadFile("testdata/micro_draft.json")
	if err != nil {
		t.Fatal(err)
	}
	want := new(workedDraft)
	if err := json.Unmarshal(data, want); err != nil {
		t.Fatal(err)
	}
	return want
}

// TestMicroDraft is draft.md 13.1: a whole forward pass and the greedy walk after it, to the digits of an independent
// transcription, and that one to those of the specification.
func TestMicroDraft(t *testing.T) {
	const rows, anchor, p, k = 4, 7, 9, 4
	s, want := microSizes, readMicroDraft(t)
	wantNear(t, "specified h_0", want.Context[0][:4], []float64{1.06690679, -0.258042997, 0.357161542, 0.247709879}, 5e-9)
	wantNear(t, "specified row 3 after layer 1", want.Layers[1][3][:4],
		[]float64{-0.829298855, -1.45399338, 0.054632362, 1.04942146}, 5e-9)
	wantNear(t, "specified logits", want.Logits[0][:4], []float64{0.888035294, -0.392402187, -0.783387202, -0.58563296}, 5e-9)
	wantNear(t, "specified confidence", []float64{want.Walk[0].Confidence, want.Walk[1].Confidence, want.Walk[2].Confidence},
		[]float64{0.380240264, 0.421507734, 0.649418117}, 5e-9)
	wantNear(t, "specified f_1 with a mask embedding", want.MaskEmbedding.Final[1][:4],
		[]float64{0.304342838, -0.280714004, 0.0104028618, -2.15074936}, 5e-9)

	d := newDraft(s, testMatrix)
	table, head := testMatrix("token_embd", s.vocab, s.hidden), testMatrix("output.weight", s.vocab, s.hidden)
	taps := testMatrix("taps", p, s.taps*s.hidden)
	ring := d.NewDraftRing()
	for position := range p {
		row := make([]float64, s.taps*s.hidden)
		taps.Row(row, position)
		h := make([]float64, s.hidden)
		d.ContextHidden(h, row)
		wantNear(t, fmt.Sprintf("h_%d", position), h, want.Context[position], 1e-12)
		d.Commit(ring, row, position)
	}

	embedding := func(token int) []float64 { return table.Values[token*s.hidden : (token+1)*s.hidden] }
	run := func(mask []float64, layers [][][]float64, final, logits [][]float64) []float64 {
		x := make([]float64, rows*s.hidden)
		oracle.DraftRows(x, embedding(anchor), mask)
		y := append([]float64(nil), x...)
		d.Block(y, p, ring)
		for l := range layers {
			d.Layer(x, l, p, ring)
			for r := range rows {
				wantNear(t, fmt.Sprintf("row %d after layer %d", r, l), x[r*s.hidden:(r+1)*s.hidden], layers[l][r], 1e-12)
			}
		}
		for r := range rows {
			f := y[r*s.hidden : (r+1)*s.hidden]
			wantNear(t, fmt.Sprintf("f_%d", r), f, final[r], 1e-12)
			if r > 0 {
				l := make([]float64, s.vocab)
				oracle.MatVec(l, head, f)
				wantNear(t, fmt.Sprintf("logits_%d", r), l, logits[r-1], 1e-12)
			}
		}
		return y
	}
	run(testWeights("mask_embedding", s.hidden, s.hidden), nil, want.MaskEmbedding.Final, want.MaskEmbedding.Logits)
	f := run(embedding(23), want.Layers, want.Final, want.Logits)

	lattice, selector := oracle.NewLattice(rows-1, k), testSelector(s)
	for j, w := range want.Walk {
		state := make([]float64, s.rank)
		oracle.MatVec(state, d.Select, f[(j+1)*s.hidden:(j+2)*s.hidden])
		wantNear(t, "selector state", state, w.State, 1e-12)
		logits := make([]float64, s.vocab)
		oracle.MatVec(logits, head, f[(j+1)*s.hidden:(j+2)*s.hidden])
		lattice.Fill(selector, j, anchor, logits, state)
	}
	checkWalk(t, lattice, want)
}

// checkWalk holds the greedy walk through a lattice to one that was worked out apart.
func checkWalk(t *testing.T, l *oracle.Lattice, want *workedDraft) {
	t.Helper()
	walk, before := l.Greedy(), 0
	if len(walk.Tokens) != len(want.Walk) {
		t.Fatalf("%d proposals, want %d", len(walk.Tokens), len(want.Walk))
	}
	for j, w := range want.Walk {
		if diff := cmp.Diff(w.Candidates, l.Candidates(j)); diff != "" {
			t.Errorf("candidates of %d (-want +got)\n%s", j, diff)
		}
		wantNear(t, "unary", l.Unary[j*l.K:(j+1)*l.K], w.Unary, 1e-12)
		score := make([]float64, l.K)
		l.Scores(score, j, before)
		wantNear(t, "score", score, w.Score, 1e-12)
		wantNear(t, "confidence", walk.Confidence[j:j+1], []float64{w.Confidence}, 1e-12)
		if walk.Tokens[j] != w.Token {
			t.Errorf("proposal %d = %d, want %d", j, walk.Tokens[j], w.Token)
		}
		before = walk.Choices[j]
	}
}

// TestDraftRows holds the block to its anchor: row 0 is the anchor's embedding and only the others the mask token's,
// whether that is a row of the table or an embedding the release ships. A block of mask rows alone gives other logits.
func TestDraftRows(t *testing.T) {
	s := microSizes
	const rows, p = 8, 0
	d := newDraft(s, testMatrix)
	anchor, mask, shipped := make([]float64, s.hidden), make([]float64, s.hidden), make([]float64, s.hidden)
	for i := range mask {
		mask[i], shipped[i], anchor[i] = 1, -2, float64(i)
	}
	block := func(anchor, mask []float64) []float64 {
		x := make([]float64, rows*s.hidden)
		oracle.DraftRows(x, anchor, mask)
		return x
	}
	for name, m := range map[string][]float64{"of the table": mask, "shipped": shipped} {
		x := block(anchor, m)
		for r := range rows {
			want := m
			if r == 0 {
				want = anchor
			}
			wantNear(t, fmt.Sprintf("row %d, mask %s", r, name), x[r*s.hidden:(r+1)*s.hidden], want, 0)
		}
	}
	right, wrong := block(anchor, mask), block(mask, mask)
	d.Block(right, p, d.NewDraftRing())
	d.Block(wrong, p, d.NewDraftRing())
	for r := range rows {
		if a, b := right[r*s.hidden:(r+1)*s.hidden], wrong[r*s.hidden:(r+1)*s.hidden]; cmp.Equal(a, b) {
			t.Errorf("row %d does not depend on the anchor", r)
		}
	}
}

// TestDraftConvolve is draft.md 13.2, exact.
func TestDraftConvolve(t *testing.T) {
	base := []float64{
		1, 0.5, 0.25, -0.5, // side 0: tap 0 of both channels, then tap 1
		0.75, 1.25, -0.25, 0.125,
	}
	dynamic := []float64{
		0.125, -0.25, 0.5, 0.0625, // row 0: side 0 taps 0 and 1, side 1 taps 0 and 1
		-0.5, 0.25, 0.25, 0.375,
	}
	x := []float64{2, -3, 1.5, 4}
	dst := make([]float64, 4)
	oracle.DraftConvolve(dst, x, base, dynamic, 0, 2, 2)
	wantNear(t, "side 0", dst, []float64{2.25, -1.875, 1.75, 0.75}, 0)
	oracle.DraftConvolve(dst, x, base, dynamic, 1, 2, 2)
	for i, residual := range []float64{10, -1, 0.5, 2.5} {
		dst[i] += residual
	}
	wantNear(t, "side 1 and residual", dst, []float64{12.5, -6.25, 2.25, 7}, 0)
}

// TestDraftHead is draft.md 13.3: a key head of the context is normalized, then rotated.
func TestDraftHead(t *testing.T) {
	identity := make([]float64, 64)
	for i := range 8 {
		identity[9*i] = 1
	}
	d := oracle.Draft{
		Heads: 1, KVHeads: 1, Freq: oracle.RopeFrequencies(1e7, 8), Eps: 1e-6,
		Layers: []oracle.DraftLayer{{
			K: dense(8, 8, identity...), V: dense(8, 8, identity...), KNorm: []float64{1, 0.5, 2, 1, 1, 1.5, 0.25, 1},
		}},
	}
	x := []float64{1, -2, 0.5, 3, -1, 0.25, 2, -0.5}
	k, v := make([]float64, 8), make([]float64, 8)
	d.ContextKV(k, v, x, 0, 5)
	wantNear(t, "key", k, []float64{-0.431822329, -0.658256561, 0.638982124, 1.91847444, -0.79461973, 0.18207631,
		0.320754961, -0.3196903}, 5e-9)
	wantNear(t, "value", v, x, 0)
}

// TestDraftAttend works one row and one head by hand: keys of the context and the block whose scores are logarithms.
func TestDraftAttend(t *testing.T) {
	d := &oracle.Draft{Heads: 2, KVHeads: 1, Window: 3, Freq: make([]float32, 1), Layers: make([]oracle.DraftLayer, 1)}
	ring := d.NewDraftRing()
	ln := math.Ln2 * math.Sqrt2 // a score of ln 2 for the query (1, 0)
	for position, key := range []float64{math.NaN(), 2 * ln, ln, 0} {
		k, v := ring.Context(0, position)
		k[0], k[1], v[0], v[1] = key, 0, float64(position), 1
	}
	// Two rows at positions 4 and 5 see the context from 2 and from 3 on, and each other: weights 2, 1 | 4, 8.
	q := []float64{1, 0, 0, 5, 1, 0, -1, 0}
	k, v := []float64{2 * ln, 0, 3 * ln, 0}, []float64{10, 0, 20, 0}
	o := []float64{7, 7, 7, 7, 7, 7, 7, 7} // written over
	d.Attend(o, q, k, v, 0, 4, ring)
	wantNear(t, "attention", o, []float64{
		(2*2 + 3 + 4*10 + 8*20) / 15., 3 / 15., (2 + 3 + 10 + 20) / 4., 2 / 4.,
		(3 + 4*10 + 8*20) / 13., 1 / 13., (3 + 10/4. + 20/8.) / (1 + 1/4. + 1/8.), 1 / (1 + 1/4. + 1/8.),
	}, 1e-12)
}

// TestDraftWindow fills every slot that no row may read with NaN, and holds the block to one over a context without a
// ring: row r reads the positions max(0, p+r-2047) .. p-1, in every layer, and nothing else.
func TestDraftWindow(t *testing.T) {
	const rows = 8
	s := microSizes
	s.window = 2048
	d := newDraft(s, testMatrix)
	anchor, mask := testWeights("anchor", s.hidden, s.hidden), testWeights("mask_embedding", s.hidden, s.hidden)
	log := newDraftLog(d)
	for _, p := range []int{0, 1, 7, 2039, 2040, 2041, 2046, 2047, 2048, 2049, 4095, 4096} {
		ring := d.NewDraftRing()
		for layer := range s.layers {
			for slot := range s.window {
				k, v := ring.Context(layer, slot)
				fill(k, math.NaN())
				fill(v, math.NaN())
			}
			for position := max(0, p-2047); position < p; position++ {
				k, v := ring.Context(layer, position)
				ck, cv := log.Context(layer, position)
				copy(k, ck)
				copy(v, cv)
			}
		}
		clear(log.reads)
		x := make([]float64, rows*s.hidden)
		oracle.DraftRows(x, anchor, mask)
		y := append([]float64(nil), x...)
		d.Block(x, p, ring)
		d.Block(y, p, log)
		wantNear(t, fmt.Sprintf("block at %d", p), x, y, 0)
		for i, v := range x {
			if math.IsNaN(v) {
				t.Fatalf("block at %d reads a slot it must not: element %d", p, i)
			}
		}
		want := make(map[int]int)
		for r := range rows {
			for position := max(0, p+r-2047); position < p; position++ {
				want[position] += s.layers
			}
		}
		if diff := cmp.Diff(want, log.reads); diff != "" {
			t.Errorf("block at %d: reads of each position (-want +got)\n%s", p, diff)
		}
	}
}

func draftTaps(s draftSizes, position int) []float64 {
	return testWeights(fmt.Sprint("taps ", position), s.taps*s.hidden, s.hidden)
}

func fill(x []float64, v float64) {
	for i := range x {
		x[i] = v
	}
}

// A draftLog is a context without a ring: it makes what it is asked for of the position's taps, and counts.
type draftLog struct {
	d     *oracle.Draft
	made  map[[2]int][2][]float64
	reads map[int]int
}

func newDraftLog(d *oracle.Draft) *draftLog {
	return &draftLog{d, make(map[[2]int][2][]float64), make(map[int]int)}
}

func (c *draftLog) Context(layer, position int) (k, v []float64) {
	c.reads[position]++
	if kv, ok := c.made[[2]int{layer, position}]; ok {
		return kv[0], kv[1]
	}
	h := make([]float64, microSizes.hidden)
	c.d.ContextHidden(h, draftTaps(microSizes, position))
	width := microSizes.kvHeads * microSizes.dim
	k, v = make([]float64, width), make([]float64, width)
	c.d.ContextKV(k, v, h, layer, position)
	c.made[[2]int{layer, position}] = [2][]float64{k, v}
	return k, v
}

// TestDraftRetained keeps m of a cycle's rows for every m: the ring is that of a run that took the tokens one by one, and
// the slots that later rows would have taken still hold what the next block's first row sees.
func TestDraftRetained(t *testing.T) {
	const rows, p = 8, 40 // past twice the window
	s := microSizes
	s.window = 19
	d := newDraft(s, testMatrix)
	for m := 1; m <= rows; m++ {
		ring, whole := d.NewDraftRing(), d.NewDraftRing()
		for position := range p + m {
			d.Commit(whole, draftTaps(s, position), position)
			if position < p {
				d.Commit(ring, draftTaps(s, position), position)
			}
		}
		for r := range m {
			d.Commit(ring, draftTaps(s, p+r), p+r)
		}
		if diff := cmp.Diff(whole, ring, cmp.AllowUnexported(oracle.DraftRing{})); diff != "" {
			t.Errorf("%d rows kept (-want +got)\n%s", m, diff)
		}
		x := make([]float64, rows*s.hidden)
		y := make([]float64, rows*s.hidden)
		d.Block(x, p+m, ring)
		d.Block(y, p+m, newDraftLog(d))
		wantNear(t, "next block", x, y, 0)
	}
}
