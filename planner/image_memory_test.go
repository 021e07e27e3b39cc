package planner

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
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

// A fakePacker packs, leaves or fails, and counts the rows that it was given.
type fakePacker struct {
	mu     sync.Mutex
	rows   int
	packed bool
	err    error
}

func (f *fakePacker) Pack(p *Packing) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range p.Rows {
		if m, row := p.Row(i); m != nil && row < m.Rows {
			f.rows++
		}
	}
	if f.packed {
		p.Plane0[0], p.Meta[0] = 0x5a, 0xa5
	}
	return f.packed, f.err
}

// TestPacker makes images with a packer: what it packs stands in them, what it leaves the writer packs, and what it fails at is an
// error.
func TestPacker(t *testing.T) {
	m := randomMatrix(rand.New(rand.NewPCG(7, 1)), dequant.Q8_0, 128, 64)
	p := &Plan{Tensors: []Tensor{{Name: "output.weight", Layer: -1, Role: Linear, Rows: 128, Cols: 64, Type: dequant.Q8_0}}}
	plan, w := planImages(t, p), memoryWeights{"output.weight": {m}}
	want, err := BuildImages(t.Context(), plan, w)
	if err != nil {
		t.Fatal(err)
	}
	build := func(f *fakePacker) (*ImageFile, error) {
		images, err := (&ImageMaker{Packer: f}).Build(t.Context(), plan, w)
		if err != nil {
			return nil, err
		}
		if f.rows != 128 {
			t.Errorf("%d rows were given to the packer", f.rows)
		}
		return images.Files[0], nil
	}
	left, err := build(new(fakePacker))
	if err != nil || !bytes.Equal(left.Data, want.Files[0].Data) {
		t.Errorf("what a packer leaves differs from the writer's: %v", err)
	}
	packed, err := build(&fakePacker{packed: true})
	if err != nil {
		t.Fatal(err)
	}
	in := packed.Tensor("output.weight")
	if got := packed.Bytes(in.Plane0); got[0] != 0x5a || got[1] != 0 || packed.Bytes(in.Meta)[0] != 0xa5 {
		t.Errorf("a packer's planes begin with %x", got[:2])
	}
	if _, err := build(&fakePacker{err: errors.New("no device")}); err == nil || !strings.Contains(err.Error(), "no device") {
		t.Errorf("a packer's error: %v", err)
	}
}
