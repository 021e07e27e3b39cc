package planner

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/safetensors"

	"github.com/google/go-cmp/cmp"
)

// TestSafetensorsTargets plans a checkpoint of every family that loads from safetensors, in the three kinds.
func TestSafetensorsTargets(t *testing.T) {
	for _, f := range released() {
		for _, test := range []struct {
			name       string
			config     jsonObject
			checkpoint *fakeCheckpoint
			linear     dequant.Type
			norm       Conversion
		}{
			{"MLX", fakeConfig(f), fakeMLX(f.Layout), dequant.Affine(4, 64), AsStored},
			{"Model Optimizer", modelOptConfig(f), fakeModelOpt(f.Layout), dequant.NVFP4Rows, OnePlus},
			{"compressed-tensors", compressedConfig(f), fakeCompressed(f.Layout), dequant.NVFP4Rows, OnePlus},
		} {
			if f.Layout.MoE.Experts > 16 && test.name != "MLX" && f.Name != "Qwen3.6-35B-A3B" {
				continue // a hundred thousand tensors each
			}
			t.Run(f.Name+"/"+test.name, func(t *testing.T) {
				p, err := PlanSafetensors(encodeJSON(test.config), test.checkpoint.checkpoint(t))
				if err != nil {
					t.Fatal(err)
				}
				if got := p.Tensor("blk.0.attn_qkv.weight").Type; got != test.linear {
					t.Errorf("a projection is %v, want %v", got, test.linear)
				}
				for name, want := range map[string]Conversion{
					"blk.0.attn_norm.weight": test.norm, "blk.3.attn_q_norm.weight": test.norm, "output_norm.weight": test.norm,
					"blk.0.ssm_norm.weight": AsStored, "blk.0.ssm_a": NegativeExp, "blk.0.ssm_dt.bias": AsStored,
				} {
					if got := p.Tensor(name).Conversion; got != want {
						t.Errorf("%s has conversion %d, want %d", name, got, want)
					}
				}
				n := 0
				for i := range p.Tensors {
					if p.Tensors[i].RowOrder != nil || p.Tensors[i].ColOrder != nil {
						t.Errorf("%s has an order; checkpoints are grouped", p.Tensors[i].Name)
					}
					n += len(p.Tensors[i].Source)
				}
				if want := len(inventory(&p.Layout)); len(p.Tensors) != want && !p.Layout.Tied {
					t.Errorf("%d tensors, want %d", len(p.Tensors), want)
				}
				if m := p.Layout.MoE; test.name != "MLX" && m.Experts > 0 && n < p.Layout.Layers*3*m.Experts {
					t.Errorf("%d pieces for %d experts", n, m.Experts)
				}
			})
		}
	}
}

// TestMLXFormats infers each format from its tensors, whatever the configuration says (formats.md 3.2).
func TestMLXFormats(t *testing.T) {
	const module = "language_model.model.layers.0.linear_attn.in_proj_qkv"
	f := family(t, "tiny-qwen35")
	config := encodeJSON(fakeConfig(f))
	plan := func(words, groups int, scales safetensors.DType) (*Plan, error) {
		c := fakeMLX(f.Layout)
		c.drop(module+".weight", module+".scales", module+".biases")
		c.add(module+".weight", safetensors.U32, 1024, words)
		c.add(module+".scales", scales, 1024, groups)
		if scales == safetensors.BF16 {
			c.add(module+".biases", scales, 1024, groups)
		}
		return PlanSafetensors(config, c.checkpoint(t))
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			p, err := plan(256*bits/32, 256/group, safetensors.BF16)
			if err != nil {
				t.Error(err)
			} else if got := p.Tensor("blk.0.attn_qkv.weight").Type; got != dequant.Affine(bits, group) {
				t.Errorf("%d bits in groups of %d: %v", bits, group, got)
			}
		}
	}
	for want, groups := range map[dequant.Type]int{dequant.MXFP4: 8, dequant.NVFP4Rows: 16} {
		p, err := plan(32, groups, safetensors.U8)
		if err != nil {
			t.Error(err)
		} else if got := p.Tensor("blk.0.attn_qkv.weight").Type; got != want {
			t.Errorf("%d scales: %v, want %v", groups, got, want)
		}
	}
	for _, test := range []struct {
		words, groups int
		scales        safetensors.DType
		want          string
	}{
		{32, 4, safetensors.F16, module + ".scales is F16; scales of MLX weights are BF16 (affine) or U8 (mxfp4, nvfp4)"},
		{32, 4, safetensors.F32, module + ".scales is F32; scales of MLX weights are BF16 (affine) or U8 (mxfp4, nvfp4)"},
		{56, 4, safetensors.BF16, module + " is affine 7-bit in groups of 64; " + mlxAccepts},
		{8, 4, safetensors.BF16, module + " is affine 1-bit in groups of 64; " + mlxAccepts},
		{32, 1, safetensors.BF16, module + " is affine 4-bit in groups of 256; " + mlxAccepts},
		{64, 8, safetensors.U8, module + " is mxfp4 8-bit in groups of 32; " + mlxAccepts},
		{33, 4, safetensors.BF16, module + " holds 33 words and 4 scales for rows of 256 weights, which is no MLX format"},
		{32, 3, safetensors.BF16, module + " holds 32 words and 3 scales for rows of 256 weights, which is no MLX format"},
		{0, 4, safetensors.BF16, module + " holds 0 words and 4 scales for rows of 256 weights, which is no MLX format"},
		{32, 0, safetensors.BF16, module + " holds 32 words and 0 scales for rows of 256 weights, which is no MLX format"},
	} {
		refused(t, test.want, func() error { _, err := plan(test.words, test.groups, test.scales); return err })
	}
}

