package dequant

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A golden is one file of fixtures/dequant: blocks of a type and the values that llama.cpp makes of them.
type golden struct {
	Type         Type
	Block, Bytes int
	Name         string
	Sections     []section
}

// A section is blocks of one kind, row after row, and their values.
type section struct {
	Kind, Rows, Cols int
	Blocks           []byte
	Values           []float32
}

// Kinds of sections.
const (
	quantized   = 1
	importance  = 2
	adversarial = 3
	exhaustive  = 4
)

func readGolden(path string) (*golden, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(b)
	var head struct {
		Magic                                         [8]byte
		Version, Type, Block, Bytes, Sections, Unused uint32
		Name                                          [16]byte
	}
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	if string(head.Magic[:]) != "SPLDQG01" || head.Version != 1 {
		return nil, fmt.Errorf("%s: not a golden file", path)
	}
	g := &golden{Type: Type(head.Type), Block: int(head.Block), Bytes: int(head.Bytes)}
	g.Name = string(bytes.TrimRight(head.Name[:], "\x00"))
	for range head.Sections {
		var s struct {
			Kind, Rows, Cols, Unused uint32
			N                        uint64
		}
		if err := binary.Read(r, binary.LittleEndian, &s); err != nil {
			return nil, err
		}
		sec := section{Kind: int(s.Kind), Rows: int(s.Rows), Cols: int(s.Cols)}
		sec.Blocks, sec.Values = make([]byte, s.N), make([]float32, s.Rows*s.Cols)
		if _, err := io.ReadFull(r, sec.Blocks); err != nil {
			return nil, err
		}
		if err := binary.Read(r, binary.LittleEndian, sec.Values); err != nil {
			return nil, err
		}
		g.Sections = append(g.Sections, sec)
	}
	if r.Len() != 0 {
		return nil, fmt.Errorf("%s: %d bytes after the last section", path, r.Len())
	}
	return g, nil
}

// goldens reads every golden file.
func goldens(t testing.TB) []*golden {
	paths, err := filepath.Glob("../fixtures/dequant/*.bin")
	if err != nil {
		t.Fatal(err)
	}
	var all []*golden
	for _, path := range paths {
		if filepath.Base(path) == "source.bin" {
			continue
		}
		g, err := readGolden(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	if len(all) != 27 {
		t.Fatalf("%d golden files, expected 27", len(all))
	}
	return all
}

// same reports whether two values have the same bits, up to the sign of zero and the payload of a NaN.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a == b || a != a && b != b
}

// TestGolden holds every decoder to llama.cpp's values, bit for bit up to the sign of zero, in one piece and row by row.
func TestGolden(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			f := Lookup(g.Type)
			if f == nil || f.Block != g.Block || f.Bytes != g.Bytes {
				t.Fatalf("format %+v, golden has blocks of %d elements in %d bytes", f, g.Block, g.Bytes)
			}
			for _, s := range g.Sections {
				t.Run(fmt.Sprintf("kind%d", s.Kind), func(t *testing.T) {
					got := make([]float32, s.Rows*s.Cols)
					f.Decode(got, s.Blocks)
					compare(t, got, s.Values)

					clear(got)
					m := Matrix{Format: f, Rows: s.Rows, Cols: s.Cols, Data: s.Blocks}
					if err := m.Check(); err != nil {
						t.Fatal(err)
					}
					for row := range s.Rows {
						m.DecodeRow(got[row*s.Cols:][:s.Cols], row)
					}
					compare(t, got, s.Values)
				})
			}
		})
	}
}

func compare(t testing.TB, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, expected %d", len(got), len(want))
	}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("element %d is %v (%08x), expected %v (%08x)", i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}
