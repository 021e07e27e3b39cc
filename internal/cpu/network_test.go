package cpu_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/conformance"
	"splash/internal/cpu"
	"splash/internal/cpu/amx"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/oracle"
	"splash/planner"
)

var tinyModels = []string{
	"tiny-qwen35-BF16", "tiny-qwen35-Q8_0", "tiny-qwen35-Q4_K_M", "tiny-qwen35-IQ4_XS", "tiny-qwen35-MIX", "tiny-qwen35moe-Q4_K_M",
}

// goldenTolerance is absolute. The golden values and these are both F32 arithmetic, which strays 6e-6 from float64
// (fixtures/tiny/README.md).
const goldenTolerance = 1e-4

func tinyPath(name string) string { return filepath.Join("..", "..", "fixtures", "tiny", name) }

// exact are the options under which nothing is rounded to less than float32.
func exact(level cpu.Level) cpu.Options {
	return cpu.Options{Level: level.String(), Exact: true, KV: cpu.KVFloat}
}

// open opens a GGUF and its plan.
func open(t testing.TB, path string) (*planner.Plan, planner.Weights) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p, err := planner.PlanGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	return p, planner.OpenGGUF(f, p)
}

// load opens a GGUF and builds its network on a cpu backend.
func load(t testing.TB, path string, maxRows int, o cpu.Options, m model.Options) model.Network {
	t.Helper()
	p, w := open(t, path)
	b, err := cpu.New(p, maxRows, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	n, err := model.New(b, p, w, m)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func eachLevel(t *testing.T, f func(t *testing.T, l cpu.Level)) {
	for _, l := range cpu.Levels() {
		t.Run(l.String(), func(t *testing.T) { f(t, l) })
	}
}

// slow reports whether a level takes much longer here than others do: plain Go, and instructions that are emulated.
func slow(l cpu.Level) bool { return l == cpu.Generic || l == cpu.AMX && !amx.Present() }

// forward runs one segment of a lane, with the logits of all its rows.
func forward(t testing.TB, n model.Network, lane model.Lane, tokens []int32) {
	t.Helper()
	p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: len(tokens)}}}
	if err := n.Forward(p); err != nil {
		t.Fatal(err)
	}
}

func newLane(t testing.TB, n model.Network) model.Lane {
	t.Helper()
	l, err := n.Backend().NewLane()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rowsOf returns the logits of every token, in passes of the given sizes, the last of which repeats.
func rowsOf(t testing.TB, n model.Network, tokens []int32, cut []int) [][]float32 {
	t.Helper()
	lane := newLane(t, n)
	defer n.Backend().FreeLane(lane)
	var rows [][]float32
	for i := 0; len(tokens) > 0; i++ {
		count := min(len(tokens), cut[min(i, len(cut)-1)])
		forward(t, n, lane, tokens[:count])
		for j := range count {
			rows = append(rows, slices.Clone(n.Logits(j)))
		}
		tokens = tokens[count:]
	}
	return rows
}

func firstDifference(a, b [][]float32) int {
	for i := range a {
		if !slices.Equal(a[i], b[i]) {
			return i
		}
	}
	return -1
}

func maxDiff(a, b []float32) float64 {
	worst := 0.0
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if !(d <= worst) {
			worst = d
		}
	}
	return worst
}

