package oracle_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

// Confidences of draft.md 13.8 and their survivals under the prior, to the digits of Python's math module.
var (
	workedConfidence = [][]float64{
		{.9, .8, .6, .95, .5, .7, .4},
		{.99, .97, .2, .9, .9, .9, .9},
	}
	workedSurvival = [][oracle.Proposals]float64{
		{0.86380090713733271, 0.61167890270519187, 0.29139395811105717, 0.26812726713330093, 0.10122894775652543,
			0.059316333296713, 0.017078875448742665},
		{0.98586854485671693, 0.93803675660967767, 0.12350901249763073, 0.10438634688816424, 0.088224407242064096,
			0.074564789986880001, 0.063020065303840744},
	}
)

func TestSurvival(t *testing.T) {
	m := oracle.Prior()
	for lane, confidence := range workedConfidence {
		var s [oracle.Proposals]float64
		m.Survival(&s, confidence)
		wantNear(t, fmt.Sprintf("lane %d", lane), s[:], workedSurvival[lane][:], 1e-12)
	}
	wantNear(t, "p of a later proposal", []float64{m.Probability(3, .95), m.Probability(6, .4)},
		[]float64{0.92015383184819244, 0.28792871203468484}, 1e-12)
	// After a confidence that is no probability nothing survives.
	var s [oracle.Proposals]float64
	m.Survival(&s, []float64{.9, math.NaN(), .9, .9, .9, .9, .9})
	wantNear(t, "after NaN", s[:], []float64{workedSurvival[0][0], 0, 0, 0, 0, 0, 0}, 1e-12)
}

func TestConfidenceLogit(t *testing.T) {
	const most = 8.3175219962871694 // ln 4095
	for _, c := range []struct {
		confidence, want float64
		ok               bool
	}{
		{0.5, 0, true}, {0.75, math.Log(3), true}, {1, most, true}, {0, -most, true}, {1e-9, -most, true},
		{0.99999, most, true}, {math.NaN(), 0, false}, {-1e-9, 0, false}, {1.0000001, 0, false}, {math.Inf(1), 0, false},
	} {
		got, ok := oracle.ConfidenceLogit(c.confidence)
		if ok != c.ok || !near(got, c.want, 1e-12) {
			t.Errorf("logit of %v = %v, %v, want %v, %v", c.confidence, got, ok, c.want, c.ok)
		}
		p := oracle.Prior()
		if got := p.Probability(0, c.confidence); !c.ok && got != 0 {
			t.Errorf("probability at confidence %v is %v, want 0", c.confidence, got)
		}
	}
}

// TestVerifyRows is draft.md 13.9.
func TestVerifyRows(t *testing.T) {
	m := oracle.Prior()
	var nan [oracle.Proposals]float64
	m.Survival(&nan, []float64{.9, math.NaN(), .9, .9, .9, .9, .9})
	for _, c := range []struct {
		name      string
		survival  [][oracle.Proposals]float64
		limits    []int
		base, row float64
		want      []int
	}{
		{"two lanes", workedSurvival, []int{8, 8}, 12, 1, []int{3, 3}},
		{"one limited", workedSurvival, []int{8, 2}, 12, 1, []int{5, 2}},
		{"one lane", workedSurvival[:1], []int{8}, 6, 1, []int{4}},
		{"dear rows", workedSurvival[:1], []int{8}, 20, 8, []int{3}},
		{"rows dearer than all", workedSurvival[:1], []int{8}, 0.01, 100, []int{1}},
		{"rows nearly free", workedSurvival, []int{8, 3}, 100, 1e-9, []int{8, 3}},
		{"NaN", [][oracle.Proposals]float64{nan}, []int{8}, 1e9, 1, []int{2}},
		{"limits of one", workedSurvival, []int{1, 1}, 12, 1, []int{1, 1}},
		{"no lanes", nil, nil, 6, 1, []int{}},
		// Equal survivals are taken all or not at all: E/C is 3/5, 3.5/6, .. with base 2, and 3/9, 3.5/10, .. with base 6.
		{"ties not worth it", halves(3), []int{8, 8, 8}, 2, 1, []int{1, 1, 1}},
		{"ties up to a limit", halves(3), []int{2, 8, 3}, 6, 1, []int{2, 8, 3}},
		// 1/2 * (3 + 1) = 2 = 2 * 1: as good without, so without.
		{"as good without", halves(2), []int{8, 8}, 2, 1, []int{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := make([]int, len(c.limits))
			oracle.VerifyRows(rows, c.survival, c.limits, c.base, c.row)
			if diff := cmp.Diff(c.want, rows); diff != "" {
				t.Errorf("rows (-want +got)\n%s", diff)
			}
		})
	}
}

