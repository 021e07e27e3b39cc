package planner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"splash/internal/gguf"
)

// metadata holds a header's keys to a layout and gathers every mismatch. Keys are without the architecture's prefix.
type metadata struct {
	h      *gguf.Header
	prefix string
	blocks int // layers the header counts, appended ones too
	faults []string
}

// checkMetadata compares every size the header states with the layout's (models.md 15.4), and takes from it what is the
// file's to state: the count of routed experts, and the arrays of the n-gram embedding.
func checkMetadata(h *gguf.Header, d *derived, l *Layout) error {
	m := &metadata{h: h, prefix: d.kind.gguf + ".", blocks: d.blocks}
	m.uint("block_count", l.Layers+d.mtp)
	m.uint("embedding_length", l.Hidden)
	m.attention(l)
	switch l.Arch {
	case FlintMoE:
		m.flint(l)
	default:
		m.gdn(l)
	}
	if l.Arch == HyperMoE {
		m.hyper(l)
	}
	if l.MoE.Experts > 0 {
		m.moe(l)
	}
	if l.FFN > 0 {
		m.uint("feed_forward_length", l.FFN)
	}
	m.arrays(l)
	if len(m.faults) > 0 {
		return fmt.Errorf("GGUF metadata does not match the target: %s", strings.Join(m.faults, ", "))
	}
	return nil
}

func (m *metadata) attention(l *Layout) {
	a := &l.Attention
	m.uint("attention.head_count", a.Heads)
	m.uint("attention.head_count_kv", a.KVHeads)
	m.uint("attention.key_length", a.HeadDim)
	m.uint("attention.value_length", a.HeadDim)
	m.uint("rope.dimension_count", a.RopeDim)
	m.float("rope.freq_base", a.RopeBase)
	m.float("attention.layer_norm_rms_epsilon", l.Epsilon)
	if v, ok := m.h.String(m.prefix + "rope.scaling.type"); m.has("rope.scaling.type") && (!ok || v != "none") {
		m.fault("rope.scaling.type", m.found("rope.scaling.type"), "none")
	}
}

func (m *metadata) gdn(l *Layout) {
	g := &l.GDN
	m.uint("full_attention_interval", l.Attention.Interval)
	m.uint("ssm.conv_kernel", g.Kernel)
	m.uint("ssm.group_count", g.KeyHeads)
	m.uint("ssm.time_step_rank", g.ValueHeads)
	m.uint("ssm.state_size", g.HeadDim)
	m.uint("ssm.inner_size", g.ValueHeads*g.HeadDim)
}

func (m *metadata) hyper(l *Layout) {
	m.uint("hyper_connection.count", l.Hyper.Streams)
	m.uint("hyper_connection.low_rank", l.Hyper.Rank)
	m.uint("attention.indexer.head_count", l.QSA.Heads)
	m.uint("attention.indexer.key_length", l.QSA.HeadDim)
	m.uint("attention.indexer.top_k", l.QSA.Budget*l.QSA.Block)
	m.uint("ple.ngram_size", l.PLE.NGram)
	m.uint("ple.heads_per_ngram", l.PLE.Heads)
	m.uint("ple.conv_kernel", l.PLE.Kernel)
	m.uint("embedding_length_per_layer_input", l.PLE.Width)
}

// moe holds the experts to the layout, but takes a smaller count: at least the experts a token takes, and whole columns of
// eight of the router's projection.
func (m *metadata) moe(l *Layout) {
	e := &l.MoE
	if v, ok := m.h.Int(m.prefix + "expert_count"); !ok || v < int64(e.Taken) || v > int64(e.Experts) {
		m.uint("expert_count", e.Experts)
	} else if v != int64(e.Experts) && v%8 != 0 {
		m.fault("expert_count", m.found("expert_count"), fmt.Sprintf("a multiple of 8 up to %d", e.Experts))
	} else {
		e.Experts = int(v)
	}
	m.uint("expert_used_count", e.Taken)
	m.uint("expert_feed_forward_length", e.Width)
	if l.Arch != FlintMoE || m.has("expert_shared_feed_forward_length") {
		m.uint("expert_shared_feed_forward_length", e.SharedWidth)
	}
}

