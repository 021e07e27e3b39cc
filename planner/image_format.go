package planner

import (
	"strconv"

	"splash/dequant"
)

// Sizes that every plane format shares (formats.md 5.3 and 5.4).
const (
	tileRows  = 64 // rows of a tile
	groupSize = 32 // weights of a row that one unit of plane 0 and plane 1 holds
)

// An ImageFormat says how the rows of a weight format lie in the planes of an image: each group of 32 weights has
// Plane0 bytes in the first plane and Plane1 bytes in the second, and each native block of Block weights has one meta
// unit of Meta bytes.
type ImageFormat struct {
	Type   dequant.Type // the descriptor's type
	Name   string       // the suffix of kernel names
	Block  int          // weights of a native block
	Bytes  int          // bytes of a native block, as the image writer reads a row
	Plane0 int
	Plane1 int
	Meta   int

	pack packing
	meta []span // the bytes of a native block that its meta unit holds, in order
	// values writes the weights of group j of a meta unit. It reads planes alone and shares nothing with pack.
	values func(dst *[groupSize]float32, p0, p1, meta []byte, j int)
}

// Groups is the number of groups of 32 weights that a meta unit covers.
func (f *ImageFormat) Groups() int { return f.Block / groupSize }

// Columns is the unit that a plane tensor's columns are whole multiples of.
func (f *ImageFormat) Columns() int {
	if f.Block == groupSize {
		return 64
	}
	return 256
}

// BitsPerWeight is the size of a weight in the image, scales included.
func (f *ImageFormat) BitsPerWeight() float64 {
	return 8*float64(f.Plane0+f.Plane1)/groupSize + 8*float64(f.Meta)/float64(f.Block)
}

// A packing fills the planes of a group: from codes, or by copying bytes of the native block, or by a rule of its own.
type packing struct {
	codes  func(dst *[groupSize]uint8, block []byte, j int) // codes by element of group j
	plane0 func(dst []byte, codes *[groupSize]uint8)
	plane1 func(dst []byte, codes *[groupSize]uint8)
	copy0  []span
	copy1  []span
	whole  func(plane0, block []byte, j int)
}

// A span is a run of bytes of a native block; that of group j starts step * j further. One of no place is zeros.
type span struct{ from, step, size int }

// zeros is a span of n zero bytes.
func zeros(n int) span { return span{from: -1, size: n} }

func copySpans(dst, block []byte, spans []span, j int) {
	for _, s := range spans {
		if s.from < 0 {
			clear(dst[:s.size])
		} else {
			from := s.from + s.step*j
			copy(dst[:s.size], block[from:from+s.size])
		}
		dst = dst[s.size:]
	}
}

// packGroup writes group j of a native block to its places in the two planes, through the codes of a caller that packs
// many.
func (f *ImageFormat) packGroup(plane0, plane1 []byte, codes *[groupSize]uint8, block []byte, j int) {
	p := &f.pack
	switch {
	case p.whole != nil:
		p.whole(plane0, block, j)
	case p.codes != nil:
		p.codes(codes, block, j)
		p.plane0(plane0, codes)
		if p.plane1 != nil {
			p.plane1(plane1, codes)
		}
	default:
		copySpans(plane0, block, p.copy0, j)
		copySpans(plane1, block, p.copy1, j)
	}
}

// packMeta writes the meta unit of a native block.
func (f *ImageFormat) packMeta(dst, block []byte) { copySpans(dst, block, f.meta, 0) }

// Decode writes the values of whole meta units of one row: len(dst) weights whose units stand back to back in plane0,
// plane1 and meta. They are dequant's values of the source, bit for bit.
func (f *ImageFormat) Decode(dst []float32, plane0, plane1, meta []byte) {
	var group [groupSize]float32
	for g := 0; g*groupSize < len(dst); g++ {
		unit := meta[g/f.Groups()*f.Meta:][:f.Meta]
		f.values(&group, plane0[g*f.Plane0:][:f.Plane0], plane1[g*f.Plane1:][:f.Plane1], unit, g%f.Groups())
		copy(dst[g*groupSize:], group[:])
	}
}

// LookupImage returns the image format that tensors of type t are written in, or nil where t has no planes. GGUF's NVFP4
// is written as NVFP4 rows.
func LookupImage(t dequant.Type) *ImageFormat {
	if t == dequant.NVFP4 {
		t = dequant.NVFP4Rows
	}
	if f, ok := imageFormats[t]; ok {
		return f
	}
	return nil
}

