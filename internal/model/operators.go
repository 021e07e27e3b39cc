// Package model holds the networks, written once against a set of operators, and the operators' interface, which every
// backend implements.
package model

import (
	"fmt"

	"splash/oracle"
	"splash/planner"
)

// Handles name what a backend owns. They are valid for the backend that gave them, until it is closed.
type (
	Buffer  int32 // activations, one row of a fixed width a row of the pass
	Matrix  int32 // a projection
	Experts int32 // one projection of every expert
	Vector  int32 // a small tensor of F32 values
	State   int32 // what every lane carries from row to row for one layer
	Lane    int32 // a request being decoded: one instance of every State

	Checkpoint int32 // a lane's states as they were, to begin other lanes with
)

// None is no vector, where an operator can do without.
const None Vector = -1

// A Domain says which rows of a pass a buffer has.
type Domain int

const (
	AllRows    Domain = iota // every row of the pass
	OutputRows               // the rows whose logits are wanted, in order
)

// An Epilogue says what becomes of a result.
type Epilogue int

const (
	Store Epilogue = iota // it replaces the destination
	Add                   // it is added to the destination, the residual
)

// A Segment is consecutive rows of one lane in a pass.
type Segment struct {
	Lane    Lane
	Tokens  []int32 // the rows' tokens; they take the lane's next indices
	Outputs int     // of how many of the last rows logits are wanted
	Routed  int     // rows that route experts: rows past it are padding of a cycle. 0 means all

	// Positions are the rows' places for the rotary embedding; nil for text, whose place is its index plus RopeDelta.
	Positions []oracle.Position
	RopeDelta int

	// Embedded are values of the hidden size that rows have in place of the token table's: those of images. nil: all rows
	// have the table's; otherwise one entry a row, nil where the row has the table's.
	Embedded [][]float32
}

// CheckRows refuses positions and embedded values that are not those of the segment's rows.
func (s *Segment) CheckRows(hidden int) error {
	if s.Positions != nil && len(s.Positions) != len(s.Tokens) {
		return fmt.Errorf("lane %d has %d positions for %d rows", s.Lane, len(s.Positions), len(s.Tokens))
	}
	if s.Embedded != nil && len(s.Embedded) != len(s.Tokens) {
		return fmt.Errorf("lane %d has %d embedded rows for %d rows", s.Lane, len(s.Embedded), len(s.Tokens))
	}
	for i, e := range s.Embedded {
		if e != nil && len(e) != hidden {
			return fmt.Errorf("lane %d: embedded row %d has %d values, not %d", s.Lane, i, len(e), hidden)
		}
	}
	return nil
}

// A Kind says what a pass does to its lanes.
type Kind int

const (
	// TargetPass runs the target: its rows become the lanes' next ones.
	TargetPass Kind = iota
	// DraftPass runs a draft's block: row r of a segment is r places after the lane's last row. Lanes stay as they are.
	DraftPass
	// ContextPass makes a draft's context: a segment's rows are the first rows of the lane's segment in the last
	// TargetPass, whose buffers still hold what that pass left in them. Lanes stay as they are.
	ContextPass
)

// A Pass is one run of a network over the rows of its segments. A lane has at most one segment.
type Pass struct {
	Kind     Kind
	Segments []Segment

	// Choices are the tokens that a TargetPass also chooses from its logits, on a backend that is a Chooser.
	Choices []Choice
}

// Rows is the number of rows, and of rows whose logits are wanted.
func (p *Pass) Rows() (rows, outputs int) {
	for i := range p.Segments {
		rows += len(p.Segments[i].Tokens)
		outputs += p.Segments[i].Outputs
	}
	return rows, outputs
}

// RollbackRows is the number of rows at the end of a lane's last segment that Rollback can take back: a cycle's.
const RollbackRows = 8

