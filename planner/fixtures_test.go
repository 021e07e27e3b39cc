package planner

import (
	"path/filepath"
	"testing"

	"splash/internal/gguf"
)

// TestFixtures plans the models of the repository, which other tools wrote, and reads a row of every tensor.
func TestFixtures(t *testing.T) {
	for _, test := range []struct{ file, family string }{
		{"tiny/tiny-qwen35-BF16.gguf", "tiny-qwen35"},
		{"tiny/tiny-qwen35-Q8_0.gguf", "tiny-qwen35"},
		{"tiny/tiny-qwen35-Q4_K_M.gguf", "tiny-qwen35"},
		{"tiny/tiny-qwen35-IQ4_XS.gguf", "tiny-qwen35"},
		{"tiny/tiny-qwen35-MIX.gguf", "tiny-qwen35"},
		{"tiny/tiny-qwen35moe-Q4_K_M.gguf", "tiny-qwen35moe"},
		{"pebble/pebble-BF16.gguf", "pebble"},
		{"pebble/pebble-Q8_0.gguf", "pebble"},
		{"pebble/pebble-Q4_K_M.gguf", "pebble"},
	} {
		t.Run(test.file, func(t *testing.T) {
			f, err := gguf.Open(filepath.Join("..", "fixtures", filepath.FromSlash(test.file)))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			p, err := PlanGGUF(f.Header)
			if err != nil {
				t.Fatal(err)
			}
			if p.Family.Name != test.family {
				t.Errorf("family %s, want %s", p.Family.Name, test.family)
			}
			readAll(t, OpenGGUF(f, p), p)
		})
	}
}

// readAll decodes the first and last row of every matrix of the plan.
func readAll(t *testing.T, w Weights, p *Plan) {
	t.Helper()
	for i := range p.Tensors {
		tensor := &p.Tensors[i]
		all, err := w.Matrices(tensor)
		if err != nil {
			t.Errorf("%s: %v", tensor.Name, err)
			continue
		}
		if len(all) != max(tensor.Experts, 1) {
			t.Errorf("%s: %d matrices, want %d", tensor.Name, len(all), max(tensor.Experts, 1))
		}
		for _, m := range all {
			if m.Rows != tensor.Rows || m.Cols != tensor.Cols {
				t.Errorf("%s: %d x %d, want %d x %d", tensor.Name, m.Rows, m.Cols, tensor.Rows, tensor.Cols)
				continue
			}
			row := make([]float32, m.Cols)
			m.DecodeRow(row, 0)
			m.DecodeRow(row, m.Rows-1)
		}
	}
}
