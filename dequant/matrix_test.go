package dequant

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestFormats(t *testing.T) {
	names := make(map[string]bool)
	for _, f := range Formats() {
		if Lookup(f.Type) != f || f.Type.String() != f.Name || names[f.Name] {
			t.Errorf("%s (type %d) is not the one of its type and name", f.Name, f.Type)
		}
		names[f.Name] = true
	}
	for _, c := range []struct {
		t                  Type
		name               string
		block, bytes, row  int // row: bytes of 512 elements
		bits               float64
		decodes, isUnknown bool
	}{
		{F32, "F32", 1, 4, 2048, 32, true, false},
		{Q4_K, "Q4_K", 256, 144, 288, 4.5, true, false},
		{Q8_1, "Q8_1", 32, 36, 576, 9, false, false},
		{Q8_K, "Q8_K", 256, 292, 584, 9.125, false, false},
		{F64, "F64", 1, 8, 4096, 64, false, false},
		{IQ1M, "IQ1_M", 256, 56, 112, 1.75, true, false},
		{PQ2_0, "PQ2_0", 128, 34, 136, 2.125, true, false},
		{PTQ1_0, "PTQ1_0", 128, 28, 112, 1.75, false, false},
		{NVFP4Rows, "nvfp4", 256, 148, 296, 4.625, true, false},
		{FP8Rows, "fp8", 256, 260, 520, 8.125, true, false},
		{Affine(3, 32), "af3g32", 32, 16, 256, 4, true, false},
		{Affine(8, 128), "af8g128", 128, 132, 528, 8.25, true, false},
		{0x4D4C0440, "af4g64", 64, 36, 288, 4.5, true, false},
		{4, "type-4", 0, 0, 0, 0, false, true},
		{99, "type-99", 0, 0, 0, 0, false, true},
		{Affine(7, 64), "type-1296828224", 0, 0, 0, 0, false, true},
	} {
		f := Lookup(c.t)
		if c.t.String() != c.name || (f == nil) != c.isUnknown {
			t.Errorf("type %d is %v, format %v", uint32(c.t), c.t, f)
		}
		if f == nil {
			continue
		}
		if f.Block != c.block || f.Bytes != c.bytes || f.RowBytes(512) != c.row || f.BitsPerWeight() != c.bits ||
			f.Decodes() != c.decodes {
			t.Errorf("%+v, expected %+v", f, c)
		}
	}
	for _, c := range []struct {
		t           Type
		bits, group int
		ok          bool
	}{{Affine(5, 128), 5, 128, true}, {Affine(7, 64), 0, 0, false}, {NVFP4Rows, 0, 0, false}, {Q4_0, 0, 0, false}} {
		if bits, group, ok := c.t.Affine(); bits != c.bits || group != c.group || ok != c.ok {
			t.Errorf("%s is affine of %d bits in groups of %d: %v", c.t, bits, group, ok)
		}
	}
	if len(Formats()) != 57 {
		t.Errorf("%d formats", len(Formats()))
	}
}

// A stored matrix and the exact value of its elements, before the last rounding.
type stored struct {
	name   string
	matrix Matrix
	value  func(row, col int) *big.Rat
}

func float32Rat(x float32) *big.Rat { return floatValue(math.Float32bits(x), 8, 23, 127) }

// storedMatrices is matrices of every form in which a container keeps scales apart, three rows (or six) each.
func storedMatrices(rng *rand.Rand) []stored {
	var all []stored
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			all = append(all, storedAffine(rng, bits, group))
		}
	}
	all = append(all, storedMXFP4(rng))
	for _, g := range []struct {
		name   string
		global []float32
	}{
		{"", nil}, {"/tensor", []float32{0.0123}}, {"/negative", []float32{-3e-7}},
		{"/experts", []float32{0.3, 1.7e-3}}, {"/rows", []float32{1, 2.2, 0.3, 1e-20, 5e10, 0.7}},
	} {
		all = append(all, storedNVFP4(rng, "nvfp4"+g.name, g.global), storedGGUF(rng, "NVFP4"+g.name, g.global))
		if g.global != nil {
			all = append(all, storedFP8(rng, "fp8"+g.name, g.global))
		}
	}
	return all
}

