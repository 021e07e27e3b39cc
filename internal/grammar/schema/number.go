package schema

import (
	"encoding/json"
	"strconv"
	"strings"

	"splash/internal/grammar"
)

// maxDigits bounds the digits, and the exponent, of numbers in schemas.
const maxDigits = 400

// A decimal is a number as its digits: integer has no leading zeros, but is "0" for less than one, and fraction no
// trailing ones.
type decimal struct {
	negative          bool
	integer, fraction string
}

// parseDecimal reads a JSON number of moderate size.
func parseDecimal(s string) (decimal, bool) {
	d := decimal{}
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e > maxDigits || e < -maxDigits {
			return d, false
		}
		mantissa, exponent = s[:i], e
	}
	d.integer, d.fraction, _ = strings.Cut(mantissa, ".")
	if len(mantissa) > maxDigits {
		return d, false
	}
	if exponent > 0 {
		d.fraction += strings.Repeat("0", max(0, exponent-len(d.fraction)))
		d.integer, d.fraction = d.integer+d.fraction[:exponent], d.fraction[exponent:]
	} else if exponent < 0 {
		d.integer = strings.Repeat("0", max(0, -exponent-len(d.integer))) + d.integer
		at := len(d.integer) + exponent
		d.integer, d.fraction = d.integer[:at], d.integer[at:]+d.fraction
	}
	d.integer = strings.TrimLeft(d.integer, "0")
	d.fraction = strings.TrimRight(d.fraction, "0")
	if d.integer == "" {
		d.integer = "0"
		d.negative = d.negative && d.fraction != ""
	}
	return d, true
}

func (d decimal) String() string {
	s := d.integer
	if d.negative {
		s = "-" + s
	}
	if d.fraction != "" {
		s += "." + d.fraction
	}
	return s
}

// compare compares two numbers.
func (d decimal) compare(e decimal) int {
	switch {
	case d.negative && !e.negative:
		return -1
	case !d.negative && e.negative:
		return 1
	case d.negative:
		d, e = e, d
	}
	if len(d.integer) != len(e.integer) {
		return len(d.integer) - len(e.integer)
	}
	if c := strings.Compare(d.integer, e.integer); c != 0 {
		return c
	}
	return strings.Compare(d.fraction, e.fraction)
}

// A bound is an end of a range of numbers.
type bound struct {
	decimal
	open bool // the end itself is out
	set  bool
}

// tighten replaces the bound by b where that allows less: a greater one for minima (sign 1), a lesser one for maxima.
func (a *bound) tighten(b bound, sign int) {
	if !b.set {
		return
	}
	if !a.set {
		*a = b
		return
	}
	switch c := sign * b.compare(a.decimal); {
	case c > 0:
		*a = b
	case c == 0:
		a.open = a.open || b.open
	}
}

// numbers describes a set of numbers.
type numbers struct {
	whole      bool // integers alone
	min, max   bound
	multipleOf []decimal
}

// allows reports whether n is one of them.
func (s *numbers) allows(n json.Number) bool {
	d, ok := parseDecimal(string(n))
	if !ok || s.whole && d.fraction != "" {
		return false
	}
	if c := d.compare(s.min.decimal); s.min.set && (c < 0 || c == 0 && s.min.open) {
		return false
	}
	c := d.compare(s.max.decimal)
	return !s.max.set || c < 0 || c == 0 && !s.max.open
}

// step returns the first multipleOf as step * 10^-places.
func (s *numbers) step() (step, places int, ok bool) {
	if len(s.multipleOf) == 0 {
		return 0, 0, false
	}
	m := s.multipleOf[0]
	digits := strings.TrimLeft(m.integer+m.fraction, "0")
	if len(digits) > 4 || len(m.fraction) > 16 {
		return 0, 0, false
	}
	step, err := strconv.Atoi(digits)
	return step, len(m.fraction), err == nil && step > 0 && step <= maxStep
}

const (
	// maxStep is the largest multipleOf, in units of its last digit, that a grammar keeps to.
	maxStep = 1000
	// maxNumberStates bounds the automaton of a set of numbers.
	maxNumberStates = 20_000
)

// A numberState is what is known of a number after some of its characters.
type numberState struct {
	phase    numberPhase
	negative bool
	whole    int // digits before the point, as many as tell bounds apart
	places   int // digits after it, likewise
	min, max int // how the digits so far compare with those of the bounds
	rest     int // what they leave when divided by step
}

type numberPhase uint8

const (
	atStart numberPhase = iota
	afterSign
	afterZero
	inWhole
	afterPoint
	inPlaces
)

