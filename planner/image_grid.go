package planner

import (
	"sync"

	"splash/dequant"
)

// The i-quants index codebooks whose tables stand in dequant. A grid is such a codebook as the plane decoders use it:
// element k of an entry is byte k, a magnitude, or a signed byte for IQ1.
type grid func(index int) uint64

var (
	gridIQ2XXS = readGrid(dequant.IQ2XXS, 256, 8, 8, 0, 2)
	gridIQ2XS  = readGrid(dequant.IQ2XS, 512, 8, 8, 0, 3)
	gridIQ2S   = readGrid(dequant.IQ2S, 1024, 8, 8, 0, 66)
	gridIQ3XXS = readGrid(dequant.IQ3XXS, 256, 4, 4, 0, 2)
	gridIQ3S   = readGrid(dequant.IQ3S, 512, 4, 1, 0, 66)
	gridIQ1S   = readGrid(dequant.IQ1S, 2048, 8, 1, 0.125, 34)
)

// readGrid reads a codebook of so many entries back through the decoder of its type: a block whose d is 1 and whose
// other fields are zero but for entry i as its first index, low byte at byte 2 and the bits above it at byte high, has
// the values element / scale + offset.
func readGrid(t dequant.Type, entries, elements int, scale, offset float32, high int) grid {
	table := sync.OnceValue(func() []uint64 {
		f := dequant.Lookup(t)
		block, values := make([]byte, f.Bytes), make([]float32, f.Block)
		block[0], block[1] = 0x00, 0x3c
		all := make([]uint64, entries)
		for i := range all {
			block[high] = byte(i >> 8)
			block[2] = byte(i)
			f.Decode(values, block)
			for k, v := range values[:elements] {
				all[i] |= uint64(uint8(int8((v-offset)*scale))) << (8 * k)
			}
		}
		return all
	})
	return func(index int) uint64 { return table()[index] }
}