func halves(lanes int) [][oracle.Proposals]float64 {
	s := make([][oracle.Proposals]float64, lanes)
	for l := range s {
		fill(s[l][:], 0.5)
	}
	return s
}

// TestVerifyRowsBest tries every allocation of rows to one to three lanes, in exact arithmetic: none gives more expected
// tokens over cost than the chosen one, and none as many with fewer rows. Survivals are dyadic, so that the choice itself
// is made of exact numbers, ties included.
func TestVerifyRowsBest(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 0))
	for range 400 {
		lanes := 1 + r.IntN(3)
		survival, limits := make([][oracle.Proposals]float64, lanes), make([]int, lanes)
		for l := range survival {
			limits[l] = 1 + r.IntN(8)
			s := 64
			for j := range survival[l] {
				if r.IntN(3) > 0 {
					s = r.IntN(s + 1)
				}
				survival[l][j] = float64(s) / 64
			}
		}
		base, row := float64(1+r.IntN(40)), float64(1+r.IntN(8))
		rows := make([]int, lanes)
		oracle.VerifyRows(rows, survival, limits, base, row)

		rate := func(rows []int) (*big.Rat, int) {
			expected, n := new(big.Rat), 0
			for l, v := range rows {
				expected.Add(expected, big.NewRat(1, 1))
				for j := range v - 1 {
					expected.Add(expected, new(big.Rat).SetFloat64(survival[l][j]))
				}
				n += v
			}
			cost := new(big.Rat).SetFloat64(base + row*float64(n))
			return expected.Quo(expected, cost), n
		}
		got, total := rate(rows)
		try := make([]int, lanes)
		var visit func(l int)
		visit = func(l int) {
			if l < lanes {
				for try[l] = 1; try[l] <= limits[l]; try[l]++ {
					visit(l + 1)
				}
				return
			}
			other, n := rate(try)
			if order := other.Cmp(got); order > 0 || order == 0 && n < total {
				t.Fatalf("survivals %v, limits %v, cost %v + %v n:\nrows %v give %v, rows %v give %v",
					survival, limits, base, row, rows, got, try, other)
			}
		}
		visit(0)
	}
}

// TestVerifyRowsOwnDraw changes what follows a proposal, as its draw may: whether the proposal is verified does not change.
func TestVerifyRowsOwnDraw(t *testing.T) {
	r := rand.New(rand.NewPCG(96, 0))
	for range 300 {
		survival := make([][oracle.Proposals]float64, 2)
		for l := range survival {
			s := 1.0
			for j := range survival[l] {
				s *= r.Float64()
				survival[l][j] = s
			}
		}
		rows, changed := make([]int, 2), make([]int, 2)
		limits, base := []int{8, 8}, 1+20*r.Float64()
		oracle.VerifyRows(rows, survival, limits, base, 1)
		j := r.IntN(oracle.Proposals)
		for i := j + 1; i < oracle.Proposals; i++ {
			survival[0][i] = survival[0][i-1] * r.Float64()
		}
		oracle.VerifyRows(changed, survival, limits, base, 1)
		if (rows[0] > j+1) != (changed[0] > j+1) {
			t.Fatalf("verification of proposal %d depends on what follows it: rows %v and %v", j, rows, changed)
		}
	}
}

func workedLabels() []oracle.Label {
	var labels []oracle.Label
	for _, l := range []struct {
		j        int
		c        float64
		accepted bool
	}{
		{0, .9, true}, {0, .8, true}, {0, .95, true}, {0, .6, false}, {1, .7, true}, {1, .9, true}, {1, .5, false},
		{2, .85, true}, {2, .4, false}, {3, .99, true}, {3, .9, false},
	} {
		labels = append(labels, label(l.j, l.c, l.accepted))
	}
	return labels
}

func label(j int, confidence float64, accepted bool) oracle.Label {
	logit, _ := oracle.ConfidenceLogit(confidence)
	return oracle.Label{Proposal: j, Logit: logit, Accepted: accepted}
}

func theta(m oracle.AcceptanceModel) []float64 { return append([]float64{m.Slope}, m.Intercept[:]...) }