func storedAffine(rng *rand.Rand, bits, group int) stored {
	const rows = 3
	cols := 5 * group
	m := Matrix{Format: Lookup(Affine(bits, group)), Rows: rows, Cols: cols}
	m.Data = randomBytes(rng, rows*cols*bits/8)
	m.Scales, m.Biases = randomScales(rng, rows*5, 2), randomScales(rng, rows*5, 2)
	return stored{m.Format.Name, m, func(row, col int) *big.Rat {
		at := 2 * (row*5 + col/group)
		q := block(m.Data[row*cols*bits/8:]).bits(col*bits, bits)
		return sum(product(block(m.Scales).brain(at), integer(q)), block(m.Biases).brain(at))
	}}
}

func storedMXFP4(rng *rand.Rand) stored {
	m := Matrix{Format: Lookup(MXFP4), Rows: 3, Cols: 256}
	m.Data, m.Scales = randomBytes(rng, 3*128), randomBytes(rng, 3*8)
	m.Scales[0], m.Scales[1], m.Scales[2] = 0, 1, 255
	return stored{"mxfp4", m, func(row, col int) *big.Rat {
		scale := powerOfTwo(int(m.Scales[row*8+col/32]) - 127)
		return product(e2m1Rat(block(m.Data).bits(4*(row*256+col), 4)), scale)
	}}
}

// globalRat is the tensor scale of a row of six.
func globalRat(global []float32, row int) *big.Rat {
	if global == nil {
		return integer(1)
	}
	return float32Rat(global[row*len(global)/6])
}

func storedNVFP4(rng *rand.Rand, name string, global []float32) stored {
	m := Matrix{Format: Lookup(NVFP4Rows), Rows: 6, Cols: 256, Global: global}
	m.Data, m.Scales = randomBytes(rng, 6*128), randomBytes(rng, 6*16)
	m.Scales[0], m.Scales[1] = 0x7f, 0xff
	return stored{name, m, func(row, col int) *big.Rat {
		scale := rounded(product(globalRat(global, row), e4m3Rat(m.Scales[row*16+col/16])))
		return product(scale, e2m1Rat(block(m.Data).bits(4*(row*256+col), 4)))
	}}
}

func storedGGUF(rng *rand.Rand, name string, global []float32) stored {
	m := Matrix{Format: Lookup(NVFP4), Rows: 6, Cols: 256, Global: global}
	m.Data = randomBytes(rng, 6*144)
	m.Data[0], m.Data[1] = 0x7f, 0xff
	return stored{name, m, func(row, col int) *big.Rat {
		b, s, t := block(m.Data[row*144+col/64*36:]), col%64/16, col%16
		scale := rounded(product(globalRat(global, row), ue4m3Rat(b[s])))
		return product(scale, e2m1Rat(int(b[4+8*s+t%8])>>(4*(t/8))))
	}}
}

func storedFP8(rng *rand.Rand, name string, global []float32) stored {
	m := Matrix{Format: Lookup(FP8Rows), Rows: 6, Cols: 256, Global: global, Data: randomBytes(rng, 6*256)}
	m.Data[0], m.Data[1] = 0x7f, 0xff
	return stored{name, m, func(row, col int) *big.Rat {
		return product(globalRat(global, row), e4m3Rat(m.Data[row*256+col]))
	}}
}

// TestMatrix compares rows of every form with exact arithmetic, and the native blocks made of them with the rows.
func TestMatrix(t *testing.T) {
	for _, s := range storedMatrices(rand.New(rand.NewPCG(11, 12))) {
		t.Run(s.name, func(t *testing.T) {
			m := s.matrix
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
			got := make([]float32, m.Cols)
			for row := range m.Rows {
				m.DecodeRow(got, row)
				for col, v := range got {
					if want := rn32(s.value(row, col)); !same(v, want) {
						t.Fatalf("row %d column %d is %v, expected %v", row, col, v, want)
					}
				}
				blocks := make([]byte, m.NativeFormat().RowBytes(m.Cols))
				m.NativeRow(blocks, row)
				fromNative := make([]float32, m.Cols)
				m.NativeFormat().Decode(fromNative, blocks)
				compare(t, fromNative, got)
			}
		})
	}
}

