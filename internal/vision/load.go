// Package vision runs vision towers on the host: it makes an image the rows that a target reads in place of token
// embeddings, in float32, as package oracle says (oracle/vision.go).
package vision

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"

	"splash/dequant"
	"splash/internal/cpu"
	"splash/internal/gguf"
	"splash/internal/safetensors"
	"splash/oracle"
	"splash/planner"
)

// A Tower is a vision tower whose weights are loaded. Its methods are safe for concurrent use.
type Tower struct {
	layout    planner.VisionLayout
	embed     affine    // [hidden, 3*frames*patch*patch]
	positions []float32 // [side*side][hidden]
	blocks    []block
	norm      norm
	in, out   affine // of the merger
	freq      []float64
	host      *cpu.Host // nil: plain Go
}

// A block is attention and an MLP.
type block struct {
	norm1, norm2        norm
	qkv, proj, up, down affine
}

// A norm is a LayerNorm's weight and bias.
type norm struct{ weight, bias []float32 }

// An affine is a matrix of BF16 values and a bias.
type affine struct {
	rows, cols int
	weight     []uint16
	bias       []float32
}

// A Source gives the bytes of a tensor of a plan, by its name in the container.
type Source func(name string) ([]byte, error)

// Load reads a planned tower. Every weight must be a BF16 value: the tower has no others.
func Load(p *planner.VisionPlan, data Source) (*Tower, error) {
	l := loader{plan: p, data: data}
	v := &p.Layout
	t := &Tower{layout: *v, freq: oracle.VisionFrequencies(v.HeadDim())}
	if t.host, l.err = cpu.NewHost(); l.err != nil {
		return nil, l.err
	}
	t.embed = affine{v.Hidden, 3 * v.Temporal * v.Patch * v.Patch, l.patches(), l.vector("v.patch_embd.bias")}
	t.positions = l.vector("v.position_embd.weight")
	for i := range v.Depth {
		name := fmt.Sprintf("v.blk.%d.", i)
		t.blocks = append(t.blocks, block{
			norm1: l.norm(name + "ln1"), norm2: l.norm(name + "ln2"),
			qkv: l.affine(name+"attn_qkv", 3*v.Hidden, v.Hidden), proj: l.affine(name+"attn_out", v.Hidden, v.Hidden),
			up: l.affine(name+"ffn_up", v.FFN, v.Hidden), down: l.affine(name+"ffn_down", v.Hidden, v.FFN),
		})
	}
	t.norm = l.norm("v.post_ln")
	t.in, t.out = l.affine("mm.0", v.Merged(), v.Merged()), l.affine("mm.2", v.Out, v.Merged())
	return t, l.err
}

// A loader reads tensors. It keeps the first error.
type loader struct {
	plan *planner.VisionPlan
	data Source
	err  error
}

func (l *loader) norm(name string) norm {
	return norm{l.vector(name + ".weight"), l.vector(name + ".bias")}
}

func (l *loader) affine(name string, rows, cols int) affine {
	return affine{rows, cols, l.tensor(name + ".weight"), l.vector(name + ".bias")}
}

func (l *loader) vector(name string) []float32 {
	bits := l.tensor(name)
	values := make([]float32, len(bits))
	for i, b := range bits {
		values[i] = dequant.FromBF16(b)
	}
	return values
}

// patches is the patch embedding in the order of oracle.PatchValues: channel, frame, row, column.
func (l *loader) patches() []uint16 {
	v := &l.plan.Layout
	plane := v.Patch * v.Patch
	first := l.tensor("v.patch_embd.weight")
	switch l.plan.Format {
	case "transformers":
		return first
	case "mlx": // frame, row, column, channel
		out := make([]uint16, len(first))
		rest := v.Temporal * plane
		for i, b := range first {
			h, at, channel := i/(3*rest), i/3%rest, i%3
			out[(3*h+channel)*rest+at] = b
		}
		return out
	}
	frames := [][]uint16{first, l.tensor("v.patch_embd.weight.1")} // channel, row, column, each
	if l.err != nil {
		return nil
	}
	out := make([]uint16, 0, len(frames)*len(first))
	for at := 0; at < len(first); at += plane {
		for _, f := range frames {
			out = append(out, f[at:at+plane]...)
		}
	}
	return out
}

// tensor reads a tensor as BF16.
func (l *loader) tensor(name string) []uint16 {
	if l.err != nil {
		return nil
	}
	t := l.plan.Tensor(name)
	if t == nil {
		l.err = fmt.Errorf("vision: the plan has no tensor %s", name)
		return nil
	}
	data, err := l.data(t.Source)
	if err != nil {
		l.err = err
		return nil
	}
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	size := 2
	if t.Type == dequant.F32 {
		size = 4
	}
	if len(data) != size*n {
		l.err = fmt.Errorf("vision tensor %s holds %d bytes, not %d", t.Source, len(data), size*n)
		return nil
	}
	bits := make([]uint16, n)
	for i := range bits {
		var v float32
		switch t.Type {
		case dequant.BF16:
			v = dequant.FromBF16(binary.LittleEndian.Uint16(data[2*i:]))
		case dequant.F16:
			v = dequant.FromF16(binary.LittleEndian.Uint16(data[2*i:]))
		default:
			v = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		b := math.Float32bits(v)
		switch {
		case b&0x7f800000 == 0x7f800000:
			l.err = fmt.Errorf("vision tensor %s is not finite: value %d is %v", t.Source, i, v)
			return nil
		case b&0xffff != 0:
			l.err = fmt.Errorf("%s is not bf16-exact; it needs an F32 path: value %d is %v", t.Source, i, v)
			return nil
		}
		bits[i] = uint16(b >> 16)
	}
	return bits
}

// Bytes is the memory that the weights take.
func (t *Tower) Bytes() int64 {
	n := int64(4 * len(t.positions))
	add := func(all ...*affine) {
		for _, a := range all {
			n += int64(2*len(a.weight) + 4*len(a.bias))
		}
	}
	add(&t.embed, &t.in, &t.out)
	for i := range t.blocks {
		b := &t.blocks[i]
		add(&b.qkv, &b.proj, &b.up, &b.down)
		n += int64(16 * t.layout.Hidden)
	}
	return n + int64(8*t.layout.Hidden)
}

// Scratch is the memory that an image of so many pixels takes while it is encoded.
func (t *Tower) Scratch(pixels int) int64 {
	v := &t.layout
	patches := int64(pixels / (v.Patch * v.Patch))
	values := 3*v.Hidden + 2*v.Heads*padded(v.HeadDim()) + chunkRows*runtime.GOMAXPROCS(0)
	return 4 * patches * int64(values)
}

// Width is the width of a row: the target's hidden size.
func (t *Tower) Width() int { return t.layout.Out }

// FromGGUF gives the tensors of a projector.
func FromGGUF(f *gguf.File) Source {
	return func(name string) ([]byte, error) {
		t := f.Tensor(name)
		if t == nil {
			return nil, fmt.Errorf("%s: tensor %s is missing", f.Name, name)
		}
		return f.Data(t), nil
	}
}

// FromCheckpoint gives the tensors of a checkpoint's tower.
func FromCheckpoint(c *safetensors.Checkpoint) Source {
	return func(name string) ([]byte, error) {
		t := c.Tensor(name)
		if t == nil {
			return nil, fmt.Errorf("tensor %s is missing", name)
		}
		return c.Data(t), nil
	}
}
