package planner

// A Family is one size of an architecture: the models that differ from it in their weights alone.
type Family struct {
	Name   string
	Layout Layout

	// Open families take their sizes from the file, which is held to rules of structure (models.md 8.4).
	Open bool

	Vision *VisionLayout // nil: text only
	Image  int32         // the token whose rows are an image's; -1 without vision

	Chat  string  // chat format: "qwen" or "flint"
	Stop  []int32 // tokens that end an answer; nil in an open family, whose file names them
	Draft string  // repository of the family's released draft; "" where none is known

	// Mask bounds the mask token a draft may choose; where one token is the family's, both ends name it.
	Mask TokenRange
	Taps []int // the layers the released draft reads; nil where that is the draft's to state

	GGUFOnly bool // the family loads from no other container
	Test     bool // left out of messages and completions
}

// A TokenRange is a range of token ids, both ends in it.
type TokenRange struct{ First, Last int32 }

// Contains reports whether the token is in the range.
func (r TokenRange) Contains(token int32) bool { return r.First <= token && token <= r.Last }

// VisionLayout holds the sizes of a vision tower.
type VisionLayout struct {
	Depth, Hidden, Heads, FFN int
	Out                       int // width of an image's rows: the target's hidden size
	Patch, Temporal, Merge    int // pixels a patch side, frames a patch, patches a merged side
	Side                      int // patches a side of the position table
	Epsilon                   float64
}

// HeadDim is the width of one attention head.
func (v *VisionLayout) HeadDim() int { return v.Hidden / v.Heads }

// Merged is the width of the patches that one image row is made of.
func (v *VisionLayout) Merged() int { return v.Hidden * v.Merge * v.Merge }

// Chat formats.
const (
	ChatQwen  = "qwen"
	ChatFlint = "flint"
)

// Families returns every family, in the order of messages. The values are the caller's own.
//
// Sizes are those of the published configurations (models.md 1.2, 8.4, 16; Pebble's README).
func Families() []*Family {
	return []*Family{
		{
			Name:   "Qwen3.8-27B",
			Layout: dense(sizes{layers: 64, hidden: 5120, heads: 24, kv: 4, keys: 16, values: 48, ffn: 17408}),
			Vision: tower(5120), Image: 248056, Chat: ChatQwen, Stop: qwenStop(),
			Draft: "incoai/Qwen3.8-27B-DFlash2", Mask: TokenRange{248070, 248070}, Taps: []int{5, 19, 33, 47, 61},
		},
		{
			Name: "Qwen3.6-35B-A3B",
			Layout: moe(sizes{
				layers: 40, hidden: 2048, heads: 16, kv: 2, keys: 16, values: 32, experts: 256, taken: 8, width: 512,
			}),
			Vision: tower(2048), Image: 248056, Chat: ChatQwen, Stop: qwenStop(),
			Draft: "incoai/Qwen3.6-35B-A3B-DFlash2", Mask: TokenRange{248077, 248077},
			Taps: []int{1, 6, 11, 16, 22, 27, 32, 37},
		},
		{
			Name: "Qwen3.5-122B-A10B",
			Layout: moe(sizes{
				layers: 48, hidden: 3072, heads: 32, kv: 2, keys: 16, values: 64, experts: 256, taken: 8, width: 1024,
			}),
			Vision: tower(3072), Image: 248056, Chat: ChatQwen, Stop: qwenStop(), Mask: TokenRange{0, qwenVocab - 1},
		},
		{
			Name:   "Qwen3.8-Flash-Next",
			Layout: flashNext(),
			Vision: tower(2560), Image: 248056, Chat: ChatQwen, Stop: qwenStop(), Mask: TokenRange{248077, 248077},
			GGUFOnly: true,
		},
		{
			Name: "Flint", Open: true, Layout: Layout{Arch: FlintMoE}, Image: -1, Chat: ChatFlint,
			Mask: TokenRange{150019, 150143}, GGUFOnly: true,
		},
		small("Qwen3.5-0.8B", nil, sizes{
			layers: 24, hidden: 1024, heads: 8, kv: 2, keys: 16, values: 16, ffn: 3584, tied: true,
		}),
		small("Qwen3.5-2B", nil, sizes{
			layers: 24, hidden: 2048, heads: 8, kv: 2, keys: 16, values: 16, ffn: 6144, tied: true,
		}),
		small("Qwen3.5-4B", nil, sizes{
			layers: 32, hidden: 2560, heads: 16, kv: 4, keys: 16, values: 32, ffn: 9216, tied: true,
		}),
		small("Qwen3.5-9B", tower(4096), sizes{
			layers: 32, hidden: 4096, heads: 16, kv: 4, keys: 16, values: 32, ffn: 12288,
		}),
		tiny("tiny-qwen35", dense(tinySizes(true)), []int{0, 2, 3}),
		tiny("tiny-qwen35moe", moe(tinySizes(false)), []int{0, 2, 3}),
		tiny("tiny-qwen4exp", tinyHyper(), []int{1, 3}),
		tinyFlint(),
		tied("tiny-qwen35-tied", dense(tinySizes(true))),
		tied("tiny-qwen35moe-tied", moe(tinySizes(false))),
		tinyRotated(),
		bench(),
		pebble(),
	}
}

