package kernels

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"splash/dequant"
)

var write = flag.Bool("write", false, "write grids.h anew")

// TestGrids holds grids.h to dequant's codebooks, from which -write makes it.
func TestGrids(t *testing.T) {
	var b strings.Builder
	b.WriteString("// The codebooks of the i-quants (ggml-common.h), packed: element k of an entry is the level whose index is in bits 2k and\n" +
		"// 2k+1 (IQ1, IQ2: eight elements) or 3k to 3k+2 (IQ3: four). Made from package dequant by grids_test.go.\n#pragma once\n")
	for _, g := range []struct {
		name   string
		of     dequant.Type
		levels []int8
		bits   int
	}{
		{"gridIQ2XXS", dequant.IQ2XXS, []int8{8, 25, 43}, 2},
		{"gridIQ2XS", dequant.IQ2XS, []int8{8, 25, 43}, 2},
		{"gridIQ2S", dequant.IQ2S, []int8{8, 25, 43}, 2},
		{"gridIQ3XXS", dequant.IQ3XXS, []int8{4, 12, 20, 28, 36, 44, 52, 62}, 3},
		{"gridIQ3S", dequant.IQ3S, []int8{1, 3, 5, 7, 9, 11, 13, 15}, 3},
		{"gridIQ1", dequant.IQ1S, []int8{-1, 0, 1}, 2},
	} {
		entries := dequant.Grid(g.of)
		fmt.Fprintf(&b, "\nconstant ushort %s[%d] = {", g.name, len(entries))
		for i, e := range entries {
			code := 0
			for k := range 16 / g.bits {
				if g.bits == 3 && k == 4 {
					break
				}
				level := slices.Index(g.levels, int8(e>>(8*k)))
				if level < 0 {
					t.Fatalf("%s: entry %d has %d", g.name, i, int8(e>>(8*k)))
				}
				code |= level << (g.bits * k)
			}
			if i%14 == 0 {
				b.WriteString("\n\t")
			} else {
				b.WriteString(" ")
			}
			fmt.Fprintf(&b, "0x%04x,", code)
		}
		b.WriteString("\n};\n")
	}
	if *write {
		if err := os.WriteFile("grids.h", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("grids.h")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("grids.h does not hold dequant's codebooks; make it anew with -write")
	}
}
