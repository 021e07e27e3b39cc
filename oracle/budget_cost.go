package oracle

import (
	"fmt"
	"math"
	"time"
)

// fullEvery is the number of cycles of a key after which one verifies every row, which keeps the rows of its fit spread.
const fullEvery = 32

// A CostLine is what a cycle of so many lanes costs by its rows: a line, Base + Row n, fitted to about the last 30
// cycles. Its slope is shrunk toward the shape that measured targets share, a cost in proportion to 6 lanes + n.
type CostLine struct {
	Lanes       int
	Constrained bool // some lane of the cycles was
	Cycles      int
	Capped      int     // cycles that counted for less than they took
	Base, Row   float64 // milliseconds; before any cycle the shared shape, in no unit

	weight, rows, times, squares, products float64 // sums over the cycles, each faded by costDecay a cycle
}

const (
	costDecay    = 29.0 / 30
	sharedShape  = 6  // rows' worth a lane that a cycle costs before its first row
	shrinkage    = 32 // how many lanes' squared rows the shared shape weighs
	minRowShare  = 0.02
	maxRowShare  = 0.9
	stalledShare = 2 // a cycle counts for at most so many times what was to be expected
)

// NewCostLine is a line before any cycle.
func NewCostLine(lanes int, constrained bool) *CostLine {
	return &CostLine{Lanes: lanes, Constrained: constrained, Base: sharedShape * float64(lanes), Row: 1}
}

// Full reports whether the next cycle is to verify every row: the 32nd, the 64th and so on.
func (c *CostLine) Full() bool { return (c.Cycles+1)%fullEvery == 0 }

// Mean is the mean of the cycles' rows and of their milliseconds; zeros before any.
func (c *CostLine) Mean() (rows, ms float64) {
	if c.weight == 0 {
		return 0, 0
	}
	return c.rows / c.weight, c.times / c.weight
}

// Observe takes a cycle of so many rows in all that took ms milliseconds into the fit, and returns the time it counted
// for: at most twice the larger of the line's cost at its rows and the mean, so that one stalled cycle does not tilt the
// line until the next ones verify anchors alone; the mean keeps that bound up where the line has fallen. A time that is
// not positive and finite is not counted, and 0 is returned.
func (c *CostLine) Observe(rows int, ms float64) (counted float64) {
	if !(ms > 0) || math.IsInf(ms, 1) || rows < 1 {
		return 0
	}
	n := float64(rows)
	counted = ms
	if c.Cycles > 0 {
		_, mean := c.Mean()
		counted = math.Min(ms, stalledShare*math.Max(c.Base+c.Row*n, mean))
	}
	if counted < ms {
		c.Capped++
	}
	c.Cycles++
	c.weight = costDecay*c.weight + 1
	c.rows = costDecay*c.rows + n
	c.times = costDecay*c.times + counted
	c.squares = costDecay*c.squares + n*n
	c.products = costDecay*c.products + n*counted
	c.fit()
	return counted
}

func (c *CostLine) fit() {
	lanes := float64(c.Lanes)
	rows, mean := c.Mean()
	sxx := math.Max(c.squares-c.weight*rows*rows, 0)
	sxy := c.products - c.weight*rows*mean
	shared := mean / (sharedShape*lanes + rows)
	row := (sxy + shrinkage*lanes*shared) / (sxx + shrinkage*lanes)
	c.Row = math.Min(math.Max(row, minRowShare*mean/rows), maxRowShare*mean/rows)
	c.Base = mean - c.Row*rows
}

// A StallLog words the cycles that counted for less than half their time, at most once a minute.
type StallLog struct {
	last time.Time
	held int
}

// Note returns the line to log for a cycle that ended at now, and whether there is one.
func (s *StallLog) Note(now time.Time, ms float64, rows int, counted float64) (line string, ok bool) {
	if counted <= 0 || counted >= ms/2 {
		return "", false
	}
	if !s.last.IsZero() && now.Sub(s.last) < time.Minute {
		s.held++
		return "", false
	}
	line = fmt.Sprintf("Verify budget: a cycle of %.0f ms at %d rows counted as %.0f ms", ms, rows, counted)
	if s.held > 0 {
		line += fmt.Sprintf(" (%d more in the last minute)", s.held)
	}
	s.last, s.held = now, 0
	return line, true
}
