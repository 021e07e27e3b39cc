package planner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// TestStateMemory holds the state of every family to the table of models.md 1.2, and Flash-Next's index to 11.4.
func TestStateMemory(t *testing.T) {
	for _, test := range []struct {
		family          string
		recurrent, conv int64
		bf16, int8      int64
		index           int64
	}{
		{"Qwen3.5-0.8B", 18874368, 663552, 12288, 6240, 0},
		{"Qwen3.5-2B", 18874368, 663552, 12288, 6240, 0},
		{"Qwen3.5-4B", 50331648, 1179648, 32768, 16640, 0},
		{"Qwen3.5-9B", 50331648, 1179648, 32768, 16640, 0},
		{"Qwen3.8-27B", 150994944, 2949120, 65536, 33280, 0},
		{"Qwen3.6-35B-A3B", 62914560, 1474560, 20480, 10400, 0},
		{"Qwen3.5-122B-A10B", 150994944, 2654208, 24576, 12480, 0},
		{"Qwen3.8-Flash-Next", 113246208, 2211840, 24576, 12480, 4608},
	} {
		f := FamilyByName(test.family)
		if f == nil {
			t.Fatalf("no family %s", test.family)
		}
		want := Memory{KVToken: test.bf16, Index: test.index, Recurrent: test.recurrent, Conv: test.conv}
		if f.Layout.Arch == HyperMoE {
			want.PLE = 9*10240*2 + 2*4
		}
		if diff := cmp.Diff(want, StateMemory(&f.Layout, KVBF16)); diff != "" {
			t.Errorf("%s: %s", test.family, diff)
		}
		want.KVToken = test.int8
		if diff := cmp.Diff(want, StateMemory(&f.Layout, KVInt8)); diff != "" {
			t.Errorf("%s in int8: %s", test.family, diff)
		}
	}
	// Flint attends in every layer and keeps nothing else: 6 layers of 2 heads of 128.
	want := Memory{KVToken: 6 * 2 * 2 * 128 * 2}
	if diff := cmp.Diff(want, StateMemory(&FamilyByName("tiny-flint").Layout, KVBF16)); diff != "" {
		t.Error(diff)
	}
}

// TestMemoryPlan adds up a target of two lanes by hand.
func TestMemoryPlan(t *testing.T) {
	p := familyPlan(t, "Qwen3.8-27B", dequant.Q4_K)
	got, err := MemoryPlan(p, 1000, 2, KVInt8)
	if err != nil {
		t.Fatal(err)
	}
	images := planImages(t, p).Size()
	want := Memory{Images: images, KVToken: 33280, Recurrent: 150994944, Conv: 2949120, TapRow: 5 * 5120 * 2, Pages: 32}
	want.Taps = (2048 + 2*8) * want.TapRow
	want.Lane = 32*32*33280 + 150994944 + 2949120 // 1000 tokens and 7 more are 32 pages of 32
	want.Total = images + 2*want.Lane + want.Taps
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// 27 billion weights at 4.5 bits, and what the smaller tensors and the ends of sections add.
	if images < 15e9 || images > 16e9 {
		t.Errorf("the images of Qwen3.8-27B in Q4_K take %d bytes", images)
	}
	if m, err := MemoryPlan(p, 1017, 1, KVBF16); err != nil || m.Pages != 32 {
		t.Errorf("1017 tokens take %d pages: %v", m.Pages, err)
	}
	if m, err := MemoryPlan(p, 1018, 1, KVBF16); err != nil || m.Pages != 33 {
		t.Errorf("1018 tokens take %d pages: %v", m.Pages, err)
	}
}

func TestMemoryRefusals(t *testing.T) {
	p := familyPlan(t, "tiny-qwen35", dequant.Q8_0)
	for _, test := range []struct {
		context, lanes int
		kv             KVFormat
		want           string
	}{
		{0, 1, KVBF16, "a context of 0 tokens, accepted 1 to 4096"},
		{4097, 1, KVBF16, "a context of 4097 tokens, accepted 1 to 4096"},
		{10, 0, KVBF16, "0 lanes, accepted 1 and more"},
		{10, 1, 7, "kv format 7 is neither bf16 nor int8"},
	} {
		if _, err := MemoryPlan(p, test.context, test.lanes, test.kv); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	p.Tensors[1].Rows = 100
	if _, err := MemoryPlan(p, 10, 1, KVBF16); err == nil || !strings.Contains(err.Error(), "tile aligned") {
		t.Errorf("error %v, want that of the images", err)
	}
}

// TestDraftMemory holds a draft's state to draft.md: 8 MiB a lane and layer, five taps of 5120 values a row.
func TestDraftMemory(t *testing.T) {
	d := Draft{Layers: 5, Hidden: 5120, Taps: []int{5, 19, 33, 47, 61}}
	if d.RingBytes() != 5*8<<20 || d.TapBytes() != 51200 {
		t.Errorf("a ring of %d bytes, taps of %d", d.RingBytes(), d.TapBytes())
	}
}
