// Package planner knows the families Splash serves: it identifies a target from its configuration alone, holds it to the
// family's values, and plans its weights, before any weight is read.
package planner

// An Architecture is a network; families of one architecture differ in sizes alone.
type Architecture int

// The architectures, in the order of the specification.
const (
	DenseHybrid Architecture = iota // gated attention and gated delta net layers, dense FFN
	MoEHybrid                       // the same mixers, routed experts and one gated shared expert
	HyperMoE                        // MoEHybrid with four hyper-connected residual streams, sparse attention and hashed n-grams
	FlintMoE                        // attention in every layer, windows and sinks, an ungated shared expert
)

// A Layout is every size of a target that its network, its plan and its memory depend on. A size that an architecture
// does not have is zero.
type Layout struct {
	Arch    Architecture
	Layers  int
	Hidden  int
	Vocab   int
	Context int
	Tied    bool // the token table is the head where the file holds no head
	Epsilon float64

	Attention AttentionLayout
	GDN       GDNLayout
	FFN       int // width of a dense FFN
	MoE       MoELayout
	Hyper     HyperLayout
	QSA       QSALayout
	PLE       PLELayout
}

// AttentionLayout holds the sizes of the attention layers.
type AttentionLayout struct {
	Interval int // layer l attends where (l+1) % Interval == 0; 1: every layer
	Heads    int
	KVHeads  int
	HeadDim  int
	RopeDim  int
	RopeBase float64
	Gated    bool   // attn_q holds a gate beside every query head
	QKNorm   bool   // per-head RMSNorm of queries and keys
	Sinks    bool   // one learned sink a query head and layer
	Window   int    // tokens a sliding layer sees, itself included
	Sliding  []bool // layers that slide; nil: none
	NoRope   []bool // layers that do not rotate; nil: none
}

// GDNLayout holds the sizes of the gated delta net layers.
type GDNLayout struct {
	KeyHeads, ValueHeads, HeadDim, Kernel int
	SigmoidGate                           bool // the output gate is a sigmoid instead of a SiLU
}

// MoELayout holds the sizes of the routed and shared experts.
type MoELayout struct {
	Experts, Taken, Width, SharedWidth int
	LeadingDense                       int     // layers before the first routed one
	Sigmoid                            bool    // scores are sigmoids of the logits instead of a softmax
	Normalize                          bool    // chosen scores are divided by their sum
	Scale                              float64 // weights are multiplied by it; 0 means 1
	SharedGate                         bool    // the shared expert is scaled by a sigmoid gate
}

// HyperLayout holds the sizes of the hyper-connections.
type HyperLayout struct{ Streams, Rank int }

// QSALayout holds the sizes of the sparse attention's indexer.
type QSALayout struct{ Heads, HeadDim, Block, Budget int } // Budget in blocks

// PLELayout holds the hashed n-gram embedding: its arrays come from the file.
type PLELayout struct {
	Layer, NGram, Heads, Width, Kernel, Dilation int // Heads per n-gram size
	EOS, Image                                   int32
	Multipliers, Vocab, Offsets                  []uint64
	Rows                                         int
}

// Attends reports whether layer l is an attention layer.
func (l *Layout) Attends(layer int) bool { return (layer+1)%l.Attention.Interval == 0 }

// Routed reports whether layer l has routed experts.
func (l *Layout) Routed(layer int) bool { return l.MoE.Experts > 0 && layer >= l.MoE.LeadingDense }
