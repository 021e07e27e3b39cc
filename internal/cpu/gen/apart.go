package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"splash/dequant"
)

// The kernels of formats whose codes and scales lie apart, or are of many sizes: some unpack codes, others scales.

const codesSignature = "func(codes, src *byte, stride, units int)"

// unpackCodes makes a kernel of codes that lie in order, bytes a unit of 32: unit gives the eight dwords of one.
func unpackCodes(s isa, name, title string, bytes int, unit func(r *rows) func(put func(dword int, v reg.VecVirtual))) {
	TEXT(name+s.name, 0, codesSignature)
	Doc(label("Unpacks units of 32 %s of %d rows.", title, s.lanes))
	codes, r, units := pointer("codes"), s.rowsAt(pointer("src"), pointer("stride")), pointer("units")
	body := unit(r)
	Label("unit")
	body(func(dword int, v reg.VecVirtual) { s.move(v, at(codes, s.bytes()*dword)) })
	add(8*s.bytes(), codes)
	r.advance(bytes)
	DECQ(units)
	JNZ(LabelRef("unit"))
	VZEROUPPER()
	RET()
}

// unpackBits is that of MLX's affine formats. Codes of 8 bits, which the narrow isa takes as signed, lose 128 there.
func unpackBits(s isa, bits int) {
	unpackCodes(s, label("unpackBits%d_", bits), label("codes of %d bits", bits), 4*bits,
		func(r *rows) func(put func(int, reg.VecVirtual)) {
			return func(put func(int, reg.VecVirtual)) {
				v := r.dwords(0, bits)
				for i := range 8 {
					if bits < 8 {
						put(i, s.fourCodes(v, bits, i))
						continue
					}
					if !s.wide() {
						s.xorDword(0x80808080, v[i], v[i])
					}
					put(i, v[i])
				}
			}
		})
}

// unpackPairs is that of E2M1.
func unpackPairs(s isa) {
	unpackCodes(s, "unpackPairs", "codes of E2M1", 16, func(r *rows) func(put func(int, reg.VecVirtual)) {
		p, table := s.spreading(), s.codebook("FP4", dequant.MXFP4)
		return func(put func(int, reg.VecVirtual)) {
			for i, v := range r.dwords4(0) {
				p.take(v, func(half int, c reg.VecVirtual) {
					VPSHUFB(c, table, c)
					put(2*i+half, c)
				})
			}
		}
	})
}

// affineScales makes the kernel of scales and biases in BF16, each for so many groups of a tile; those of codes of 8 bits
// make up for what the codes lose.
func affineScales(s isa, lifted bool) {
	name := "affineScales"
	if lifted {
		name = "affineScalesLifted"
	}
	TEXT(name+s.name, 0, "func(scales, mins *float32, src, biases *byte, stride, step, groups, times int)")
	Doc(label("Writes scales and minus biases of %d rows, which are step apart in a row, each as often as times says.", s.lanes))
	scales, mins := pointer("scales"), pointer("mins")
	r, biases, left := s.rowsAt(pointer("src"), pointer("stride")), GP64(), AllocLocal(8)
	Load(Param("biases"), biases)
	SUBQ(r.base[0], biases) // from a row's scale to its bias
	groups := GP64()
	MOVQ(parameter("groups"), groups)
	MOVQ(groups, left)
	Label("group")
	d := r.wordDwords(0)
	VPSLLD(Imm(16), d, d)
	for _, base := range r.base {
		ADDQ(biases, base)
	}
	z := r.wordDwords(0)
	for _, base := range r.base {
		SUBQ(biases, base)
	}
	VPSLLD(Imm(16), z, z)
	if lifted {
		t := s.vec()
		s.mulFloat(128, d, t)
		VADDPS(t, z, z)
	}
	s.xorDword(0x80000000, z, z)
	times := GP64()
	MOVQ(parameter("times"), times)
	Label("time")
	VMOVUPS(d, at(scales, 0))
	VMOVUPS(z, at(mins, 0))
	add(s.bytes(), scales)
	add(s.bytes(), mins)
	DECQ(times)
	JNZ(LabelRef("time"))
	for _, base := range r.base {
		ADDQ(parameter("step"), base)
	}
	DECQ(left)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// byteScales makes a kernel of scales of a byte each that lie one after another.
func byteScales(s isa, name, doc, signature string, scale func(r *rows) reg.VecVirtual) {
	TEXT(name+s.name, 0, signature)
	Doc(label(doc, s.lanes))
	scales, r, groups := pointer("scales"), s.rowsAt(pointer("src"), pointer("stride")), pointer("groups")
	Label("group")
	VMOVUPS(scale(r), at(scales, 0))
	add(s.bytes(), scales)
	r.advance(1)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

func scalesE8M0(s isa) {
	byteScales(s, "scalesE8M0_", "Writes half the scales in E8M0 of %d rows.",
		"func(scales *float32, src *byte, stride, groups int)",
		func(r *rows) reg.VecVirtual { return r.exponents(0) })
}

func scalesE4M3(s isa) {
	byteScales(s, "scalesE4M3_", "Writes half the scales in E4M3 of %d rows times those of their tensors.",
		"func(scales, global *float32, src *byte, stride, groups int)",
		func(r *rows) reg.VecVirtual {
			v, global := r.byteDwords(0), GP64()
			Load(Param("global"), global)
			s.e4m3(v, s.load(at(global, 0)))
			return v
		})
}

// decodeE4M3 makes the kernel of weights that are numbers of E4M3.
func decodeE4M3(s isa) {
	TEXT("decodeE4M3_"+s.name, NOSPLIT, "func(dst *float32, src *byte, scale float32, n int)")
	Doc("Writes n values in E4M3, a whole number of 16, times a scale.")
	dst, src, n := pointer("dst"), pointer("src"), pointer("n")
	scale := s.param("scale")
	sign, size := avx2.memory(0x80008000), avx2.memory(0x3f803f80)
	Label("values")
	for i := range 16 / s.lanes {
		// As F16, of a bias of 15 for 7, a number is 2^8 times as small. Subnormal ones cost nothing so, unlike in float32.
		w, v := s.words(), s.vec()
		t := s.words()
		VPMOVZXBW(at(src, i*s.lanes), w)
		VPSLLW(Imm(8), w, t)
		VPAND(sign, t, t)
		VPSLLW(Imm(7), w, w)
		VPAND(size, w, w)
		VPOR(t, w, w)
		VCVTPH2PS(w, v)
		s.mulFloat(0x1p8, v, v)
		VMULPS(v, scale, v)
		VMOVUPS(v, at(dst, i*s.bytes()))
	}
	add(64, dst)
	add(16, src)
	SUBQ(Imm(16), n)
	JNZ(LabelRef("values"))
	VZEROUPPER()
	RET()
}

// words is a register of half a vector.
func (s isa) words() reg.VecVirtual {
	if s.wide() {
		return YMM()
	}
	return XMM()
}
