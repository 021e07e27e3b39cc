//go:build unix

package cpu

import (
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"syscall"
	"testing"

	"splash/dequant"
)

// fenced are copies of b in memory that nothing beyond can be read of: one begins where it does, the other ends there.
func fenced(t *testing.T, b []byte) (first, last []byte) {
	t.Helper()
	if b == nil {
		return nil, nil
	}
	for i := range 2 {
		page := os.Getpagesize()
		n := (len(b) + page - 1) / page * page
		all, err := syscall.Mmap(-1, 0, n+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(all) })
		for _, fence := range [][]byte{all[:page], all[page+n:]} {
			if err := syscall.Mprotect(fence, syscall.PROT_NONE); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			first = all[page:][:len(b):len(b)]
			copy(first, b)
		} else {
			last = all[page+n-len(b):][:len(b):len(b)]
			copy(last, b)
		}
	}
	return first, last
}

// hostile fills bytes with anything: every code, scales that are infinite, subnormal or no numbers.
func hostile(b []byte, round int, r *rand.Rand) {
	for i := range b {
		switch round {
		case 0:
			b[i] = 0xff
		case 1:
			b[i] = 0
		case 2:
			b[i] = 0x7f
		default:
			b[i] = byte(r.Uint32())
		}
	}
}

func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// eachHostile gives check matrices of every format of blocks, of any bytes, two tiles high, at both ends of memory that nothing
// beyond can be read of.
func eachHostile(t *testing.T, k *kernels, r *rand.Rand, check func(m *matrix)) {
	t.Helper()
	for _, cols := range []int{256, 768} {
		for _, stored := range blockMatrices(t, 2*k.lanes, cols, r) {
			for round := range 5 {
				for _, b := range [][]byte{stored.Data, stored.Scales, stored.Biases} {
					hostile(b, round, r)
				}
				begin, end := stored, stored
				begin.Data, end.Data = fenced(t, stored.Data)
				begin.Scales, end.Scales = fenced(t, stored.Scales)
				begin.Biases, end.Biases = fenced(t, stored.Biases)
				for _, m := range []dequant.Matrix{begin, end} {
					check(blocked(t, k, m))
				}
			}
		}
	}
}

// TestUnpackHostile holds the tiles of every level and format to the natural form, bit for bit but for the payload of a
// NaN, on blocks of any bytes: whole tiles of whole spans and of the least that a row can have, at both ends of memory that
// nothing beyond can be read of, and into tiles that nothing beyond may be written of.
func TestUnpackHostile(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(23, 24))
		eachHostile(t, k, r, func(m *matrix) { checkHostile(t, k, m) })
	})
}

func checkHostile(t *testing.T, k *kernels, m *matrix) {
	t.Helper()
	n, w := &natural{}, &worker{}
	codes, bands := guard(t, k.lanes*spanUnits*unit/4)
	w.tile.codes = bytesOfAll(codes)
	scales, scaleBands := guard(t, k.lanes*spanUnits*2)
	mins, minBands := guard(t, k.lanes*spanUnits*2)
	w.tile.scales, w.tile.mins = scales, mins
	for row := 0; row < m.rows; row += k.lanes {
		for at := 0; at < m.cols/unit; at += spanUnits {
			units := min(spanUnits, m.cols/unit-at)
			k.unpack(w, m, row, k.lanes, at, units)
			bands.check("codes")
			scaleBands.check("scales")
			minBands.check("minima")
			for lane := range k.lanes {
				m.blocks.unpack(n, &m.stored, row+lane, at, units)
				for i := range units * unit {
					if got, want := tileCode(k, &w.tile, m.blocks, lane, i), int32(int8(n.codes[i])); got != want {
						t.Fatalf("%s row %d column %d: code %d, want %d", m.stored.Format, row+lane, at*unit+i, got, want)
					}
				}
				for g := range units * unit / m.blocks.group {
					if got, want := tileScale(k, w.tile.scales, lane, g), n.scales[g]; !sameFloat(got, want) {
						t.Fatalf("%s row %d group %d of unit %d: scale %v, want %v", m.stored.Format, row+lane, g, at, got, want)
					}
					if !m.blocks.minima {
						continue
					}
					if got, want := tileScale(k, w.tile.mins, lane, g), n.mins[g]; !sameFloat(got, want) {
						t.Fatalf("%s row %d group %d of unit %d: minimum %v, want %v", m.stored.Format, row+lane, g, at, got, want)
					}
				}
			}
		}
	}
}

// TestFusedHostile holds products of a row without a tile between to the bits of those with one, likewise.
func TestFusedHostile(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		if k.fused == nil {
			return
		}
		r := rand.New(rand.NewPCG(27, 28))
		eachHostile(t, k, r, func(m *matrix) { checkFused(t, k, m, normals(t, r, m.cols)) })
	})
}