func readGolden(t testing.TB, name string) *conformance.Golden {
	t.Helper()
	g, err := conformance.ReadGolden(tinyPath(name + ".logits.bin"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGoldenLogits holds the exact options to the goldens of another implementation.
func TestGoldenLogits(t *testing.T) {
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		for _, name := range tinyModels {
			g := readGolden(t, name)
			taps := []int{0, 1, 2, 3}
			n := load(t, tinyPath(name+".gguf"), 64, exact(l), model.Options{Taps: taps})
			forward(t, n, newLane(t, n), g.Tokens)
			worst, hidden := 0.0, 0.0
			for i := range g.Tokens {
				worst = math.Max(worst, maxDiff(n.Logits(i), g.Logits[i]))
				for _, l := range taps {
					hidden = math.Max(hidden, maxDiff(n.Tap(l, i), g.Hidden[l][i]))
				}
			}
			t.Logf("%-24s %d positions: logits within %.2g, hidden states within %.2g", name, len(g.Tokens), worst, hidden)
			if !(worst <= goldenTolerance) || !(hidden <= goldenTolerance) {
				t.Errorf("%s: logits stray %g, hidden states %g; %g is allowed", name, worst, hidden, goldenTolerance)
			}
		}
	})
}

type manifest struct {
	Tokens []int32
	Files  map[string]struct{ Greedy []int32 }
}

func readManifest(t testing.TB) manifest {
	t.Helper()
	var m manifest
	data, err := os.ReadFile(tinyPath("manifest.json"))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGoldenGreedy continues the golden prompt one row at a time.
func TestGoldenGreedy(t *testing.T) {
	m := readManifest(t)
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		for _, name := range tinyModels {
			n := load(t, tinyPath(name+".gguf"), 64, exact(l), model.Options{})
			lane := newLane(t, n)
			forward(t, n, lane, m.Tokens)
			got := []int32{argmax(n.Logits(len(m.Tokens) - 1))}
			want := m.Files[name].Greedy
			for len(got) < len(want) {
				forward(t, n, lane, got[len(got)-1:])
				got = append(got, argmax(n.Logits(0)))
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	})
}

func argmax(x []float32) int32 { return int32(oracle.Argmax(x)) }

// TestCutsAgree runs a prompt in one pass and in every kind of cut: the same bits, in every way of rounding.
func TestCutsAgree(t *testing.T) {
	all := readManifest(t).Tokens
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		tokens, cuts := all, [][]int{{1}, {3}, {47, 1}, {2, 3, 40, 3}, {7}, {8}}
		if l == cpu.AMX && slow(l) {
			tokens, cuts = all[:21], [][]int{{16, 5}, {17, 1}, {8}}
		}
		for _, name := range []string{"tiny-qwen35-MIX", "tiny-qwen35-BF16", "tiny-qwen35moe-Q4_K_M"} {
			for _, o := range []cpu.Options{exact(l), {Level: l.String()}, {Level: l.String(), KV: cpu.KVInt8, Workers: 3}} {
				n := load(t, tinyPath(name+".gguf"), 64, o, model.Options{})
				want := rowsOf(t, n, tokens, []int{len(tokens)})
				for _, cut := range cuts {
					if at := firstDifference(want, rowsOf(t, n, tokens, cut)); at >= 0 {
						t.Errorf("%s %+v in passes of %v: the logits of row %d differ", name, o, cut, at)
					}
				}
			}
		}
	})
}

// TestRollback takes back every number of rows of segments of several lengths, then goes on: what follows has the same
// bits as if the rows had never been.
func TestRollback(t *testing.T) {
	tokens := readManifest(t).Tokens
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		for _, name := range []string{"tiny-qwen35-Q8_0", "tiny-qwen35moe-Q4_K_M"} {
			n := load(t, tinyPath(name+".gguf"), 64, cpu.Options{Level: l.String()}, model.Options{})
			want := rowsOf(t, n, tokens[:40], []int{40})
			for _, rows := range []int{1, 2, 5, 8, 9, 12} {
				for back := 0; back <= min(rows, model.RollbackRows); back++ {
					takeBack(t, n, want, tokens, rows, back)
				}
			}
			lane := newLane(t, n)
			forward(t, n, lane, tokens[:20])
			for _, bad := range []int{-1, 9, 21} {
				if err := n.Backend().Rollback(lane, bad); err == nil {
					t.Errorf("%d rows taken back of 20", bad)
				}
			}
		}
	})
}

// takeBack runs ten rows, then rows of which the last back are wrong and taken back, in one or two steps, then more.
func takeBack(t *testing.T, n model.Network, want [][]float32, tokens []int32, rows, back int) {
	t.Helper()
	lane := newLane(t, n)
	defer n.Backend().FreeLane(lane)
	forward(t, n, lane, tokens[:10])
	wrong := slices.Clone(tokens[10 : 10+rows-back])
	for i := range back {
		wrong = append(wrong, int32(100+i))
	}
	forward(t, n, lane, wrong)
	for _, step := range []int{back / 2, back - back/2} {
		if err := n.Backend().Rollback(lane, step); err != nil {
			t.Fatal(err)
		}
	}
	at := 10 + rows - back
	forward(t, n, lane, tokens[at:at+5])
	for i := range 5 {
		if !slices.Equal(want[at+i], n.Logits(i)) {
			t.Fatalf("%d of %d rows taken back: row %d differs", back, rows, at+i)
		}
	}
}

