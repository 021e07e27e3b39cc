package cpu_test

import (
	"path/filepath"
	"testing"

	"splash/internal/cpu"
	"splash/internal/model"
)

// TestDemoCuts reads a prompt of the demonstration model in one pass, and cut beside a multiple of 64 and elsewhere: single
// steps and chunks once gave other logits. Here they are the same to the bit, on every level.
func TestDemoCuts(t *testing.T) {
	var tokens []int32
	for _, p := range demoPrompts(t) {
		tokens = append(tokens, p.IDs...)
	}
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		n := load(t, filepath.Join("..", "..", "fixtures", "pebble", "pebble-Q8_0.gguf"), 256, cpu.Options{Level: l.String()}, model.Options{})
		for rows, cuts := range map[int][][]int{
			5:   {{4, 1}, {1}, {2, 3}},
			40:  {{16, 24}, {15, 25}, {33, 7}},
			200: {{63, 137}, {64, 136}, {65, 135}, {127, 73}, {128, 72}},
		} {
			if slow(l) && rows > 40 || l == cpu.Generic && rows > 5 {
				continue
			}
			want := rowsOf(t, n, tokens[:rows], []int{rows})
			for _, cut := range cuts {
				if at := firstDifference(want, rowsOf(t, n, tokens[:rows], cut)); at >= 0 {
					t.Errorf("%d tokens in passes of %v: the logits of row %d differ", rows, cut, at)
				}
			}
		}
	})
}
