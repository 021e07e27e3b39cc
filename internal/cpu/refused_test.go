package cpu_test

import (
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/cpu"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// TestRefusals hands the backend what it cannot do: every one is an error that says so, and leaves lanes as they were.
func TestRefusals(t *testing.T) {
	p, w := open(t, tinyPath("tiny-qwen35-Q8_0.gguf"))
	b, err := cpu.New(p, 8, cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n, err := model.New(b, p, w, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lane, other := newLane(t, n), newLane(t, n)
	forward(t, n, lane, []int32{1, 2, 3})
	for name, c := range map[string]struct {
		pass model.Pass
		want string
	}{
		"no rows":       {model.Pass{}, "a pass of 0 rows; 1 to 8"},
		"too many rows": {model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: make([]int32, 9)}}}, "a pass of 9 rows; 1 to 8"},
		"no such lane":  {model.Pass{Segments: []model.Segment{{Lane: 7, Tokens: []int32{1}}}}, "no such lane: 7"},
		"two segments": {model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{1}}, {Lane: lane, Tokens: []int32{1}}}},
			"lane 0 has two segments"},
		"an empty segment": {model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{1}}, {Lane: other}}},
			"lane 1 has a segment without rows"},
		"an unknown token":  {model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{2048}}}}, "token 2048 is not in"},
		"a negative token":  {model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{-1}}}}, "token -1 is not in"},
		"missing positions": {model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{1, 2}, Positions: make([]oracle.Position, 1)}}}, "1 positions for 2 rows"},
		"context not kept":  {model.Pass{Kind: model.ContextPass, Segments: []model.Segment{{Lane: lane, Tokens: []int32{1, 2, 3, 4}}}}, "4 context rows"},
	} {
		if err := n.Forward(&c.pass); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	want := rowsOf(t, n, []int32{1, 2, 3, 4}, []int{3, 1})
	forward(t, n, lane, []int32{4})
	if firstDifference(want[3:], [][]float32{n.Logits(0)}) >= 0 {
		t.Error("a refused pass changed its lane")
	}
}

// stub gives one matrix, whatever is asked for.
type stub struct{ m []dequant.Matrix }

func (s stub) Matrices(*planner.Tensor) ([]dequant.Matrix, error) { return s.m, nil }

func TestRefusedWeights(t *testing.T) {
	p, _ := open(t, tinyPath("tiny-qwen35-Q8_0.gguf"))
	b, err := cpu.New(p, 8, cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	good := dequant.Matrix{Format: dequant.Lookup(dequant.Q8_0), Rows: 2, Cols: 64, Data: make([]byte, 2*68)}
	short := good
	short.Data = short.Data[:100]
	tensor := &planner.Tensor{Name: "blk.0.w", Rows: 2, Cols: 64}
	signs := *tensor
	signs.Signs = make([]int8, 3)
	for name, c := range map[string]struct {
		tensor *planner.Tensor
		m      []dequant.Matrix
		want   string
	}{
		"two matrices": {tensor, []dequant.Matrix{good, good}, "blk.0.w is 2 matrices"},
		"other shape":  {&planner.Tensor{Name: "blk.0.w", Rows: 2, Cols: 32}, []dequant.Matrix{good}, "blk.0.w is 2 x 64, planned 2 x 32"},
		"few bytes":    {tensor, []dequant.Matrix{short}, "blk.0.w: 100 bytes of Q8_0 blocks, expected 2 rows of 68"},
		"few signs":    {&signs, []dequant.Matrix{good}, "blk.0.w has 3 signs for 64 columns"},
	} {
		if _, err := b.LoadMatrix(stub{c.m}, c.tensor); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	experts := *tensor
	experts.Experts = 3
	if _, err := b.LoadExperts(stub{[]dequant.Matrix{good}}, &experts); err == nil || !strings.Contains(err.Error(), "1 experts of 3") {
		t.Errorf("a missing expert: %v", err)
	}
	if _, err := cpu.New(p, 0, cpu.Options{}); err == nil {
		t.Error("a backend for passes of no rows")
	}
	if _, err := b.Buffer(0, model.AllRows); err == nil {
		t.Error("a buffer of no width")
	}
}
