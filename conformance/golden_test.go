package conformance_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/conformance"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/oracle"
	"splash/planner"
)

var tinyModels = []string{
	"tiny-qwen35-BF16", "tiny-qwen35-Q8_0", "tiny-qwen35-Q4_K_M", "tiny-qwen35-IQ4_XS", "tiny-qwen35-MIX", "tiny-qwen35moe-Q4_K_M",
}

// goldenTolerance is absolute. The golden values are F32 arithmetic, which strays 6e-6 from float64 (fixtures/tiny/README.md).
const goldenTolerance = 1e-4

func tinyPath(name string) string { return filepath.Join("..", "fixtures", "tiny", name) }

// openFile opens a GGUF for as long as the test runs.
func openFile(t testing.TB, path string) (*planner.Plan, planner.Weights) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return planned(t, f)
}

// planned plans an opened GGUF, and closes it when the test ends.
func planned(t testing.TB, f *gguf.File) (*planner.Plan, planner.Weights) {
	t.Helper()
	t.Cleanup(func() { f.Close() })
	p, err := planner.PlanGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	return p, planner.OpenGGUF(f, p)
}

// load opens a GGUF and builds its network on the oracle backend.
func load(t testing.TB, path string, maxRows int, o model.Options) (*planner.Plan, model.Network) {
	t.Helper()
	p, w := openFile(t, path)
	n, err := model.New(reference.New(p, maxRows), p, w, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, n
}

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

func TestGoldenLogits(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			g, err := conformance.ReadGolden(tinyPath(name + ".logits.bin"))
			if err != nil {
				t.Fatal(err)
			}
			taps := []int{0, 1, 2, 3}
			_, n := load(t, tinyPath(name+".gguf"), 64, model.Options{Taps: taps})
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
				t.Errorf("logits stray %g, hidden states %g; %g is allowed", worst, hidden, goldenTolerance)
			}
		})
	}
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
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			_, n := load(t, tinyPath(name+".gguf"), 64, model.Options{})
			lane := newLane(t, n)
			forward(t, n, lane, m.Tokens)
			got := []int32{int32(oracle.Argmax(n.Logits(len(m.Tokens) - 1)))}
			want := m.Files[name].Greedy
			for len(got) < len(want) {
				forward(t, n, lane, got[len(got)-1:])
				got = append(got, int32(oracle.Argmax(n.Logits(0))))
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestCutsAgree runs a prompt in one pass and in every kind of cut: the oracle backend gives the same bits.
func TestCutsAgree(t *testing.T) {
	tokens := readManifest(t).Tokens
	for _, name := range []string{"tiny-qwen35-MIX", "tiny-qwen35moe-Q4_K_M"} {
		_, n := load(t, tinyPath(name+".gguf"), 64, model.Options{})
		cutsAgree(t, name, n, tokens)
	}
}

func cutsAgree(t *testing.T, name string, n model.Network, tokens []int32) {
	want := rowsOf(t, n, tokens, []int{len(tokens)})
	for _, cut := range [][]int{{1}, {3}, {47, 1}, {2, 3, 40, 3}, {7}} {
		if at := firstDifference(want, rowsOf(t, n, tokens, cut)); at >= 0 {
			t.Errorf("%s in passes of %v: the logits of row %d differ", name, cut, at)
		}
	}
}

// firstDifference is the first row whose bits differ, or -1.
func firstDifference(a, b [][]float32) int {
	for i := range a {
		if !slices.Equal(a[i], b[i]) {
			return i
		}
	}
	return -1
}

// rowsOf returns the logits of every token, in passes of the given sizes, the last of which repeats.
func rowsOf(t *testing.T, n model.Network, tokens []int32, cut []int) [][]float32 {
	t.Helper()
	lane := newLane(t, n)
	defer n.Backend().FreeLane(lane)
	var out [][]float32
	for i := 0; len(tokens) > 0; i++ {
		size := min(cut[min(i, len(cut)-1)], len(tokens))
		forward(t, n, lane, tokens[:size])
		for j := range size {
			out = append(out, append([]float32(nil), n.Logits(j)...))
		}
		tokens = tokens[size:]
	}
	return out
}

// TestRollback takes back every number of rows of a segment of every length up to 12, then goes on: what follows has the
// same bits as if the rows had never been.
func TestRollback(t *testing.T) {
	tokens := readManifest(t).Tokens
	for _, name := range []string{"tiny-qwen35-Q8_0", "tiny-qwen35moe-Q4_K_M"} {
		_, n := load(t, tinyPath(name+".gguf"), 64, model.Options{})
		rollsBack(t, name, n, tokens, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	}
}

func rollsBack(t *testing.T, name string, n model.Network, tokens []int32, segments ...int) {
	want := rowsOf(t, n, tokens[:40], []int{40})
	for _, rows := range segments {
		for back := 0; back <= min(rows, model.RollbackRows); back++ {
			lane := newLane(t, n)
			forward(t, n, lane, tokens[:10])
			wrong := append([]int32(nil), tokens[10:10+rows-back]...)
			for i := range back {
				wrong = append(wrong, int32(100+i))
			}
			forward(t, n, lane, wrong)
			if err := n.Backend().Rollback(lane, back); err != nil {
				t.Fatal(err)
			}
			at := 10 + rows - back
			forward(t, n, lane, tokens[at:at+5])
			for i := range 5 {
				if !slices.Equal(want[at+i], n.Logits(i)) {
					t.Fatalf("%s: %d of %d rows taken back: row %d differs", name, back, rows, at+i)
				}
			}
			n.Backend().FreeLane(lane)
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

// TestLanesShareAPass runs several lanes in one pass: each gets the bits it gets alone.
func TestLanesShareAPass(t *testing.T) {
	tokens := readManifest(t).Tokens
	for _, name := range []string{"tiny-qwen35-Q4_K_M", "tiny-qwen35moe-Q4_K_M"} {
		_, n := load(t, tinyPath(name+".gguf"), 128, model.Options{})
		lanesShareAPass(t, name, n, tokens)
	}
}

func lanesShareAPass(t *testing.T, name string, n model.Network, tokens []int32) {
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
			got = append(got, append([]float32(nil), n.Logits(at)...))
			at++
		}
		if firstDifference(want[i], got) >= 0 {
			t.Errorf("%s: lane %d beside others differs from itself alone", name, i)
		}
	}
}
