package planner

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"

	"github.com/google/go-cmp/cmp"
)

// TestFamilies plans a GGUF of every family as its converter writes it.
func TestFamilies(t *testing.T) {
	for _, f := range Families() {
		t.Run(f.Name, func(t *testing.T) {
			h := fakeTarget(f).header(t)
			p, err := PlanGGUF(h)
			if err != nil {
				t.Fatal(err)
			}
			if p.Family.Name != f.Name || p.Format != "gguf" {
				t.Errorf("planned as %s of %s", p.Family.Name, p.Format)
			}
			if len(p.Tensors) != len(h.Tensors) {
				t.Errorf("the plan reads %d of %d tensors", len(p.Tensors), len(h.Tensors))
			}
			for i := range p.Tensors {
				n := &p.Tensors[i]
				if found := h.Tensor(n.Source[0].Name); found.Elements() != int64(n.Rows*n.Cols*max(n.Experts, 1)) {
					t.Errorf("%s: %d x %d x %d of %v", n.Name, n.Experts, n.Rows, n.Cols, found.Dims)
				}
				if p.Tensor(n.Name) != n {
					t.Errorf("%s is not found by its name", n.Name)
				}
			}
			if p.Tensor("nothing") != nil {
				t.Error("a tensor that is not there was found")
			}
			if f.Open {
				want := openLayout()
				want.Epsilon = float64(float32(want.Epsilon)) // as the header holds it
				if diff := cmp.Diff(want, p.Layout); diff != "" {
					t.Errorf("layout (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]int32{150000, 150001, 150002, 150003}, p.Stop); diff != "" {
					t.Errorf("stop tokens (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestFamilySizes holds each family's parameters to the count its name or its publisher states, in billions; those of the
// vision tower and of the n-gram table are not among them. The tiny ones are those of models.md 16.
func TestFamilySizes(t *testing.T) {
	for _, test := range []struct {
		name   string
		want   float64
		within float64
	}{
		{"Qwen3.8-27B", 27, 0.5}, {"Qwen3.6-35B-A3B", 35, 0.5}, {"Qwen3.5-122B-A10B", 122, 0.7},
		{"Qwen3.8-Flash-Next", 125, 0.8}, {"Qwen3.5-0.8B", 0.75, 0.03}, {"Qwen3.5-2B", 1.88, 0.03}, {"Qwen3.5-4B",
			4.2, 0.2},
		{"Qwen3.5-9B", 9, 0.3}, {"tiny-qwen35", 0.0048, 0.0001}, {"tiny-qwen35moe", 0.017, 0.0006},
		{"tiny-qwen4exp", 0.018, 0.0006}, {"tiny-flint", 0.021, 0.0006}, {"pebble", 0.0095, 0.0001},
	} {
		f := family(t, test.name)
		n := 0.0
		for _, w := range inventory(&f.Layout) {
			if w.name != "per_layer_token_embd.weight" && !w.optional {
				n += float64(w.rows) * float64(w.cols) * float64(max(w.experts, 1))
			}
		}
		if math.Abs(n/1e9-test.want) > test.within {
			t.Errorf("%s has %.4f B parameters, want %v", test.name, n/1e9, test.want)
		}
	}
}

// TestFamiliesDiffer holds the list to the rule that identification needs, and to itself.
func TestFamiliesDiffer(t *testing.T) {
	all := Families()
	for i, a := range all {
		for _, b := range all[:i] {
			if a.Name == b.Name {
				t.Errorf("two families are named %s", a.Name)
			}
			if a.Layout.Arch == b.Layout.Arch && !a.Open && !b.Open && a.Layout.identity() == b.Layout.identity() {
				t.Errorf("%s and %s have the same sizes", a.Name, b.Name)
			}
		}
		l := &a.Layout
		if a.Vision != nil && (a.Vision.Out != l.Hidden || a.Vision.Hidden%a.Vision.Heads != 0 || a.Image < 0) {
			t.Errorf("%s: its tower does not fit it", a.Name)
		}
		for j, tap := range a.Taps {
			if tap < 0 || tap >= l.Layers || j > 0 && tap <= a.Taps[j-1] {
				t.Errorf("%s: taps %v", a.Name, a.Taps)
			}
		}
		if !a.Open && int(a.Mask.Last) >= l.Vocab {
			t.Errorf("%s: mask tokens %v", a.Name, a.Mask)
		}
	}
	all[0].Layout.Layers, all[0].Taps[0] = 1, 99
	if f := Families()[0]; f.Layout.Layers != 64 || f.Taps[0] != 5 {
		t.Error("a caller's change of a family shows in the next list")
	}
	want := "Qwen3.8-27B, Qwen3.6-35B-A3B, Qwen3.5-122B-A10B, Qwen3.8-Flash-Next, Flint, Qwen3.5-0.8B, Qwen3.5-2B, Qwen3.5-4B, Qwen3.5-9B"
	if got := strings.Join(Supported(), ", "); got != want {
		t.Errorf("supported: %s", got)
	}
}

// TestGGUFVariants plans files that differ from the plain target and are accepted.
func TestGGUFVariants(t *testing.T) {
	for _, test := range []struct {
		name, family string
		change       func(g *fakeGGUF)
		check        func(t *testing.T, p *Plan)
	}{
		{"an appended layer that predicts", "tiny-qwen35moe", func(g *fakeGGUF) {
			g.set("qwen35moe.block_count", uint32(5))
			g.set("qwen35moe.nextn_predict_layers", uint32(1))
			g.add("blk.4.nextn.eh_proj.weight", dequant.Q8_0, 512, 256)
			g.add("blk.4.attn_norm.weight", dequant.I32, 7)
		}, func(t *testing.T, p *Plan) {
			if p.Layout.Layers != 4 {
				t.Errorf("%d layers, want 4", p.Layout.Layers)
			}
		}},
		{"a count of predicting layers of 0", "tiny-qwen35",
			func(g *fakeGGUF) { g.set("qwen35.nextn_predict_layers", uint32(0)) }, nil},
		{"half the experts", "tiny-qwen35moe", func(g *fakeGGUF) { reduce(g, "qwen35moe", 8) }, func(t *testing.T, p *Plan) {
			if n := p.Tensor("blk.2.ffn_up_exps.weight").Experts; n != 8 || p.Layout.MoE.Experts != 8 {
				t.Errorf("%d experts of %d, want 8", n, p.Layout.MoE.Experts)
			}
			if rows := p.Tensor("blk.2.ffn_gate_inp.weight").Rows; rows != 8 {
				t.Errorf("a router of %d rows, want 8", rows)
			}
		}},
		{"half the experts of qwen4exp", "tiny-qwen4exp", func(g *fakeGGUF) { reduce(g, "qwen4exp", 8) }, nil},
		{"half the experts of Flint", "tiny-flint", func(g *fakeGGUF) { reduce(g, "flint", 8) }, nil},
		{"fused gate and up", "tiny-qwen35moe", fuse, func(t *testing.T, p *Plan) {
			want := []Piece{{Name: "blk.1.ffn_gate_up_exps.weight", Rows: 16 * 256, Stride: 512, Width: 256}}
			if diff := cmp.Diff(want, p.Tensor("blk.1.ffn_gate_exps.weight").Source); diff != "" {
				t.Errorf("gate (-want +got):\n%s", diff)
			}
			want[0].First = 256
			if diff := cmp.Diff(want, p.Tensor("blk.1.ffn_up_exps.weight").Source); diff != "" {
				t.Errorf("up (-want +got):\n%s", diff)
			}
		}},
		{"a tied model with a head", "Qwen3.5-0.8B", func(g *fakeGGUF) { g.linear("output.weight", 248320, 1024) }, func(t *testing.T, p *Plan) {
			if p.Tensor("output.weight") == nil {
				t.Error("the head is not read")
			}
		}},
		{"a tied model without", "Qwen3.5-0.8B", func(*fakeGGUF) {}, func(t *testing.T, p *Plan) {
			if p.Tensor("output.weight") != nil {
				t.Error("a head that is not there is planned")
			}
		}},
		{"NVFP4 with its scales", "tiny-qwen35moe", func(g *fakeGGUF) {
			g.tensor("blk.0.ffn_up_exps.weight").kind = dequant.NVFP4
			g.add("blk.0.ffn_up_exps.scale", dequant.F32, 16)
			g.add("blk.0.ffn_up_exps.input_scale", dequant.F32, 16)
			g.tensor("blk.0.ffn_up_shexp.weight").kind = dequant.NVFP4
			g.add("blk.0.ffn_up_shexp.scale", dequant.F32, 1)
		}, nil},
		{"layers named as recurrent", "tiny-qwen35", func(g *fakeGGUF) {
			g.set("qwen35.attention.recurrent_layers", []bool{true, true, true, false})
		}, nil},
		{"recurrent layers as integers, with an appended one", "tiny-qwen35", func(g *fakeGGUF) {
			g.set("qwen35.block_count", uint32(5))
			g.set("qwen35.nextn_predict_layers", uint32(1))
			g.set("qwen35.attention.recurrent_layers", []int32{1, 1, 1, 0, 0})
		}, nil},
		{"no rope scaling by name", "tiny-qwen35", func(g *fakeGGUF) { g.set("qwen35.rope.scaling.type", "none") }, nil},
		{"a base in float64", "tiny-qwen35", func(g *fakeGGUF) { g.set("qwen35.rope.freq_base", 1e7) }, nil},
		{"sections left out", "tiny-qwen35", func(g *fakeGGUF) { g.unset("qwen35.rope.dimension_sections") }, nil},
		{"extents of 1 at the end", "tiny-qwen35moe", func(g *fakeGGUF) {
			g.tensor("blk.0.ffn_gate_inp_shexp.weight").dims = []uint64{256, 1}
			g.tensor("output_norm.weight").dims = []uint64{256, 1, 1}
		}, nil},
		{"F16 alpha beside BF16 beta", "tiny-qwen35", func(g *fakeGGUF) {
			g.retype("ssm_alpha.weight", dequant.F16)
			g.retype("ssm_beta.weight", dequant.BF16)
		}, nil},
		{"hyper-connection projections in BF16", "tiny-qwen4exp", func(*fakeGGUF) {}, func(t *testing.T, p *Plan) {
			if c := p.Tensor("blk.0.hc_attn_up.weight").Conversion; c != ToQ8_0 {
				t.Errorf("conversion %d of the BF16 one, want ToQ8_0", c)
			}
			if c := p.Tensor("blk.0.hc_attn_down.weight").Conversion; c != AsStored {
				t.Errorf("conversion %d of the Q8_0 one, want AsStored", c)
			}
		}},
		{"Flint without a window key where none slides", "Flint", func(g *fakeGGUF) {
			g.unset("flint.attention.sliding_window")
			g.unset("flint.attention.sliding_window_pattern")
			g.unset("flint.attention.rope_pattern")
		}, func(t *testing.T, p *Plan) {
			if a := p.Layout.Attention; a.Sliding != nil || a.NoRope != nil || a.Window != 0 {
				t.Errorf("layout %+v", a)
			}
		}},
		{"Flint without q and k norms", "Flint", func(g *fakeGGUF) {
			for i := range 8 {
				g.drop(fmt.Sprintf("blk.%d.attn_q_norm.weight", i), fmt.Sprintf("blk.%d.attn_k_norm.weight", i))
			}
		}, func(t *testing.T, p *Plan) {
			if p.Layout.Attention.QKNorm {
				t.Error("its queries are normalized")
			}
		}},
		{"Flint with its own stop tokens", "Flint", func(g *fakeGGUF) {
			g.set("tokenizer.ggml.eog_token_ids", []int32{7, 9})
		}, func(t *testing.T, p *Plan) {
			if diff := cmp.Diff([]int32{7, 9}, p.Stop); diff != "" {
				t.Errorf("stop tokens (-want +got):\n%s", diff)
			}
		}},
		{"Flint's shared experts by their count", "Flint", func(g *fakeGGUF) {
			g.unset("flint.expert_shared_feed_forward_length")
			g.set("flint.expert_shared_count", uint32(2))
		}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := fakeTarget(family(t, test.family))
			test.change(g)
			p, err := PlanGGUF(g.header(t))
			if err != nil {
				t.Fatal(err)
			}
			if p.Family.Name != test.family {
				t.Errorf("planned as %s", p.Family.Name)
			}
			if test.check != nil {
				test.check(t, p)
			}
		})
	}
}

// reduce leaves a MoE so many experts.
func reduce(g *fakeGGUF, arch string, experts int) {
	g.set(arch+".expert_count", uint32(experts))
	for i := range g.tensors {
		t := &g.tensors[i]
		if strings.Contains(t.name, "_exps.") {
			t.dims[2] = uint64(experts)
		}
		if strings.HasSuffix(t.name, "ffn_gate_inp.weight") {
			t.dims[1] = uint64(experts)
		}
	}
}

// fuse joins the gate and up experts of the tiny MoE's layer 1.
func fuse(g *fakeGGUF) {
	g.drop("blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight")
	g.add("blk.1.ffn_gate_up_exps.weight", dequant.Q4_K, 256, 512, 16)
}

// TestAcceptedTypes stores a tensor of each role in every type: those of formats.md 8.3 plan, the others are named.
func TestAcceptedTypes(t *testing.T) {
	const quants = "Q2_K Q3_K Q4_K Q5_K Q6_K Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_XS " +
		"IQ4_NL MXFP4 NVFP4 PQ2_0 Q2_0"
	const floats = " BF16 F16"
	for _, test := range []struct{ family, tensor, accepted string }{
		{"tiny-qwen35moe", "blk.3.attn_q.weight", quants + floats},
		{"tiny-qwen35moe", "blk.0.ssm_out.weight", quants + floats},
		{"tiny-qwen35moe", "output.weight", quants + floats},
		{"tiny-qwen35moe", "blk.0.ffn_down_shexp.weight", quants + floats},
		{"tiny-qwen35moe", "blk.0.ffn_down_exps.weight", quants + floats},
		{"tiny-qwen35moe", "token_embd.weight", quants + floats},
		{"tiny-qwen35moe", "output_norm.weight", "F32 BF16 F16"},
		{"tiny-qwen35moe", "blk.0.ssm_norm.weight", "F32 BF16 F16"},
		{"tiny-qwen35moe", "blk.3.attn_k_norm.weight", "F32 BF16 F16"},
		{"tiny-qwen35moe", "blk.0.ffn_gate_inp.weight", quants + " F32 BF16"},
		{"tiny-qwen35moe", "blk.0.ffn_gate_inp_shexp.weight", "F32 BF16 Q8_0"},
		{"tiny-qwen35moe", "blk.0.ssm_conv1d.weight", "F32"},
		{"tiny-qwen35moe", "blk.0.ssm_a", "F32"},
		{"tiny-qwen35moe", "blk.0.ssm_dt.bias", "F32"},
		{"tiny-qwen35moe", "blk.0.ssm_alpha.weight", quants + floats + " F32"},
		{"tiny-qwen35moe", "blk.0.ssm_beta.weight", quants + floats + " F32"},
		{"tiny-flint", "blk.0.attn_sinks.weight", "F32"},
		{"tiny-flint", "blk.0.ffn_norm.weight", "F32 BF16 F16"},
		{"tiny-qwen4exp", "blk.3.indexer.q_proj.weight", quants + floats + " F32"},
		{"tiny-qwen4exp", "blk.0.hc_attn_inject.weight", "F32 BF16 F16 Q8_0"},
		{"tiny-qwen4exp", "blk.1.ple_conv1d.weight", "F32"},
		{"tiny-qwen4exp", "blk.1.ple_norm_conv.weight", "F32 BF16 F16"},
		{"tiny-qwen4exp", "blk.1.ple_key.weight", quants + floats},
		{"tiny-qwen4exp", "per_layer_token_embd.weight", "Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL MXFP4" + floats},
	} {
		accepted := map[string]bool{}
		for _, name := range strings.Fields(test.accepted) {
			accepted[name] = true
		}
		for _, format := range dequant.Formats() {
			if format.Type > dequant.PTQ1_0 {
				continue // no type of GGUF
			}
			g := fakeTarget(family(t, test.family))
			tensor := g.tensor(test.tensor)
			if tensor.dims[0]%uint64(format.Block) != 0 {
				continue // the container refuses it
			}
			tensor.kind = format.Type
			_, err := PlanGGUF(g.header(t))
			if (err == nil) != accepted[format.Name] {
				t.Errorf("%s in %s: %v", test.tensor, format.Name, err)
			}
			if err != nil && !strings.Contains(err.Error(), "("+format.Name+")") {
				t.Errorf("%s in %s: %v, which does not name the type", test.tensor, format.Name, err)
			}
			delete(accepted, format.Name)
		}
		if len(accepted) > 0 {
			t.Errorf("%s: untried types %v", test.tensor, accepted)
		}
	}
}

// TestOrders holds what the plan says of the order of value heads to the tiled order of GGUF files (formats.md 5.9).
func TestOrders(t *testing.T) {
	p, err := PlanGGUF(fakeTarget(family(t, "Qwen3.8-27B")).header(t))
	if err != nil {
		t.Fatal(err)
	}
	at := func(from, size int) *HeadOrder { return &HeadOrder{From: from, Size: size, KeyHeads: 16, PerKey: 3} }
	for _, test := range []struct {
		name     string
		row, col *HeadOrder
	}{
		{"blk.0.attn_qkv.weight", at(4096, 128), nil},
		{"blk.0.ssm_conv1d.weight", at(4096, 128), nil},
		{"blk.0.attn_gate.weight", at(0, 128), nil},
		{"blk.0.ssm_alpha.weight", at(0, 1), nil},
		{"blk.0.ssm_beta.weight", at(0, 1), nil},
		{"blk.0.ssm_a", nil, at(0, 1)},
		{"blk.0.ssm_dt.bias", nil, at(0, 1)},
		{"blk.0.ssm_out.weight", nil, at(0, 128)},
		{"blk.0.ssm_norm.weight", nil, nil},
		{"blk.3.attn_q.weight", nil, nil},
		{"blk.0.ffn_down.weight", nil, nil},
	} {
		n := p.Tensor(test.name)
		if diff := cmp.Diff(test.row, n.RowOrder); diff != "" {
			t.Errorf("%s rows (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(test.col, n.ColOrder); diff != "" {
			t.Errorf("%s columns (-want +got):\n%s", test.name, diff)
		}
	}
	// Grouped head j is tiled head (j mod r) Kh + j / r (models.md 4).
	for j := range 48 {
		if got, want := at(0, 1).Source(j), j%3*16+j/3; got != want {
			t.Errorf("head %d comes from %d, want %d", j, got, want)
		}
	}
	same, err := PlanGGUF(fakeTarget(family(t, "Qwen3.5-2B")).header(t))
	if err != nil {
		t.Fatal(err)
	}
	if o := same.Tensor("blk.0.attn_qkv.weight").RowOrder; o != nil {
		t.Errorf("as many key as value heads have an order: %+v", o)
	}
}

// TestGGUFKeysHeld changes and removes every key of every family's architecture: the error names the key, what was found and
// what is expected. Keys that may be left out are listed; sizes that identify a family are changed in released ones, since
// a test family's neighbours are others.
func TestGGUFKeysHeld(t *testing.T) {
	optional := map[string]bool{
		"rope.dimension_sections": true, "ple.image_token_id": true, "expert_weights_norm": true, "expert_weights_scale": true,
	}
	free := map[string]bool{"ple.layer_multipliers": true}
	for _, f := range Families() {
		if f.Open {
			continue // its values are the file's: TestGGUFRefused has its rules
		}
		t.Run(f.Name, func(t *testing.T) {
			g := fakeTarget(f)
			arch := g.get("general.architecture").(string)
			h := g.header(t)
			for _, k := range g.keys {
				key, ok := strings.CutPrefix(k.name, arch+".")
				if !ok || f.Test && sizeOf[key] != "" {
					continue
				}
				if _, err := PlanGGUF(replaced(t, h, k.name, changed(k.value))); err == nil && !free[key] {
					t.Errorf("%s: %v in place of %v is accepted", key, changed(k.value), k.value)
				} else if err != nil && !namesKey(err.Error(), key, k.value) {
					t.Errorf("%s: %v", key, err)
				}
				if _, err := PlanGGUF(replaced(t, h, k.name, nil)); err == nil && !optional[key] && !(arch == "flint" && inferred[key]) {
					t.Errorf("without %s it is accepted", key)
				} else if err != nil && !strings.Contains(err.Error(), key) {
					t.Errorf("without %s: %v", key, err)
				}
			}
		})
	}
}

// sizeOf names the sizes that identify a family by the keys that state them.
var sizeOf = map[string]string{
	"block_count": "num_hidden_layers", "embedding_length": "hidden_size", "context_length": "max_position_embeddings",
	"attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
	"attention.key_length": "head_dim",
}

// inferred lists what Flint's headers may leave to other keys.
var inferred = map[string]bool{"expert_shared_feed_forward_length": true}

// replaced is a header with another value of a key, or without it.
func replaced(t *testing.T, h *gguf.Header, key string, value any) *gguf.Header {
	t.Helper()
	c := &gguf.Header{Name: h.Name, Version: h.Version, Alignment: h.Alignment, DataStart: h.DataStart, Size: h.Size, Tensors: h.Tensors}
	for _, kv := range h.Keys {
		if kv.Key != key {
			c.Keys = append(c.Keys, kv)
		} else if value != nil {
			one := &fakeGGUF{}
			one.set(key, value)
			c.Keys = append(c.Keys, one.header(t).Keys[0])
		}
	}
	return c
}

// changed is another value of the kind.
func changed(v any) any {
	switch v := v.(type) {
	case bool:
		return !v
	case uint32:
		return v + 1
	case float32:
		return v * 1.001
	case []int32:
		c := append([]int32(nil), v...)
		c[0]++
		return c
	case []uint64:
		c := append([]uint64(nil), v...)
		c[len(c)-1] += 1 << 40
		return c
	case []bool:
		c := append([]bool(nil), v...)
		c[0] = !c[0]
		return c
	}
	panic(fmt.Sprintf("no change of %T", v))
}

// namesKey reports whether a refusal names the key (or the size of the configuration it states), and both values of a
// number. A size may be nearer to another family's.
func namesKey(message, key string, was any) bool {
	if !strings.Contains(message, key) && (sizeOf[key] == "" || !strings.Contains(message, sizeOf[key])) {
		return false
	}
	n, ok := was.(uint32)
	return !ok || strings.Contains(message, fmt.Sprint(n+1)) && (sizeOf[key] != "" || strings.Contains(message, fmt.Sprint(n)))
}

// TestSplit plans a split target from the headers of its parts.
func TestSplit(t *testing.T) {
	g := fakeTarget(family(t, "tiny-qwen35"))
	parts := make([]*gguf.Header, 2)
	for i := range parts {
		part := &fakeGGUF{}
		if i == 0 {
			part.keys = append(part.keys, g.keys...)
			part.tensors = g.tensors[:7]
		} else {
			part.tensors = g.tensors[7:]
		}
		part.set("split.no", uint32(i))
		part.set("split.count", uint32(2))
		part.set("split.tensors.count", int32(len(g.tensors)))
		parts[i] = part.header(t)
	}
	h, err := gguf.Join(parts)
	if err != nil {
		t.Fatal(err)
	}
	p, err := PlanGGUF(h)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Tensors) != len(g.tensors) {
		t.Errorf("%d tensors, want %d", len(p.Tensors), len(g.tensors))
	}
}

// TestDerivedConfig derives a configuration from every family's header and plans the target from both.
func TestDerivedConfig(t *testing.T) {
	for _, f := range Families() {
		h := fakeTarget(f).header(t)
		config, err := DeriveConfig(h, nil)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		p, err := PlanGGUFConfig(config, h)
		if err != nil {
			t.Errorf("%s: %v", f.Name, err)
			continue
		}
		if p.Family.Name != f.Name {
			t.Errorf("%s is planned as %s", f.Name, p.Family.Name)
		}
	}
	config, err := DeriveConfig(fakeTarget(family(t, "tiny-flint")).header(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseObject("config", config)
	if err != nil {
		t.Fatal(err)
	}
	want, err := parseObject("config", encodeJSON(jsonObject{
		"model_type": "flint", "hidden_size": 256, "num_hidden_layers": 6, "vocab_size": 2048, "max_position_embeddings": 4096,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128, "num_experts": 16, "num_experts_per_tok": 4,
		"eos_token_id": []int{2000, 2002}, "intermediate_size": 512, "mlp_only_layers": []int{0}, "moe_intermediate_size": 256,
		"shared_expert_intermediate_size": 256, "router_score_function": "sigmoid", "norm_topk_prob": true,
		"rms_norm_eps": 1e-6, "rope_theta": 1e7, "partial_rotary_factor": 0.5, "sliding_window": 16,
		"layer_types": []string{"sliding_attention", "sliding_attention", "full_attention",
			"sliding_attention", "sliding_attention", "full_attention"},
		"no_rope_layer_indices": []int{2, 5},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Flint's configuration (-want +got):\n%s", diff)
	}
}