// A Backend implements the operators on its own memory. Calls between Begin and End record work in order and may return
// before it is done; Read waits. An error of the work is returned by End. A Backend is used by one goroutine at a time.
//
// Rows are independent of each other but through the lanes' states, in which row i of a segment sees rows before it.
type Backend interface {
	// LoadMatrix, LoadExperts and LoadVector load a tensor of a plan. The network's order of rows and columns, and the unrotated
	// input, are the backend's to provide (planner.Tensor: RowOrder, ColOrder, Signs).
	LoadMatrix(w planner.Weights, t *planner.Tensor) (Matrix, error)
	LoadExperts(w planner.Weights, t *planner.Tensor) (Experts, error)
	LoadVector(w planner.Weights, t *planner.Tensor) (Vector, error)

	// Buffer allocates rows of the width.
	Buffer(width int, d Domain) (Buffer, error)

	// KVState, ConvState and GDNState declare what lanes carry for a layer; all of them before the first lane.
	KVState(kvHeads, dim int) State
	ConvState(channels, taps int) State
	GDNState(heads, keyDim, valueDim int) State
	// IndexState holds the raw keys of a sparse attention layer, NGramState the last rows and tokens of an n-gram layer.
	IndexState(dim int) State
	NGramState(p *planner.PLELayout, width int) State

	// DraftState declares the ring of keys and values that a draft layer's rows look back on.
	DraftState(window, kvHeads, dim int) State

	// NewLane returns a lane with cleared states and no rows. FreeLane gives it back.
	NewLane() (Lane, error)
	FreeLane(l Lane)
	// Rollback forgets the last n rows of the lane, at most RollbackRows of its last segment: its states are exactly
	// those after the row before them.
	Rollback(l Lane, n int) error

	// Save keeps the lane's states as they are now, and says what that takes in bytes, less what it shares with what was
	// kept before. Resume gives a new lane the states and the rows of a checkpoint, any number of times. Drop lets go of it.
	Save(l Lane) (c Checkpoint, bytes int64, err error)
	Resume(l Lane, c Checkpoint) error
	Drop(c Checkpoint)

	// Begin starts a pass, End finishes it. p is not changed and not kept.
	Begin(p *Pass) error
	End() error
	// Read returns a row of a buffer as F32 values. The slice is the backend's, until the next Begin.
	Read(b Buffer, row int) []float32

	Operators
}

// Operators are the network's steps. Each has its formula in package oracle, in the file of its name.
type Operators interface {
	// Embed writes the table's row of each row's token, or the row's embedded values.
	Embed(dst Buffer, table Matrix)
	// Outputs writes the rows of x whose logits are wanted to dst, a buffer of OutputRows.
	Outputs(dst, x Buffer)
	// Copy writes x to dst.
	Copy(dst, x Buffer)

	// RMSNorm writes the norm of each row of x. dst may be x.
	//
	// Of this operator and others, next are the matrices that multiply dst, all in one operator, unless none is given: then
	// nothing else reads dst before it is written again, and a backend may keep it in the form that they take.
	RMSNorm(dst, x Buffer, w Vector, eps float64, next []Matrix)

	// Project writes W x.
	Project(dst, x Buffer, w Matrix, e Epilogue)
	// ProjectAll stores the products of one x, which no result is written to.
	ProjectAll(x Buffer, all []Projection)
	// GateUp writes silu(gate x) * (up x).
	GateUp(dst, x Buffer, gate, up Matrix, next []Matrix)

	// Attention stores the keys and values of its rows and attends (oracle/attention.go).
	Attention(dst, q, k, v Buffer, a *Attention)

	// Conv writes the causal convolution of x, after SiLU.
	Conv(dst, x Buffer, w Vector, s State)
	// GDN writes o of the gated delta rule. qkv holds the convolved queries, keys and values.
	GDN(dst, qkv, beta, alpha Buffer, g *GDN)
	// GatedNorm writes the per-head norm of x times the gate of z. dst may be x.
	GatedNorm(dst, x, z Buffer, w Vector, sigmoid bool, next []Matrix)

	MoEOperators
	HyperOperators
	DraftOperators
}

// A Projection is one of the products of an input.
type Projection struct {
	Dst Buffer
	W   Matrix
}