// FamilyByName returns the family of that name, or nil.
func FamilyByName(name string) *Family {
	for _, f := range Families() {
		if f.Name == name {
			return f
		}
	}
	return nil
}

const (
	qwenVocab   = 248320
	qwenContext = 262144
)

func qwenStop() []int32 { return []int32{248044, 248046} } // <|endoftext|>, <|im_end|>

// sizes are what the families of Qwen3.5's architectures differ in.
type sizes struct {
	layers, hidden, heads, kv int
	keys, values              int // GDN heads
	ffn                       int
	experts, taken, width     int
	vocab, context            int // 0: those of the released models
	tied                      bool
}

// hybrid is the layout of the mixers that every Qwen family shares.
func hybrid(arch Architecture, s sizes) Layout {
	if s.vocab == 0 {
		s.vocab, s.context = qwenVocab, qwenContext
	}
	return Layout{
		Arch: arch, Layers: s.layers, Hidden: s.hidden, Vocab: s.vocab, Context: s.context, Tied: s.tied, Epsilon: 1e-6,
		Attention: AttentionLayout{
			Interval: 4, Heads: s.heads, KVHeads: s.kv, HeadDim: 256, RopeDim: 64, RopeBase: 1e7, Gated: true, QKNorm: true,
		},
		GDN: GDNLayout{KeyHeads: s.keys, ValueHeads: s.values, HeadDim: 128, Kernel: 4},
	}
}

func dense(s sizes) Layout {
	l := hybrid(DenseHybrid, s)
	l.FFN = s.ffn
	return l
}

func moe(s sizes) Layout {
	l := hybrid(MoEHybrid, s)
	l.MoE = MoELayout{
		Experts: s.experts, Taken: s.taken, Width: s.width, SharedWidth: s.width, Normalize: true, SharedGate: true,
	}
	return l
}

func flashNext() Layout {
	l := moe(sizes{
		layers: 48, hidden: 2560, heads: 24, kv: 2, keys: 16, values: 48, experts: 512, taken: 10, width: 640,
	})
	l.Arch = HyperMoE
	l.GDN.SigmoidGate = true
	l.Hyper = HyperLayout{Streams: 4, Rank: 320}
	l.QSA = QSALayout{Heads: 4, HeadDim: 128, Block: 4, Budget: 512}
	l.PLE = PLELayout{
		Layer: 1, NGram: 3, Heads: 8, Width: 160, Kernel: 4, Dilation: 3, EOS: 248044, Image: 248056, Rows: 320001536,
	}
	return l
}

// tower is the vision tower of the families that have one; they differ in its output width alone.
func tower(out int) *VisionLayout {
	return &VisionLayout{
		Depth: 27, Hidden: 1152, Heads: 16, FFN: 4304, Out: out, Patch: 16, Temporal: 2, Merge: 2, Side: 48, Epsilon: 1e-6,
	}
}

// small is a family without a released draft.
func small(name string, v *VisionLayout, s sizes) *Family {
	f := &Family{
		Name: name, Layout: dense(s), Vision: v, Image: -1, Chat: ChatQwen, Stop: qwenStop(), Mask: TokenRange{0, qwenVocab - 1},
	}
	if v != nil {
		f.Image = 248056
	}
	return f
}

