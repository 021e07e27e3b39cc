package planner

import (
	"math"

	"splash/dequant"
)

// A Role says what a tensor is to the network; it decides which types are accepted and how the tensor is loaded.
type Role int

// Roles of formats.md 8.3.
const (
	Linear     Role = iota // a projection, or the head
	Experts                // a projection of every expert, stacked
	TokenTable             // the token table, and the table of hashed n-grams
	Norm
	Router
	SharedGate
	Convolution
	Decay
	TimeBias
	AlphaBeta
	Sinks
	Indexer
	Injection
	PLEConvolution
)

// A HeadOrder permutes blocks of rows or columns from the order of a file, tiled, to the order of the network, grouped:
// of elements From and on, block h (Size elements) of the network is block (h % PerKey) * KeyHeads + h / PerKey of the file.
type HeadOrder struct {
	From, Size, KeyHeads, PerKey int
}

// Source is the element's index in the file of element i of the network.
func (o *HeadOrder) Source(i int) int {
	if o == nil || i < o.From {
		return i
	}
	h, t := (i-o.From)/o.Size, (i-o.From)%o.Size
	return o.From + ((h%o.PerKey)*o.KeyHeads+h/o.PerKey)*o.Size + t
}

// A Conversion is what loading does to the values of a small tensor.
type Conversion int

// The conversions of formats.md 8.2. Every one is exact but OnePlus and NegativeExp, which round once to F32.
const (
	AsStored    Conversion = iota
	OnePlus                // w -> 1 + w: norms under transformers' names
	NegativeExp            // a -> -exp(a): A_log of safetensors checkpoints
	ToQ8_0                 // BF16 or F16 hyper-connection projections
	ToAffine4              // BF16 projections of a draft, to affine 4-bit in groups of 64
)

// Of is what loading makes of one value of a vector; the conversions of matrices leave it as it is.
func (c Conversion) Of(x float32) float32 {
	switch c {
	case OnePlus:
		return 1 + x
	case NegativeExp:
		return float32(-math.Exp(float64(x)))
	}
	return x
}

// A Tensor is one weight of the network: its place there, its form in the file, and what lies between them. Rows and
// columns are those of the network's matrix; an experts tensor has Experts such matrices. A vector has one row.
type Tensor struct {
	Name    string // the GGUF name, whatever the container: "blk.3.attn_q.weight"
	Layer   int    // -1 outside the layers
	Role    Role
	Rows    int
	Cols    int
	Experts int // 0 outside MoE stacks

	Type       dequant.Type // of the file's blocks; a loader type for formats GGUF does not define
	Conversion Conversion
	RowOrder   *HeadOrder // nil where the file has the network's order
	ColOrder   *HeadOrder // of a vector of value heads, of its elements
	Signs      []int8     // of the input's Hadamard rotation (or the table's inverse); nil: unrotated

	// Source names the tensors of the container this one is read from, with the rows it takes of each: one for a GGUF
	// tensor, one an expert for a checkpoint that names every expert.
	Source []Piece
}

// A Piece is a run of rows of one tensor of the container. Stride and Width pick the rows of fused experts: Width rows of
// every Stride, from First on; a Stride of 0 takes Rows rows from First on.
type Piece struct {
	Name               string
	First, Rows        int
	Stride, Width      int
	Scales, Biases     string // names of the tensors that hold them, where the container keeps them apart
	Global             string // name of the tensor of g
	GlobalIsReciprocal bool   // compressed-tensors stores 1/g
}

// A Plan is a target that passed every check: its family, its sizes (with the file's own expert count and context), and
// every tensor its network reads, in image order.
type Plan struct {
	Family  *Family
	Layout  Layout
	Format  string // "gguf" or "safetensors"
	Tensors []Tensor

	// Stop are the tokens that end an answer: the family's, or the file's of an open family.
	Stop []int32

	byName map[string]int
}

// Tensor returns the tensor of that GGUF name, or nil.
func (p *Plan) Tensor(name string) *Tensor {
	if i, ok := p.byName[name]; ok {
		return &p.Tensors[i]
	}
	return nil
}

// Weights gives the bytes of a plan's tensors in place. It is what a backend loads from.
type Weights interface {
	// Matrices returns the tensor as stored: one matrix, or one an expert. Rows and columns are in the file's order.
	Matrices(t *Tensor) ([]dequant.Matrix, error)
}

// String is the role's name in reports.
func (r Role) String() string {
	return [...]string{
		"linear", "experts", "token table", "norm", "router", "shared gate", "convolution", "decay", "time bias",
		"alpha, beta", "sinks", "indexer", "injection", "PLE convolution",
	}[r]
}