// An Attention is what an attention layer does beside its projections.
type Attention struct {
	Layout       *planner.AttentionLayout
	KV           State
	QNorm, KNorm Vector // None: queries and keys are not normalized
	Sinks        Vector // None: no sinks
	Window       int    // 0: every token
	Rotate       bool
	Index        *Indexer // nil: not sparse
}

// A GDN is what a gated delta net layer does between its convolution and its gated norm.
type GDN struct {
	Layout      *planner.GDNLayout
	State       State
	Decay, Bias Vector // of the value heads
}

// MoEOperators are those of routed experts (oracle/moe.go).
type MoEOperators interface {
	// Route chooses each row's experts from its router logits: routes gets Taken ids, then Taken weights, by falling
	// score. A row past its segment's Routed takes none, which ids of -1 say.
	Route(routes, logits Buffer, m *planner.MoELayout)
	// Experts sums weight * down(silu(gate x) * (up x)) over the experts of routes, in their order.
	Experts(dst, x, routes Buffer, gate, up, down Experts, e Epilogue)
	// AddGated adds sigmoid(gate . x) * y to dst, or y where gate is None.
	AddGated(dst, y, x Buffer, gate Vector)
}

// HyperOperators are those of hyper-connected streams (oracle/hyper.go, ple.go). A buffer of streams is Streams * Hidden
// wide.
type HyperOperators interface {
	// Expand writes x to every stream.
	Expand(streams, x Buffer)
	// HyperRead mixes the streams to h and writes each stream's injection weight; a mix without Inject writes none.
	HyperRead(h, inject, streams Buffer, m *HyperMix)
	// HyperWrite adds inject_s * y to each stream s.
	HyperWrite(streams, y, inject Buffer)
	// StreamMean writes the mean of the streams.
	StreamMean(dst, streams Buffer)
	// NGramRows writes the rows of the hashed n-gram table that each token and its context select.
	NGramRows(dst Buffer, table Matrix, n *NGram)
	// NGramAdd adds the gated and convolved n-gram embedding to the streams.
	NGramAdd(streams, key, value Buffer, n *NGram)
}

// A HyperMix is one read of the streams.
type HyperMix struct {
	Layout           *planner.HyperLayout
	Norm             Vector
	Down, Up, Inject Matrix // Inject is NoMatrix for the final read
}

// NoMatrix is no projection, where an operator can do without.
const NoMatrix Matrix = -1

// An NGram is the hashed n-gram embedding of one layer.
type NGram struct {
	Layout                       *planner.PLELayout
	State                        State
	KeyNorm, QueryNorm, ConvNorm Vector
	Conv                         Vector
}

// An Indexer chooses the blocks of keys a row of sparse attention sees.
type Indexer struct {
	Layout       *planner.QSALayout
	Q, K         Buffer
	QNorm, KNorm Vector
	State        State
}

// DraftOperators are those of a DFlash2 draft (oracle/draft.go).
type DraftOperators interface {
	// DraftRows writes a block's rows, as BF16 holds them: the table's row of the token; but in all rows of a segment after
	// the first mask, where it is not None.
	DraftRows(dst Buffer, table Matrix, mask Vector)
	// DraftTaps writes the rows of the taps beside each other, as BF16 holds them. It belongs to a ContextPass.
	DraftTaps(dst Buffer, taps []Buffer)
	// DraftStore puts the rows' keys, normalized and rotated, and values in the lanes' rings. It belongs to a ContextPass.
	DraftStore(k, v Buffer, a *DraftAttention)
	// DraftConv writes, or adds, side 0 or 1 of the two-tap convolution of x over each segment's rows. kernel holds the
	// rows' dynamic kernels.
	DraftConv(dst, x, kernel Buffer, base Vector, side, group int, e Epilogue)
	// DraftAttention writes the attention of each segment's rows over its lane's ring and all of the segment.
	DraftAttention(dst, q, k, v Buffer, a *DraftAttention)
}

// A DraftAttention is what a draft's attention layer does beside its projections.
type DraftAttention struct {
	Heads, KVHeads, Dim, Window int
	Theta, Epsilon              float64
	QNorm, KNorm                Vector
	State                       State
}
