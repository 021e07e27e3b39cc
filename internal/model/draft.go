package model

import (
	"fmt"

	"splash/dequant"
	"splash/oracle"
	"splash/planner"
)

// A Draft is a DFlash2 draft beside its target, on the target's backend and lanes (draft.md 4).
type Draft struct {
	b     Backend
	eps   float64
	table Matrix
	mask  Vector
	taps  []Buffer

	fc                 Matrix
	hiddenNorm, norm   Vector
	layers             []draftLayer
	ends               []Projection // logits, and states by the selector's projection
	tapRows, hidden    Buffer
	x, a, c, y, kernel Buffer
	q, k, v, o, wide   Buffer
	out, logits, state Buffer

	chooser Chooser // nil: the backend chooses no proposals
}

type draftLayer struct {
	inputNorm, postNorm Vector
	attnConv, ffnConv   draftConv
	in                  []Projection // queries, keys and values
	o                   Matrix
	params              DraftAttention
	gate, up, down      Matrix
}

type draftConv struct {
	base    Vector
	dynamic Matrix
}

// A DraftSource is a draft that passed every check, and where its weights are.
type DraftSource struct {
	Sizes   *planner.Draft
	Tensors []planner.Tensor
	Weights planner.Weights

	// Unrounded leaves the projections in BF16 instead of rounding them to 4 bits, to measure what the rounding costs.
	Unrounded bool
}

// The codebooks of a draft's selector.
const (
	predecessors = "candidate_selector.predecessor_codebook"
	successors   = "candidate_selector.successor_codebook"
)

// Selector is the draft's selector of candidates. It runs on the host, on the codebooks in place.
func (s *DraftSource) Selector() (oracle.Selector, error) {
	a, err := s.codebook(predecessors)
	if err != nil {
		return oracle.Selector{}, err
	}
	b, err := s.codebook(successors)
	return oracle.Selector{Predecessor: a, Successor: b}, err
}

func (s *DraftSource) codebook(name string) (oracle.Matrix, error) {
	t := s.tensor(name)
	if t == nil {
		return nil, fmt.Errorf("model: the draft has no %s", name)
	}
	m, err := s.Weights.Matrices(t)
	if err != nil {
		return nil, err
	}
	return &codebook{m[0], make([]float32, m[0].Cols)}, nil
}

// A codebook is a stored matrix whose rows one goroutine reads.
type codebook struct {
	stored dequant.Matrix
	row    []float32
}

func (c *codebook) Dims() (rows, cols int) { return c.stored.Rows, c.stored.Cols }

func (c *codebook) Row(dst []float64, i int) {
	c.stored.DecodeRow(c.row, i)
	for j, v := range c.row {
		dst[j] = float64(v)
	}
}

func (s *DraftSource) tensor(name string) *planner.Tensor {
	for i := range s.Tensors {
		if t := s.Tensors[i]; t.Name == name {
			if t.Role == planner.Linear && !s.Unrounded {
				t.Conversion = planner.ToAffine4
			}
			return &t
		}
	}
	return nil
}

// NewDraft builds the draft of a target whose Options.Taps are the draft's.
func NewDraft(target Network, s DraftSource) (*Draft, error) {
	p := s.Sizes
	table, head, taps := target.Ends()
	if len(taps) != len(p.Taps) {
		return nil, fmt.Errorf("model: the target keeps %d taps, its draft reads %d", len(taps), len(p.Taps))
	}
	l := &draftLoader{loader{backend: target.Backend(), weights: s.Weights}, &s}
	d := &Draft{
		b: target.Backend(), eps: p.Epsilon, table: table, mask: None, taps: taps,
		fc: l.matrix("fc.weight"), hiddenNorm: l.vector("hidden_norm.weight"), norm: l.vector("norm.weight"),
	}
	if s.tensor("mask_embedding") != nil {
		d.mask = l.vector("mask_embedding")
	}
	query, kv := planner.DraftHeads*planner.DraftHeadDim, planner.DraftKVHeads*planner.DraftHeadDim
	rows := func(width int) Buffer { return l.buffer(width, AllRows) }
	d.tapRows, d.hidden = rows(len(p.Taps)*p.Hidden), rows(p.Hidden)
	d.x, d.a, d.c, d.y, d.kernel = rows(p.Hidden), rows(p.Hidden), rows(p.Hidden), rows(p.Hidden), rows(4*p.Hidden/planner.DraftGroup)
	d.q, d.k, d.v, d.o, d.wide = rows(query), rows(kv), rows(kv), rows(query), rows(p.FFN)
	d.out, d.logits = l.buffer(p.Hidden, OutputRows), l.buffer(p.Vocab, OutputRows)
	d.state = l.buffer(planner.DraftRank, OutputRows)
	d.ends = []Projection{{d.logits, head}, {d.state, l.matrix("candidate_selector.hidden_projection.weight")}}
	for i := range p.Layers {
		d.layers = append(d.layers, l.layer(d, i))
	}
	if c, ok := d.b.(Chooser); ok && l.err == nil {
		d.chooser = c
		l.err = c.LoadSelector(s.Weights, s.tensor(predecessors), s.tensor(successors))
	}
	return d, l.err
}

type draftLoader struct {
	loader
	source *DraftSource
}

func (l *draftLoader) matrix(format string, args ...any) Matrix {
	return loadDraft(l, l.backend.LoadMatrix, fmt.Sprintf(format, args...))
}

