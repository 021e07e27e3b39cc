package planner

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"splash/dequant"
)

// TestGoldenImages writes the golden blocks of every type as an image and holds what it decodes to llama.cpp's values.
func TestGoldenImages(t *testing.T) {
	for _, g := range readGoldens(t) {
		t.Run(g.format.Name, func(t *testing.T) {
			const cols = 512
			size := g.format.RowBytes(cols)
			rows := len(g.values) / cols
			blocks, values := g.blocks[:rows*size], g.values[:rows*cols]
			padded := (rows + tileRows - 1) / tileRows * tileRows
			blocks = append(blocks[:len(blocks):len(blocks)], make([]byte, (padded-rows)*size)...)
			tensor := Tensor{Name: "blk.0.ffn_up.weight", Role: Linear, Rows: padded, Cols: cols, Type: g.format.Type}
			w := memoryWeights{tensor.Name: {{Format: g.format, Rows: padded, Cols: cols, Data: blocks}}}
			_, f := oneImage(t, []Tensor{tensor}, w, jobBytes)
			got := make([]float32, cols)
			for row := range rows {
				f.DecodeRow(&f.Tensors[0], got, row)
				for i, want := range values[row*cols:][:cols] {
					if math.Float32bits(got[i]) != math.Float32bits(want) && got[i] != want {
						t.Fatalf("row %d, element %d: %v, llama.cpp has %v", row, i, got[i], want)
					}
				}
			}
		})
	}
}

// apartMatrices are matrices of every format whose container keeps scales apart, with any codes and scales.
func apartMatrices(rng *rand.Rand, rows, cols int) []dequant.Matrix {
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	halves := func(n int) []byte {
		var b []byte
		for range n {
			b = binary.LittleEndian.AppendUint16(b, dequant.ToBF16(float32(rng.NormFloat64())))
		}
		return b
	}
	var all []dequant.Matrix
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			all = append(all, dequant.Matrix{
				Format: dequant.Lookup(dequant.Affine(bits, group)), Rows: rows, Cols: cols,
				Data: random(rows * cols * bits / 8), Scales: halves(rows * cols / group), Biases: halves(rows * cols / group),
			})
		}
	}
	channels := make([]float32, rows)
	for i := range channels {
		channels[i] = float32(rng.NormFloat64())
	}
	nvfp4 := dequant.Matrix{
		Format: dequant.Lookup(dequant.NVFP4Rows), Rows: rows, Cols: cols,
		Data: random(rows * cols / 2), Scales: random(rows * cols / 16),
	}
	scaled, channeled := nvfp4, nvfp4
	scaled.Global, channeled.Global = []float32{0.00123}, channels[:4]
	fp8 := dequant.Matrix{
		Format: dequant.Lookup(dequant.FP8Rows), Rows: rows, Cols: cols, Data: random(rows * cols), Global: []float32{0.037},
	}
	perRow := fp8
	perRow.Global = channels
	gguf := randomMatrix(rng, dequant.NVFP4, rows, cols)
	gguf.Global = channels[:2]
	return append(all, nvfp4, scaled, channeled, fp8, perRow, gguf, dequant.Matrix{
		Format: dequant.Lookup(dequant.MXFP4), Rows: rows, Cols: cols,
		Data: random(rows * cols / 2), Scales: random(rows * cols / 32),
	})
}

// TestApartImages writes MLX's, Model Optimizer's, compressed-tensors' and scaled GGUF tensors as planes and as native
// rows, and holds both to dequant's values of the container.
func TestApartImages(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i, m := range apartMatrices(rng, 128, 512) {
		t.Run(fmt.Sprintf("%s %d", m.Format.Name, i), func(t *testing.T) {
			w := memoryWeights{"linear": {m}, "rows": {m}}
			tensors := []Tensor{
				{Name: "linear", Role: Linear, Rows: 128, Cols: 512, Type: m.Format.Type},
				{Name: "rows", Role: TokenTable, Rows: 128, Cols: 512, Type: m.Format.Type},
			}
			_, f := oneImage(t, tensors, w, jobBytes)
			checkImage(t, f, w)
			checkGaps(t, f)
		})
	}
}

