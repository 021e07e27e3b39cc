package bench_test

import (
	"context"
	"strings"
	"testing"

	"splash/bench"
	"splash/dequant"
	"splash/planner"
)

func TestMeasurePasses(t *testing.T) {
	n := &table{rows: [][]float32{{1, 0}, {0, 1}}}
	p := &planner.Plan{Layout: planner.Layout{Vocab: 2}}
	r, err := bench.MeasurePasses(context.Background(), n, p, 3)
	if err != nil || n.lanes != 0 {
		t.Fatalf("%v, %d lanes left", err, n.lanes)
	}
	if r.OneMs <= 0 || r.EightMs <= 0 || r.Ratio <= 0 || r.ReadPerSec != 0 || r.Share != 0 {
		t.Errorf("passes are %+v", r)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := bench.MeasurePasses(ctx, n, p, 3); err != context.Canceled || n.lanes != 0 {
		t.Errorf("ended: %v, %d lanes left", err, n.lanes)
	}
}

func TestWeightBytes(t *testing.T) {
	table := planner.Tensor{Name: "token_embd.weight", Role: planner.TokenTable, Rows: 10, Cols: 32, Type: dequant.Q8_0} // 340 bytes
	head := planner.Tensor{Name: "output.weight", Rows: 10, Cols: 32, Type: dequant.BF16}                                // 640
	experts := planner.Tensor{Name: "blk.0.ffn_up_exps.weight", Role: planner.Experts, Rows: 2, Cols: 32, Experts: 8, Type: dequant.F32}
	layout := planner.Layout{MoE: planner.MoELayout{Taken: 3}}
	for name, c := range map[string]struct {
		tensors     []planner.Tensor
		pass, model int64
	}{
		"tied":    {[]planner.Tensor{table}, 340, 340},
		"untied":  {[]planner.Tensor{table, head}, 640, 980},
		"experts": {[]planner.Tensor{table, experts}, 340 + 3*256, 340 + 8*256},
	} {
		p := &planner.Plan{Layout: layout, Tensors: c.tensors}
		if got := bench.WeightBytes(p); got != c.pass {
			t.Errorf("%s: a pass reads %d bytes, want %d", name, got, c.pass)
		}
		if got := bench.ModelBytes(p); got != c.model {
			t.Errorf("%s: the model is %d bytes, want %d", name, got, c.model)
		}
	}
}

func TestParseResident(t *testing.T) {
	for text, want := range map[string]bench.Resident{
		"Name:\tx\nVmRSS:\t  12 kB\nRssAnon:\t 4 kB\nRssFile:\t   8 kB\n": {Total: 12 << 10, File: 8 << 10},
		"VmRSS: 1 kB": {Total: 1 << 10},
	} {
		if got, err := bench.ParseResident([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "VmRSS: -4 kB", "VmRSS: 99999999999999999999 kB", "VmRSS: many", "RssFile: 8 kB"} {
		if _, err := bench.ParseResident([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "bench: the process's status has ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