// arrays holds the arrays to the layout. Their faults name the key alone.
func (m *metadata) arrays(l *Layout) {
	attends := make([]bool, l.Layers)
	recurs := make([]bool, l.Layers)
	for i := range attends {
		attends[i] = l.Attends(i)
		recurs[i] = !attends[i]
	}
	if l.Arch == HyperMoE {
		m.ratios(l, attends)
		if v, ok := m.h.Ints(m.prefix + "ple.layers"); !ok || !slices.Equal(v, []int64{int64(l.PLE.Layer)}) {
			m.faults = append(m.faults, "ple.layers")
		}
	}
	if l.Arch == FlintMoE {
		m.pattern("attention.sliding_window_pattern", orFalse(l.Attention.Sliding, l.Layers))
		m.pattern("attention.rope_pattern", not(orFalse(l.Attention.NoRope, l.Layers)))
		return
	}
	if v, ok := m.h.Ints(m.prefix + "rope.dimension_sections"); m.has("rope.dimension_sections") &&
		(!ok || !slices.Equal(v, []int64{11, 11, 10, 0})) {
		m.faults = append(m.faults, "rope.dimension_sections")
	}
	m.pattern("attention.recurrent_layers", recurs)
}

// ratios holds the compression of each layer's keys to the blocks of the sparse attention. Entries beyond the layers are
// those of appended ones.
func (m *metadata) ratios(l *Layout, attends []bool) {
	v, ok := m.h.Ints(m.prefix + "attention.compress_ratios")
	ok = ok && len(v) >= l.Layers
	for i := 0; ok && i < l.Layers; i++ {
		want := int64(0)
		if attends[i] {
			want = int64(l.QSA.Block)
		}
		ok = v[i] == want
	}
	if !ok {
		m.faults = append(m.faults, "attention.compress_ratios")
	}
}

// pattern holds an array of bools or of 0 and 1, where present, to the layers. Appended layers may have entries too.
func (m *metadata) pattern(key string, want []bool) {
	if !m.has(key) {
		if m.patternRequired(key, want) {
			m.faults = append(m.faults, key)
		}
		return
	}
	found, ok := m.layerFlags(key)
	if !ok || len(found) != len(want) && len(found) != m.blocks || !slices.Equal(found[:len(want)], want) {
		m.faults = append(m.faults, key)
	}
}

// patternRequired reports whether a header without the key says something else than the layers are.
func (m *metadata) patternRequired(key string, want []bool) bool {
	switch key {
	case "attention.sliding_window_pattern":
		return slices.Contains(want, true)
	case "attention.rope_pattern":
		return slices.Contains(want, false)
	}
	return false
}

// layerFlags reads an array of bools, or of the integers 0 and 1.
func (m *metadata) layerFlags(key string) ([]bool, bool) {
	v, ok := m.h.Ints(m.prefix + key)
	if !ok {
		return nil, false
	}
	flags := make([]bool, len(v))
	for i := range v {
		if v[i] != 0 && v[i] != 1 {
			return nil, false
		}
		flags[i] = v[i] == 1
	}
	return flags, true
}

func orFalse(v []bool, n int) []bool {
	if v == nil {
		return make([]bool, n)
	}
	return v
}

func not(v []bool) []bool {
	n := make([]bool, len(v))
	for i := range v {
		n[i] = !v[i]
	}
	return n
}

func (m *metadata) has(key string) bool { return m.h.Key(m.prefix+key) != nil }

func (m *metadata) uint(key string, want int) {
	v, ok := m.h.Int(m.prefix + key)
	if ok && v == int64(want) {
		return
	}
	found := ""
	if ok {
		found = strconv.FormatInt(v, 10)
	} else if _, ok := m.h.Uint(m.prefix + key); ok {
		found = m.found(key)
	}
	m.fault(key, found, want)
}

// float compares within a relative 1e-6, the rounding of a float32.
func (m *metadata) float(key string, want float64) {
	v, ok := m.h.Float(m.prefix + key)
	if ok && math.Abs(v-want) <= 1e-6*math.Abs(want) {
		return
	}
	found := ""
	if ok {
		found = m.found(key)
	}
	m.fault(key, found, number(want))
}

// fault notes a mismatch; a key that is not there, or is of another kind, has no found value.
func (m *metadata) fault(key, found string, want any) {
	if found == "" {
		found = "missing"
	}
	m.faults = append(m.faults, fmt.Sprintf("%s %s (expected %v)", key, found, want))
}

// found prints a key's value.
func (m *metadata) found(key string) string {
	kv := m.h.Key(m.prefix + key)
	switch v := kv.Value().(type) {
	case float32:
		if float64(v) == math.Trunc(float64(v)) {
			return number(float64(v))
		}
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return number(v)
	case string:
		return plain(v)
	}
	if kv.Type == gguf.TypeArray {
		return fmt.Sprintf("an array of %d", kv.Len)
	}
	return fmt.Sprint(kv.Value())
}

// plain is outside text for a message: short, and quoted where it is not plainly printable.
func plain(s string) string {
	if len(s) > 100 {
		s = s[:100] + "..."
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return strconv.Quote(s)
		}
	}
	return s
}
