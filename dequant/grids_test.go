package dequant

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"testing"
)

// TestTables holds the tables to those of ggml-common.h, as bytes of their C types.
func TestTables(t *testing.T) {
	tables := []struct {
		name  string
		bytes []byte
		sum   string
	}{
		{"iq2xxs_grid", gridLE(IQ2XXS, 8), "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"},
		{"iq2xs_grid", gridLE(IQ2XS, 8), "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"},
		{"iq2s_grid", gridLE(IQ2S, 8), "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"},
		{"iq3xxs_grid", gridLE(IQ3XXS, 4), "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"},
		{"iq3s_grid", gridLE(IQ3S, 4), "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"},
		{"iq1s_grid", gridLE(IQ1S, 8), "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"},
		{"iq1s_grid of IQ1_M", gridLE(IQ1M, 8), "07540ffc1aeaf6ad4d97e96b0fcc765aae39671d4ae4a27bbd0e796fde167c6a"},
		{"ksigns_iq2xs", signsLE(), "a76742a603f8beca5212ecce0f1f02f11a4887fd2f7c8b15aca0ea3eb3380c31"},
		{"kvalues_iq4nl", bytesOf(Codebook(IQ4NL)), "61aa47540aa024b5d6ddaa839b84ffe59f3d5a349af5c6c7ffcb5e0474b46163"},
		{"kvalues_fp4", bytesOf(Codebook(MXFP4)), "adf76b672d47eb7fc0afd4db132d548d59d3190aa0ad118fdbf569d5fd478f97"},
	}
	for _, table := range tables {
		if sum := sha256.Sum256(table.bytes); hex.EncodeToString(sum[:]) != table.sum {
			t.Errorf("%s: SHA-256 %x of %d bytes, expected %s", table.name, sum, len(table.bytes), table.sum)
		}
	}
	for _, f := range Formats() {
		if f.Type != IQ1S && Grid(f.Type) != nil && Codebook(f.Type) != nil {
			t.Errorf("%s has a grid and a codebook", f)
		}
	}
}

// TestSigns compares the sign factors of 7-bit indices with the definition: bits of the index, then its parity.
func TestSigns(t *testing.T) {
	for i := range uint32(128) {
		b := evenSigns(i)
		if bits.OnesCount8(b)%2 != 0 || uint32(b&127) != i {
			t.Errorf("signs of index %d are %08b", i, b)
		}
		for k := range 8 {
			if negative := signs[b][k] == -1; negative != (b>>k&1 == 1) {
				t.Errorf("sign %d of %08b is %v", k, b, signs[b][k])
			}
		}
	}
}

func gridLE(t Type, size int) []byte {
	var b []byte
	for _, entry := range Grid(t) {
		b = append(b, binary.LittleEndian.AppendUint64(nil, entry)[:size]...)
	}
	return b
}

func signsLE() []byte {
	b := make([]byte, 128)
	for i := range b {
		b[i] = evenSigns(uint32(i))
	}
	return b
}

func bytesOf(values []int8) []byte {
	b := make([]byte, len(values))
	for i, v := range values {
		b[i] = byte(v)
	}
	return b
}
