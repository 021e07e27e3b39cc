package cpu

import (
	"testing"
	"unsafe"

	"splash/internal/model"
)

// TestShare has buffers of groups overlap, as many rows as a pass brings, and those of one group lie apart. Those of few rows all do.
func TestShare(t *testing.T) {
	b := &Backend{}
	var groups [][]model.Buffer
	for _, widths := range [][]int{{48, 3}, {7, 40, 1}, {100}} {
		var group []model.Buffer
		for _, w := range widths {
			h, err := b.Buffer(w, model.AllRows)
			if err != nil {
				t.Fatal(err)
			}
			group = append(group, h)
		}
		groups = append(groups, group)
	}
	b.Share(groups)
	for _, rows := range []int{fewRows + 1, fewRows + 5, fewRows + 3, fewRows + 8} {
		b.rows = make([]row, rows)
		b.place()
		first := unsafe.SliceData(b.buffers[groups[0][0]].data)
		for _, group := range groups {
			if got := unsafe.SliceData(b.buffers[group[0]].data); got != first {
				t.Errorf("%d rows: a group begins at %p, another at %p", rows, got, first)
			}
			for i, h := range group {
				data := b.buffers[h].data
				if need := rows * b.buffers[h].width; len(data) < need {
					t.Fatalf("%d rows: buffer %d has room for %d values, wants %d", rows, h, len(data), need)
				}
				for j := range data {
					data[j] = float32(i)
				}
			}
			for i, h := range group {
				for j, v := range b.buffers[h].data {
					if v != float32(i) {
						t.Fatalf("%d rows: value %d of buffer %d is buffer %v's", rows, j, h, v)
					}
				}
			}
		}
	}
	b.rows = make([]row, fewRows)
	b.place()
	for i := range b.buffers {
		for j := range b.buffers[i].data {
			b.buffers[i].data[j] = float32(i)
		}
	}
	for i := range b.buffers {
		if data := b.buffers[i].data; len(data) != fewRows*b.buffers[i].width || data[0] != float32(i) {
			t.Errorf("few rows: buffer %d has %d values, the first %v", i, len(data), data[0])
		}
	}
}