// TestStoredImages writes a GGUF tensor of every format as planes and as rows.
func TestStoredImages(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, format := range ImageFormats() {
		typ := format.Type
		switch typ {
		case dequant.NVFP4Rows:
			typ = dequant.NVFP4
		case dequant.FP8Rows:
			continue // no container has its native blocks
		}
		t.Run(format.Name, func(t *testing.T) {
			m := randomMatrix(rng, typ, 64, 256)
			w := memoryWeights{"linear": {m}, "rows": {m}}
			tensors := []Tensor{
				{Name: "linear", Role: Linear, Rows: 64, Cols: 256, Type: typ},
				{Name: "rows", Role: TokenTable, Rows: 64, Cols: 256, Type: typ},
			}
			_, f := oneImage(t, tensors, w, jobBytes)
			checkImage(t, f, w)
		})
	}
}

// TestRepackNVFP4 holds the repacking of GGUF's NVFP4 to the vector of formats.md 5.7 and the rules of its scales.
func TestRepackNVFP4(t *testing.T) {
	data := make([]byte, 4*36)
	copy(data, []byte{0x7f, 0xff, 0x80, 0x38})
	source, _ := hex.DecodeString("8091a2b3c4d5e6f7")
	copy(data[4+16:], source) // the third sub-block
	m := dequant.Matrix{Format: dequant.Lookup(dequant.NVFP4), Rows: 1, Cols: 256, Data: data, Global: []float32{2.5}}
	b, err := newBlockBuilder("x", dequant.NVFP4Rows, &m, 256, 148)
	if err != nil {
		t.Fatal(err)
	}
	block, err := b.read(&m, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(block[:4]); got != "007f0038" {
		t.Errorf("scales %s, want 007f0038", got)
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(block[16:])); got != 2.5 {
		t.Errorf("g is %v, want 2.5", got)
	}
	if got := hex.EncodeToString(block[20+16:][:8]); got != "1032547698badcfe" {
		t.Errorf("codes %s, want 1032547698badcfe", got)
	}
}

// TestMXFP4Order holds MLX's codes to GGML's order.
func TestMXFP4Order(t *testing.T) {
	m := dequant.Matrix{
		Format: dequant.Lookup(dequant.MXFP4), Rows: 1, Cols: 32, Scales: []byte{0x81}, Data: make([]byte, 16),
	}
	for i := range m.Data {
		m.Data[i] = byte(2*i&15 | (2*i+1)&15<<4) // element e has code e & 15
	}
	b, err := newBlockBuilder("x", dequant.MXFP4, &m, 32, 17)
	if err != nil {
		t.Fatal(err)
	}
	block, err := b.read(&m, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0x81}
	for i := range 16 {
		want = append(want, byte(i|i<<4))
	}
	if !bytes.Equal(block, want) {
		t.Errorf("block %x, want %x", block, want)
	}
}

// TestToQ8_0 writes hyper-connection projections of BF16 and F16 as Q8_0, and refuses what has no Q8_0.
func TestToQ8_0(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, typ := range []dequant.Type{dequant.BF16, dequant.F16} {
		w := memoryWeights{"hc": {randomMatrix(rng, typ, 64, 320)}}
		tensor := Tensor{Name: "hc", Role: Linear, Rows: 64, Cols: 320, Type: typ, Conversion: ToQ8_0}
		m, f := oneImage(t, []Tensor{tensor}, w, jobBytes)
		if m.Tensors[0].Type != dequant.Q8_0 {
			t.Errorf("%s loads as %s", typ, m.Tensors[0].Type)
		}
		checkImage(t, f, w)
	}
	bad := randomMatrix(rng, dequant.BF16, 64, 64)
	binary.LittleEndian.PutUint16(bad.Data[100:], 0x7f80)
	tensor := Tensor{Name: "blk.0.hc_attn_down.weight", Role: Linear, Rows: 64, Cols: 64, Type: dequant.BF16}
	tensor.Conversion = ToQ8_0
	checkWriteError(t, tensor, bad, "blk.0.hc_attn_down.weight: non-finite weight")
}

// checkWriteError expects the writer to refuse a tensor.
func checkWriteError(t *testing.T, tensor Tensor, m dequant.Matrix, want string) {
	t.Helper()
	image := &Image{Name: "layer-0.bin"}
	if err := placeTensors(image, []*Tensor{&tensor}, &forms{wideNorms: true}); err != nil {
		t.Fatal(err)
	}
	w, err := newImageWriter(image, memoryWeights{tensor.Name: {m}}, newMemoryFile(image.Size))
	if err == nil {
		w.workers = w.workers[:1]
		err = w.run(t.Context(), image.jobs(jobBytes), func(int64) {})
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one with %q", tensor.Name, err, want)
	}
}

// f32Matrix is a matrix of the values, in rows of cols.
func f32Matrix(cols int, values ...float32) dequant.Matrix {
	m := dequant.Matrix{Format: dequant.Lookup(dequant.F32), Rows: len(values) / cols, Cols: cols}
	for _, v := range values {
		m.Data = binary.LittleEndian.AppendUint32(m.Data, math.Float32bits(v))
	}
	return m
}

// TestExactBF16 holds loading to the rule that it never rounds a weight (formats.md 8.1).
func TestExactBF16(t *testing.T) {
	conv := Tensor{Name: "blk.0.ssm_conv1d.weight", Role: Convolution, Rows: 2, Cols: 4, Type: dequant.F32}
	good := f32Matrix(4, 1, -2, 0.5, 0x1p-130, 3, 4, -0x1.fep100, 6)
	w := memoryWeights{conv.Name: {good}}
	m, f := oneImage(t, []Tensor{conv}, w, jobBytes)
	checkImage(t, f, w)
	if m.Tensors[0].Type != dequant.BF16 || m.Tensors[0].Form != Bare || m.Tensors[0].Plane0.Size != 16 {
		t.Errorf("the convolution is %+v", m.Tensors[0])
	}
	for _, test := range []struct {
		value float32
		want  string
	}{
		{1 + 0x1p-8, "blk.0.ssm_conv1d.weight is not bf16-exact; it needs an F32 path"},
		{0x1p-149, "blk.0.ssm_conv1d.weight is not bf16-exact; it needs an F32 path"},
		{float32(math.Inf(-1)), "blk.0.ssm_conv1d.weight holds a value that is not finite: element 3 is -Inf"},
		{float32(math.NaN()), "blk.0.ssm_conv1d.weight holds a value that is not finite: element 3 is NaN"},
	} {
		checkWriteError(t, conv, f32Matrix(4, 1, 2, 3, 4, 5, 6, 7, test.value), test.want)
	}
}

// TestConversions holds the small tensors to formats.md 8.2.
func TestConversions(t *testing.T) {
	norm := Tensor{Name: "norm", Role: Norm, Rows: 1, Cols: 4, Type: dequant.F32, Conversion: OnePlus}
	decay := Tensor{Name: "decay", Role: Decay, Rows: 1, Cols: 4, Type: dequant.F32, Conversion: NegativeExp,
		ColOrder: &HeadOrder{Size: 1, KeyHeads: 2, PerKey: 2}}
	w := memoryWeights{"norm": {f32Matrix(4, 0.1, -1, 1e-9, 3)}, "decay": {f32Matrix(4, 0, 1, -2.5, 0.3)}}
	_, f := oneImage(t, []Tensor{norm, decay}, w, jobBytes)
	checkImage(t, f, w)
	got := make([]float32, 4)
	f.DecodeRow(&f.Tensors[0], got, 0)
	checkValues(t, "1 + w", got, []float32{1.1, 0, 1, 4})
	f.DecodeRow(&f.Tensors[1], got, 0)
	exp := func(a float32) float32 { return float32(-math.Exp(float64(a))) }
	checkValues(t, "-exp(a), grouped", got, []float32{exp(0), exp(-2.5), exp(1), exp(0.3)})

	rng := rand.New(rand.NewPCG(9, 10))
	for _, typ := range []dequant.Type{
		dequant.F32, dequant.BF16, dequant.F16, dequant.Q8_0, dequant.Q4_K, dequant.Affine(4, 64),
	} {
		m := randomMatrix(rng, typ, 1, 256)
		if typ == dequant.Affine(4, 64) {
			m = apartMatrices(rng, 4, 256)[7]
			m = m.Slice(0, 1)
		}
		w := memoryWeights{"gate": {m}}
		_, f := oneImage(t, []Tensor{{Name: "gate", Role: SharedGate, Rows: 1, Cols: 256, Type: typ}}, w, jobBytes)
		checkImage(t, f, w)
		if f.Tensors[0].Type != dequant.F32 || f.Tensors[0].Form != Described {
			t.Errorf("%s: the shared expert's gate is %+v", typ, f.Tensors[0])
		}
	}
}

// TestRowOrder regroups tiled value heads, and leaves rows before them alone.
func TestRowOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	qkv := Tensor{Name: "blk.0.attn_qkv.weight", Role: Linear, Rows: 256, Cols: 64, Type: dequant.Q8_0,
		RowOrder: &HeadOrder{From: 128, Size: 32, KeyHeads: 2, PerKey: 2}}
	bias := Tensor{Name: "blk.0.ssm_dt.bias", Role: TimeBias, Rows: 1, Cols: 6, Type: dequant.F32,
		RowOrder: &HeadOrder{Size: 1, KeyHeads: 2, PerKey: 3}}
	w := memoryWeights{qkv.Name: {randomMatrix(rng, dequant.Q8_0, 256, 64)}, bias.Name: {f32Matrix(6, 0, 1, 2, 3, 4, 5)}}
	_, f := oneImage(t, []Tensor{qkv}, w, jobBytes)
	checkImage(t, f, w)
	// Grouped heads 0, 1, 2, 3 are tiled heads 0, 2, 1, 3.
	got, want := make([]float32, 64), make([]float32, 64)
	for row, from := range map[int]int{5: 5, 128: 128, 160: 192, 192: 160, 224 + 31: 224 + 31} {
		f.DecodeRow(&f.Tensors[0], got, row)
		w[qkv.Name][0].DecodeRow(want, from)
		checkValues(t, fmt.Sprintf("row %d", row), got, want)
	}
	_, f = oneImage(t, []Tensor{bias}, w, jobBytes)
	f.DecodeRow(&f.Tensors[0], got[:6], 0)
	checkValues(t, "a vector's order", got[:6], []float32{0, 2, 4, 1, 3, 5})
}