func checkFused(t *testing.T, k *kernels, m *matrix, x []float32) {
	t.Helper()
	w := &worker{}
	b := &Backend{k: k, pool: newPool(1), workers: []*worker{w}}
	in := b.inputs.of(b, m, x, m.cols, 1)
	for row := 0; row < m.rows; row += k.lanes {
		got, bands := guard(t, k.lanes)
		if !k.fused(w, got, m, in, row) {
			return
		}
		bands.check("a product without a tile")
		want := floats(k.lanes)
		for at := 0; at < m.cols/unit; at += spanUnits {
			k.unpack(w, m, row, k.lanes, at, min(spanUnits, m.cols/unit-at))
			k.product(want, &w.tile, &in.panels[0], at)
		}
		for i := range want {
			if !sameFloat(got[i], want[i]) {
				t.Fatalf("%s row %d: %v, want %v", m.stored.Format, row+i, got[i], want[i])
			}
		}
	}
}

// TestDecodeRows holds every level's rows of FP8 to package dequant, bit for bit, in blocks and with codes alone, whose
// columns may be odd: every code, any scale, and nothing beyond.
func TestDecodeRows(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		r, f := rand.New(rand.NewPCG(25, 26)), dequant.Lookup(dequant.FP8Rows)
		for _, cols := range []int{256, 512, 16, 40} {
			stored := dequant.Matrix{Format: f, Rows: 6, Cols: cols, Data: make([]byte, 6*cols), Global: []float32{0.75, -1.5, 0x1p-140}}
			if cols%f.Block == 0 {
				stored.Data, stored.Global = make([]byte, 6*f.RowBytes(cols)), nil
			}
			for range 8 {
				hostile(stored.Data, 3, r)
				begin, end := stored, stored
				begin.Data, end.Data = fenced(t, stored.Data)
				for _, m := range []dequant.Matrix{begin, end} {
					got, bands := guard(t, cols)
					want := make([]float32, cols)
					for row := range m.Rows {
						k.decodeRow(got, &m, row)
						bands.check("row")
						m.DecodeRow(want, row)
						for i := range want {
							if !sameFloat(got[i], want[i]) {
								t.Fatalf("%d columns, row %d column %d: %v, want %v", cols, row, i, got[i], want[i])
							}
						}
					}
				}
			}
		}
		all := dequant.Matrix{Format: f, Rows: 1, Cols: 256, Data: make([]byte, 256), Global: []float32{1}}
		for i := range all.Data {
			all.Data[i] = byte(i)
		}
		got, want := make([]float32, 256), make([]float32, 256)
		k.decodeRow(got, &all, 0)
		all.DecodeRow(want, 0)
		for i := range want {
			if !sameFloat(got[i], want[i]) {
				t.Errorf("code %#x: %v, want %v", i, got[i], want[i])
			}
		}
	})
}

// TestUnpackersOfAllFormats says that no level but the generic one unpacks a format row by row.
func TestUnpackersOfAllFormats(t *testing.T) {
	eachKernels(t, func(t *testing.T, k *kernels) {
		if k.level == Generic || k.level == NEON {
			return
		}
		for _, stored := range blockMatrices(t, k.lanes, 256, rand.New(rand.NewPCG(1, 2))) {
			if blocked(t, k, stored).blocks.tile == nil {
				t.Errorf("%s (apart %t) is unpacked row by row", stored.Format, stored.Scales != nil)
			}
		}
	})
}

// TestNarrowKernels says that no kernel of AVX2 has an instruction or a register that only AVX-512 has.
func TestNarrowKernels(t *testing.T) {
	wide := regexp.MustCompile(`\bZ\d+\b|\b[XY](1[6-9]|2\d|3[01])\b|\bK[0-7]\b`)
	text := regexp.MustCompile(`(?m)^TEXT ·(\w+)\(`)
	for _, name := range []string{
		"attention_amd64.s", "dot_amd64.s", "gdn_amd64.s", "product_amd64.s", "quantize_amd64.s", "unpack_amd64.s", "vector_amd64.s",
	} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		places := text.FindAllSubmatchIndex(source, -1)
		for i, p := range places {
			end := len(source)
			if i+1 < len(places) {
				end = places[i+1][0]
			}
			kernel := string(source[p[2]:p[3]])
			if narrowKernel.MatchString(kernel) {
				if found := wide.Find(source[p[0]:end]); found != nil {
					t.Errorf("%s: %s uses %s", name, kernel, found)
				}
			}
		}
	}
}

// narrowKernel matches the names of AVX2's kernels.
var narrowKernel = regexp.MustCompile(`256(r\d|g\d|q\d|m|$)`)
