package planner

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"splash/dequant"
)

// TestBuildImages makes images in memory: their bytes are those of the files, and they start on a page.
func TestBuildImages(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 1))
	p := &Plan{Tensors: []Tensor{
		{Name: "blk.0.norm", Role: Norm, Layer: -1, Rows: 1, Cols: 256, Type: dequant.BF16},
		{Name: "blk.0.experts", Role: Experts, Layer: -1, Rows: 64, Cols: 256, Experts: 3, Type: dequant.Q5_K},
		{Name: "token_embd.weight", Role: TokenTable, Layer: -1, Rows: 128, Cols: 256, Type: dequant.Q4_0},
	}}
	w := memoryWeights{}
	for _, n := range p.Tensors {
		w[n.Name] = []dequant.Matrix{randomMatrix(rng, n.Type, n.Rows*max(1, n.Experts), n.Cols)}
	}
	plan, err := PlanImages(p)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := MakeImages(t.Context(), dir, plan, w, nil, nil); err != nil {
		t.Fatal(err)
	}
	files, err := OpenImages(t.Context(), dir, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	built, err := BuildImages(t.Context(), plan, w)
	if err != nil {
		t.Fatal(err)
	}
	defer built.Close()
	for _, f := range files.Files {
		m := built.Image(f.Name)
		if !bytes.Equal(m.Data, f.Data) {
			t.Errorf("%s has other bytes in memory", f.Name)
		}
		if at := uintptr(unsafe.Pointer(&m.Data[0])); at%sectionAlignment != 0 {
			t.Errorf("%s starts at %#x", f.Name, at)
		}
		if err := CheckImage(bytes.NewReader(m.Data), m.Size, m.Image); err != nil {
			t.Error(err)
		}
	}
	delete(w, "blk.0.experts")
	if _, err := BuildImages(t.Context(), plan, w); err == nil || !strings.Contains(err.Error(), "blk.0.experts") {
		t.Errorf("without the weights of one tensor: %v", err)
	}
}
