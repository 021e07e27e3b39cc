package oracle

import "slices"

// VerifyRows writes the rows each lane of a cycle verifies to rows: its first, and then those of the largest survivals
// over all lanes, as many as make expected tokens over cost largest. Lane l verifies at most limits[l] rows; a cycle of n
// rows costs base + row n, in any unit, both positive. Equal survivals go to the lower proposal, then to the lower lane;
// where verifying fewer rows is as good, fewer are verified.
//
// With E the expected tokens so far and C their cost, one more row of survival S is taken while S C > E row. E is concave
// in the rows and C linear, so E/C rises until that fails, and falls from there on. Whether a proposal is verified thus
// depends on survivals above its own alone, never on its draw, which keeps sampled lanes exact (draft.md 9.6).
func VerifyRows(rows []int, survival [][Proposals]float64, limits []int, base, row float64) {
	for l := range rows {
		rows[l] = 1
	}
	expected, n := float64(len(rows)), float64(len(rows))
	for {
		l := nextRow(rows, survival, limits)
		if l < 0 {
			return
		}
		s := survival[l][rows[l]-1]
		if !(s > 0) || !(s*(base+row*n) > expected*row) {
			return
		}
		expected += s
		n++
		rows[l]++
	}
}

// nextRow is the lane whose next row survives most, -1 when none may verify more.
func nextRow(rows []int, survival [][Proposals]float64, limits []int) int {
	best := -1
	for l, r := range rows {
		if r >= limits[l] {
			continue
		}
		if best < 0 {
			best = l
			continue
		}
		s, top := survival[l][r-1], survival[best][rows[best]-1]
		if s > top || s == top && r < rows[best] {
			best = l
		}
	}
	return best
}

// refitEvery is the number of cycles between two fits of the acceptance model, over all lane counts.
const refitEvery = 64

// A Budget chooses the rows that the cycles of a target of routed experts verify. It has no clock: times come from the
// caller. It is used by one goroutine.
type Budget struct {
	Model  AcceptanceModel
	Labels LabelRing
	Cycles int // that were learned from
	Refits int

	lines    map[costKey]*CostLine
	survival [][Proposals]float64
}

// costKey names a line: cycles with a constrained lane have lines of their own.
type costKey struct {
	lanes       int
	constrained bool
}

// NewBudget is the budget before any cycle.
func NewBudget() *Budget { return &Budget{Model: Prior(), lines: make(map[costKey]*CostLine)} }

// Line is the cost line of cycles of so many lanes.
func (b *Budget) Line(lanes int, constrained bool) *CostLine {
	key := costKey{lanes, constrained}
	line := b.lines[key]
	if line == nil {
		line = NewCostLine(lanes, constrained)
		b.lines[key] = line
	}
	return line
}

// Lines are copies of the cost lines, by lanes, the unconstrained first.
func (b *Budget) Lines() []CostLine {
	var lines []CostLine
	for _, l := range b.lines {
		lines = append(lines, *l)
	}
	slices.SortFunc(lines, func(a, b CostLine) int {
		if a.Lanes == b.Lanes && b.Constrained {
			return -1
		}
		return a.Lanes - b.Lanes
	})
	return lines
}

// Choose writes the rows each lane of the next cycle verifies to rows, from the confidences of its proposals and its
// limit, min(8, tokens it may still put out).
func (b *Budget) Choose(rows []int, confidence [][]float64, limits []int, constrained bool) {
	line := b.Line(len(rows), constrained)
	if line.Full() {
		copy(rows, limits)
		return
	}
	b.survival = b.survival[:0]
	for _, c := range confidence {
		var s [Proposals]float64
		b.Model.Survival(&s, c)
		b.survival = append(b.survival, s)
	}
	VerifyRows(rows, b.survival, limits, line.Base, line.Row)
}

// EndCycle counts a cycle whose labels have been added to b.Labels, and refits the model at every 64th.
func (b *Budget) EndCycle() {
	b.Cycles++
	if b.Cycles%refitEvery == 0 {
		b.Model = b.Model.Refit(b.Labels.Labels())
		b.Refits++
	}
}