// TestModuleSpelling loads a projection of 6 bits in a model of 4 whose entry is spelled as the checkpoint spells it: the
// tensors decide.
func TestModuleSpelling(t *testing.T) {
	f := family(t, "tiny-qwen35")
	const module = "language_model.model.layers.0.linear_attn.in_proj_qkv"
	c := fakeMLX(f.Layout)
	c.drop(module+".weight", module+".scales", module+".biases")
	c.add(module+".weight", safetensors.U32, 1024, 6*256/32)
	c.add(module+".scales", safetensors.BF16, 1024, 2)
	c.add(module+".biases", safetensors.BF16, 1024, 2)
	o := fakeConfig(f)
	at(o, "quantization")["group_size"] = 128
	at(o, "quantization")["model.language_model.layers.0.linear_attn.in_proj_qkv"] = jsonObject{"bits": 6, "group_size": 128}
	p, err := PlanSafetensors(encodeJSON(o), c.checkpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Tensor("blk.0.attn_qkv.weight").Type; got != dequant.Affine(6, 128) {
		t.Errorf("loads as %v", got)
	}
	if _, err := OpenSafetensors(c.checkpoint(t), p).Matrices(p.Tensor("output.weight")); err == nil ||
		err.Error() != "language_model.lm_head.weight has no data: its header alone was read" {
		t.Errorf("headers alone: %v", err)
	}
}

func TestSafetensorsRefused(t *testing.T) {
	const mlx, mlxHead = "language_model.model.layers.", "language_model.lm_head"
	const hf = "model.language_model.layers."
	const cannot = "safetensors tensors this build cannot load: "
	set := func(name string, dtype safetensors.DType, shape ...int64) func(*fakeCheckpoint) {
		return func(c *fakeCheckpoint) {
			t := c.tensor(name)
			t.dtype = dtype
			if len(shape) > 0 {
				t.shape = shape
			}
		}
	}
	drop := func(names ...string) func(*fakeCheckpoint) { return func(c *fakeCheckpoint) { c.drop(names...) } }
	for _, test := range []struct {
		name, kind string
		change     func(*fakeCheckpoint)
		want       string
	}{
		{"a projection", "mlx", drop(mlx + "3.self_attn.q_proj.weight"),
			cannot + "self_attn.q_proj.weight (missing) in layer 3"},
		{"a projection in floats", "mlx", func(c *fakeCheckpoint) {
			for i := range 4 {
				name := fmt.Sprintf("%s%d.mlp.shared_expert.up_proj", mlx, i)
				c.drop(name+".scales", name+".biases")
				set(name+".weight", safetensors.BF16, 256, 256)(c)
			}
		}, cannot + "mlp.shared_expert.up_proj.weight (unquantized BF16) in 4 layers"},
		{"the head in floats", "mlx", func(c *fakeCheckpoint) {
			c.drop(mlxHead+".scales", mlxHead+".biases")
			set(mlxHead+".weight", safetensors.BF16, 2048, 256)(c)
		}, cannot + "language_model.lm_head.weight (unquantized BF16)"},
		{"several", "mlx", func(c *fakeCheckpoint) {
			c.drop(mlx+"0.input_layernorm.weight", mlx+"2.input_layernorm.weight", "language_model.model.norm.weight")
			set("language_model.model.embed_tokens.weight", safetensors.F16)(c)
			set(mlx+"1.mlp.gate.weight", safetensors.F16)(c)
		}, cannot + "input_layernorm.weight (missing) in 2 layers, mlp.gate.weight (F16) in layer 1, norm.weight (missing), embed_tokens.weight (F16)"},
		{"a table in F32", "mlx", set("language_model.model.embed_tokens.weight", safetensors.F32),
			cannot + "embed_tokens.weight (F32)"},
		{"a convolution in F32", "mlx", set(mlx+"0.linear_attn.conv1d.weight", safetensors.F32),
			cannot + "linear_attn.conv1d.weight (F32) in layer 0"},
		{"a norm in F16", "mlx", set(mlx+"0.linear_attn.norm.weight", safetensors.F16),
			cannot + "linear_attn.norm.weight (F16) in layer 0"},
		{"an unknown type", "mlx", func(c *fakeCheckpoint) {
			s := c.tensor("language_model.model.norm.weight")
			s.dtype, s.shape = "F4", []int64{0}
		}, cannot + "norm.weight (F4)"},
		{"biases in F16", "mlx", set(mlxHead+".biases", safetensors.F16), mlxHead + ".biases is F16, expected BF16"},
		{"scales in F16", "mlx", set(mlxHead+".scales", safetensors.F16),
			mlxHead + ".scales is F16; scales of MLX weights are BF16 (affine) or U8 (mxfp4, nvfp4)"},
		{"no biases", "mlx", drop(mlxHead + ".biases"), cannot + "language_model.lm_head.biases (missing)"},
		{"biases of another shape", "mlx", set(mlxHead+".biases", safetensors.BF16, 2048, 2),
			"unexpected shape for " + mlxHead + ".biases: [2048, 2], expected [2048, 4]"},
		{"codes of bytes", "mlx", set(mlxHead+".weight", safetensors.U8),
			mlxHead + ".weight is U8, expected U32 beside .scales"},
		{"fewer rows", "mlx", set(mlxHead+".weight", safetensors.U32, 2000, 32),
			"unexpected shape for " + mlxHead + ".weight: [2000, 32], expected [2048, 32]"},
		{"fewer rows of scales", "mlx", set(mlxHead+".scales", safetensors.BF16, 2000, 4),
			"unexpected shape for " + mlxHead + ".scales: [2000, 4], expected [2048, 4]"},
		{"fewer experts", "mlx", set(mlx+"0.mlp.switch_mlp.up_proj.weight", safetensors.U32, 8, 256, 32),
			"unexpected shape for " + mlx + "0.mlp.switch_mlp.up_proj.weight: [8, 256, 32], expected [16, 256, 32]"},
		{"a stack without its experts", "mlx", set(mlx+"0.mlp.switch_mlp.up_proj.weight", safetensors.U32, 4096, 32),
			"unexpected shape for " + mlx + "0.mlp.switch_mlp.up_proj.weight: [4096, 32], expected [16, 256, 32]"},
		{"a convolution of three taps", "mlx", set(mlx+"0.linear_attn.conv1d.weight", safetensors.BF16, 1024, 3, 1),
			"unexpected shape for " + mlx + "0.linear_attn.conv1d.weight: [1024, 3, 1], expected [1024, 4, 1]"},
		{"heads of another count", "mlx", set(mlx+"0.linear_attn.A_log", safetensors.F32, 8),
			"unexpected shape for " + mlx + "0.linear_attn.A_log: [8], expected [4]"},
		{"a router of other experts", "mlx", set(mlx+"0.mlp.gate.weight", safetensors.BF16, 8, 256),
			"unexpected shape for " + mlx + "0.mlp.gate.weight: [8, 256], expected [16, 256]"},

		{"an expert's projection", "modelopt", drop(hf + "2.mlp.experts.7.up_proj.weight"),
			cannot + "mlp.experts.7.up_proj.weight (missing) in layer 2"},
		{"an expert in FP8", "modelopt", func(c *fakeCheckpoint) {
			name := hf + "1.mlp.experts.3.down_proj"
			c.drop(name+".weight", name+".weight_scale")
			c.add(name+".weight", safetensors.F8E4M3, 256, 256)
			c.add(name+".weight_scale", safetensors.F32)
		}, hf + "1.mlp.experts.3.down_proj is in another format than its layer's first expert"},
		{"codes of half a byte less", "modelopt", set(hf+"0.mlp.experts.0.gate_proj.weight", safetensors.U8, 256, 64),
			"unexpected shape for " + hf + "0.mlp.experts.0.gate_proj.weight: [256, 64], expected [256, 128]"},
		{"scales of groups of 32", "modelopt", set(hf+"0.mlp.experts.0.gate_proj.weight_scale", safetensors.F8E4M3, 256, 8),
			"unexpected shape for " + hf + "0.mlp.experts.0.gate_proj.weight_scale: [256, 8], expected [256, 16]"},
		{"scales in BF16", "modelopt", set(hf+"0.mlp.experts.0.gate_proj.weight_scale", safetensors.BF16),
			hf + "0.mlp.experts.0.gate_proj.weight_scale is BF16, expected F8_E4M3"},
		{"no tensor scale", "modelopt", drop("lm_head.weight_scale_2"), cannot + "lm_head.weight_scale_2 (missing)"},
		{"a tensor scale in BF16", "modelopt", set("lm_head.weight_scale_2", safetensors.BF16),
			"lm_head.weight_scale_2 is BF16, expected F32"},
		{"two tensor scales", "modelopt", set("lm_head.weight_scale_2", safetensors.F32, 2),
			"unexpected shape for lm_head.weight_scale_2: [2], expected [1]"},
		{"an FP8 scale for each row", "modelopt", set(hf+"3.self_attn.o_proj.weight_scale", safetensors.F32, 256, 1),
			"unexpected shape for " + hf + "3.self_attn.o_proj.weight_scale: [256, 1], expected [1]"},
		{"int8 beside a scale", "modelopt", set("lm_head.weight", safetensors.I8, 2048, 256),
			"lm_head.weight is I8; Splash loads NVFP4 (U8 codes) and FP8 (F8_E4M3 values) beside a .weight_scale"},
		{"a head in BF16", "modelopt", func(c *fakeCheckpoint) {
			c.drop("lm_head.weight_scale")
			set("lm_head.weight", safetensors.BF16, 2048, 256)(c)
		}, cannot + "lm_head.weight (unquantized BF16)"},

		{"a BF16 weight beside a scale", "compressed", set("lm_head.weight", safetensors.BF16),
			"lm_head.weight is BF16; Splash loads NVFP4 (U8 codes) and FP8 (F8_E4M3 values) beside a .weight_scale"},
		{"a scale of three rows", "compressed", set("lm_head.weight_scale", safetensors.BF16, 3, 1),
			"unexpected shape for lm_head.weight_scale: [3, 1], expected [1]"},
		{"a scale in F16", "compressed", set("lm_head.weight_scale", safetensors.F16),
			"lm_head.weight_scale is F16, expected F32"},
		{"no global scale", "compressed", drop(hf + "0.linear_attn.out_proj.weight_global_scale"),
			cannot + "linear_attn.out_proj.weight_global_scale (missing) in layer 0"},
	} {
		t.Run(test.kind+"/"+test.name, func(t *testing.T) {
			f := family(t, "tiny-qwen35moe")
			config, c := fakeConfig(f), fakeMLX(f.Layout)
			switch test.kind {
			case "modelopt":
				config, c = modelOptConfig(f), fakeModelOpt(f.Layout)
			case "compressed":
				config, c = compressedConfig(f), fakeCompressed(f.Layout)
			}
			test.change(c)
			refused(t, test.want, func() error { _, err := PlanSafetensors(encodeJSON(config), c.checkpoint(t)); return err })
		})
	}
}

// TestEveryExpertIsClaimed ignores one expert in the middle, which only the tensors' check reaches.
func TestEveryExpertIsClaimed(t *testing.T) {
	f := family(t, "tiny-qwen35moe")
	o := compressedConfig(f)
	at(o, "quantization_config")["ignore"] = []any{"model.language_model.layers.1.mlp.experts.9.up_proj"}
	refused(t, "quantization_config leaves model.language_model.layers.1.mlp.experts.9.up_proj unquantized; Splash loads quantized projections",
		func() error {
			_, err := PlanSafetensors(encodeJSON(o), fakeCompressed(f.Layout).checkpoint(t))
			return err
		})
}

// A block is the bytes of a tensor of a checkpoint that is written to disk.
func (c *fakeCheckpoint) write(t *testing.T, values map[string][]byte) *safetensors.Checkpoint {
	t.Helper()
	header, size := c.bytes()
	b := append(header, make([]byte, int(size)-len(header))...)
	h, err := safetensors.Parse(bytes.NewReader(b), size, "x")
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.Tensors {
		n := &h.Tensors[i]
		if v, ok := values[n.Name]; ok {
			copy(b[h.DataStart+n.Begin:h.DataStart+n.End], v)
		}
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	return all
}

func scaleBytes(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }

// TestGlobalScale reads the same projection with the divisor of compressed-tensors and the factor of Model Optimizer: the
// same values, bit for bit.
func TestGlobalScale(t *testing.T) {
	f := family(t, "tiny-qwen35")
	codes, ones := make([]byte, 256*512), bytes.Repeat([]byte{0x38}, 256*512/8) // 0x38 is 1 in E4M3
	for i := range codes {
		codes[i] = byte(2*i%16 | (2*i+1)%16<<4)
	}
	const module = "model.language_model.layers.0.linear_attn.out_proj"
	compressed := func(divisor float32) ([]dequant.Matrix, error) {
		c := fakeCompressed(f.Layout).write(t, map[string][]byte{
			module + ".weight_packed": codes, module + ".weight_scale": ones, module + ".weight_global_scale": scaleBytes(divisor),
		})
		p, err := PlanSafetensors(encodeJSON(compressedConfig(f)), c)
		if err != nil {
			t.Fatal(err)
		}
		return OpenSafetensors(c, p).Matrices(p.Tensor("blk.0.ssm_out.weight"))
	}
	c := fakeModelOpt(f.Layout).write(t, map[string][]byte{
		module + ".weight": codes, module + ".weight_scale": ones, module + ".weight_scale_2": scaleBytes(float32(1) / 3584),
	})
	p, err := PlanSafetensors(encodeJSON(modelOptConfig(f)), c)
	if err != nil {
		t.Fatal(err)
	}
	factor, err := OpenSafetensors(c, p).Matrices(p.Tensor("blk.0.ssm_out.weight"))
	if err != nil {
		t.Fatal(err)
	}
	divisor, err := compressed(3584)
	if err != nil {
		t.Fatal(err)
	}
	a, b := make([]float32, 512), make([]float32, 512)
	factor[0].DecodeRow(a, 3)
	divisor[0].DecodeRow(b, 3)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("values differ:\n%s", diff)
	}
	if want := 6 * (float32(1) / 3584); a[7] != want {
		t.Errorf("code 7 is %g, want 6 g = %g", a[7], want)
	}
	for _, bad := range []float32{0, float32(math.Inf(1)), float32(math.NaN())} {
		if _, err := compressed(bad); err == nil || !strings.HasPrefix(err.Error(), module+".weight_global_scale") {
			t.Errorf("a global scale of %v: %v", bad, err)
		}
	}
}

// TestWeights reads a row of every matrix of a checkpoint of each kind.
func TestWeights(t *testing.T) {
	for _, name := range []string{"tiny-qwen35", "tiny-qwen35moe"} {
		f := family(t, name)
		for config, c := range map[*jsonObject]*fakeCheckpoint{
			ptr(fakeConfig(f)): fakeMLX(f.Layout), ptr(modelOptConfig(f)): fakeModelOpt(f.Layout), ptr(compressedConfig(f)): fakeCompressed(f.Layout),
		} {
			values := map[string][]byte{}
			for _, s := range c.tensors {
				if strings.HasSuffix(s.name, ".weight_global_scale") {
					values[s.name] = scaleBytes(2)
				}
			}
			opened := c.write(t, values)
			p, err := PlanSafetensors(encodeJSON(*config), opened)
			if err != nil {
				t.Fatal(err)
			}
			readAll(t, OpenSafetensors(opened, p), p)
		}
	}
}

func ptr(o jsonObject) *jsonObject { return &o }

// TestChannelScales reads FP8 rows with a scale of their own.
func TestChannelScales(t *testing.T) {
	f := family(t, "tiny-qwen35")
	scales := make([]byte, 0, 4096)
	for i := range 2048 {
		scales = binary.LittleEndian.AppendUint16(scales, dequant.ToBF16(float32(i%64)))
	}
	c := fakeCompressed(f.Layout).write(t, map[string][]byte{
		"lm_head.weight": bytes.Repeat([]byte{0x40}, 2048*256), "lm_head.weight_scale": scales, // 0x40 is 2 in E4M3
	})
	p, err := PlanSafetensors(encodeJSON(compressedConfig(f)), c)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenSafetensors(c, p).Matrices(p.Tensor("output.weight"))
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 256)
	for _, i := range []int{0, 1, 63, 64, 2047} {
		m[0].DecodeRow(row, i)
		if want := float32(2 * (i % 64)); row[0] != want || row[255] != want {
			t.Errorf("row %d is %v, want %v", i, row[0], want)
		}
	}
}