// TestLanesShareAPass runs several lanes in one pass: each gets the bits it gets alone.
func TestLanesShareAPass(t *testing.T) {
	tokens := readManifest(t).Tokens
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		for _, name := range []string{"tiny-qwen35-Q4_K_M", "tiny-qwen35moe-Q4_K_M"} {
			n := load(t, tinyPath(name+".gguf"), 128, cpu.Options{Level: l.String()}, model.Options{})
			prompts := [][]int32{tokens[:1], tokens[:37], tokens[5:12], tokens}
			var want [][][]float32
			for _, p := range prompts {
				want = append(want, rowsOf(t, n, p, []int{len(p)}))
			}
			pass := &model.Pass{}
			for _, p := range prompts {
				pass.Segments = append(pass.Segments, model.Segment{Lane: newLane(t, n), Tokens: p, Outputs: len(p)})
			}
			if err := n.Forward(pass); err != nil {
				t.Fatal(err)
			}
			at := 0
			for i, p := range prompts {
				var got [][]float32
				for range p {
					got = append(got, slices.Clone(n.Logits(at)))
					at++
				}
				if firstDifference(want[i], got) >= 0 {
					t.Errorf("%s: lane %d beside others differs from itself alone", name, i)
				}
			}
		}
	})
}

// TestCheckpoints saves a lane on its way, goes on in it and in lanes that resume, and takes rows back across the place.
func TestCheckpoints(t *testing.T) {
	tokens := readManifest(t).Tokens
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		n := load(t, tinyPath("tiny-qwen35-Q8_0.gguf"), 64, cpu.Options{Level: l.String()}, model.Options{})
		b := n.Backend()
		want := rowsOf(t, n, tokens[:40], []int{40})
		lane := newLane(t, n)
		forward(t, n, lane, append(slices.Clone(tokens[:16]), 100, 101))
		if err := b.Rollback(lane, 2); err != nil {
			t.Fatal(err)
		}
		c, bytes, err := b.Save(lane)
		if err != nil || bytes <= 0 {
			t.Fatalf("saved %d bytes: %v", bytes, err)
		}
		if err := b.Rollback(lane, 4); err != nil {
			t.Fatal(err)
		}
		forward(t, n, lane, []int32{7, 8, 9, 10, 11, 12})
		for range 2 {
			again := newLane(t, n)
			if err := b.Resume(again, c); err != nil {
				t.Fatal(err)
			}
			if b.Resume(again, c) == nil || b.Rollback(again, 1) == nil {
				t.Error("a lane that has resumed does so again, or takes rows back")
			}
			forward(t, n, again, tokens[16:20])
			for i := range 4 {
				if !slices.Equal(want[16+i], n.Logits(i)) {
					t.Errorf("row %d after the checkpoint differs", 16+i)
				}
			}
			b.FreeLane(again)
		}
		b.Drop(c)
		if b.Resume(newLane(t, n), c) == nil {
			t.Error("a checkpoint that was dropped is resumed")
		}
	})
}

// TestAgainstReference runs the architectures beside the oracle backend, under the exact options.
func TestAgainstReference(t *testing.T) {
	p, w := open(t, tinyPath("tiny-qwen35-MIX.gguf"))
	want, err := model.New(reference.New(p, 64), p, w, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := readManifest(t).Tokens
	rows := rowsOf(t, want, tokens, []int{len(tokens)})
	eachLevel(t, func(t *testing.T, l cpu.Level) {
		n := load(t, tinyPath("tiny-qwen35-MIX.gguf"), 64, exact(l), model.Options{})
		worst := 0.0
		for i, row := range rowsOf(t, n, tokens, []int{5}) {
			worst = math.Max(worst, maxDiff(row, rows[i]))
		}
		t.Logf("within %.2g", worst)
		if !(worst <= goldenTolerance) {
			t.Errorf("logits stray %g", worst)
		}
	})
}