// TestRefit is draft.md 13.10.
func TestRefit(t *testing.T) {
	m, labels := oracle.Prior(), workedLabels()
	wantNear(t, "F before", []float64{m.LogPosterior(labels)}, []float64{-4.8970417249743683}, 1e-12)
	fit := m.Refit(labels)
	wantNear(t, "fit", theta(fit), []float64{1.0072958317174128, -0.36129970443589166, -0.45923294620253269,
		-0.51465149179664527, -0.70006054282623376, -0.5, -0.5, -0.5}, 1e-12)
	wantNear(t, "F after", []float64{fit.LogPosterior(labels)}, []float64{-4.8091893284783032}, 1e-12)
	if diff := cmp.Diff(oracle.Prior(), m); diff != "" {
		t.Errorf("the fit changed the model it started from (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(oracle.Prior(), oracle.Prior().Refit(nil)); diff != "" {
		t.Errorf("a fit to nothing is not the prior (-want +got)\n%s", diff)
	}
}

// TestRefitDamped starts far from a maximum that is hard to reach: eight steps, five of them halved one to three times.
// Gauss's elimination and Python's math module gave the same path.
func TestRefitDamped(t *testing.T) {
	var labels []oracle.Label
	for _, l := range []struct {
		n, j     int
		c        float64
		accepted bool
	}{{40, 0, .999, false}, {10, 0, .01, true}, {30, 1, .5, true}, {5, 6, .9, false}, {20, 3, 1, true}} {
		for range l.n {
			labels = append(labels, label(l.j, l.c, l.accepted))
		}
	}
	start := oracle.AcceptanceModel{Slope: 4, Intercept: [7]float64{6, 6, 6, 6, 6, 6, 6}}
	// The slope found is -0.104, and clamped.
	wantNear(t, "fit", theta(start.Refit(labels)), []float64{0.05, -0.7662818924071356, 1.2154870959946833, -0.5,
		1.3755303314924414, -0.5, -0.5, -0.8234332135445492}, 1e-9)
}

// TestRefitClamps has a target accept what has no confidence, while elsewhere confidence is right: Python finds a slope of
// 0.922 and an intercept of 8.22, and with all of it the other way round 0.937 and -8.36.
func TestRefitClamps(t *testing.T) {
	for _, c := range []struct {
		low      float64
		accepted bool
		want     []float64
	}{
		{.0067, true, []float64{0.9224135732490026, 6, -0.04942374526024003}},
		{1 - .0067, false, []float64{0.9370796400475466, -6, -0.05241739686599272}},
	} {
		var labels []oracle.Label
		for range 1300 {
			labels = append(labels, label(0, c.low, c.accepted), label(1, .99, true), label(1, .01, false))
		}
		wantNear(t, "fit", theta(oracle.Prior().Refit(labels))[:3], c.want, 1e-9)
	}
}

// TestRefitMaximum moves every parameter of fits to random labels: the posterior falls, wherever the fit started.
func TestRefitMaximum(t *testing.T) {
	r := rand.New(rand.NewPCG(94, 0))
	for range 20 {
		truth := oracle.AcceptanceModel{Slope: 0.5 + r.Float64()}
		for j := range truth.Intercept {
			truth.Intercept[j] = r.NormFloat64()
		}
		var labels []oracle.Label
		for range 500 {
			j, c := r.IntN(oracle.Proposals), r.Float64()
			labels = append(labels, label(j, c, r.Float64() < truth.Probability(j, c)))
		}
		fit := oracle.Prior().Refit(labels)
		top := fit.LogPosterior(labels)
		for k := range 8 {
			for _, step := range []float64{-1e-3, 1e-3} {
				moved := fit
				if k == 0 {
					moved.Slope += step
				} else {
					moved.Intercept[k-1] += step
				}
				if moved.LogPosterior(labels) >= top {
					t.Errorf("parameter %d: %v above does not lower the posterior", k, step)
				}
			}
		}
		wantNear(t, "fit from the fit", theta(fit.Refit(labels)), theta(fit), 1e-6)
	}
}

func TestRefitNotFinite(t *testing.T) {
	m := oracle.Prior()
	labels := append(workedLabels(), oracle.Label{Proposal: 2, Logit: math.NaN(), Accepted: true})
	if diff := cmp.Diff(m, m.Refit(labels)); diff != "" {
		t.Errorf("a fit that is not finite is kept (-want +got)\n%s", diff)
	}
}

// TestLabels holds what a lane's cycle teaches to draft.md 9.3.
func TestLabels(t *testing.T) {
	nan := math.NaN()
	plain := []float64{.6, .7, .8, .9, .5, .4, .3}
	type outcome struct {
		J int
		Y bool
	}
	for _, c := range []struct {
		name                       string
		confidence                 []float64
		verify, accepted, retained int
		want                       []outcome
	}{
		{"all accepted", plain, 8, 7, 8, []outcome{{0, true}, {1, true}, {2, true}, {3, true}, {4, true}, {5, true}, {6, true}}},
		{"one rejected", plain, 8, 2, 3, []outcome{{0, true}, {1, true}, {2, false}}},
		{"first rejected", plain, 8, 0, 1, []outcome{{0, false}}},
		{"all verified accepted", plain, 3, 2, 3, []outcome{{0, true}, {1, true}}},
		{"anchor alone", plain, 1, 0, 1, nil},
		{"a stop among the accepted", plain, 8, 5, 2, []outcome{{0, true}, {1, true}}},
		{"a stop as the correction", plain, 8, 2, 3, []outcome{{0, true}, {1, true}, {2, false}}},
		{"a stop as the last accepted", plain, 8, 2, 2, []outcome{{0, true}, {1, true}}},
		{"NaN among the accepted", []float64{.6, nan, .8, .9, .5, .4, .3}, 8, 3, 4, []outcome{{0, true}, {2, true}, {3, false}}},
		{"NaN rejected", []float64{.6, nan, .8, .9, .5, .4, .3}, 8, 1, 2, []outcome{{0, true}}},
		{"no probability", []float64{1.5, -1, .8, .9, .5, .4, .3}, 8, 2, 3, []outcome{{2, false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ring oracle.LabelRing
			ring.AddCycle(c.confidence, c.verify, c.accepted, c.retained)
			var got []outcome
			for _, l := range ring.Labels() {
				got = append(got, outcome{l.Proposal, l.Accepted})
				p := c.confidence[l.Proposal]
				wantNear(t, "logit", []float64{l.Logit}, []float64{math.Log(p / (1 - p))}, 1e-12)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
		})
	}
}

func TestLabelRing(t *testing.T) {
	var ring oracle.LabelRing
	for i := range 4097 + 10 {
		ring.Add(oracle.Label{Logit: float64(i)})
		if want := min(i+1, 4096); len(ring.Labels()) != want {
			t.Fatalf("%d labels after %d, want %d", len(ring.Labels()), i+1, want)
		}
	}
	kept := make(map[float64]bool)
	for _, l := range ring.Labels() {
		kept[l.Logit] = true
	}
	if kept[10] || !kept[11] || !kept[4106] || len(kept) != 4096 {
		t.Error("the ring does not keep the last 4096 labels")
	}
}

// TestCostLine is draft.md 13.11, with further digits of the same formulas in Python.
func TestCostLine(t *testing.T) {
	c := oracle.NewCostLine(1, false)
	rows, mean := c.Mean()
	wantNear(t, "before any cycle", []float64{c.Base, c.Row, rows, mean}, []float64{6, 1, 0, 0}, 0)
	for i, o := range []struct {
		rows                            int
		ms                              float64
		counted, meanRows, mean, a, row float64
	}{
		{8, 20, 20, 8, 20, 8.5714285714285712, 1.4285714285714286},
		{4, 14, 14, 5.9661016949152543, 16.949152542372879, 8.4002235455088528, 1.4329170761789134},
		{3, 13.5, 13.5, 4.943699731903485, 15.760245116813481, 8.7653036232747006, 1.4149203780314346},
		{6, 17, 17, 5.2213514539666459, 16.086118439626553, 8.7419817268108364, 1.4065585849878763},
		{2, 11, 11, 4.5326744176532658, 14.998781952628908, 8.5274288333604353, 1.4277118811059304},
		{5, 90, 31.331976477780174, 4.6173091823207209, 17.956796936448679, 10.095425102623516, 1.7025872696430377},
		{3, 13, 13, 4.3621172279995557, 17.174673944003651, 9.5949593034611276, 1.7376228662287789},
		{8, 21, 21, 4.8725995193294365, 17.711459028223146, 9.9040658865987226, 1.6023055271940083},
	} {
		counted := c.Observe(o.rows, o.ms)
		rows, mean := c.Mean()
		wantNear(t, fmt.Sprintf("cycle %d", i), []float64{counted, rows, mean, c.Base, c.Row},
			[]float64{o.counted, o.meanRows, o.mean, o.a, o.row}, 1e-12)
	}
	if c.Cycles != 8 || c.Capped != 1 {
		t.Errorf("%d cycles, %d capped, want 8 and 1", c.Cycles, c.Capped)
	}
	for _, ms := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		before := *c
		if got := c.Observe(4, ms); got != 0 || *c != before {
			t.Errorf("a cycle of %v ms counted as %v", ms, got)
		}
	}
	before := *c
	if c.Observe(0, 10) != 0 || *c != before {
		t.Error("a cycle without rows counted")
	}
}

// TestCostLineFinds gives the line what costs exactly 7 + 3 n for one lane: with spread rows the fit comes near that, and
// with one row count it keeps the shared shape through the mean.
func TestCostLineFinds(t *testing.T) {
	c := oracle.NewCostLine(1, false)
	for i := range 200 {
		n := 1 + i%8
		c.Observe(n, 7+3*float64(n))
	}
	if math.Abs(c.Row-3) > 0.3 || math.Abs(c.Base+c.Row*4.5-20.5) > 0.5 {
		t.Errorf("line %.3f + %.3f n, want nearly 7 + 3 n", c.Base, c.Row)
	}
	c = oracle.NewCostLine(2, false)
	for range 100 {
		c.Observe(4, 32)
	}
	// 32 / (6*2 + 4) a row.
	wantNear(t, "shared shape", []float64{c.Row, c.Base}, []float64{2, 24}, 1e-9)

	// Rows that seem to cost less than nothing, or all there is: the slope keeps its bounds.
	for name, slope := range map[string]float64{"falling": -40, "steep": 1000} {
		c = oracle.NewCostLine(1, false)
		for i := range 100 {
			n := 1 + i%8
			c.Observe(n, 500+slope*float64(n))
			if rows, mean := c.Mean(); c.Row < 0.0199*mean/rows || c.Row > 0.9001*mean/rows || c.Base <= 0 {
				t.Fatalf("%s: line %v + %v n at mean %v, %v", name, c.Base, c.Row, rows, mean)
			}
		}
	}
}

// TestStall puts one cycle of ten times the usual length among others: it counts for twice the usual at most, the rows of
// the next cycles stay, and the line comes back.
func TestStall(t *testing.T) {
	rowsOf := func(c *oracle.CostLine) int {
		rows := []int{0}
		oracle.VerifyRows(rows, workedSurvival[1:], []int{8}, c.Base, c.Row)
		return rows[0]
	}
	cost := func(n int) float64 { return 20 + 3*float64(n) }
	c := oracle.NewCostLine(1, false)
	for i := range 60 {
		n := 1 + i*3%8
		c.Observe(n, cost(n))
	}
	usual, row := rowsOf(c), c.Row
	if usual < 3 {
		t.Fatalf("%d rows before the stall", usual)
	}
	_, mean := c.Mean()
	bound := 2 * max(c.Base+8*c.Row, mean)
	wantNear(t, "counted", []float64{c.Observe(8, 440)}, []float64{bound}, 0)
	if got := rowsOf(c); got < usual-1 {
		t.Errorf("%d rows after the stall, %d before", got, usual)
	}
	for i := range 60 {
		n := 1 + i*3%8
		c.Observe(n, cost(n))
	}
	if math.Abs(c.Row-row) > 0.25 || rowsOf(c) != usual {
		t.Errorf("the line does not come back: row %v, before %v", c.Row, row)
	}
}

// TestFallenLine measures a cycle where the line is far below the mean: the mean bounds it. And costs that rise for good
// are followed, though every cycle is bounded at first.
func TestFallenLine(t *testing.T) {
	c := oracle.NewCostLine(1, false)
	for i := range 64 {
		n := 1 + i%8
		c.Observe(n, 1+10*float64(n))
	}
	_, mean := c.Mean()
	if line := c.Base + c.Row; 2*line > 40 || mean < 40 {
		t.Fatalf("the line says %v for one row, the mean is %v", line, mean)
	}
	wantNear(t, "counted", []float64{c.Observe(1, 80)}, []float64{80}, 0)

	c = oracle.NewCostLine(1, false)
	for range 40 {
		c.Observe(3, 10)
	}
	for range 160 {
		c.Observe(3, 100)
	}
	if got := c.Base + 3*c.Row; got < 95 {
		t.Errorf("after 160 cycles of 100 ms the line says %v", got)
	}
}

func TestStallLog(t *testing.T) {
	var s oracle.StallLog
	start := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after       time.Duration
		ms, counted float64
		want        string
	}{
		{0, 90, 46, ""}, // counted at half or more
		{0, 90, 45, ""}, // at half
		{0, 90, 0, ""},  // not counted at all
		{time.Second, 90, 31.33, "Verify budget: a cycle of 90 ms at 5 rows counted as 31 ms"},
		{2 * time.Second, 90, 30, ""},
		{40 * time.Second, 90, 30, ""},
		{60 * time.Second, 90, 30, ""},
		{61 * time.Second, 200, 60, "Verify budget: a cycle of 200 ms at 5 rows counted as 60 ms (3 more in the last minute)"},
		{120 * time.Second, 90, 80, ""},
		{121 * time.Second, 100, 20, "Verify budget: a cycle of 100 ms at 5 rows counted as 20 ms"},
	} {
		line, ok := s.Note(start.Add(c.after), c.ms, 5, c.counted)
		if line != c.want || ok != (c.want != "") {
			t.Errorf("after %v: %q, want %q", c.after, line, c.want)
		}
	}
}

// TestBudget runs the whole budget on a virtual clock: what a cycle costs and accepts is set, and confidences are random.
func TestBudget(t *testing.T) {
	b := oracle.NewBudget()
	r := rand.New(rand.NewPCG(1, 2))
	truth := oracle.AcceptanceModel{Slope: 1.4, Intercept: [7]float64{.5, .4, .3, .2, .1, 0, -.1}}
	limits, rows := []int{8, 6}, make([]int, 2)
	confidence := [][]float64{make([]float64, 7), make([]float64, 7)}
	for cycle := 1; cycle <= 640; cycle++ {
		for l := range confidence {
			for j := range confidence[l] {
				confidence[l][j] = r.Float64()
			}
		}
		b.Choose(rows, confidence, limits, false)
		if full := cycle%32 == 0; full && !cmp.Equal(rows, limits) {
			t.Errorf("cycle %d verifies %v of %v rows", cycle, rows, limits)
		}
		total := 0
		for l, v := range rows {
			if v < 1 || v > limits[l] {
				t.Fatalf("cycle %d: lane %d verifies %d rows", cycle, l, v)
			}
			accepted := 0
			for accepted < v-1 && r.Float64() < truth.Probability(accepted, confidence[l][accepted]) {
				accepted++
			}
			b.Labels.AddCycle(confidence[l], v, accepted, accepted+1)
			total += v
		}
		b.EndCycle()
		b.Line(2, false).Observe(total, 12+2*float64(total))
		if want := cycle / 64; b.Refits != want {
			t.Fatalf("%d fits after %d cycles, want %d", b.Refits, cycle, want)
		}
	}
	if math.Abs(b.Model.Slope-1.4) > 0.35 || math.Abs(b.Model.Intercept[0]-.5) > 0.4 {
		t.Errorf("the model learned %+v", b.Model)
	}
	if line := b.Line(2, false); math.Abs(line.Row-2) > 0.3 {
		t.Errorf("the line learned %v + %v n", line.Base, line.Row)
	}
}

// TestBudgetLines keeps lane counts, and constrained cycles, apart, each with full cycles of its own.
func TestBudgetLines(t *testing.T) {
	b := oracle.NewBudget()
	for range 31 {
		b.Line(2, true).Observe(5, 50)
	}
	low := [][]float64{make([]float64, 7), make([]float64, 7)}
	rows := make([]int, 2)
	b.Choose(rows, low, []int{8, 7}, false)
	if !cmp.Equal(rows, []int{1, 1}) {
		t.Errorf("an unconstrained cycle verifies %v", rows)
	}
	b.Choose(rows, low, []int{8, 7}, true)
	if !cmp.Equal(rows, []int{8, 7}) {
		t.Errorf("the 32nd constrained cycle verifies %v", rows)
	}
	b.Line(1, false).Observe(3, 9)
	var got []string
	for _, l := range b.Lines() {
		got = append(got, fmt.Sprint(l.Lanes, l.Constrained, l.Cycles))
	}
	if diff := cmp.Diff([]string{"1 false 1", "2 false 0", "2 true 31"}, got); diff != "" {
		t.Errorf("lines (-want +got)\n%s", diff)
	}
}

func TestBudgetAllocations(t *testing.T) {
	b := oracle.NewBudget()
	rows, limits := make([]int, 2), []int{8, 8}
	for range oracle.MaxLabels {
		b.Labels.Add(oracle.Label{})
	}
	cycle := func() {
		b.Choose(rows, workedConfidence, limits, false)
		b.Labels.AddCycle(workedConfidence[0], rows[0], 0, 1)
		b.Line(2, false).Observe(rows[0]+rows[1], 20)
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("a cycle allocates %v times", n)
	}
}