// TestFusedExperts writes gate and up from the rows of one tensor; the images are those of two tensors.
func TestFusedExperts(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const experts, width, cols = 3, 64, 256
	fused := randomMatrix(rng, dequant.Q4_K, experts*2*width, cols)
	size := fused.Format.RowBytes(cols)
	part := func(first int) (each []dequant.Matrix, whole dequant.Matrix) {
		whole = dequant.Matrix{Format: fused.Format, Rows: experts * width, Cols: cols}
		for x := range experts {
			each = append(each, fused.Slice(x*2*width+first, width))
			whole.Data = append(whole.Data, fused.Data[(x*2*width+first)*size:][:width*size]...)
		}
		return each, whole
	}
	gates, gate := part(0)
	ups, up := part(width)
	tensors := func() []Tensor {
		return []Tensor{
			{Name: "gate", Role: Experts, Rows: width, Cols: cols, Experts: experts, Type: dequant.Q4_K},
			{Name: "up", Role: Experts, Rows: width, Cols: cols, Experts: experts, Type: dequant.Q4_K},
		}
	}
	sliced := memoryWeights{"gate": gates, "up": ups}
	stacked := memoryWeights{"gate": {gate}, "up": {up}}
	_, a := oneImage(t, tensors(), sliced, jobBytes)
	_, b := oneImage(t, tensors(), stacked, jobBytes)
	checkImage(t, a, sliced)
	if !bytes.Equal(a.Data, b.Data) {
		t.Error("the image of the fused tensor differs from that of two")
	}
}