func (l *draftLoader) vector(format string, args ...any) Vector {
	return loadDraft(l, l.backend.LoadVector, fmt.Sprintf(format, args...))
}

func loadDraft[H ~int32](l *draftLoader, get func(planner.Weights, *planner.Tensor) (H, error), name string) H {
	return loadTensor(&l.loader, get, l.source.tensor(name), name)
}

func (l *draftLoader) layer(d *Draft, i int) draftLayer {
	p := l.source.Sizes
	conv := func(name string) draftConv {
		return draftConv{l.vector("layers.%d.%s.base_kernel", i, name), l.matrix("layers.%d.%s.kernel_projection.weight", i, name)}
	}
	return draftLayer{
		inputNorm: l.vector("layers.%d.input_layernorm.weight", i), attnConv: conv("attention_conv"),
		in: []Projection{
			{d.q, l.matrix("layers.%d.self_attn.q_proj.weight", i)}, {d.k, l.matrix("layers.%d.self_attn.k_proj.weight", i)},
			{d.v, l.matrix("layers.%d.self_attn.v_proj.weight", i)},
		},
		o: l.matrix("layers.%d.self_attn.o_proj.weight", i),
		params: DraftAttention{
			Heads: planner.DraftHeads, KVHeads: planner.DraftKVHeads, Dim: planner.DraftHeadDim, Window: planner.DraftWindow,
			Theta: p.RopeBase, Epsilon: p.Epsilon,
			QNorm: l.vector("layers.%d.self_attn.q_norm.weight", i), KNorm: l.vector("layers.%d.self_attn.k_norm.weight", i),
			State: l.backend.DraftState(planner.DraftWindow, planner.DraftKVHeads, planner.DraftHeadDim),
		},
		postNorm: l.vector("layers.%d.post_attention_layernorm.weight", i), ffnConv: conv("mlp_conv"),
		gate: l.matrix("layers.%d.mlp.gate_proj.weight", i), up: l.matrix("layers.%d.mlp.up_proj.weight", i),
		down: l.matrix("layers.%d.mlp.down_proj.weight", i),
	}
}

// Commit makes the context of rows the target has kept: p is a ContextPass.
func (d *Draft) Commit(p *Pass) error {
	if err := begin(d.b, p, d); err != nil {
		return err
	}
	return d.b.End()
}

func (d *Draft) steps(k Kind) {
	if k == ContextPass {
		d.context()
	} else {
		d.block()
	}
}

func (d *Draft) context() {
	b := d.b
	b.DraftTaps(d.tapRows, d.taps)
	b.Project(d.hidden, d.tapRows, d.fc, Store)
	b.RMSNorm(d.hidden, d.hidden, d.hiddenNorm, d.eps, nil)
	for i := range d.layers {
		l := &d.layers[i]
		b.ProjectAll(d.hidden, l.in[1:])
		b.DraftStore(d.k, d.v, &l.params)
	}
}

// Block runs the draft over a block a segment: p is a DraftPass whose segments hold the anchor and mask tokens, and want
// the outputs of the mask rows.
func (d *Draft) Block(p *Pass) error {
	if err := begin(d.b, p, d); err != nil {
		return err
	}
	return d.b.End()
}

// Chooses reports whether the draft's backend chooses proposals, which Propose then may.
func (d *Draft) Chooses() bool { return d.chooser != nil }

// Propose runs the draft over a block a segment, as Block does, and chooses the proposals of the segments' lanes.
func (d *Draft) Propose(p *Pass, lanes []DraftLane) error {
	if err := begin(d.b, p, d); err != nil {
		return err
	}
	return d.chooser.Propose(d.logits, d.state, lanes)
}

func (d *Draft) block() {
	b := d.b
	b.DraftRows(d.x, d.table, d.mask)
	for i := range d.layers {
		l := &d.layers[i]
		b.RMSNorm(d.a, d.x, l.inputNorm, d.eps, nil)
		b.Project(d.kernel, d.a, l.attnConv.dynamic, Store)
		b.DraftConv(d.c, d.a, d.kernel, l.attnConv.base, 0, planner.DraftGroup, Store)
		b.ProjectAll(d.c, l.in)
		b.DraftAttention(d.o, d.q, d.k, d.v, &l.params)
		b.Project(d.y, d.o, l.o, Store)
		b.DraftConv(d.x, d.y, d.kernel, l.attnConv.base, 1, planner.DraftGroup, Add)

		b.RMSNorm(d.a, d.x, l.postNorm, d.eps, nil)
		b.Project(d.kernel, d.a, l.ffnConv.dynamic, Store)
		b.DraftConv(d.c, d.a, d.kernel, l.ffnConv.base, 0, planner.DraftGroup, Store)
		b.GateUp(d.wide, d.c, l.gate, l.up, nil)
		b.Project(d.y, d.wide, l.down, Store)
		b.DraftConv(d.x, d.y, d.kernel, l.ffnConv.base, 1, planner.DraftGroup, Add)
	}
	b.Outputs(d.out, d.x)
	b.RMSNorm(d.out, d.out, d.norm, d.eps, nil)
	b.ProjectAll(d.out, d.ends)
}

// Logits are those of the i-th row whose outputs were wanted, until the next pass.
func (d *Draft) Logits(i int) []float32 { return d.b.Read(d.logits, i) }

// State is the selector's state of that row.
func (d *Draft) State(i int) []float32 { return d.b.Read(d.state, i) }