// TestTiedCheckpoints tells a tied checkpoint's names by its table, and takes a head where there is one.
func TestTiedCheckpoints(t *testing.T) {
	f := family(t, "Qwen3.5-0.8B")
	for config, c := range map[*jsonObject]*fakeCheckpoint{
		ptr(fakeConfig(f)): fakeMLX(f.Layout), ptr(modelOptConfig(f)): fakeModelOpt(f.Layout),
	} {
		p, err := PlanSafetensors(encodeJSON(*config), c.checkpoint(t))
		if err != nil {
			t.Fatal(err)
		}
		if p.Tensor("output.weight") != nil {
			t.Error("a head that is not there is planned")
		}
	}
	c := fakeMLX(f.Layout)
	c.affine("language_model.lm_head", 8, f.Layout.Vocab, f.Layout.Hidden)
	p, err := PlanSafetensors(encodeJSON(fakeConfig(f)), c.checkpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Tensor("output.weight"); n == nil || n.Type != dequant.Affine(8, 64) {
		t.Error("the head is not read")
	}
}

// TestUnquantizedModules takes the router, the shared gate, alpha, beta and the table quantized or not.
func TestUnquantizedModules(t *testing.T) {
	f := family(t, "tiny-qwen35moe")
	c := fakeMLX(f.Layout)
	const layer = "language_model.model.layers.0."
	for name, shape := range map[string][]int{
		layer + "mlp.gate": {16, 256}, layer + "mlp.shared_expert_gate": {1, 256}, layer + "linear_attn.in_proj_a": {4, 256},
		"language_model.model.embed_tokens": {2048, 256},
	} {
		c.drop(name + ".weight")
		c.affine(name, 8, shape...)
	}
	c.tensor(layer + "linear_attn.in_proj_b.weight").dtype = safetensors.F32
	c.tensor("language_model.model.layers.1.mlp.shared_expert_gate.weight").shape = []int64{256}
	p, err := PlanSafetensors(encodeJSON(fakeConfig(f)), c.checkpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]dequant.Type{
		"blk.0.ffn_gate_inp.weight": dequant.Affine(8, 64), "blk.0.ffn_gate_inp_shexp.weight": dequant.Affine(8, 64),
		"blk.0.ssm_alpha.weight": dequant.Affine(8, 64), "blk.0.ssm_beta.weight": dequant.F32, "token_embd.weight": dequant.Affine(8, 64),
		"blk.1.ffn_gate_inp.weight": dequant.BF16, "blk.1.ffn_gate_inp_shexp.weight": dequant.BF16, "blk.1.ssm_alpha.weight": dequant.BF16,
	} {
		if got := p.Tensor(name).Type; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	want := []Piece{{
		Name: layer + "mlp.gate.weight", Rows: 16, Scales: layer + "mlp.gate.scales", Biases: layer + "mlp.gate.biases",
	}}
	if diff := cmp.Diff(want, p.Tensor("blk.0.ffn_gate_inp.weight").Source); diff != "" {
		t.Errorf("the router's source (-want +got):\n%s", diff)
	}
	if names := slices.IndexFunc(p.Tensors, func(n Tensor) bool { return n.Name == "" }); names >= 0 {
		t.Error("a tensor without a name")
	}
}
