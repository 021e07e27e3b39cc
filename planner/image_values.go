package planner

import (
	"encoding/binary"
	"math"

	"splash/dequant"
)

// The functions of this file read the planes of a group as a kernel does, by slot, and give the weights' F32 values. They
// are the formulas of formats.md 2 to 4 over the planes of 5.6, written apart from the packers and from dequant, which
// they are held to bit for bit. Products stand in float32 conversions so that no compiler fuses them with an addition.

func f16(b []byte) float32  { return dequant.FromF16(binary.LittleEndian.Uint16(b)) }
func bf16(b []byte) float32 { return dequant.FromBF16(binary.LittleEndian.Uint16(b)) }
func f32(b []byte) float32  { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// pairCode is the code in slot s of a plane of pairs.
func pairCode(plane []byte, s int) int {
	word := binary.LittleEndian.Uint32(plane[s/8*4:])
	return int(word >> (16*(s%2) + 4*(s%8/2)) & 15)
}

// bitCode is the code in slot s of a bit string of width bits a slot, for widths that divide 8.
func bitCode(plane []byte, s, width int) int {
	at := s * width
	return int(plane[at/8]>>(at%8)) & (1<<width - 1)
}

// doubledE2M1 is twice the values of the E2M1 codes, as GGML's MXFP4 has them: the code of -0 is worth +0.
var doubledE2M1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// iq4nl is the codebook of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
var iq4nl = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// kScale is the scale and the minimum of group j in the twelve bytes of Q4_K and Q5_K.
func kScale(s []byte, j int) (scale, minimum float32) {
	if j < 4 {
		return float32(s[j] & 63), float32(s[j+4] & 63)
	}
	return float32(s[j+4]&15 | s[j-4]>>6<<4), float32(s[j+4]>>4 | s[j]>>6<<4)
}

func valuesQ4K(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	scale, minimum := kScale(meta[4:], j)
	d, m := float32(f16(meta)*scale), float32(f16(meta[2:])*minimum)
	for e := range dst {
		dst[e] = float32(d*float32(pairCode(p0, slotOf(e)))) - m
	}
}

func valuesQ5K(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	scale, minimum := kScale(meta[4:], j)
	d, m := float32(f16(meta)*scale), float32(f16(meta[2:])*minimum)
	for e := range dst {
		q := pairCode(p0, slotOf(e)) | bitCode(p1, slotOf(e), 1)<<4
		dst[e] = float32(d*float32(q)) - m
	}
}

func valuesQ6K(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		q := pairCode(p0, slotOf(e)) | bitCode(p1, slotOf(e), 2)<<4
		dst[e] = float32(f16(meta[16:])*float32(int8(meta[2*j+e/16]))) * float32(q-32)
	}
}

func valuesQ3K(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	s := meta[4:]
	for e := range dst {
		i := 2*j + e/16
		low := s[i%8] >> (4 * (i / 8)) & 15
		scale := int(low|s[8+i%4]>>(2*(i/4))&3<<4) - 32
		q := bitCode(p0, slotOf(e), 2) + 4*bitCode(p1, slotOf(e), 1) - 4
		dst[e] = float32(f16(meta)*float32(scale)) * float32(q)
	}
}

func valuesQ2K(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		s := meta[4+2*j+e/16]
		m := float32(f16(meta[2:]) * float32(s>>4))
		dst[e] = float32(float32(f16(meta)*float32(s&15))*float32(bitCode(p0, slotOf(e), 2))) - m
	}
}

func valuesQ8(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = f16(meta) * float32(int8(p0[slotOf(e)]))
	}
}

func valuesQ4(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = f16(meta) * float32(pairCode(p0, slotOf(e))-8)
	}
}

func valuesQ4Min(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = float32(f16(meta)*float32(pairCode(p0, slotOf(e)))) + f16(meta[2:])
	}
}

func valuesQ5(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		q := pairCode(p0, slotOf(e)) | bitCode(p1, slotOf(e), 1)<<4
		dst[e] = f16(meta) * float32(q-16)
	}
}

func valuesQ5Min(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		q := pairCode(p0, slotOf(e)) | bitCode(p1, slotOf(e), 1)<<4
		dst[e] = float32(f16(meta)*float32(q)) + f16(meta[2:])
	}
}

func valuesIQ4NL(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = f16(meta) * iq4nl[bitCode(p0, slotOf(e), 4)]
	}
}

func valuesIQ4XS(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	high := binary.LittleEndian.Uint16(meta[2:]) >> (2 * j) & 3
	scale := int(meta[4+j/2]>>(4*(j%2))&15) | int(high)<<4
	d := float32(f16(meta) * float32(scale-32))
	for e := range dst {
		dst[e] = d * iq4nl[bitCode(p0, slotOf(e), 4)]
	}
}

// valuesMXFP4 uses half the power of two and twice the code, as GGML does: exponents 0 and 1 give subnormals.
func valuesMXFP4(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	d := float32(math.Ldexp(1, int(meta[0])-128))
	for e := range dst {
		dst[e] = doubledE2M1[bitCode(p0, slotOf(e), 4)] * d
	}
}

func valuesTernary(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = float32(bitCode(p0, slotOf(e), 2)-1) * f16(meta)
	}
}

