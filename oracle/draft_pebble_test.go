package oracle_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
	"splash/oracle"
)

var pebbleSizes = draftSizes{
	hidden: 256, inner: 512, layers: 2, taps: 3, heads: 32, kvHeads: 8, dim: 128, window: 2048, vocab: 4096, rank: 256,
	theta: 1e7,
}

// A bf16File is a safetensors file of BF16 tensors.
type bf16File struct {
	tensors map[string]bf16Tensor
	data    []byte
}

type bf16Tensor struct {
	DType   string
	Shape   []int
	Offsets [2]int `json:"data_offsets"`
}

func readPebbleDraft(t *testing.T) *bf16File {
	t.Helper()
	data, err := os.ReadFile("../fixtures/pebble/draft/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	n := 8 + binary.LittleEndian.Uint64(data)
	raw := make(map[string]json.RawMessage)
	if err := json.Unmarshal(data[8:n], &raw); err != nil {
		t.Fatal(err)
	}
	delete(raw, "__metadata__")
	f := &bf16File{make(map[string]bf16Tensor), data[n:]}
	for name, text := range raw {
		var tensor bf16Tensor
		if err := json.Unmarshal(text, &tensor); err != nil {
			t.Fatal(err)
		}
		f.tensors[name] = tensor
	}
	return f
}

func (f *bf16File) matrix(name string, rows, columns int) oracle.Dense {
	tensor := f.tensors[name]
	data := f.data[tensor.Offsets[0]:tensor.Offsets[1]]
	if len(data) != 2*rows*columns {
		panic(fmt.Sprintf("%s has %d bytes, want %d x %d values", name, len(data), rows, columns))
	}
	m := oracle.Dense{Rows: rows, Cols: columns, Values: make([]float64, rows*columns)}
	for i := range m.Values {
		m.Values[i] = float64(dequant.FromBF16(binary.LittleEndian.Uint16(data[2*i:])))
	}
	return m
}

// TestPebbleDraftShapes holds a published draft to the table of tensors of draft.md 2.5.
func TestPebbleDraftShapes(t *testing.T) {
	const h, inner, layers, taps, vocab = 256, 512, 2, 3, 4096
	want := map[string][]int{
		"fc.weight": {h, taps * h}, "hidden_norm.weight": {h}, "norm.weight": {h},
		"candidate_selector.hidden_projection.weight": {256, h},
		"candidate_selector.predecessor_codebook":     {vocab, 256},
		"candidate_selector.successor_codebook":       {vocab, 256},
	}
	for l := range layers {
		for name, shape := range map[string][]int{
			"input_layernorm.weight": {h}, "post_attention_layernorm.weight": {h},
			"attention_conv.base_kernel": {2, 2, h}, "attention_conv.kernel_projection.weight": {h / 4, h},
			"mlp_conv.base_kernel": {2, 2, h}, "mlp_conv.kernel_projection.weight": {h / 4, h},
			"self_attn.q_proj.weight": {4096, h}, "self_attn.k_proj.weight": {1024, h},
			"self_attn.v_proj.weight": {1024, h}, "self_attn.o_proj.weight": {h, 4096},
			"self_attn.q_norm.weight": {128}, "self_attn.k_norm.weight": {128},
			"mlp.gate_proj.weight": {inner, h}, "mlp.up_proj.weight": {inner, h}, "mlp.down_proj.weight": {h, inner},
		} {
			want[fmt.Sprintf("layers.%d.%s", l, name)] = shape
		}
	}
	got := make(map[string][]int)
	for name, tensor := range readPebbleDraft(t).tensors {
		got[name] = tensor.Shape
		if tensor.DType != "BF16" {
			t.Errorf("%s is %s", name, tensor.DType)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tensors (-want +got)\n%s", diff)
	}
	used := make(map[string]bool)
	newDraft(pebbleSizes, func(name string, rows, columns int) oracle.Dense {
		used[name] = true
		return oracle.Dense{Rows: rows, Cols: columns, Values: make([]float64, rows*columns)}
	})
	used["candidate_selector.predecessor_codebook"], used["candidate_selector.successor_codebook"] = true, true
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("tensors that the network reads (-want +got)\n%s", diff)
	}
}

// TestPebbleDraft runs the trained draft, of the published sizes, on generated taps and embeddings, and holds it to the
// transcription in testdata/draft.py. The token table serves as the head.
func TestPebbleDraft(t *testing.T) {
	const rows, anchor, mask, p, k = 8, 7, 4095, 5, 16
	s, file := pebbleSizes, readPebbleDraft(t)
	data, err := os.ReadFile("testdata/pebble_draft.json")
	if err != nil {
		t.Fatal(err)
	}
	var want workedDraft
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	d := newDraft(s, file.matrix)
	table, taps := testMatrix("token_embd", s.vocab, s.hidden), testMatrix("taps", p, s.taps*s.hidden)
	ring := d.NewDraftRing()
	for position := range p {
		d.Commit(ring, taps.Values[position*s.taps*s.hidden:(position+1)*s.taps*s.hidden], position)
	}
	x := make([]float64, rows*s.hidden)
	embedding := func(token int) []float64 { return table.Values[token*s.hidden : (token+1)*s.hidden] }
	oracle.DraftRows(x, embedding(anchor), embedding(mask))
	d.Block(x, p, ring)
	for i, r := range []int{0, 3, 7} {
		wantNear(t, fmt.Sprintf("f_%d", r), x[r*s.hidden:(r+1)*s.hidden], want.Final[i], 1e-12)
	}

	selector := &oracle.Selector{
		Predecessor: file.matrix("candidate_selector.predecessor_codebook", s.vocab, s.rank),
		Successor:   file.matrix("candidate_selector.successor_codebook", s.vocab, s.rank),
	}
	lattice := oracle.NewLattice(rows-1, k)
	logits, state := make([]float64, s.vocab), make([]float64, s.rank)
	for j, w := range want.Walk {
		f := x[(j+1)*s.hidden : (j+2)*s.hidden]
		oracle.MatVec(logits, table, f)
		oracle.MatVec(state, d.Select, f)
		wantNear(t, "selector state", state[:16], w.State, 1e-12)
		lattice.Fill(selector, j, anchor, logits, state)
	}
	checkWalk(t, lattice, &want)
}
