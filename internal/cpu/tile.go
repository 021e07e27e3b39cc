package cpu

// A product in integers multiplies tiles of weights by panels of activations, unit after unit of 32 columns:
//
//	acc = rn(acc + dx v), v = sum over the groups of the unit of rn(c ws), c = sum over the group of code x_code
//
// with c exact, ws the float32 scale of the group's weights, dx that of the unit's activations; and, in formats with
// minima, acc = rn(acc - m s) for each group, s = rn(dx sum of x_code). Products and sums are fused or not as the level
// has it. The order is that of the columns, whatever the level, so a row's result depends on nothing beside it.
const (
	unit      = 32
	spanUnits = 16 // of a tile
)

// A tile is columns of up to lanes rows of weights, in the order that the level's kernels read: for every group the codes
// of four columns of all lanes one after another, and the scales and minima of all lanes. The generic level keeps a row's
// codes together.
type tile struct {
	units  int
	group  int // columns that share a scale: 16 or 32
	minima bool
	codes  []byte
	scales []float32
	mins   []float32

	ahead uintptr // what is multiplied next, and how much of it for a unit
	step  int
}

// shape makes room for units of lanes rows.
func (t *tile) shape(f *blockFormat, lanes, units int) {
	if t.codes == nil {
		t.codes = aligned[byte](lanes * spanUnits * unit)
		t.scales = floats(lanes * spanUnits * 2)
		t.mins = floats(lanes * spanUnits * 2)
	}
	t.units, t.group, t.minima = units, f.group, f.minima
}

// A panel is rows of activations, rounded: code = rint(x 127 / max |x|) in a unit of scale max |x| / 127. The codes of four
// columns of all rows lie side by side, then those of the next four; the scales of a unit and the sums of a group too. In a
// panel of tileRows rows the codes of a unit's 32 columns lie side by side instead.
type panel struct {
	first, rows int // its place among the rows of the pass

	group  int // of the weights it is multiplied by
	minima bool
	bias   int32 // that the level adds to the codes of such weights

	codes  []int8
	scales []float32
	sums   []float32 // scale times the sum of a group's codes, for formats with minima
	biases []int32   // -bias times the sum of a group's codes
}

// tileRows is the number of rows of a panel that processors with tiles multiply.
const tileRows = 16

// strip is n of the panel's columns, from col on, both of which are whole units.
func (p *panel) strip(col, n int) panel {
	s, units, groups := *p, col/unit*p.rows, col/p.group*p.rows
	s.codes = p.codes[col*p.rows:][:n*p.rows]
	s.scales = p.scales[units:][:n/unit*p.rows]
	s.sums = p.sums[groups:][:n/p.group*p.rows]
	s.biases = p.biases[groups:][:n/p.group*p.rows]
	return s
}

// at is the place of a code of a row.
func (p *panel) at(row, col int) int {
	n := 4
	if p.rows == tileRows {
		n = unit
	}
	return col/n*n*p.rows + row*n + col%n
}

// natural is columns of one row of weights as a format unpacks them: signed codes in order, a scale and, in formats with
// minima, a minimum for each group. A weight is code scale - minimum.
type natural struct {
	codes  [spanUnits * unit]byte // int8
	scales [spanUnits * 2]float32
	mins   [spanUnits * 2]float32
}

// rows are n rows in natural order.
func (w *worker) rows(n int) []natural {
	if w.natural == nil {
		w.natural = make([]natural, n)
	}
	return w.natural
}