func TestNativeRow(t *testing.T) {
	t.Run("blocks as stored", func(t *testing.T) {
		rng := rand.New(rand.NewPCG(13, 14))
		for _, f := range Formats() {
			if !f.Decodes() || f.Type == NVFP4 {
				continue
			}
			m := Matrix{Format: f, Rows: 3, Cols: 2 * f.Block, Data: randomBytes(rng, 6*f.Bytes)}
			got := make([]byte, 2*f.Bytes)
			m.NativeRow(got, 1)
			if want := m.Data[2*f.Bytes : 4*f.Bytes]; string(got) != string(want) || m.NativeFormat() != f {
				t.Errorf("%s: row %x, expected %x", f, got, want)
			}
		}
	})
	t.Run("NVFP4", func(t *testing.T) {
		codes, _ := hex.DecodeString("8091a2b3c4d5e6f7")
		var data []byte
		for range 4 {
			data = append(data, 0x7f, 0xff, 0x80, 0x38)
			for range 4 {
				data = append(data, codes...)
			}
		}
		m := Matrix{Format: Lookup(NVFP4), Rows: 1, Cols: 256, Data: data, Global: []float32{1.5}}
		got := make([]byte, 148)
		m.NativeRow(got, 0)
		want := strings.Repeat("007f0038", 4) + "0000c03f" + strings.Repeat("1032547698badcfe", 16)
		if hex.EncodeToString(got) != want {
			t.Errorf("native block %x, expected %s", got, want)
		}
	})
	t.Run("mxfp4", func(t *testing.T) {
		codes, _ := hex.DecodeString("1032547698badcfe0123456789abcdef")
		m := Matrix{Format: Lookup(MXFP4), Rows: 1, Cols: 32, Data: codes, Scales: []byte{0x7f}}
		got := make([]byte, 17)
		m.NativeRow(got, 0)
		if got[0] != 0x7f {
			t.Errorf("exponent %x", got[0])
		}
		for i, b := range got[1:] {
			low, high := block(codes).bits(4*i, 4), block(codes).bits(4*(16+i), 4)
			if int(b) != low|high<<4 {
				t.Errorf("byte %d is %02x, expected %x%x", i, b, high, low)
			}
		}
	})
}