func valuesNVFP4(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		scale := float32(f32(meta[16:]) * dequant.FromE4M3(meta[2*j+e/16]))
		dst[e] = scale * dequant.FromE2M1(byte(bitCode(p0, slotOf(e), 4)))
	}
}

func valuesFP8(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = f32(meta) * dequant.FromE4M3(p0[slotOf(e)])
	}
}

func valuesBF16(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = f32(meta) * bf16(p0[2*slotOf(e):])
	}
}

func valuesF16(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		dst[e] = f32(meta) * f16(p0[2*slotOf(e):])
	}
}

// valuesAffine gives rn32(s*q + z): the product of a BF16 and a code of at most 8 bits is exact.
func valuesAffine(width int) func(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	code := func(p0, p1 []byte, s int) int { return pairCode(p0, s) }
	switch width {
	case 2, 8:
		code = func(p0, p1 []byte, s int) int { return bitCode(p0, s, width) }
	case 3:
		code = func(p0, p1 []byte, s int) int { return bitCode(p0, s, 2) | bitCode(p1, s, 1)<<2 }
	case 5, 6:
		code = func(p0, p1 []byte, s int) int { return pairCode(p0, s) | bitCode(p1, s, width-4)<<4 }
	}
	return func(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
		for e := range dst {
			dst[e] = float32(bf16(meta)*float32(code(p0, p1, slotOf(e)))) + bf16(meta[2:])
		}
	}
}

// signed is w, or -w where bit k of the signs is set.
func signed(w float32, signs uint8, k int) float32 {
	if signs>>k&1 != 0 {
		return -w
	}
	return w
}

// iq2Scale is the scale of an IQ2 group whose 4-bit scale is s.
func iq2Scale(d float32, s uint8) float32 { return float32(d*(0.5+float32(s))) * 0.25 }

func valuesIQ2XXS(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	word := binary.LittleEndian.Uint32(p0[4:])
	d := iq2Scale(f16(meta), uint8(word>>28))
	for e := range dst {
		l, k := e/8, e%8
		w := d * float32(uint8(gridIQ2XXS(int(p0[l]))>>(8*k)))
		dst[e] = signed(w, signBits(word>>(7*l)), k)
	}
}

func valuesIQ2XS(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		l, k := e/8, e%8
		q := binary.LittleEndian.Uint16(p0[2*l:])
		d := iq2Scale(f16(meta), p1[0]>>(4*(l/2))&15)
		w := d * float32(uint8(gridIQ2XS(int(q&511))>>(8*k)))
		dst[e] = signed(w, signBits(uint32(q>>9)), k)
	}
}

func valuesIQ2S(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		l, k := e/8, e%8
		index := int(p0[l]) | int(p1[0]>>(2*l)&3)<<8
		d := iq2Scale(f16(meta), p1[1]>>(4*(l/2))&15)
		dst[e] = signed(d*float32(uint8(gridIQ2S(index)>>(8*k))), p0[4+l], k)
	}
}

func valuesIQ3XXS(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	word := binary.LittleEndian.Uint32(p1)
	d := float32(f16(meta)*(0.5+float32(word>>28))) * 0.5
	for e := range dst {
		w := d * float32(uint8(gridIQ3XXS(int(p0[e/4]))>>(8*(e%4))))
		dst[e] = signed(w, signBits(word>>(7*(e/8))), e%8)
	}
}

func valuesIQ3S(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	for e := range dst {
		s := slotOf(e)
		word := binary.LittleEndian.Uint32(p0[s/8*4:])
		half := s % 8 / 4
		index := int(word>>(8*half)&255) | int(word>>(24+half)&1)<<8
		d := f16(meta) * float32(1+2*(word>>26&15))
		dst[e] = signed(d*float32(uint8(gridIQ3S(index)>>(8*(e%4)))), uint8(word>>16), s%8)
	}
}

// iq1 is the value of element k of a grid entry of IQ1_S or IQ1_M, whose bytes are signed.
func iq1(d float32, index, k int, negative bool) float32 {
	delta := float32(0.125)
	if negative {
		delta = -delta
	}
	return d * (float32(int8(gridIQ1S(index)>>(8*k))) + delta)
}

func valuesIQ1S(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	qh := int(binary.LittleEndian.Uint16(p1))
	d := float32(f16(meta) * float32(2*(qh>>12&7)+1))
	for e := range dst {
		l := e / 8
		dst[e] = iq1(d, int(p0[l])|qh>>(3*l)&7<<8, e%8, qh>>15 != 0)
	}
}

func valuesIQ1M(dst *[groupSize]float32, p0, p1, meta []byte, j int) {
	var sc [4]int
	var scale [2]byte
	for i := range sc {
		sc[i] = int(binary.LittleEndian.Uint16(meta[2*i:]))
		scale[i/2] |= byte(sc[i] >> 12 << (4 * (i % 2)))
	}
	for e := range dst {
		l := e / 8
		h := int(p1[l/2]) >> (4 * (l % 2)) & 15
		s := 2*(sc[j/2]>>(6*(j%2)+3*(l/2))&7) + 1
		dst[e] = iq1(float32(f16(scale[:])*float32(s)), int(p0[l])|h&7<<8, e%8, h&8 != 0)
	}
}
