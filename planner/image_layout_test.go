package planner

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// familyPlan is the plan of a family whose quantized tensors are all of one type, the others F32.
func familyPlan(t testing.TB, name string, typ dequant.Type) *Plan {
	t.Helper()
	f := FamilyByName(name)
	if f == nil {
		t.Fatalf("no family %s", name)
	}
	p := &Plan{Family: f, Layout: f.Layout, Format: "gguf"}
	for _, w := range inventory(&f.Layout) {
		n := Tensor{Name: w.name, Layer: w.layer, Role: w.role, Rows: w.rows, Cols: w.cols, Experts: w.experts,
			Type: dequant.F32, RowOrder: w.rowOrder, ColOrder: w.colOrder, Source: []Piece{{Name: w.name}}}
		switch w.role {
		case Linear, Experts, TokenTable, Router, AlphaBeta:
			n.Type = typ
		}
		if !w.optional {
			p.Tensors = append(p.Tensors, n)
		}
	}
	return p
}

func planImages(t testing.TB, p *Plan) *ImagePlan {
	t.Helper()
	images, err := PlanImages(p)
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// outline lists an image's tensors: form, name without its layer, and the type of rows.
func outline(m *Image) string {
	var lines []string
	for _, t := range m.Tensors {
		name := t.Name
		if i := strings.Index(name, "."); strings.HasPrefix(name, "blk.") && i >= 0 {
			name = name[strings.Index(name[i+1:], ".")+i+2:]
		}
		name = strings.TrimSuffix(name, ".weight")
		switch t.Form {
		case Planes:
			lines = append(lines, "planes "+name)
		case Described:
			lines = append(lines, "rows "+name+" "+t.Type.String())
		case Bare:
			lines = append(lines, "bare "+name+" "+t.Type.String())
		}
	}
	return strings.Join(lines, "; ")
}

// Parts of the section orders of formats.md 5.10.
const (
	attentionSections = "planes attn_q; planes attn_k; planes attn_v; bare attn_q_norm F32; bare attn_k_norm F32; "
	gdnSections       = "planes attn_qkv; planes attn_gate; planes ssm_beta_alpha; bare ssm_conv1d BF16; bare ssm_a F32; " +
		"bare ssm_dt.bias BF16; bare ssm_norm F32; planes ssm_out; "
	denseSections = "planes ffn_gate; planes ffn_up; planes ffn_down"
	moeSections   = "rows ffn_gate_inp Q8_0; planes ffn_gate_exps; planes ffn_up_exps; planes ffn_down_exps; " +
		"planes ffn_gate_shexp; planes ffn_up_shexp; planes ffn_down_shexp"
	sharedGate = "; rows ffn_gate_inp_shexp F32"
)

func mixSections(stem string, inject bool) string {
	s := fmt.Sprintf("bare %s_norm F32; planes %s_down; planes %s_up; ", stem, stem, stem)
	if inject {
		s += fmt.Sprintf("bare %s_inject F32; ", stem)
	}
	return s
}

// TestSectionOrder holds the images of every architecture to formats.md 5.10, and their frames to 5.1.
func TestSectionOrder(t *testing.T) {
	type frame struct {
		Name        string
		Layer, Type uint32
		Outline     string
	}
	tests := []struct {
		family string
		images int
		want   []frame
	}{
		{"Qwen3.8-27B", 66, []frame{
			{"layer-0.bin", 0, 0, "bare attn_norm F32; " + gdnSections + "bare post_attention_norm F32; " + denseSections},
			{"layer-3.bin", 3, 1, "bare attn_norm F32; " + attentionSections + "planes attn_output; " +
				"bare post_attention_norm F32; " + denseSections},
			{"head.bin", 64, 2, "bare output_norm F32; planes output"},
			{"embedding.bin", 248320, 5120, "rows token_embd Q8_0"},
		}},
		{"Qwen3.6-35B-A3B", 42, []frame{
			{"layer-38.bin", 38, 0, "bare attn_norm F32; " + gdnSections + "bare post_attention_norm F32; " + moeSections +
				sharedGate},
			{"layer-39.bin", 39, 1, "bare attn_norm F32; " + attentionSections + "planes attn_output; " +
				"bare post_attention_norm F32; " + moeSections + sharedGate},
			{"head.bin", 40, 2, "bare output_norm F32; planes output"},
			{"embedding.bin", 248320, 2048, "rows token_embd Q8_0"},
		}},
		{"Qwen3.8-Flash-Next", 51, []frame{
			{"layer-0.bin", 0, 0, mixSections("hc_attn", true) + gdnSections + mixSections("hc_ffn", true) + moeSections +
				sharedGate},
			{"layer-1.bin", 1, 0, mixSections("hc_attn", true) + gdnSections + mixSections("hc_ffn", true) + moeSections +
				sharedGate + "; planes ple_key; planes ple_value; bare ple_norm_key F32; bare ple_norm_query F32; " +
				"bare ple_norm_conv F32; bare ple_conv1d F32"},
			{"layer-3.bin", 3, 1, mixSections("hc_attn", true) + attentionSections + "planes attn_output; " +
				"rows indexer.q_proj F32; rows indexer.k_proj F32; bare indexer.q_norm F32; bare indexer.k_norm F32; " +
				mixSections("hc_ffn", true) + moeSections + sharedGate},
			{"head.bin", 48, 2, mixSections("output_hc", false) + "planes output"},
			{"embedding.bin", 248320, 2560, "rows token_embd Q8_0"},
			{"ple.bin", 1, 3, "rows per_layer_token_embd Q8_0"},
		}},
		{"tiny-flint", 8, []frame{
			{"layer-0.bin", 0, 1, "bare attn_norm F32; " + attentionSections + "bare attn_sinks F32; planes attn_output; " +
				"bare ffn_norm F32; " + denseSections},
			{"layer-2.bin", 2, 1, "bare attn_norm F32; " + attentionSections + "bare attn_sinks F32; planes attn_output; " +
				"bare ffn_norm F32; " + moeSections},
			{"head.bin", 6, 2, "bare output_norm F32; planes output"},
			{"embedding.bin", 2048, 256, "rows token_embd Q8_0"},
		}},
		{"Qwen3.5-4B", 34, []frame{
			{"head.bin", 32, 2, "bare output_norm F32; planes token_embd"}, // tied
			{"embedding.bin", 248320, 2560, "rows token_embd Q8_0"},
		}},
	}
	for _, test := range tests {
		t.Run(test.family, func(t *testing.T) {
			images := planImages(t, familyPlan(t, test.family, dequant.Q8_0))
			if len(images.Images) != test.images {
				t.Errorf("%d images, want %d", len(images.Images), test.images)
			}
			for _, want := range test.want {
				m := images.Image(want.Name)
				if m == nil {
					t.Errorf("no image %s", want.Name)
					continue
				}
				if diff := cmp.Diff(want, frame{m.Name, m.Layer, m.Type, outline(m)}); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// TestImageSizes holds the place of every section of every family to formats.md 5.1, 5.3 and 8.6.
func TestImageSizes(t *testing.T) {
	for _, f := range Families() {
		if f.Open {
			continue
		}
		for _, typ := range []dequant.Type{dequant.Q8_0, dequant.Q4_K, dequant.IQ3S, dequant.NVFP4, dequant.BF16} {
			if f.Layout.Arch == HyperMoE && typ != dequant.Q8_0 {
				continue // its odd row lengths take blocks of 32 alone
			}
			images := planImages(t, familyPlan(t, f.Name, typ))
			for i := range images.Images {
				checkPlaces(t, f.Name, &images.Images[i])
			}
		}
	}
}

// checkPlaces adds up an image's sections by themselves.
func checkPlaces(t *testing.T, family string, m *Image) {
	t.Helper()
	round := func(n int64) int64 { return (n + 16383) / 16384 * 16384 }
	end := int64(16384)
	next := func(tensor *ImageTensor, what string, s Section, size int64) {
		if s.Offset != end || s.Size != size || size <= 0 {
			t.Fatalf("%s: %s: %s of %s is %+v, want %d bytes at %d", family, m.Name, what, tensor.Name, s, size, end)
		}
		end += round(size)
	}
	for i := range m.Tensors {
		tensor := &m.Tensors[i]
		weights := int64(tensor.Rows) * int64(tensor.Cols)
		if tensor.Form != Bare {
			next(tensor, "descriptor", tensor.Descriptor, 56)
		}
		if tensor.Form != Planes {
			f := dequant.Lookup(tensor.Type)
			next(tensor, "rows", tensor.Plane0, weights/int64(f.Block)*int64(f.Bytes))
			continue
		}
		f := LookupImage(tensor.Type)
		next(tensor, "plane 0", tensor.Plane0, weights/32*int64(f.Plane0))
		if f.Plane1 > 0 {
			next(tensor, "plane 1", tensor.Plane1, weights/32*int64(f.Plane1))
		}
		next(tensor, "meta", tensor.Meta, weights/int64(f.Block)*int64(f.Meta))
	}
	if m.Size != end {
		t.Errorf("%s: %s has %d bytes, want %d", family, m.Name, m.Size, end)
	}
}

// TestDescriptor holds a descriptor and a header to formats.md 9.1.
func TestDescriptor(t *testing.T) {
	m := Image{Name: "layer-3.bin", Layer: 3, Type: imageAttention}
	linear := Tensor{Name: "blk.3.attn_k.weight", Layer: 3, Role: Linear, Rows: 128, Cols: 512, Type: dequant.Q4_K}
	if err := placeTensors(&m, []*Tensor{&linear}, &forms{wideNorms: true}); err != nil {
		t.Fatal(err)
	}
	d, h := m.Tensors[0].descriptor(), m.header()
	const want = "0c0000008000000000020000100000000000000010000000080000000000000000800000000000000000000000000000" +
		"0010000000000000"
	if got := hex.EncodeToString(d[:]); got != want {
		t.Errorf("descriptor\n%s, want\n%s", got, want)
	}
	if got := hex.EncodeToString(h[:]); got != "4d444747303030310300000001000000" {
		t.Errorf("header %s", got)
	}
	if m.Size != 5*16384 {
		t.Errorf("image of %d bytes, want %d: header, descriptor, 32 KiB of plane 0, meta", m.Size, 5*16384)
	}
	rows := Tensor{Name: "token_embd.weight", Layer: -1, Role: TokenTable, Rows: 10, Cols: 512, Type: dequant.BF16}
	m = Image{Name: "embedding.bin", Layer: 10, Type: 512}
	if err := placeTensors(&m, []*Tensor{&rows}, &forms{wideNorms: true}); err != nil {
		t.Fatal(err)
	}
	d = m.Tensors[0].descriptor()
	const wantRows = "1e0000000a00000000020000" + "0000000000000000000000000000000000000000" + "0028000000000000" +
		"0000000000000000" + "0000000000000000"
	if got := hex.EncodeToString(d[:]); got != wantRows {
		t.Errorf("descriptor of rows\n%s, want\n%s", got, wantRows)
	}
}

// TestHugeTable lays out the table of hashed n-grams at its released size, beyond 32 bits of bytes.
func TestHugeTable(t *testing.T) {
	images := planImages(t, familyPlan(t, "Qwen3.8-Flash-Next", dequant.Q8_0))
	table := images.Image("ple.bin").Tensors[0]
	if want := int64(320001536) * 160 / 32 * 34; table.Plane0.Size != want {
		t.Errorf("the table has %d bytes, want %d", table.Plane0.Size, want)
	}
}

// TestNormTypes keeps MLX's norms in BF16 and widens the others.
func TestNormTypes(t *testing.T) {
	for _, test := range []struct {
		name, format string
		types        [2]dequant.Type
		conversion   Conversion
		want         dequant.Type
	}{
		{"gguf", "gguf", [2]dequant.Type{dequant.BF16, dequant.F16}, AsStored, dequant.F32},
		{"mlx", "safetensors", [2]dequant.Type{dequant.BF16, dequant.BF16}, AsStored, dequant.BF16},
		{"transformers", "safetensors", [2]dequant.Type{dequant.BF16, dequant.BF16}, OnePlus, dequant.F32},
	} {
		p := familyPlan(t, "tiny-qwen35", dequant.Q8_0)
		p.Format = test.format
		for i := range p.Tensors {
			n := &p.Tensors[i]
			if n.Role != Norm {
				continue
			}
			n.Type = test.types[i%2]
			if !strings.HasSuffix(n.Name, "ssm_norm.weight") {
				n.Conversion = test.conversion
			}
		}
		for _, m := range planImages(t, p).Images {
			for _, tensor := range m.Tensors {
				if strings.HasSuffix(tensor.Name, "norm.weight") && tensor.Type != test.want {
					t.Errorf("%s: %s is %s, want %s", test.name, tensor.Name, tensor.Type, test.want)
				}
			}
		}
	}
}

// TestImageRefusals holds the layout to formats.md 5.11.
func TestImageRefusals(t *testing.T) {
	linear := func(rows, cols int, typ dequant.Type) Tensor {
		return Tensor{Name: "blk.0.ffn_up.weight", Role: Linear, Rows: rows, Cols: cols, Type: typ}
	}
	with := func(t Tensor, change func(*Tensor)) Tensor { change(&t); return t }
	good := linear(64, 256, dequant.Q4_K)
	for _, test := range []struct {
		tensor Tensor
		want   string
	}{
		{linear(100, 256, dequant.Q4_K), "tensor is not tile aligned: blk.0.ffn_up.weight is [100, 256]"},
		{linear(64, 96, dequant.Q8_0), "tensor is not tile aligned"},
		{linear(64, 320, dequant.Q2_0), "tensor is not tile aligned"},
		{linear(64, 128, dequant.PQ2_0), "tensor is not tile aligned"},
		{linear(64, 640, dequant.NVFP4), "tensor is not tile aligned"},
		{linear(0, 256, dequant.Q4_K), "unexpected shape for blk.0.ffn_up.weight: [0, 256]"},
		{linear(64, -256, dequant.Q4_K), "unexpected shape"},
		{linear(1<<33, 256, dequant.Q4_K), "too large for an image"},
		{linear(64, 1<<33, dequant.Q4_K), "too large for an image"},
		{linear(1<<31, 1<<31, dequant.Q8_0), "too large for an image"},
		{with(good, func(t *Tensor) { t.Experts = 1 << 27 }), "too large for an image"},
		{with(good, func(t *Tensor) { t.Rows, t.Experts = 32, 4 }), "tensor is not tile aligned"},
		{linear(64, 256, dequant.F32), "blk.0.ffn_up.weight is F32, which has no planes"},
		{linear(64, 256, dequant.Q8_K), "blk.0.ffn_up.weight is Q8_K, which has no planes"},
		{linear(64, 256, 99), "blk.0.ffn_up.weight is type-99, which has no planes"},
		{with(good, func(t *Tensor) { t.Conversion = ToQ8_0 }), "blk.0.ffn_up.weight is Q4_K, which planes"},
		{with(good, func(t *Tensor) { t.Role, t.Type = TokenTable, 99 }), "is of unknown type-99"},
		{with(good, func(t *Tensor) { t.Role, t.Cols = TokenTable, 160 }), "rows of 160 are not whole Q4_K blocks of 256"},
		{with(good, func(t *Tensor) { t.Role, t.Cols, t.Type = Norm, 1<<20, dequant.F32 }), "too large for an image"},
		{with(good, func(t *Tensor) { t.Role = 99 }), "has no place in an image: role 99"},
		{with(good, func(t *Tensor) { t.Role, t.Type, t.Signs = Router, dequant.F32, []int8{1} }), "is rotated, but only"},
		{with(good, func(t *Tensor) { t.Role = AlphaBeta }), "stands without its other half"},
	} {
		err := placeTensors(&Image{Name: "layer-0.bin"}, []*Tensor{&test.tensor}, &forms{wideNorms: true})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d x [%d, %d] in %s: error %v, want one with %q", test.tensor.Experts, test.tensor.Rows,
				test.tensor.Cols, test.tensor.Type, err, test.want)
		}
	}
	if _, err := PlanImages(&Plan{Layout: Layout{Layers: 1, Attention: AttentionLayout{Interval: 4}}}); err == nil {
		t.Error("a plan without tensors has images")
	}
}

// TestPlanDigest changes with whatever changes the bytes, and with nothing else.
func TestPlanDigest(t *testing.T) {
	digest := func(change func(p *Plan)) string {
		p := familyPlan(t, "tiny-qwen35", dequant.Q8_0)
		change(p)
		return planImages(t, p).Digest()
	}
	base := digest(func(*Plan) {})
	if digest(func(p *Plan) { p.Tensors[1].Signs = make([]int8, 256); p.Layout.Context = 7 }) != base {
		t.Error("signs or the context change the digest")
	}
	for name, change := range map[string]func(p *Plan){
		"type":       func(p *Plan) { p.Tensors[1].Type = dequant.Q4_0 },
		"row order":  func(p *Plan) { p.Tensors[1].RowOrder = nil },
		"source":     func(p *Plan) { p.Tensors[1].Source[0].First = 1 },
		"conversion": func(p *Plan) { p.Tensors[0].Conversion = OnePlus },
	} {
		if digest(change) == base {
			t.Errorf("another %s has the same digest", name)
		}
	}
}