// TestAlphaBeta writes beta before alpha: padded planes where both are of one quantized type, else F32 values.
func TestAlphaBeta(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	order := &HeadOrder{Size: 1, KeyHeads: 4, PerKey: 3}
	for _, test := range []struct {
		alpha, beta dequant.Type
		form        Form
		typ         dequant.Type
		rows        int
	}{
		{dequant.Q4_K, dequant.Q4_K, Planes, dequant.Q4_K, 64},
		{dequant.NVFP4, dequant.NVFP4, Planes, dequant.NVFP4Rows, 64},
		{dequant.BF16, dequant.BF16, Described, dequant.F32, 24},
		{dequant.F16, dequant.F16, Described, dequant.F32, 24},
		{dequant.F32, dequant.F32, Described, dequant.F32, 24},
		{dequant.F16, dequant.BF16, Described, dequant.F32, 24},
		{dequant.Q4_K, dequant.Q6_K, Described, dequant.F32, 24},
		{dequant.F32, dequant.IQ2S, Described, dequant.F32, 24},
	} {
		tensors := []Tensor{
			{Name: "blk.0.ssm_beta.weight", Role: AlphaBeta, Rows: 12, Cols: 256, Type: test.beta, RowOrder: order},
			{Name: "blk.0.ssm_alpha.weight", Role: AlphaBeta, Rows: 12, Cols: 256, Type: test.alpha, RowOrder: order},
		}
		w := memoryWeights{
			tensors[0].Name: {randomMatrix(rng, test.beta, 12, 256)},
			tensors[1].Name: {randomMatrix(rng, test.alpha, 12, 256)},
		}
		for _, swapped := range []bool{false, true} {
			if swapped {
				tensors[0], tensors[1] = tensors[1], tensors[0]
			}
			m, f := oneImage(t, tensors, w, jobBytes)
			checkImage(t, f, w)
			got := m.Tensors[0]
			if got.Form != test.form || got.Type != test.typ || got.Rows != test.rows || len(m.Tensors) != 1 {
				t.Errorf("%s and %s: form %d, %s, %d rows", test.alpha, test.beta, got.Form, got.Type, got.Rows)
			}
			if got.Parts[0].Name != "blk.0.ssm_beta.weight" || m.Tensor("blk.0.ssm_alpha.weight") == nil {
				t.Errorf("beta does not come first in %s", got.Name)
			}
		}
	}
}