// TestGlobalScaleDivides is a projection as compressed-tensors and Model Optimizer store it: the first keeps the divisor.
func TestGlobalScaleDivides(t *testing.T) {
	const rows, cols = 16, 256
	var codes []byte
	for e := 0; e < rows*cols; e += 2 {
		codes = append(codes, byte(e%16|(e+1)%16<<4))
	}
	scales := make([]byte, rows*cols/16)
	for i := range scales {
		scales[i] = 0x38 // 1
	}
	g, err := Reciprocal(3584)
	if err != nil {
		t.Fatal(err)
	}
	if want := rn32(ratio(1, 3584)); g != want {
		t.Fatalf("g is %v, expected %v", g, want)
	}
	divisor := Matrix{Format: Lookup(NVFP4Rows), Rows: rows, Cols: cols, Data: codes, Scales: scales, Global: []float32{g}}
	factor := divisor
	factor.Global = []float32{float32(1.0 / 3584.0)}
	a, b := make([]float32, cols), make([]float32, cols)
	for row := range rows {
		divisor.DecodeRow(a, row)
		factor.DecodeRow(b, row)
		compare(t, a, b)
		if a[7] != 6*g || a[15] != -6*g || a[1] != g/2 {
			t.Fatalf("codes 7, 15 and 1 are worth %v, %v and %v where g is %v", a[7], a[15], a[1], g)
		}
	}
	inf := float32(math.Inf(1))
	for _, bad := range []float32{0, float32(math.Copysign(0, -1)), inf, -inf, float32(math.NaN()), 0x1p-149, 0x1p-129} {
		if g, err := Reciprocal(bad); err == nil {
			t.Errorf("a global scale of %v gives %v", bad, g)
		} else if want := fmt.Sprintf("a global scale of %v divides to no finite scale", bad); err.Error() != want {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}

func TestSlice(t *testing.T) {
	for _, s := range storedMatrices(rand.New(rand.NewPCG(15, 16))) {
		m := s.matrix
		want, got := make([]float32, m.Cols), make([]float32, m.Cols)
		for first := range m.Rows {
			for rows := 1; first+rows <= m.Rows; rows++ {
				part := m.Slice(first, rows)
				if err := part.Check(); err != nil {
					t.Fatalf("%s: rows %d to %d: %v", s.name, first, first+rows-1, err)
				}
				for row := range rows {
					m.DecodeRow(want, first+row)
					part.DecodeRow(got, row)
					compare(t, got, want)
				}
			}
		}
		if empty := m.Slice(m.Rows, 0); empty.Rows != 0 || len(empty.Data) != 0 {
			t.Errorf("%s: no rows are %d rows of %d bytes", s.name, empty.Rows, len(empty.Data))
		}
	}
}

// TestSliceShares cuts shares of several rows unevenly, and keeps scales shared where it can.
func TestSliceShares(t *testing.T) {
	m := Matrix{Format: Lookup(FP8Rows), Rows: 12, Cols: 1, Data: make([]byte, 12), Global: []float32{1, 2, 3}}
	for _, c := range []struct {
		row, rows int
		want      string
	}{
		{0, 12, "[1 2 3]"}, {4, 4, "[2]"}, {5, 2, "[2]"}, {4, 8, "[2 3]"},
		{2, 4, "[1 2]"}, {3, 9, "[1 2 2 2 2 3 3 3 3]"}, {2, 8, "[1 2 2 3]"},
	} {
		part := m.Slice(c.row, c.rows)
		if got := fmt.Sprint(part.Global); got != c.want {
			t.Errorf("rows %d to %d have scales %s, expected %s", c.row, c.row+c.rows-1, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	bytes := func(n int) []byte { return make([]byte, n) }
	q8, nv, af := Lookup(Q8_0), Lookup(NVFP4Rows), Lookup(Affine(3, 32))
	nan := float32(math.NaN())
	for _, c := range []struct {
		matrix Matrix
		want   string
	}{
		{Matrix{}, "an unknown format cannot be decoded"},
		{Matrix{Format: Lookup(PTQ1_0), Rows: 1, Cols: 128, Data: bytes(28)}, "PTQ1_0 cannot be decoded"},
		{Matrix{Format: q8, Rows: 0, Cols: 32}, "a matrix of 0 rows and 32 columns"},
		{Matrix{Format: q8, Rows: 1, Cols: math.MaxInt &^ 31, Data: bytes(34)},
			"a matrix of 1 rows and 9223372036854775776 columns"},
		{Matrix{Format: q8, Rows: 2, Cols: 48, Data: bytes(102)},
			"rows of 48 columns are not whole Q8_0 blocks of 32 elements"},
		{Matrix{Format: q8, Rows: 2, Cols: 64, Data: bytes(135)}, "135 bytes of Q8_0 blocks, expected 2 rows of 68"},
		{Matrix{Format: q8, Rows: math.MaxInt, Cols: 64, Data: bytes(68)},
			"68 bytes of Q8_0 blocks, expected 9223372036854775807 rows of 68"},
		{Matrix{Format: q8, Rows: 1, Cols: 32, Data: bytes(34), Scales: bytes(2)}, "scales beside Q8_0, which holds its own"},
		{Matrix{Format: q8, Rows: 1, Cols: 32, Data: bytes(34), Global: []float32{1}}, "a tensor scale beside Q8_0"},
		{Matrix{Format: nv, Rows: 1, Cols: 256, Data: bytes(148), Global: []float32{1}}, "a tensor scale beside nvfp4"},
		{Matrix{Format: af, Rows: 1, Cols: 40, Data: bytes(15), Scales: bytes(4), Biases: bytes(4)},
			"rows of 40 columns are not whole af3g32 groups of 32 elements"},
		{Matrix{Format: af, Rows: 2, Cols: 64, Data: bytes(48), Scales: bytes(8)},
			"0 bytes of af3g32 biases, expected 2 rows of 4"},
		{Matrix{Format: af, Rows: 2, Cols: 64, Data: bytes(48), Scales: bytes(6), Biases: bytes(8)},
			"6 bytes of af3g32 scales, expected 2 rows of 4"},
		{Matrix{Format: af, Rows: 2, Cols: 64, Data: bytes(64), Scales: bytes(8), Biases: bytes(8)},
			"64 bytes of af3g32 codes, expected 2 rows of 24"},
		{Matrix{Format: nv, Rows: 2, Cols: 16, Data: bytes(16), Scales: bytes(2), Biases: bytes(2)},
			"2 bytes of nvfp4 biases, expected 2 rows of 0"},
		{Matrix{Format: nv, Rows: 4, Cols: 16, Data: bytes(32), Scales: bytes(4), Global: []float32{1, 1, 1}},
			"3 tensor scales for 4 rows"},
		{Matrix{Format: nv, Rows: 4, Cols: 16, Data: bytes(32), Scales: bytes(4), Global: []float32{}},
			"0 tensor scales for 4 rows"},
		{Matrix{Format: nv, Rows: 2, Cols: 16, Data: bytes(16), Scales: bytes(2), Global: []float32{1, nan}},
			"non-finite tensor scale NaN (value 1)"},
		{Matrix{Format: af, Rows: 1, Cols: 32, Data: bytes(12), Scales: bytes(2), Biases: bytes(2), Global: []float32{1}},
			"a tensor scale beside af3g32"},
	} {
		if err := c.matrix.Check(); err == nil || err.Error() != c.want {
			t.Errorf("%v, expected %s", err, c.want)
		}
	}
}

func TestMisuse(t *testing.T) {
	m := Matrix{Format: Lookup(Q8_0), Rows: 1, Cols: 32, Data: make([]byte, 34)}
	for name, f := range map[string]func(){
		"row beyond the last":  func() { m.DecodeRow(make([]float32, 32), 1) },
		"row before the first": func() { m.DecodeRow(make([]float32, 32), -1) },
		"short row":            func() { m.DecodeRow(make([]float32, 31), 0) },
		"part of a block":      func() { m.Format.Decode(make([]float32, 31), make([]byte, 34)) },
		"bytes of two blocks":  func() { m.Format.Decode(make([]float32, 32), make([]byte, 68)) },
		"short native row":     func() { m.NativeRow(make([]byte, 33), 0) },
		"short blocks":         func() { QuantizeQ8_0("w", make([]byte, 33), make([]float32, 32)) },
		"short groups":         func() { QuantizeAffine4("w", make([]byte, 36), make([]float32, 65)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "dequant: ") {
					t.Errorf("recovered %v", s)
				}
			}()
			f()
		})
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	for _, c := range decoders() {
		dst, native := make([]float32, c.matrix.Cols), make([]byte, c.matrix.NativeFormat().RowBytes(c.matrix.Cols))
		if n := testing.AllocsPerRun(2, func() {
			c.matrix.DecodeRow(dst, 0)
			c.matrix.NativeRow(native, 0)
		}); n != 0 {
			t.Errorf("%s: %v allocations a row", c.name, n)
		}
	}
}

// FuzzDecode decodes arbitrary bytes of legal lengths in every form, and holds each form's two readings to each other.
func FuzzDecode(f *testing.F) {
	for _, format := range Formats() {
		if format.Decodes() {
			seed := make([]byte, 2*format.Bytes)
			for i := range seed {
				seed[i] = byte(37 * i)
			}
			f.Add(uint32(format.Type), seed, float32(0.5))
			f.Add(uint32(format.Type), []byte(strings.Repeat("\xff", 3*format.Bytes)), float32(math.Inf(-1)))
		}
	}
	f.Fuzz(func(t *testing.T, id uint32, data []byte, g float32) {
		format := Lookup(Type(id))
		if format == nil || !format.Decodes() || len(data) < format.Bytes {
			return
		}
		blocks := min(len(data)/format.Bytes, 1<<12)
		m := Matrix{Format: format, Rows: 1, Cols: blocks * format.Block, Data: data[:blocks*format.Bytes]}
		if format.scaled != nil {
			m.Global = []float32{g}
		}
		decodeBoth(t, m)
		if a := format.apart; a != nil {
			decodeBoth(t, cutApart(m, data, g))
		}
	})
}

// cutApart reads data as scales, biases and codes of as many blocks as it holds.
func cutApart(m Matrix, data []byte, g float32) Matrix {
	a := m.Format.apart
	groups := m.Format.Block / a.group
	perBlock := groups*(a.scaleBytes+a.biasBytes) + m.Format.Block*a.bits/8
	blocks := min(len(data)/perBlock, 1<<12)
	m.Cols = blocks * m.Format.Block
	m.Scales, data = cut(data, blocks*groups*a.scaleBytes)
	m.Biases, data = cut(data, blocks*groups*a.biasBytes)
	m.Data, _ = cut(data, m.Cols*a.bits/8)
	if a.global {
		m.Global = []float32{g}
	}
	return m
}

// cut is the first n bytes of b, nil for none, and the rest.
func cut(b []byte, n int) (first, rest []byte) {
	if n == 0 {
		return nil, b
	}
	return b[:n], b[n:]
}

func decodeBoth(t *testing.T, m Matrix) {
	t.Helper()
	err := m.Check()
	if len(m.Global) == 1 && !finite(m.Global[0]) {
		if err == nil {
			t.Fatalf("a tensor scale of %v passes", m.Global[0])
		}
	} else if err != nil {
		t.Fatal(err)
	}
	direct := make([]float32, m.Cols)
	m.DecodeRow(direct, 0)
	native := m.NativeFormat()
	if m.Cols%native.Block != 0 {
		return
	}
	blocks := make([]byte, native.RowBytes(m.Cols))
	m.NativeRow(blocks, 0)
	through := make([]float32, m.Cols)
	native.Decode(through, blocks)
	compare(t, through, direct)
}
