package planner

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// TestImageTable holds the table to formats.md 5.5: blocks, planes, meta units and bits per weight.
func TestImageTable(t *testing.T) {
	type row struct {
		Name                                 string
		Type                                 dequant.Type
		Block, Bytes, P0, P1, Meta, MetaUnit int
		Bits                                 float64
	}
	want := []row{
		{"q4k", 12, 256, 144, 16, 0, 16, 8, 4.5},
		{"iq4xs", 23, 256, 136, 16, 0, 8, 8, 4.25},
		{"iq4nl", 20, 32, 18, 16, 0, 2, 1, 4.5},
		{"q5k", 13, 256, 176, 16, 4, 16, 8, 5.5},
		{"q6k", 14, 256, 210, 16, 8, 20, 8, 6.625},
		{"q3k", 11, 256, 110, 8, 4, 16, 8, 3.5},
		{"q80", 8, 32, 34, 32, 0, 2, 1, 8.5},
		{"iq3s", 21, 256, 110, 16, 0, 2, 8, 4.0625},
		{"q2k", 10, 256, 84, 8, 0, 20, 8, 2.625},
		{"iq3xxs", 18, 256, 98, 8, 4, 2, 8, 3.0625},
		{"iq2xxs", 16, 256, 66, 8, 0, 2, 8, 2.0625},
		{"iq2xs", 17, 256, 74, 8, 1, 2, 8, 2.3125},
		{"iq2s", 22, 256, 82, 8, 2, 2, 8, 2.5625},
		{"iq1s", 19, 256, 50, 4, 2, 2, 8, 1.5625},
		{"iq1m", 29, 256, 56, 4, 2, 8, 8, 1.75},
		{"q40", 2, 32, 18, 16, 0, 2, 1, 4.5},
		{"q41", 3, 32, 20, 16, 0, 4, 1, 5},
		{"q50", 6, 32, 22, 16, 4, 2, 1, 5.5},
		{"q51", 7, 32, 24, 16, 4, 4, 1, 6},
		{"mxfp4", 39, 32, 17, 16, 0, 1, 1, 4.25},
		{"pq20", 142, 128, 34, 8, 0, 2, 4, 2.125},
		{"q20", 42, 64, 18, 8, 0, 2, 2, 2.25},
		{"nvfp4", 0x4E564634, 256, 148, 16, 0, 20, 8, 4.625},
		{"fp8", 0x46503845, 256, 260, 32, 0, 4, 8, 8.125},
		{"bf16", 30, 256, 516, 64, 0, 4, 8, 16.125},
		{"f16", 1, 256, 516, 64, 0, 4, 8, 16.125},
		{"af2g32", 0x4D4C0220, 32, 12, 8, 0, 4, 1, 3},
		{"af2g64", 0x4D4C0240, 64, 20, 8, 0, 4, 2, 2.5},
		{"af2g128", 0x4D4C0280, 128, 36, 8, 0, 4, 4, 2.25},
		{"af3g32", 0x4D4C0320, 32, 16, 8, 4, 4, 1, 4},
		{"af3g64", 0x4D4C0340, 64, 28, 8, 4, 4, 2, 3.5},
		{"af3g128", 0x4D4C0380, 128, 52, 8, 4, 4, 4, 3.25},
		{"af4g32", 0x4D4C0420, 32, 20, 16, 0, 4, 1, 5},
		{"af4g64", 0x4D4C0440, 64, 36, 16, 0, 4, 2, 4.5},
		{"af4g128", 0x4D4C0480, 128, 68, 16, 0, 4, 4, 4.25},
		{"af5g32", 0x4D4C0520, 32, 24, 16, 4, 4, 1, 6},
		{"af5g64", 0x4D4C0540, 64, 44, 16, 4, 4, 2, 5.5},
		{"af5g128", 0x4D4C0580, 128, 84, 16, 4, 4, 4, 5.25},
		{"af6g32", 0x4D4C0620, 32, 28, 16, 8, 4, 1, 7},
		{"af6g64", 0x4D4C0640, 64, 52, 16, 8, 4, 2, 6.5},
		{"af6g128", 0x4D4C0680, 128, 100, 16, 8, 4, 4, 6.25},
		{"af8g32", 0x4D4C0820, 32, 36, 32, 0, 4, 1, 9},
		{"af8g64", 0x4D4C0840, 64, 68, 32, 0, 4, 2, 8.5},
		{"af8g128", 0x4D4C0880, 128, 132, 32, 0, 4, 4, 8.25},
	}
	var got []row
	for _, f := range ImageFormats() {
		got = append(got, row{f.Name, f.Type, f.Block, f.Bytes, f.Plane0, f.Plane1, f.Meta, f.Groups(), f.BitsPerWeight()})
		size := 0
		for _, s := range f.meta {
			size += s.size
		}
		if size != f.Meta {
			t.Errorf("%s: the fields of a meta unit are %d bytes, the unit %d", f.Name, size, f.Meta)
		}
		if LookupImage(f.Type) != f {
			t.Errorf("%s is not found by its type", f.Name)
		}
		// BF16 and F16 blocks are of the image alone: elsewhere a block of theirs is one value.
		if d := dequant.Lookup(f.Type); d.Block > 1 && (d.Block != f.Block || d.Bytes != f.Bytes) {
			t.Errorf("%s: blocks of %d in %d bytes, dequant has %d in %d", f.Name, f.Block, f.Bytes, d.Block, d.Bytes)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for i := range min(len(want), len(got)) {
		t.Logf("%-8s %8.5g bits a weight in the image, stated %8.5g", got[i].Name, got[i].Bits, want[i].Bits)
	}
	if f := LookupImage(dequant.NVFP4); f == nil || f.Type != dequant.NVFP4Rows {
		t.Errorf("GGUF's NVFP4 is written as %+v", f)
	}
	for _, d := range []dequant.Type{dequant.F32, dequant.Q8_1, dequant.Q8_K, dequant.TQ1_0, dequant.PTQ1_0, 99} {
		if f := LookupImage(d); f != nil {
			t.Errorf("%s has planes: %s", d, f.Name)
		}
	}
}

// TestPlaneEncodings holds the packers to the vectors of formats.md 9.1.
func TestPlaneEncodings(t *testing.T) {
	bits1 := func(dst []byte, c *[groupSize]uint8) { packBits1(dst, c, 0) }
	bits2 := func(dst []byte, c *[groupSize]uint8) { packBits2(dst, c, 0) }
	tests := []struct {
		name string
		code func(e int) int
		pack func([]byte, *[groupSize]uint8)
		want string
	}{
		{"pairs", func(e int) int { return e & 15 }, packPairs, "2020313164647575a8a8b9b9ececfdfd"},
		{"bits 4", func(e int) int { return e & 15 }, packBits4, "103210325476547698ba98badcfedcfe"},
		{"bits 2", func(e int) int { return e >> 3 }, bits2, "00aa00aa55ff55ff"},
		{"bits 2", func(e int) int { return e & 3 }, bits2, "e4e4e4e4e4e4e4e4"},
		{"bits 1", func(e int) int { return e & 1 }, bits1, "aaaaaaaa"},
		{"bits 1", func(e int) int { return e >> 4 }, bits1, "f0f0f0f0"},
		{"bits 8", func(e int) int { return e }, packBits8,
			"0001020310111213040506071415161708090a0b18191a1b0c0d0e0f1c1d1e1f"},
	}
	for _, test := range tests {
		var codes [groupSize]uint8
		for e := range codes {
			codes[e] = uint8(test.code(e))
		}
		got := make([]byte, len(test.want)/2)
		test.pack(got, &codes)
		if hex.EncodeToString(got) != test.want {
			t.Errorf("%s: %x, want %s", test.name, got, test.want)
		}
	}
}

func TestSlots(t *testing.T) {
	want := []int{
		0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31,
	}
	for s, e := range want {
		if slotOf(e) != s {
			t.Errorf("element %d is in slot %d, want %d", e, slotOf(e), s)
		}
	}
}

func TestTileIndex(t *testing.T) {
	for _, test := range []struct{ row, unit, want int }{{0, 0, 0}, {63, 0, 63}, {0, 1, 64}, {64, 0, 1024}, {100, 5, 1380}} {
		if got := tileIndex(test.row, test.unit, 16); got != int64(test.want) {
			t.Errorf("row %d, unit %d of 16: %d, want %d", test.row, test.unit, got, test.want)
		}
	}
}

// TestRepackOrder16 holds packHalves to slot order.
func TestRepackOrder16(t *testing.T) {
	block := make([]byte, 516)
	for i := range 256 {
		binary.LittleEndian.PutUint16(block[4+2*i:], uint16(i))
	}
	got := make([]byte, 64)
	packHalves(got, block, 3)
	for e := range groupSize {
		if v := binary.LittleEndian.Uint16(got[2*slotOf(e):]); int(v) != 96+e {
			t.Errorf("element %d of group 3 holds %d", e, v)
		}
	}
}

// pack writes one native block as its planes and meta unit, back to back as Decode reads them.
func pack(f *ImageFormat, block []byte) (plane0, plane1, meta []byte) {
	plane0, plane1 = make([]byte, f.Groups()*f.Plane0), make([]byte, f.Groups()*f.Plane1)
	for j := range f.Groups() {
		f.packGroup(plane0[j*f.Plane0:][:f.Plane0], plane1[j*f.Plane1:][:f.Plane1], new([groupSize]uint8), block, j)
	}
	meta = make([]byte, f.Meta)
	f.packMeta(meta, block)
	return plane0, plane1, meta
}

// sourceValues is what dequant makes of a native block of the image writer.
func sourceValues(f *ImageFormat, block []byte) []float32 {
	values := make([]float32, f.Block)
	if f.Type == dequant.BF16 || f.Type == dequant.F16 {
		block = block[4:]
	}
	dequant.Lookup(f.Type).Decode(values, block)
	return values
}

// checkValues compares values bit for bit, up to the payload of a NaN.
func checkValues(t testing.TB, name string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
	}
	for i := range want {
		same := math.Float32bits(got[i]) == math.Float32bits(want[i]) || got[i] != got[i] && want[i] != want[i]
		if !same {
			t.Fatalf("%s: element %d is %v (%08x), want %v (%08x)", name, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// randomBlocks is native blocks of any bytes, but for the scale of 1 that BF16 and F16 blocks have.
func randomBlocks(rng *rand.Rand, f *ImageFormat, n int) []byte {
	b := make([]byte, n*f.Bytes)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	if f.Type == dequant.BF16 || f.Type == dequant.F16 {
		for i := range n {
			binary.LittleEndian.PutUint32(b[i*f.Bytes:], oneF32)
		}
	}
	return b
}

// extremes is blocks of one repeated byte: every field at its ends and at alternating bits.
func extremes(f *ImageFormat) []byte {
	var all []byte
	for _, v := range []byte{0x00, 0xff, 0x55, 0xaa, 0x0f, 0xf0, 0x80, 0x7f, 0x01} {
		block := make([]byte, f.Bytes)
		for i := range block {
			block[i] = v
		}
		if f.Type == dequant.BF16 || f.Type == dequant.F16 {
			binary.LittleEndian.PutUint32(block, oneF32)
		}
		all = append(all, block...)
	}
	return all
}

// TestPlanesDecode holds the planes of every format to dequant's values of the native block they were packed from.
func TestPlanesDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, f := range ImageFormats() {
		t.Run(f.Name, func(t *testing.T) {
			blocks := append(extremes(f), randomBlocks(rng, f, 200)...)
			got := make([]float32, f.Block)
			for ; len(blocks) > 0; blocks = blocks[f.Bytes:] {
				block := blocks[:f.Bytes]
				plane0, plane1, meta := pack(f, block)
				f.Decode(got, plane0, plane1, meta)
				checkValues(t, f.Name, got, sourceValues(f, block))
			}
		})
	}
}
