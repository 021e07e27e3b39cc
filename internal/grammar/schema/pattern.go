package schema

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	// errIrregular says that a pattern has what no regular language has, or Go's package regexp.
	errIrregular = errors.New("the pattern has look-around, back-references or other means that no automaton has")
	errLarge     = errors.New("the pattern's automaton is too large")
)

const (
	maxPattern = 4096 // bytes of a pattern
	// maxPatternStates bounds a pattern's automaton, and maxPatternWork what it takes to make it.
	maxPatternStates = 3000
	maxPatternWork   = 5_000_000
)

// translate returns the pattern of ECMA-262, which JSON Schema uses, in Go's syntax. What both spell alike is left, and
// what Go does not know is an error there.
func translate(pattern string) (string, error) {
	if len(pattern) > maxPattern {
		return "", errLarge
	}
	t := translator{rest: pattern}
	for t.rest != "" {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

type translator struct {
	rest    string
	out     strings.Builder
	inClass bool
}

// ecmaSpace is \s of ECMA-262 inside a class: WhiteSpace and LineTerminator.
const ecmaSpace = `\t-\r \x{A0}\x{FEFF}\x{2028}\x{2029}\p{Zs}`

func (t *translator) next() error {
	c := t.rest[0]
	switch {
	case c == '\\':
		return t.escape()
	case t.inClass && c == ']':
		t.inClass = false
	case t.inClass && c == '[':
		t.take(1, `\[`)
		return nil
	case t.inClass:
	case strings.HasPrefix(t.rest, "[^]"):
		t.take(3, `[\x{0}-\x{10FFFF}]`)
		return nil
	case strings.HasPrefix(t.rest, "[]"):
		t.take(2, `[^\x{0}-\x{10FFFF}]`)
		return nil
	case c == '[':
		t.inClass = true
		if strings.HasPrefix(t.rest, "[^") {
			t.take(2, "[^")
			return nil
		}
	case c == '.':
		t.take(1, `[^\n\r\x{2028}\x{2029}]`)
		return nil
	case strings.HasPrefix(t.rest, "(?=") || strings.HasPrefix(t.rest, "(?!") ||
		strings.HasPrefix(t.rest, "(?<=") || strings.HasPrefix(t.rest, "(?<!"):
		return errIrregular
	}
	t.take(1, t.rest[:1])
	return nil
}

func (t *translator) take(n int, out string) {
	t.rest = t.rest[n:]
	t.out.WriteString(out)
}

func (t *translator) escape() error {
	if len(t.rest) < 2 {
		return errIrregular
	}
	c := t.rest[1]
	switch c {
	case 's', 'S':
		return t.space(c == 'S')
	case 'd', 'D', 'w', 'W', 't', 'n', 'v', 'f', 'r':
		t.take(2, t.rest[:2])
	case 'b', 'B':
		if !t.inClass {
			return errIrregular // a word boundary
		}
		t.take(2, map[byte]string{'b': `\x08`, 'B': "B"}[c])
	case 'p', 'P':
		return t.property()
	case 'c':
		if len(t.rest) < 3 || !isLetter(t.rest[2]) {
			return errIrregular
		}
		t.take(3, fmt.Sprintf(`\x{%X}`, t.rest[2]&31))
	case 'x':
		return t.code(2, 2)
	case 'u':
		if end := strings.IndexByte(t.rest, '}'); strings.HasPrefix(t.rest, `\u{`) && end > 3 {
			return t.code(3, end-3)
		}
		return t.code(2, 4)
	case '0':
		t.take(2, `\x{0}`)
	case 'k', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return errIrregular
	default:
		r, n := utf8.DecodeRuneInString(t.rest[1:])
		t.take(1+n, fmt.Sprintf(`\x{%X}`, r)) // the character itself
	}
	return nil
}

// space writes \s or \S.
func (t *translator) space(not bool) error {
	switch {
	case t.inClass && not:
		return errIrregular // Go has no class that takes it
	case t.inClass:
		t.take(2, ecmaSpace)
	case not:
		t.take(2, "[^"+ecmaSpace+"]")
	default:
		t.take(2, "["+ecmaSpace+"]")
	}
	return nil
}

// code writes a character given by hexadecimal digits. Two escapes may be the halves of one.
func (t *translator) code(at, n int) error {
	r, ok := hexRune(t.rest, at, n)
	if !ok {
		return errIrregular
	}
	length := at + n
	if n > 4 || t.rest[at-1] == '{' {
		length++
	} else if n == 4 && 0xD800 <= r && r < 0xDC00 && strings.HasPrefix(t.rest[length:], `\u`) {
		low, ok := hexRune(t.rest, length+2, 4)
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return errIrregular
		}
		r = 0x10000 + (r-0xD800)<<10 + low - 0xDC00
		length += 6
	}
	if r > lastRune || 0xD800 <= r && r < 0xE000 {
		return errIrregular
	}
	t.take(length, fmt.Sprintf(`\x{%X}`, r))
	return nil
}

func hexRune(s string, at, n int) (rune, bool) {
	if len(s) < at+n || n > 8 {
		return 0, false
	}
	v, err := strconv.ParseUint(s[at:at+n], 16, 32)
	return rune(v), err == nil && v <= lastRune
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// property writes \p{...}, dropping the names that Go does without.
func (t *translator) property() error {
	end := strings.IndexByte(t.rest, '}')
	if !strings.HasPrefix(t.rest[2:], "{") || end < 0 {
		return errIrregular
	}
	name := t.rest[3:end]
	if _, after, ok := strings.Cut(name, "="); ok {
		name = after
	}
	t.take(end+1, t.rest[:2]+"{"+name+"}")
	return nil
}

// patternAutomaton returns the automaton of the texts in which a pattern occurs.
func patternAutomaton(pattern string) (*dfa, error) {
	p, err := translate(pattern)
	if err != nil {
		return nil, err
	}
	re, err := syntax.Parse(p, syntax.Perl)
	if err != nil {
		return nil, errIrregular
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, errIrregular
	}
	return determinize(prog)
}

// A determinizer makes an automaton of a program of package regexp/syntax by the subset construction. Its states are sets
// of instructions that consume a character. A set that has reached the program's end is one that takes everything, since
// a pattern may occur anywhere.
type determinizer struct {
	dfa
	prog   *syntax.Prog
	number map[string]int
	sets   [][]uint32
	work   int

	// Of the set being made.
	seen    []uint8 // by instruction: reached with the ends still open (1), or behind the end of the text (2)
	touched []uint32
	set     []uint32
	matched bool // at any place
	atEnd   bool // if the text ends here
}

func determinize(prog *syntax.Prog) (*dfa, error) {
	for i := range prog.Inst {
		if in := &prog.Inst[i]; in.Op == syntax.InstEmptyWidth &&
			syntax.EmptyOp(in.Arg)&^(syntax.EmptyBeginText|syntax.EmptyEndText) != 0 {
			return nil, errIrregular
		}
	}
	d := &determinizer{prog: prog, number: map[string]int{}, seen: make([]uint8, len(prog.Inst))}
	d.close(uint32(prog.Start), true, false)
	d.finish()
	for s := 0; s < len(d.sets); s++ {
		if err := d.follow(s); err != nil {
			return nil, err
		}
	}
	return &d.dfa, nil
}

// close adds an instruction and those it leads to without a character. Behind the end of the text only the program's end
// counts.
func (d *determinizer) close(pc uint32, start, end bool) {
	bit := uint8(1)
	if end {
		bit = 2
	}
	if d.seen[pc]&bit != 0 {
		return
	}
	if d.seen[pc] == 0 {
		d.touched = append(d.touched, pc)
	}
	d.seen[pc] |= bit
	d.work++
	in := &d.prog.Inst[pc]
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		d.close(in.Out, start, end)
		d.close(in.Arg, start, end)
	case syntax.InstCapture, syntax.InstNop:
		d.close(in.Out, start, end)
	case syntax.InstEmptyWidth:
		op := syntax.EmptyOp(in.Arg)
		if op&syntax.EmptyBeginText == 0 || start {
			d.close(in.Out, start, end || op&syntax.EmptyEndText != 0)
		}
	case syntax.InstMatch:
		if end {
			d.atEnd = true
		} else {
			d.matched = true
		}
	case syntax.InstFail:
	default:
		if !end {
			d.set = append(d.set, pc)
		}
	}
}

// finish returns the state of the set that was made.
func (d *determinizer) finish() int {
	slices.Sort(d.set)
	key := make([]byte, 0, 4*len(d.set)+1)
	switch {
	case d.matched:
		key, d.set = append(key, 'm'), d.set[:0]
	case d.atEnd:
		key = append(key, 'e')
	}
	for _, pc := range d.set {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	n, ok := d.number[string(key)]
	if !ok {
		n = d.state(d.matched || d.atEnd)
		d.number[string(key)] = n
		d.sets = append(d.sets, slices.Clone(d.set))
		if d.matched {
			d.add(n, arc{0, lastRune, n})
		}
	}
	for _, pc := range d.touched {
		d.seen[pc] = 0
	}
	d.touched, d.set, d.matched, d.atEnd = d.touched[:0], d.set[:0], false, false
	return n
}

// follow makes the arcs of a state. Everywhere the pattern may also begin anew.
func (d *determinizer) follow(s int) error {
	if len(d.arcs[s]) > 0 {
		return nil // it takes everything
	}
	type move struct {
		lo, hi rune
		pc     uint32
	}
	var moves []move
	cuts := []rune{0}
	for _, pc := range d.sets[s] {
		in := &d.prog.Inst[pc]
		ranges := instRanges(in)
		for i := 0; i < len(ranges); i += 2 {
			moves = append(moves, move{ranges[i], ranges[i+1], in.Out})
			cuts = append(cuts, ranges[i], ranges[i+1]+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	slices.SortFunc(moves, func(a, b move) int { return int(a.lo - b.lo) })
	first := 0
	for i, lo := range cuts {
		if lo > lastRune {
			break
		}
		hi := rune(lastRune)
		if i+1 < len(cuts) {
			hi = cuts[i+1] - 1
		}
		for first < len(moves) && moves[first].hi < lo {
			first++
		}
		for _, m := range moves[first:] {
			if m.lo > lo {
				break
			}
			d.work++
			if m.hi >= lo {
				d.close(m.pc, false, false)
			}
		}
		d.close(uint32(d.prog.Start), false, false)
		d.add(s, arc{lo, hi, d.finish()})
		if len(d.final) > maxPatternStates || d.work > maxPatternWork {
			return errLarge
		}
	}
	return nil
}

// instRanges returns the characters of an instruction, as pairs.
func instRanges(in *syntax.Inst) []rune {
	switch in.Op {
	case syntax.InstRuneAny:
		return []rune{0, lastRune}
	case syntax.InstRuneAnyNotNL:
		return []rune{0, '\n' - 1, '\n' + 1, lastRune}
	case syntax.InstRune1:
		return folded(in.Rune[0], false)
	}
	if len(in.Rune) == 1 {
		return folded(in.Rune[0], syntax.Flags(in.Arg)&syntax.FoldCase != 0)
	}
	return in.Rune
}

// folded returns a character, with those that differ from it in case alone.
func folded(r rune, fold bool) []rune {
	out := []rune{r, r}
	for f := unicode.SimpleFold(r); fold && f != r; f = unicode.SimpleFold(f) {
		out = append(out, f, f)
	}
	return out
}

// formats are patterns of the formats that grammars keep to: no more than what the format allows.
var formats = map[string]string{
	"date":      "^" + fullDate + "$",
	"time":      "^" + fullTime + "$",
	"date-time": "^" + fullDate + "T" + fullTime + "$",
	"duration":  `^P(?:\d{1,9}W|` + durationDate + `(?:` + durationTime + `)?|` + durationTime + `)$`,
	"uuid":      `^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`,
	"ipv4":      `^(?:` + octet + `\.){3}` + octet + `$`,
	"ipv6":      ipv6Pattern(),
	"hostname":  `^` + hostname + `$`,
	"email":     "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,24}(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,24}){0,1}@" + hostname + "$",
}

const (
	// fullDate is RFC 3339's, with the days that each month has, and February's 29th in leap years.
	fullDate = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])` +
		`|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))` +
		`|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	fullTime     = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	durationDate = `(?:\d{1,9}Y(?:\d{1,9}M(?:\d{1,9}D)?)?|\d{1,9}M(?:\d{1,9}D)?|\d{1,9}D)`
	durationTime = `T(?:\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S)`
	octet        = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	label        = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?`
	hostname     = label + `(?:\.` + label + `){0,4}`
)

// ipv6Pattern lists the ways to leave out groups (RFC 4291, 2.2), without embedded IPv4 addresses.
func ipv6Pattern() string {
	const group = `[0-9a-fA-F]{1,4}`
	alts := []string{`(?:` + group + `:){7}` + group}
	for before := range 8 {
		left, right := "", ""
		if before > 0 {
			left = fmt.Sprintf(`%s(?::%s){%d}`, group, group, before-1)
		}
		if after := 7 - before; after > 0 {
			right = fmt.Sprintf(`(?:%s(?::%s){0,%d})?`, group, group, after-1)
		}
		alts = append(alts, left+"::"+right)
	}
	return "^(?:" + strings.Join(alts, "|") + ")$"
}
