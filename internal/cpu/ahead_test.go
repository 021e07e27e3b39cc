package cpu

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// TestNext holds what workers fetch to what they multiply next: the tile behind in the file, the next matrix of the task, or
// at the end of a share where that of the next task lay in the last pass.
func TestNext(t *testing.T) {
	k, err := kernelsOf("")
	if err != nil {
		t.Fatal(err)
	}
	of := func(tiles int) *matrix {
		f := dequant.Lookup(dequant.Q8_0)
		rows := tiles * k.lanes
		return &matrix{rows: rows, cols: 64, stored: dequant.Matrix{Format: f, Rows: rows, Cols: 64, Data: make([]byte, rows*f.RowBytes(64))}}
	}
	b := &Backend{k: k, pool: newPool(2)}
	defer b.pool.close()
	first, second, last := of(6), of(2), of(5)
	pair := productTask{b: b, all: []product{{m: first}, {m: second}}, tiles: 8, step: 1}
	for i := range pair.all {
		pair.spans = append(pair.spans, span{p: &pair.all[i], before: 6 * i})
	}
	alone := productTask{b: b, all: []product{{m: last}}, tiles: 5, step: 1}
	alone.spans = []span{{p: &alone.all[0]}}
	tasks := []*productTask{&pair, &alone}
	var s shares
	run := func(look func(t *productTask)) {
		s.number = 0
		for _, t := range tasks {
			t.shares = &s
			s.begin(t)
			look(t)
			s.number++
		}
	}
	run(func(*productTask) {})

	// Shares are tiles 0 to 3 and 4 to 7 of the pair, 0 and 1, and 2 to 4, of the other.
	at := func(m *matrix, tile int) uintptr { return m.address(tile * k.lanes) }
	var got, want [][]uintptr
	run(func(t *productTask) {
		var of []uintptr
		for w := range 2 {
			for i := 1; i <= t.tiles; i++ {
				of = append(of, t.next(w, i, 0))
			}
		}
		got = append(got, of)
	})
	want = [][]uintptr{
		{
			at(first, 1), at(first, 2), at(first, 3), at(last, 0), at(first, 5), at(second, 0), at(second, 1), at(last, 0),
			at(first, 1), at(first, 2), at(first, 3), at(first, 4), at(first, 5), at(second, 0), at(second, 1), at(last, 2),
		},
		{
			at(last, 1), at(first, 0), at(last, 3), at(last, 4), at(first, 0),
			at(last, 1), at(last, 2), at(last, 3), at(last, 4), at(first, 4),
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if n := testing.AllocsPerRun(10, func() { run(func(*productTask) {}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
