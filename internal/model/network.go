package model

import (
	"fmt"

	"splash/planner"
)

// A Network runs a target on a backend.
type Network interface {
	// Forward runs a pass. Afterwards Logits(i) are those of the i-th row whose logits were wanted, until the next pass.
	Forward(p *Pass) error
	Logits(i int) []float32
	// Tap returns row i of the output of the layer with that place in Options.Taps.
	Tap(tap, row int) []float32
	// Backend is what the lanes belong to.
	Backend() Backend
	// Ends are the token table and the head, and the buffers of the taps: what a draft shares with its target.
	Ends() (table, head Matrix, taps []Buffer)
}

// Options are the choices of a network that its plan does not make.
type Options struct {
	Taps []int // layers whose outputs are kept, for a draft or a test
}

// New builds the network of the plan on b and loads its weights.
func New(b Backend, p *planner.Plan, w planner.Weights, o Options) (Network, error) {
	l := &loader{backend: b, weights: w, plan: p, layout: &p.Layout}
	var n Network
	switch p.Layout.Arch {
	case planner.DenseHybrid:
		n = l.denseHybrid(o)
	case planner.MoEHybrid:
		n = l.moeHybrid(o)
	case planner.HyperMoE:
		n = l.hyperMoE(o)
	case planner.FlintMoE:
		n = l.flint(o)
	default:
		return nil, fmt.Errorf("model: no network of architecture %d", p.Layout.Arch)
	}
	l.share()
	if l.err != nil {
		return nil, l.err
	}
	return n, nil
}

// residual is a network with one residual stream: every architecture but the hyper-connected one.
type residual struct {
	b      Backend
	eps    float64
	table  Matrix
	layers []residualLayer
	norm   Vector
	head   Matrix

	x, h   Buffer   // the residual, the normalized input of a block
	out    Buffer   // rows whose logits are wanted
	ends   []Matrix // the head
	logits Buffer
	taps   []tap
}

type residualLayer struct {
	mixerNorm Vector
	mixer     block
	ffnNorm   Vector
	ffn       block
}

// A block is a mixer or an FFN: it reads h and stores its result in dst or adds it.
type block interface {
	run(b Backend, dst, h Buffer, e Epilogue)
	// inputs are the matrices that multiply h first of all, in one operator, where nothing else reads it.
	inputs() []Matrix
}

// A tap keeps the output of a layer.
type tap struct {
	layer int
	to    Buffer
}

func (n *residual) Forward(p *Pass) error {
	if err := begin(n.b, p, n); err != nil {
		return err
	}
	return end(n.b, p, n.logits)
}

func (n *residual) steps(Kind) {
	b := n.b
	b.Embed(n.x, n.table)
	for i := range n.layers {
		l := &n.layers[i]
		b.RMSNorm(n.h, n.x, l.mixerNorm, n.eps, l.mixer.inputs())
		l.mixer.run(b, n.x, n.h, Add)
		b.RMSNorm(n.h, n.x, l.ffnNorm, n.eps, l.ffn.inputs())
		l.ffn.run(b, n.x, n.h, Add)
		for _, t := range n.taps {
			if t.layer == i {
				b.Copy(t.to, n.x)
			}
		}
	}
	b.Outputs(n.out, n.x)
	b.RMSNorm(n.out, n.out, n.norm, n.eps, n.ends)
	b.Project(n.logits, n.out, n.head, Store)
}

func (n *residual) Logits(i int) []float32     { return n.b.Read(n.logits, i) }
func (n *residual) Tap(tap, row int) []float32 { return n.b.Read(n.taps[tap].to, row) }
func (n *residual) Backend() Backend           { return n.b }

func (n *residual) Ends() (table, head Matrix, taps []Buffer) {
	return n.table, n.head, buffers(n.taps)
}

func buffers(taps []tap) []Buffer {
	var out []Buffer
	for _, t := range taps {
		out = append(out, t.to)
	}
	return out
}
