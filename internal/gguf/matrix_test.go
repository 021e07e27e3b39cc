package gguf

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// floats are F32 bytes.
func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func TestMatrixOfMix(t *testing.T) {
	f := mustOpen(t, fixtures+"tiny/tiny-qwen35-MIX.gguf")
	if err := f.CheckScales(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]struct {
		rows, cols int
		typ        dequant.Type
		global     []float32
	}{
		"blk.0.ffn_up.weight":    {512, 256, dequant.NVFP4, []float32{0.75}},
		"blk.0.ffn_down.weight":  {256, 512, dequant.NVFP4, []float32{1.25}},
		"blk.3.ffn_down.weight":  {256, 512, dequant.NVFP4, nil},
		"blk.1.attn_qkv.weight":  {1024, 256, dequant.Q2_K, nil},
		"token_embd.weight":      {2048, 256, dequant.IQ3XXS, nil},
		"blk.0.ssm_a":            {1, 4, dequant.F32, nil},
		"output_norm.weight":     {1, 256, dequant.F32, nil},
		"blk.0.ffn_up.scale":     {1, 1, dequant.F32, nil},
		"blk.3.attn_v.weight":    {256, 256, dequant.F16, nil},
		"blk.2.ssm_alpha.weight": {4, 256, dequant.Q4_K, nil},
	} {
		m, err := f.Matrix(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.Rows != want.rows || m.Cols != want.cols || m.Format != dequant.Lookup(want.typ) || !cmp.Equal(m.Global, want.global) {
			t.Errorf("%s: %d rows, %d columns, %s, g %v; want %+v", name, m.Rows, m.Cols, m.Format.Name, m.Global, want)
		}
		if len(m.Data) != m.Rows*m.Format.RowBytes(m.Cols) || &m.Data[0] != &f.Data(f.Tensor(name))[0] {
			t.Errorf("%s: %d bytes", name, len(m.Data))
		}
	}
	if _, err := f.Matrix("nothing"); message(err) != fixtures+`tiny/tiny-qwen35-MIX.gguf: tensor "nothing" is missing` {
		t.Error(err)
	}
}

func TestMatrixOfExperts(t *testing.T) {
	f := mustOpen(t, fixtures+"tiny/tiny-qwen35moe-Q4_K_M.gguf")
	m, err := f.Matrix("blk.0.ffn_gate_exps.weight")
	if err != nil {
		t.Fatal(err)
	}
	if m.Rows != 16*256 || m.Cols != 256 {
		t.Errorf("%d rows of %d", m.Rows, m.Cols)
	}
}

func TestScales(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	type side struct {
		name string
		typ  dequant.Type
		dims []uint64
		data []byte
	}
	one := func(name string, values ...float32) side {
		return side{name, dequant.F32, []uint64{uint64(len(values))}, floats(values...)}
	}
	nvfp4 := func(stem string, dims ...uint64) side {
		return side{stem + ".weight", dequant.NVFP4, dims, make([]byte, product(dims)/64*36)}
	}
	q8 := side{"w.weight", dequant.Q8_0, []uint64{32, 2}, make([]byte, 68)}
	for name, test := range map[string]struct {
		sides  []side
		weight string
		global []float32
		err    string // of Matrix
		check  string // of CheckScales, where it is not err
	}{
		"none":              {[]side{nvfp4("w", 64, 2)}, "w.weight", nil, "", ""},
		"one":               {[]side{nvfp4("w", 64, 2), one("w.scale", 3)}, "w.weight", []float32{3}, "", ""},
		"one of rank 2":     {[]side{nvfp4("w", 64, 2), {"w.scale", dequant.F32, []uint64{1, 1}, floats(3)}}, "w.weight", []float32{3}, "", ""},
		"before":            {[]side{one("w.scale", 3), nvfp4("w", 64, 2)}, "w.weight", []float32{3}, "", ""},
		"zero":              {[]side{nvfp4("w", 64, 2), one("w.scale", 0)}, "w.weight", []float32{0}, "", ""},
		"experts":           {[]side{nvfp4("w_exps", 64, 2, 3), one("w_exps.scale", 1, 2, 3)}, "w_exps.weight", []float32{1, 2, 3}, "", ""},
		"input":             {[]side{nvfp4("w", 64, 2), one("w.input_scale", 7)}, "w.weight", nil, "", ""},
		"input, not finite": {[]side{nvfp4("w", 64, 2), one("w.input_scale", nan)}, "w.weight", nil, "", ""},
		"both":              {[]side{nvfp4("w", 64, 2), one("w.input_scale", 7), one("w.scale", 3)}, "w.weight", []float32{3}, "", ""},

		"scale of Q8_0":      {[]side{q8, one("w.scale", 1)}, "w.weight", nil, "M: w.scale scales a Q8_0 tensor; only NVFP4 weights take one", ""},
		"input of Q8_0":      {[]side{q8, one("w.input_scale", 1)}, "w.weight", nil, "M: w.input_scale scales a Q8_0 tensor; only NVFP4 weights take one", ""},
		"scale in F16":       {[]side{nvfp4("w", 64, 2), {"w.scale", dequant.F16, []uint64{1}, make([]byte, 2)}}, "w.weight", nil, "M: w.scale is F16; a scale is F32", ""},
		"input in BF16":      {[]side{nvfp4("w", 64, 2), {"w.input_scale", dequant.BF16, []uint64{1}, make([]byte, 2)}}, "w.weight", nil, "M: w.input_scale is BF16; a scale is F32", ""},
		"two":                {[]side{nvfp4("w", 64, 2), one("w.scale", 1, 2)}, "w.weight", nil, "M: w.scale has 2 values; w.weight takes 1", ""},
		"two inputs":         {[]side{nvfp4("w", 64, 2), one("w.input_scale", 1, 2)}, "w.weight", nil, "M: w.input_scale has 2 values; w.weight takes 1", ""},
		"one for experts":    {[]side{nvfp4("w_exps", 64, 2, 3), one("w_exps.scale", 1)}, "w_exps.weight", nil, "M: w_exps.scale has 1 values; w_exps.weight takes 3", ""},
		"input for experts":  {[]side{nvfp4("w_exps", 64, 2, 3), one("w_exps.input_scale", 1)}, "w_exps.weight", nil, "M: w_exps.input_scale has 1 values; w_exps.weight takes 3", ""},
		"three for no _exps": {[]side{nvfp4("w", 64, 2, 3), one("w.scale", 1, 2, 3)}, "w.weight", nil, "M: w.scale has 3 values; w.weight takes 1", ""},
		"spelling":           {[]side{nvfp4("w", 64, 2), one("w.weight.scale", 1)}, "w.weight", nil, `M: tensor "w.weight.scale" is not read; the scale of w.weight is spelled w.scale`, ""},
		"input's spelling":   {[]side{nvfp4("w", 64, 2), one("w.weight.input_scale", 1)}, "w.weight", nil, `M: tensor "w.weight.input_scale" is not read; the scale of w.weight is spelled w.input_scale`, ""},
		"spelling of Q8_0":   {[]side{q8, one("w.weight.scale", 1)}, "w.weight", nil, `M: tensor "w.weight.scale" is not read; the scale of w.weight is spelled w.scale`, ""},
		"alone":              {[]side{q8, one("v.scale", 1)}, "w.weight", nil, "", "M: v.scale scales no tensor; v.weight is missing"},
		"input alone":        {[]side{q8, one("v.input_scale", 1)}, "w.weight", nil, "", "M: v.input_scale scales no tensor; v.weight is missing"},
		"NaN":                {[]side{nvfp4("w_exps", 64, 2, 2), one("w_exps.scale", 1, nan)}, "w_exps.weight", nil, "M: non-finite tensor scale of w_exps.weight: value 1 of w_exps.scale is NaN", "none"},
		"Inf":                {[]side{nvfp4("w", 64, 2), one("w.scale", inf)}, "w.weight", nil, "M: non-finite tensor scale of w.weight: value 0 of w.scale is -Inf", "none"},
		"a name to quote":    {[]side{q8, one("v\n.scale", 1)}, "w.weight", nil, "", `M: "v\n.scale" scales no tensor; "v\n.weight" is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			var w Writer
			for _, s := range test.sides {
				w.AddBytes(s.name, s.typ, s.dims, s.data)
			}
			if err := w.WriteFile(path); err != nil {
				t.Fatal(err)
			}
			f := mustOpen(t, path)
			m, err := f.Matrix(test.weight)
			if got := strings.ReplaceAll(message(err), path, "M"); got != test.err {
				t.Errorf("got %q, want %q", got, test.err)
			}
			if diff := cmp.Diff(test.global, m.Global); diff != "" {
				t.Errorf("g: (-want +got)\n%s", diff)
			}
			check := test.check
			switch check {
			case "":
				check = test.err
			case "none":
				check = ""
			}
			if got := strings.ReplaceAll(message(f.CheckScales()), path, "M"); got != check {
				t.Errorf("check: got %q, want %q", got, check)
			}
		})
	}
}
