//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"slices"
	"strings"
	"testing"
)

// TestDispatchErrors: what a device cannot run is refused with the kernel's name before anything runs, and what fails as it runs
// is said by Wait, once.
func TestDispatchErrors(t *testing.T) {
	b := newBench(t)
	k := b.kernel("copy_rows")
	x, list := filled(b, make([]float32, 32)), filled(b, []uint32{0, 1})
	good := copyGrid(2, 16)
	for want, record := range map[string]func(){
		"2 buffers":  func() { add(&b.commands, k, good, copyParams{width: 16}, x.from(0), list.from(0)) },
		"parameters": func() { add(&b.commands, k, good, gatedNormParams{}, x.from(0), list.from(0), x.from(0)) },
		"33 threads": func() {
			add(&b.commands, k, grid{x: 1, y: 1, threads: 33}, copyParams{}, x.from(0), list.from(0), x.from(0))
		},
		"an empty grid":   func() { add(&b.commands, k, grid{x: 1, threads: 32}, copyParams{}, x.from(0), list.from(0), x.from(0)) },
		"byte 128 of 128": func() { add(&b.commands, k, good, copyParams{width: 16}, x.from(128), list.from(0), x.from(0)) },
		"40000 bytes": func() {
			add(&b.commands, k, grid{x: 1, y: 1, threads: 32, shared: 40000}, copyParams{}, x.from(0), list.from(0), x.from(0))
		},
	} {
		record()
		if err := b.try(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "copy_rows") {
			t.Errorf("%v, want %q of copy_rows", err, want)
		}
	}
	if checkKind() == "checked" {
		add(&b.commands, k, good, copyParams{width: 17}, x.from(0), list.from(0), x.from(0))
		const want = "copy_rows, threadgroup 0 1 0: thread 15 reads 4 bytes at byte 128"
		if err := b.try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a read past a buffer: %v", err)
		}
		if err := b.Wait(); err != nil {
			t.Errorf("the error is said twice: %v", err)
		}
	}
	for _, size := range []int{0, -1} {
		if _, err := b.NewBuffer(size); err == nil {
			t.Errorf("a buffer of %d bytes", size)
		}
	}
	if _, err := b.Wrap(nil); err == nil {
		t.Error("a buffer of no memory")
	}
}

// TestReplay records commands once and runs them again on other contents, and reads the counters.
func TestReplay(t *testing.T) {
	b := newFastBench(t)
	list, x, y, z := filled(b, []uint32{1, 0}), filled(b, []float32{1, 2, 3, 4}), empty[float32](b, 4), empty[float32](b, 4)
	k := b.kernel("copy_rows")
	add(&b.commands, k, copyGrid(2, 2), copyParams{width: 2}, x.from(0), list.from(0), y.from(0))
	add(&b.commands, k, copyGrid(2, 2), copyParams{width: 2}, y.from(0), list.from(0), z.from(0))
	if b.commands.Len() != 2 {
		t.Errorf("%d dispatches", b.commands.Len())
	}
	before := b.Counters()
	for i := range 3 {
		view[float32](x)[0] = float32(i)
		if err := b.Run(&b.commands); err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, want := view[float32](z), []float32{float32(i), 2, 3, 4}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	after := b.Counters()
	if after.Dispatches-before.Dispatches != 6 || after.Commits-before.Commits != 3 || after.Buffers != 8+3*16 || after.Seconds <= 0 {
		t.Errorf("counters went from %+v to %+v", before, after)
	}
	run := func() {
		if err := b.Run(&b.commands); err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(10, run); n != 0 {
		t.Errorf("%v allocations a replay", n)
	}
}
