package cpu_test

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"splash/internal/cpu"
	"splash/internal/model"
)

// A native is the golden implementation's ordinary path: activations rounded to blocks of 8 bits beside quantized weights
// and to BF16 beside BF16, an F16 cache (fixtures/tiny/README.md).
type native struct {
	positions []int32
	logits    [][]float32 // token by token
}

func readNative(t *testing.T, name string) (n native) {
	t.Helper()
	data, err := os.ReadFile(tinyPath(name + ".logits.bin"))
	if err != nil {
		t.Fatal(err)
	}
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32(data[at:])) }
	tokens, vocab, layers, hidden, positions := u32(12), u32(16), u32(20), u32(24), u32(28)
	at := 40 + 4*(tokens+tokens*vocab+layers*tokens*hidden+tokens*hidden)
	for range positions {
		n.positions = append(n.positions, int32(u32(at)))
		at += 4
	}
	at += 4 * positions * vocab
	for range positions {
		row := make([]float32, vocab)
		for j := range row {
			row[j] = math.Float32frombits(uint32(u32(at)))
			at += 4
		}
		n.logits = append(n.logits, row)
	}
	return n
}

func rms(a, b []float32) float64 {
	var sum float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(a)))
}

// TestRoundedLogits holds the ordinary options to how far the golden implementation's own rounding strays from the exact
// logits: no further, over the positions both have. Keys and values of 8 bits, which that did not have, add what they alone
// do, as independent errors add. The mixture of experts is left out of the figure where either takes another expert, which
// the README says to expect.
func TestRoundedLogits(t *testing.T) {
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		for _, kv := range []cpu.KVFormat{cpu.KVBF16, cpu.KVInt8} {
			for _, name := range tinyModels {
				if name == "tiny-qwen35moe-Q4_K_M" {
					continue
				}
				g, theirs := readGolden(t, name), readNative(t, name)
				strays := func(o cpu.Options) (sum float64) {
					o.Level, o.KV = l.String(), kv
					n := load(t, tinyPath(name+".gguf"), 64, o, model.Options{})
					forward(t, n, newLane(t, n), g.Tokens)
					for _, p := range theirs.positions {
						sum += rms(n.Logits(int(p)), g.Logits[p])
					}
					return sum / float64(len(theirs.positions))
				}
				ours, native := strays(cpu.Options{}), 0.0
				for i, p := range theirs.positions {
					native += rms(theirs.logits[i], g.Logits[p])
				}
				native /= float64(len(theirs.positions))
				if kv == cpu.KVInt8 {
					native = math.Hypot(native, strays(cpu.Options{Exact: true}))
				}
				t.Logf("%-22s kv %d: strays %.4f, the golden implementation's rounding %.4f", name, kv, ours, native)
				// Eight positions tell no more than this.
				if native *= 1.1; !(ours <= native) {
					t.Errorf("%s: strays %.4f, more than %.4f", name, ours, native)
				}
			}
		}
	})
}
