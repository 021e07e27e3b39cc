package planner

import "fmt"

// A KVFormat is how keys and values of attention are kept.
type KVFormat int

// The two formats of models.md 11.3.
const (
	KVBF16 KVFormat = iota
	KVInt8          // codes, and one F32 scale a token, head and tensor
)

// String is the format's name on the command line.
func (f KVFormat) String() string {
	switch f {
	case KVBF16:
		return "bf16"
	case KVInt8:
		return "int8"
	}
	return fmt.Sprintf("kv format %d", int(f))
}

// Sizes of a run's state that no layout changes.
const (
	PageTokens  = 32   // tokens of a page of keys and values
	CycleRows   = 8    // rows of a lane in a decode cycle
	draftWindow = 2048 // rows of taps that a draft's window reaches back to
)

// Memory is what serving a target takes, in bytes, but for a backend's scratch and the draft's own weights and state.
type Memory struct {
	Images  int64 // every image of the target
	KVToken int64 // keys and values of one token, in every attention layer, with its scales
	Index   int64 // the sparse attention's index of one token

	// A lane's state beside its tokens.
	Recurrent int64 // recurrent states, F32
	Conv      int64 // convolution rows, BF16
	PLE       int64 // rows and ids of the hashed n-gram embedding

	TapRow int64 // the taps of one row, BF16: what the draft reads of it
	Taps   int64 // of the rows of a cycle of every lane, and of a prompt's last rows

	Pages int   // pages of a lane at full context
	Lane  int64 // one lane at full context: its pages and its state
	Total int64 // images, every lane, taps
}

// MemoryPlan is the memory of a target's images and of so many lanes of context tokens each. A lane has room for the rows
// of a cycle beyond its last token.
func MemoryPlan(p *Plan, context, lanes int, kv KVFormat) (Memory, error) {
	if context < 1 || context > max(1, p.Layout.Context) {
		return Memory{}, fmt.Errorf("a context of %d tokens, accepted 1 to %d", context, p.Layout.Context)
	}
	if lanes < 1 {
		return Memory{}, fmt.Errorf("%d lanes, accepted 1 and more", lanes)
	}
	if kv != KVBF16 && kv != KVInt8 {
		return Memory{}, fmt.Errorf("%s is neither bf16 nor int8", kv)
	}
	images, err := PlanImages(p)
	if err != nil {
		return Memory{}, err
	}
	m := StateMemory(&p.Layout, kv)
	m.Images = images.Size()
	if p.Family != nil {
		m.TapRow = int64(len(p.Family.Taps)) * int64(p.Layout.Hidden) * 2
	}
	m.Taps = m.TapRow * int64(draftWindow+lanes*CycleRows)
	m.Pages = (context + CycleRows - 1 + PageTokens - 1) / PageTokens
	m.Lane = int64(m.Pages)*PageTokens*(m.KVToken+m.Index) + m.Recurrent + m.Conv + m.PLE
	m.Total = m.Images + int64(lanes)*m.Lane + m.Taps
	return m, nil
}

// StateMemory is the state of a token and of a lane of a layout (models.md 1.2 and 11); the other fields are zero.
func StateMemory(l *Layout, kv KVFormat) Memory {
	var m Memory
	attention := 0
	for layer := range l.Layers {
		if l.Attends(layer) {
			attention++
		}
	}
	m.KVToken = int64(attention) * tokenBytes(&l.Attention, kv)
	if s := &l.QSA; s.Heads > 0 {
		// A raw key in BF16, and a pooled key in F32 for every block.
		m.Index = int64(attention) * int64(2*s.HeadDim+4*s.HeadDim/s.Block)
	}
	gdn := int64(l.Layers - attention)
	g := &l.GDN
	m.Recurrent = gdn * int64(g.ValueHeads*g.HeadDim*g.HeadDim) * 4
	m.Conv = gdn * int64((2*g.KeyHeads+g.ValueHeads)*g.HeadDim*max(0, g.Kernel-1)) * 2
	if e := &l.PLE; l.Arch == HyperMoE {
		m.PLE = int64((e.Kernel-1)*e.Dilation*l.Hyper.Streams*l.Hidden)*2 + int64(e.NGram-1)*4
	}
	return m
}

// tokenBytes is a token's keys and values in one attention layer.
func tokenBytes(a *AttentionLayout, kv KVFormat) int64 {
	values := 2 * a.KVHeads * a.HeadDim
	if kv == KVInt8 {
		return int64(values + 2*a.KVHeads*4)
	}
	return int64(2 * values)
}

// RingBytes is the keys and values of the draft's window, in every layer of one lane (draft.md 4.1).
func (d *Draft) RingBytes() int64 {
	return int64(d.Layers) * DraftWindow * 2 * DraftKVHeads * DraftHeadDim * 2
}

// TapBytes is the taps of one row.
func (d *Draft) TapBytes() int64 { return int64(len(d.Taps)) * int64(d.Hidden) * 2 }