// automaton returns the automaton of the numbers' texts, without exponents, or nil where it is too large. What of
// multipleOf it does not keep to is reported.
func (s *numbers) automaton() (d *dfa, enforced bool) {
	step, places, stepped := s.step()
	if !stepped {
		step, places = 1, -1
	}
	m := numberMachine{numbers: s, step: step, places: places}
	d = explore(numberState{}, m.next, m.final, []rune("-.0123456789"), maxNumberStates)
	return d, len(s.multipleOf) == 0 || len(s.multipleOf) == 1 && stepped
}

type numberMachine struct {
	*numbers
	step, places int // places < 0: any
}

func (m *numberMachine) next(s numberState, r rune) (numberState, bool) {
	switch {
	case r == '-':
		s.negative = true
		ok := s.phase == atStart
		s.phase = afterSign
		return s, ok
	case r == '.':
		ok := s.phase == afterZero || s.phase == inWhole
		s.min, s.max = m.wholeCompare(s)
		s.phase = afterPoint
		return s, ok && !m.whole && m.places != 0
	}
	digit := int(r - '0')
	s.rest = (s.rest*10 + digit) % m.step
	switch s.phase {
	case atStart, afterSign:
		s.phase = inWhole
		if digit == 0 {
			s.phase = afterZero
		}
		return m.wholeDigit(s, digit), true
	case inWhole:
		return m.wholeDigit(s, digit), true
	case afterPoint, inPlaces:
		if m.places >= 0 && s.places == m.places {
			return s, false
		}
		s.phase = inPlaces
		s.min = compareDigit(s.min, m.min, m.min.fraction, s.places, digit)
		s.max = compareDigit(s.max, m.max, m.max.fraction, s.places, digit)
		s.places = min(s.places+1, max(len(m.min.fraction), len(m.max.fraction), m.places))
		return s, true
	}
	return s, false
}

func (m *numberMachine) wholeDigit(s numberState, digit int) numberState {
	s.min = compareDigit(s.min, m.min, m.min.integer, s.whole, digit)
	s.max = compareDigit(s.max, m.max, m.max.integer, s.whole, digit)
	s.whole = min(s.whole+1, max(len(m.min.integer), len(m.max.integer))+1)
	return s
}

// compareDigit goes on comparing digits with those of a bound, which zeros follow.
func compareDigit(so int, b bound, digits string, at, digit int) int {
	if !b.set || so != 0 {
		return so
	}
	want := 0
	if at < len(digits) {
		want = int(digits[at] - '0')
	}
	switch {
	case digit < want:
		return -1
	case digit > want:
		return 1
	}
	return 0
}

// wholeCompare compares the digits before the point with those of the bounds, without their signs.
func (m *numberMachine) wholeCompare(s numberState) (least, most int) {
	of := func(so int, b bound) int {
		switch {
		case !b.set:
			return 0
		case s.whole < len(b.integer):
			return -1
		case s.whole > len(b.integer):
			return 1
		}
		return so
	}
	return of(s.min, m.min), of(s.max, m.max)
}

func (m *numberMachine) final(s numberState) bool {
	if s.phase != afterZero && s.phase != inWhole && s.phase != inPlaces {
		return false
	}
	if s.phase != inPlaces {
		s.min, s.max = m.wholeCompare(s)
	}
	rest := s.rest
	for range max(0, m.places-s.places) {
		rest = rest * 10 % m.step
	}
	return rest == 0 && m.within(s, m.min, s.min, 1) && m.within(s, m.max, s.max, -1)
}

// within reports whether a number whose digits compare with those of b as c says is on the right side of it: above for
// sign 1, below for -1.
func (m *numberMachine) within(s numberState, b bound, c, sign int) bool {
	if !b.set {
		return true
	}
	if c == 0 && s.places < len(b.fraction) {
		c = -1
	}
	switch {
	case s.negative != b.negative && b.String() == "0": // -0 is 0, and so is -0.0
		c = -c
	case s.negative && b.negative:
		c = -c
	case s.negative:
		c = -1
	case b.negative:
		c = 1
	}
	return c*sign > 0 || c == 0 && !b.open
}

// integerExpr and numberExpr are JSON's numbers.
func integerExpr() *grammar.Expr {
	digit := grammar.Bytes('0', '9')
	return grammar.Seq(
		grammar.Optional(grammar.Text("-")),
		grammar.Alt(grammar.Text("0"), grammar.Seq(grammar.Bytes('1', '9'), grammar.Repeat(digit, 0, grammar.Unbounded))),
	)
}

func numberExpr() *grammar.Expr {
	digit := grammar.Bytes('0', '9')
	return grammar.Seq(
		integerExpr(),
		grammar.Optional(grammar.Seq(grammar.Text("."), grammar.Repeat(digit, 1, grammar.Unbounded))),
		grammar.Optional(grammar.Seq(
			grammar.Alt(grammar.Text("e"), grammar.Text("E")),
			grammar.Optional(grammar.Alt(grammar.Text("+"), grammar.Text("-"))),
			grammar.Repeat(digit, 1, 3),
		)),
	)
}
