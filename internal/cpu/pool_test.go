package cpu

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// counted counts how often each part is run, and by how many workers at once each worker is used.
type counted struct {
	runs  []atomic.Int32
	using [8]atomic.Int32
	twice atomic.Bool
	fail  int // the part that panics, or -1
}

func (c *counted) run(w, first, last int) {
	if c.using[w].Add(1) != 1 {
		c.twice.Store(true)
	}
	for i := first; i < last; i++ {
		c.runs[i].Add(1)
		if i == c.fail {
			panic("part " + strings.Repeat("x", i))
		}
	}
	c.using[w].Add(-1)
}

func TestPoolRunsEveryPartOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := newPool(workers)
		for n := range 300 {
			c := &counted{runs: make([]atomic.Int32, n%37), fail: -1}
			p.run(c, len(c.runs), 1+n%5)
			for i := range c.runs {
				if got := c.runs[i].Load(); got != 1 {
					t.Fatalf("%d workers: part %d of %d ran %d times", workers, i, len(c.runs), got)
				}
			}
			if c.twice.Load() {
				t.Fatalf("%d workers: one was used by two at once", workers)
			}
			if n%100 == 0 {
				time.Sleep(time.Millisecond) // for workers to fall asleep
			}
		}
		p.close()
	}
}

func TestPoolPassesPanicsOn(t *testing.T) {
	p := newPool(4)
	defer p.close()
	for range 50 {
		func() {
			defer func() {
				if v := recover(); v != "part xxx" {
					t.Errorf("recovered %v", v)
				}
			}()
			p.run(&counted{runs: make([]atomic.Int32, 40), fail: 3}, 40, 1)
			t.Error("no panic")
		}()
		c := &counted{runs: make([]atomic.Int32, 40), fail: -1}
		p.run(c, 40, 1)
		for i := range c.runs {
			if c.runs[i].Load() != 1 {
				t.Fatal("a task after a panic is not whole")
			}
		}
	}
}

// TestPoolEnds counts goroutines: a closed pool's end, and so do those of a backend that is forgotten.
func TestPoolEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		p := newPool(4)
		p.run(&counted{runs: make([]atomic.Int32, 9), fail: -1}, 9, 1)
		p.close()
		p.close()
	}
	for range 200 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

func TestLevels(t *testing.T) {
	t.Setenv(LevelVariable, "")
	run := Levels()
	if k, err := kernelsOf(""); err != nil || k.level != preferred(run) {
		t.Errorf("the best of %v is %v: %v", run, k, err)
	}
	for _, l := range run {
		t.Setenv(LevelVariable, l.String())
		if k, err := kernelsOf(""); err != nil || k.level != l {
			t.Errorf("%s=%s gives %v: %v", LevelVariable, l, k, err)
		}
	}
	t.Setenv(LevelVariable, "sse9")
	if _, err := kernelsOf(""); err == nil || err.Error() != "cpu: SPLASH_CPU=sse9 is none of generic, avx2, avx512, avx512bf16, amx, neon" {
		t.Errorf("an unknown level: %v", err)
	}
	if k, err := kernelsOf("generic"); err != nil || k.level != Generic {
		t.Errorf("a level that is asked for by name: %v, %v", k, err)
	}
	if err := missing(AVX512, []Level{Generic}); err == nil || !strings.Contains(err.Error(), "avx512") {
		t.Errorf("a level that does not run: %v", err)
	}
}

type nothing struct{}

func (nothing) run(_, _, _ int) {}

// BenchmarkPool is what handing out a task costs, while the workers are awake.
func BenchmarkPool(b *testing.B) {
	p := newPool(runtime.GOMAXPROCS(0))
	defer p.close()
	best := time.Hour
	var t task = nothing{}
	for b.Loop() {
		began := time.Now()
		for range 100 {
			p.run(t, 64, 4)
		}
		best = min(best, time.Since(began)/100)
	}
	b.ReportMetric(float64(best.Nanoseconds()), "ns-best")
}