// TestMatrixRefusals holds the writer to the plan's shapes, types and sizes.
func TestMatrixRefusals(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	linear := Tensor{Name: "blk.0.ffn_up.weight", Role: Linear, Rows: 64, Cols: 256, Type: dequant.Q4_K}
	good := randomMatrix(rng, dequant.Q4_K, 64, 256)
	short := good
	short.Data = good.Data[:len(good.Data)-1]
	checkWriteError(t, linear, short, "unexpected size for blk.0.ffn_up.weight: ")
	checkWriteError(t, linear, randomMatrix(rng, dequant.Q4_K, 64, 512),
		"unexpected shape for blk.0.ffn_up.weight: [64, 512], expected [64, 256]")
	checkWriteError(t, linear, randomMatrix(rng, dequant.Q4_K, 32, 256),
		"unexpected shape for blk.0.ffn_up.weight: [32, 256]")
	checkWriteError(t, linear, randomMatrix(rng, dequant.Q5_K, 64, 256), "blk.0.ffn_up.weight is Q5_K, its plan says Q4_K")
	nvfp4 := linear
	nvfp4.Type = dequant.NVFP4
	bad := randomMatrix(rng, dequant.NVFP4, 64, 256)
	bad.Global = []float32{float32(math.Inf(1))}
	checkWriteError(t, nvfp4, bad, "non-finite tensor scale")
	f32 := linear
	f32.Type, f32.Role = dequant.F32, Convolution
	checkWriteError(t, f32, dequant.Matrix{}, "unexpected shape for blk.0.ffn_up.weight: [0, 0]")
}