// ImageFormats returns every image format in the order of formats.md 5.5.
func ImageFormats() []*ImageFormat { return append([]*ImageFormat(nil), imageTable...) }

var (
	imageTable   = makeImageTable()
	imageFormats = indexImageTable(imageTable)
)

func indexImageTable(table []*ImageFormat) map[dequant.Type]*ImageFormat {
	m := make(map[dequant.Type]*ImageFormat, len(table))
	for _, f := range table {
		m[f.Type] = f
	}
	return m
}

// makeImageTable is the table of formats.md 5.5 and 5.6. The K- and i-quant blocks are GGML's (ggml-common.h); the
// blocks of NVFP4, FP8, BF16, F16 and affine rows are those of 5.7.
func makeImageTable() []*ImageFormat {
	d := []span{{size: 2}}
	table := []*ImageFormat{
		{Type: dequant.Q4_K, Name: "q4k", Block: 256, Bytes: 144, Plane0: 16, Meta: 16,
			pack: linear(codesQ4K, 4), meta: []span{{size: 16}}, values: valuesQ4K},
		{Type: dequant.IQ4XS, Name: "iq4xs", Block: 256, Bytes: 136, Plane0: 16, Meta: 8,
			pack: strung(halves(8), 4, 0), meta: []span{{size: 8}}, values: valuesIQ4XS},
		{Type: dequant.IQ4NL, Name: "iq4nl", Block: 32, Bytes: 18, Plane0: 16, Meta: 2,
			pack: strung(halves(2), 4, 0), meta: d, values: valuesIQ4NL},
		{Type: dequant.Q5_K, Name: "q5k", Block: 256, Bytes: 176, Plane0: 16, Plane1: 4, Meta: 16,
			pack: linear(codesQ5K, 5), meta: []span{{size: 16}}, values: valuesQ5K},
		{Type: dequant.Q6_K, Name: "q6k", Block: 256, Bytes: 210, Plane0: 16, Plane1: 8, Meta: 20,
			pack: linear(codesQ6K, 6), meta: []span{{from: 192, size: 18}, zeros(2)}, values: valuesQ6K},
		{Type: dequant.Q3_K, Name: "q3k", Block: 256, Bytes: 110, Plane0: 8, Plane1: 4, Meta: 16,
			pack: strung(codesQ3K, 2, 1), values: valuesQ3K,
			meta: []span{{from: 108, size: 2}, zeros(2), {from: 96, size: 12}}},
		{Type: dequant.Q8_0, Name: "q80", Block: 32, Bytes: 34, Plane0: 32, Meta: 2,
			pack: strung(stream(2, 8), 8, 0), meta: d, values: valuesQ8},
		{Type: dequant.IQ3S, Name: "iq3s", Block: 256, Bytes: 110, Plane0: 16, Meta: 2,
			pack: packing{whole: packIQ3S}, meta: d, values: valuesIQ3S},
		{Type: dequant.Q2_K, Name: "q2k", Block: 256, Bytes: 84, Plane0: 8, Meta: 20,
			pack: strung(codesQ2K, 2, 0), meta: []span{{from: 80, size: 4}, {size: 16}}, values: valuesQ2K},
		{Type: dequant.IQ3XXS, Name: "iq3xxs", Block: 256, Bytes: 98, Plane0: 8, Plane1: 4, Meta: 2,
			pack: packing{copy0: []span{{2, 8, 8}}, copy1: []span{{66, 4, 4}}}, meta: d, values: valuesIQ3XXS},
		{Type: dequant.IQ2XXS, Name: "iq2xxs", Block: 256, Bytes: 66, Plane0: 8, Meta: 2,
			pack: packing{copy0: []span{{2, 8, 8}}}, meta: d, values: valuesIQ2XXS},
		{Type: dequant.IQ2XS, Name: "iq2xs", Block: 256, Bytes: 74, Plane0: 8, Plane1: 1, Meta: 2,
			pack: packing{copy0: []span{{2, 8, 8}}, copy1: []span{{66, 1, 1}}}, meta: d, values: valuesIQ2XS},
		{Type: dequant.IQ2S, Name: "iq2s", Block: 256, Bytes: 82, Plane0: 8, Plane1: 2, Meta: 2,
			pack: packing{copy0: []span{{2, 4, 4}, {34, 4, 4}}, copy1: []span{{66, 1, 1}, {74, 1, 1}}}, meta: d,
			values: valuesIQ2S},
		{Type: dequant.IQ1S, Name: "iq1s", Block: 256, Bytes: 50, Plane0: 4, Plane1: 2, Meta: 2,
			pack: packing{copy0: []span{{2, 4, 4}}, copy1: []span{{34, 2, 2}}}, meta: d, values: valuesIQ1S},
		{Type: dequant.IQ1M, Name: "iq1m", Block: 256, Bytes: 56, Plane0: 4, Plane1: 2, Meta: 8,
			pack: packing{copy0: []span{{0, 4, 4}}, copy1: []span{{32, 2, 2}}}, meta: []span{{from: 48, size: 8}},
			values: valuesIQ1M},
		{Type: dequant.Q4_0, Name: "q40", Block: 32, Bytes: 18, Plane0: 16, Meta: 2,
			pack: linear(halves(2), 4), meta: d, values: valuesQ4},
		{Type: dequant.Q4_1, Name: "q41", Block: 32, Bytes: 20, Plane0: 16, Meta: 4,
			pack: linear(halves(4), 4), meta: []span{{size: 4}}, values: valuesQ4Min},
		{Type: dequant.Q5_0, Name: "q50", Block: 32, Bytes: 22, Plane0: 16, Plane1: 4, Meta: 2,
			pack: linear(fifths(2, halves(6)), 5), meta: d, values: valuesQ5},
		{Type: dequant.Q5_1, Name: "q51", Block: 32, Bytes: 24, Plane0: 16, Plane1: 4, Meta: 4,
			pack: linear(fifths(4, halves(8)), 5), meta: []span{{size: 4}}, values: valuesQ5Min},
		{Type: dequant.MXFP4, Name: "mxfp4", Block: 32, Bytes: 17, Plane0: 16, Meta: 1,
			pack: strung(halves(1), 4, 0), meta: []span{{size: 1}}, values: valuesMXFP4},
		{Type: dequant.PQ2_0, Name: "pq20", Block: 128, Bytes: 34, Plane0: 8, Meta: 2,
			pack: strung(stream(2, 2), 2, 0), meta: d, values: valuesTernary},
		{Type: dequant.Q2_0, Name: "q20", Block: 64, Bytes: 18, Plane0: 8, Meta: 2,
			pack: strung(stream(2, 2), 2, 0), meta: d, values: valuesTernary},
		{Type: dequant.NVFP4Rows, Name: "nvfp4", Block: 256, Bytes: 148, Plane0: 16, Meta: 20,
			pack: strung(stream(20, 4), 4, 0), meta: []span{{size: 20}}, values: valuesNVFP4},
		{Type: dequant.FP8Rows, Name: "fp8", Block: 256, Bytes: 260, Plane0: 32, Meta: 4,
			pack: strung(stream(4, 8), 8, 0), meta: []span{{size: 4}}, values: valuesFP8},
		{Type: dequant.BF16, Name: "bf16", Block: 256, Bytes: 516, Plane0: 64, Meta: 4,
			pack: packing{whole: packHalves}, meta: []span{{size: 4}}, values: valuesBF16},
		{Type: dequant.F16, Name: "f16", Block: 256, Bytes: 516, Plane0: 64, Meta: 4,
			pack: packing{whole: packHalves}, meta: []span{{size: 4}}, values: valuesF16},
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			table = append(table, affineFormat(bits, group))
		}
	}
	return table
}

// affineFormat is the image format of MLX's affine codes: scale and bias, both BF16, are the meta unit.
func affineFormat(bits, group int) *ImageFormat {
	f := &ImageFormat{
		Type: dequant.Affine(bits, group), Name: "af" + strconv.Itoa(bits) + "g" + strconv.Itoa(group),
		Block: group, Bytes: 4 + group*bits/8, Meta: 4, meta: []span{{size: 4}},
	}
	codes := stream(4, bits)
	switch bits {
	case 2, 8:
		f.pack, f.Plane0 = strung(codes, bits, 0), 4*bits
	case 3:
		f.pack, f.Plane0, f.Plane1 = strung(codes, 2, 1), 8, 4
	default:
		f.pack, f.Plane0, f.Plane1 = linear(codes, bits), 16, 4*(bits-4)
	}
	f.values = valuesAffine(bits)
	return f
}