func tinySizes(dense bool) sizes {
	s := sizes{layers: 4, hidden: 256, heads: 2, kv: 1, keys: 2, values: 4, vocab: 2048, context: 4096}
	if dense {
		s.ffn = 512
	} else {
		s.experts, s.taken, s.width = 16, 4, 256
	}
	return s
}

func tiny(name string, l Layout, taps []int) *Family {
	return &Family{
		Name: name, Layout: l, Image: 2012, Chat: ChatQwen, Stop: []int32{2000, 2002}, Mask: TokenRange{2047, 2047}, Taps: taps,
		Vision: &VisionLayout{
			Depth: 2, Hidden: 144, Heads: 2, FFN: 256, Out: 256, Patch: 16, Temporal: 2, Merge: 2, Side: 8, Epsilon: 1e-6,
		},
		GGUFOnly: l.Arch == HyperMoE, Test: true,
	}
}

func tinyHyper() Layout {
	l := moe(tinySizes(false))
	l.Arch = HyperMoE
	l.GDN.SigmoidGate = true
	l.Hyper = HyperLayout{Streams: 4, Rank: 64}
	l.QSA = QSALayout{Heads: 4, HeadDim: 128, Block: 4, Budget: 4}
	l.PLE = PLELayout{
		Layer: 1, NGram: 3, Heads: 4, Width: 32, Kernel: 4, Dilation: 3, EOS: 2000, Image: 2012, Rows: 4352,
	}
	return l
}

func tinyFlint() *Family {
	return &Family{
		Name: "tiny-flint", Image: -1, Chat: ChatFlint, Stop: []int32{2000, 2002}, Mask: TokenRange{2047, 2047},
		Taps: []int{1, 3, 5}, GGUFOnly: true, Test: true,
		Layout: Layout{
			Arch: FlintMoE, Layers: 6, Hidden: 256, Vocab: 2048, Context: 4096, Epsilon: 1e-6, FFN: 512,
			Attention: AttentionLayout{
				Interval: 1, Heads: 4, KVHeads: 2, HeadDim: 128, RopeDim: 64, RopeBase: 1e7, QKNorm: true, Sinks: true,
				Window: 16, Sliding: []bool{true, true, false, true, true, false},
				NoRope: []bool{false, false, true, false, false, true},
			},
			MoE: MoELayout{
				Experts: 16, Taken: 4, Width: 256, SharedWidth: 256, LeadingDense: 1, Sigmoid: true, Normalize: true,
			},
		},
	}
}

// tied is a tiny family whose token table is its head; the shorter context tells it from the one with a head.
func tied(name string, l Layout) *Family {
	l.Tied, l.Context = true, 2048
	return tiny(name, l, []int{0, 2, 3})
}

// tinyRotated is the least dense family whose every input is whole blocks of the Hadamard rotation, of two widths.
func tinyRotated() *Family {
	l := dense(sizes{layers: 4, hidden: 1024, heads: 4, kv: 1, keys: 2, values: 8, ffn: 2048, vocab: 2048, context: 4096})
	f := tiny("tiny-rotated", l, []int{0, 2, 3})
	f.Vision, f.Image = nil, -1
	return f
}

// bench has the sizes of Qwen3.5-0.8B under a vocabulary of a tenth: what a machine's speed is measured on.
func bench() *Family {
	l := dense(sizes{
		layers: 24, hidden: 1024, heads: 8, kv: 2, keys: 16, values: 16, ffn: 3584, vocab: 32768, context: 32768, tied: true,
	})
	f := tiny("bench-qwen35", l, nil)
	f.Vision, f.Image, f.Mask = nil, -1, TokenRange{0, 32767}
	return f
}

// pebble is the demo model: the tiny dense sizes, twice as deep, with its own vocabulary.
func pebble() *Family {
	s := tinySizes(true)
	s.layers, s.vocab = 8, 4096
	return &Family{
		Name: "pebble", Layout: dense(s), Image: -1, Chat: ChatQwen, Stop: []int32{4069, 4071}, Mask: TokenRange{4095, 4095},
		Taps: []int{1, 4, 7}, Test: true,
	}
}
