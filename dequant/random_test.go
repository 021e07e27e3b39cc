package dequant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// randomScales is n scales of a byte (an E4M3 or E8M0 that leaves ordinary values) or of two (BF16), or nil.
func randomScales(rng *rand.Rand, n, size int) []byte {
	switch size {
	case 0:
		return nil
	case 1:
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(80 + rng.IntN(40))
		}
		return b
	}
	var b []byte
	for range n {
		b = binary.LittleEndian.AppendUint16(b, ToBF16(float32(rng.NormFloat64())))
	}
	return b
}

// fieldsF16 is where the F16 scales of a block are.
var fieldsF16 = map[Type][]int{
	F16: {0}, Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0},
	Q2_K: {80, 82}, Q3_K: {108}, Q4_K: {0, 2}, Q5_K: {0, 2}, Q6_K: {208},
	IQ2XXS: {0}, IQ2XS: {0}, IQ2S: {0}, IQ3XXS: {0}, IQ3S: {0}, IQ1S: {0}, IQ4NL: {0}, IQ4XS: {0},
	TQ1_0: {52}, TQ2_0: {64}, Q1_0: {0}, Q2_0: {0}, PQ2_0: {0},
}

// tame gives the scales of a random block ordinary values.
func tame(f *Format, block []byte, rng *rand.Rand) {
	x := float32(rng.NormFloat64())
	for _, at := range fieldsF16[f.Type] {
		binary.LittleEndian.PutUint16(block[at:], ToF16(x))
	}
	switch f.Type {
	case F32:
		binary.LittleEndian.PutUint32(block, math.Float32bits(x))
	case BF16:
		binary.LittleEndian.PutUint16(block, ToBF16(x))
	case NVFP4Rows:
		binary.LittleEndian.PutUint32(block[16:], math.Float32bits(x))
	case FP8Rows:
		binary.LittleEndian.PutUint32(block, math.Float32bits(x))
	case MXFP4:
		block[0] = 110 + block[0]&15
	case IQ1M:
		setScaleIQ1M(block, ToF16(x))
	}
	if f.Type&^0xffff == affine {
		binary.LittleEndian.PutUint16(block, ToBF16(x))
		binary.LittleEndian.PutUint16(block[2:], ToBF16(float32(rng.NormFloat64())))
	}
}

// setScaleIQ1M spreads the F16 scale over the high nibbles of the block's last four words.
func setScaleIQ1M(block []byte, d uint16) {
	for i := range 4 {
		at := 49 + 2*i
		block[at] = block[at]&15 | byte(d>>(4*i)&15)<<4
	}
}
