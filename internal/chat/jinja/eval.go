package jinja

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	engine "github.com/ardanlabs/jinja"

	"splash/internal/chat/ojson"
)

// maxDepth bounds how deeply macros call each other and values nest. A macro's own nesting is bounded where it is
// parsed and compiled, so the stack is bounded too.
const maxDepth = 100

// maxRange is the longest range, as in Jinja's sandbox.
const maxRange = 100_000

// A renderer is one run of a template: what it may still spend, and where it is. Its methods give up by panicking with
// an *Error, which Render recovers.
type renderer struct {
	ctx      context.Context
	now      func() time.Time
	nodes    []node
	outMax   int
	written  int // bytes of output outside macros and set blocks
	captures int // macros and set blocks being run
	steps    int // left
	memory   int // left
	depth    int
	line     int
	held     []any                  // left operands of and and or that are their values
	changed  map[*engine.Dict][]any // the last arguments of each loop's changed
}

func newRenderer(ctx context.Context, opt Options) *renderer {
	or := func(n, def int) int {
		if n == 0 {
			return def
		}
		return n
	}
	r := &renderer{
		ctx:    ctx,
		now:    opt.Now,
		outMax: or(opt.Limits.Output, DefaultLimits.Output),
		steps:  or(opt.Limits.Steps, DefaultLimits.Steps),
		memory: or(opt.Limits.Memory, DefaultLimits.Memory),
		line:   1,
	}
	if r.now == nil {
		r.now = time.Now
	}
	return r
}

func (r *renderer) fail(kind, format string, args ...any) {
	panic(&Error{Line: r.line, Kind: kind, Msg: fmt.Sprintf(format, args...)})
}

func (r *renderer) limit(what string) { r.fail(KindLimit, "the template %s", what) }

// checkEvery is how many steps pass between two looks at the context.
const checkEvery = 4096

// step counts one evaluation.
func (r *renderer) step() { r.count(1) }

func (r *renderer) count(n int) {
	before := r.steps / checkEvery
	r.steps -= n
	if r.steps < 0 {
		r.limit("takes too many steps")
	}
	if r.steps/checkEvery != before {
		if err := r.ctx.Err(); err != nil {
			panic(&Error{Line: r.line, Kind: KindCanceled, Msg: err.Error(), err: err})
		}
	}
}

// read counts an operation that goes through n bytes.
func (r *renderer) read(n int) { r.count(1 + n/32) }

// spend counts n bytes that are about to be built, or just were where their number was bounded before.
func (r *renderer) spend(n int) {
	if n < 0 || n > r.memory {
		r.limit("builds too much text")
	}
	r.memory -= n
	r.read(n)
}

// enter counts a level of recursion until leave.
func (r *renderer) enter() {
	if r.depth++; r.depth > maxDepth {
		r.limit("nests too deeply")
	}
}

func (r *renderer) leave() { r.depth-- }

// write counts text that the template writes.
func (r *renderer) write(s string) string {
	if r.captures == 0 {
		if r.written += len(s); r.written > r.outMax {
			r.limit("writes too much")
		}
	}
	r.spend(len(s))
	return s
}

// undefined fails when v is undefined.
func (r *renderer) undefined(v any) {
	if u, ok := v.(Undefined); ok {
		if u.unsafe {
			r.fail(KindSecurity, "access to %s is unsafe", u.what)
		}
		r.fail(KindUndefined, "%s is undefined", u.what)
	}
}

func (r *renderer) compareTwo(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "<":
		return r.less(a, b)
	case ">":
		return r.less(b, a)
	case "<=":
		return r.less(a, b) || r.equal(a, b)
	case ">=":
		return r.less(b, a) || r.equal(a, b)
	case "in":
		return r.contains(b, a)
	}
	return !r.contains(b, a)
}

func (r *renderer) unary(op string, v any) any {
	if op == "not" {
		return !truth(v)
	}
	r.undefined(v)
	n, ok := number(v)
	if !ok {
		r.fail(KindType, "bad operand type for unary %s: '%s'", op, typeName(v))
	}
	if op == "+" {
		return n
	}
	if i, ok := n.(int64); ok {
		if i == math.MinInt64 {
			r.fail(KindValue, "an integer is out of range")
		}
		return -i
	}
	return -n.(float64)
}

func (r *renderer) binary(op string, a, b any) any {
	r.undefined(a)
	r.undefined(b)
	x, okX := number(a)
	y, okY := number(b)
	if okX && okY {
		i, okI := x.(int64)
		j, okJ := y.(int64)
		if okI && okJ && op != "/" && !(op == "**" && j < 0) {
			return r.integers(op, i, j)
		}
		return r.floats(op, toFloat(x), toFloat(y))
	}
	switch {
	case op == "+":
		if v, ok := r.join(a, b); ok {
			return v
		}
	case op == "*" && okY:
		if n, ok := y.(int64); ok {
			return r.repeat(a, n)
		}
	case op == "*" && okX:
		if n, ok := x.(int64); ok {
			return r.repeat(b, n)
		}
	}
	r.fail(KindType, "unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

// join adds two strings, two lists or two tuples.
func (r *renderer) join(a, b any) (any, bool) {
	if s, ok := a.(string); ok {
		t, ok := b.(string)
		if !ok {
			return nil, false
		}
		r.spend(len(s) + len(t))
		return s + t, true
	}
	x, ok := items(a)
	if !ok || typeName(a) != typeName(b) {
		return nil, false
	}
	y, _ := items(b)
	r.spend(16 * (len(x) + len(y)))
	list := append(append(make([]any, 0, len(x)+len(y)), x...), y...)
	if _, ok := a.(tuple); ok {
		return tuple(list), true
	}
	return list, true
}

// repeat is a * n of a string or a list.
func (r *renderer) repeat(a any, n int64) any {
	n = max(n, 0)
	fits := func(size int) int {
		if size > 0 && n > int64(r.memory/size) {
			r.limit("builds too much text")
		}
		r.spend(size * int(n))
		if size == 0 {
			return 0
		}
		return int(n)
	}
	switch a := a.(type) {
	case string:
		return strings.Repeat(a, fits(len(a)))
	case []any:
		var list []any
		for range fits(16 * len(a)) {
			list = append(list, a...)
		}
		return list
	}
	r.fail(KindType, "can't multiply '%s' by an integer", typeName(a))
	return nil
}

// integers computes on int64, and fails where Python's integers would be longer.
func (r *renderer) integers(op string, a, b int64) int64 {
	overflow := func(ok bool, n int64) int64 {
		if !ok {
			r.fail(KindValue, "an integer is out of range")
		}
		return n
	}
	switch op {
	case "+":
		n := a + b
		return overflow((n > a) == (b > 0), n)
	case "-":
		n := a - b
		return overflow((n < a) == (b > 0), n)
	case "*":
		return overflow(mulFits(a, b), a*b)
	case "**":
		n := int64(1)
		for i := int64(0); i < b; i++ {
			if r.step(); a == 0 || a == 1 || a == -1 {
				return [2]int64{a * a, a}[b&1]
			}
			n = overflow(mulFits(n, a), n*a)
		}
		return n
	}
	if b == 0 {
		r.fail("ZeroDivisionError", "integer division or modulo by zero")
	}
	q, m := a/b, a%b
	if m != 0 && (m < 0) != (b < 0) {
		q, m = q-1, m+b
	}
	if op == "%" {
		return m
	}
	return overflow(!(a == math.MinInt64 && b == -1), q)
}

func mulFits(a, b int64) bool {
	if a == 0 || b == 0 {
		return true
	}
	n := a * b
	return n/b == a && !(a == math.MinInt64 && b == -1) && !(b == math.MinInt64 && a == -1)
}

func (r *renderer) floats(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		return math.Pow(a, b)
	}
	if b == 0 {
		r.fail("ZeroDivisionError", "division by zero")
	}
	switch op {
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	}
	m := math.Mod(a, b)
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	return m
}

// item is v[key], and where there is no such item the attribute of that name.
func (r *renderer) item(v, key any) any {
	r.undefined(v)
	missing := Undefined{what: "an item"}
	switch v := v.(type) {
	case *ojson.Object:
		if k, ok := key.(string); ok {
			missing.what = "'dict object' has no attribute '" + k + "'; it"
			if x, ok := v.Get(k); ok {
				return x
			}
		}
	case string:
		if n, ok := r.integer(key); ok {
			if s, ok := r.char(v, n); ok {
				return s
			}
			return missing
		}
	case intRange:
		if n, ok := r.integer(key); ok {
			if n < 0 {
				n += v.n
			}
			if n < 0 || n >= v.n {
				return missing
			}
			return v.at(n)
		}
	default:
		list, ok := items(v)
		n, isInt := r.integer(key)
		if ok && isInt {
			if n < 0 {
				n += int64(len(list))
			}
			if n < 0 || n >= int64(len(list)) {
				return missing
			}
			return list[n]
		}
	}
	if k, ok := key.(string); ok {
		return r.attr(v, k)
	}
	return missing
}

// integer returns v as an index.
func (r *renderer) integer(v any) (int64, bool) {
	n, ok := number(v)
	if !ok {
		return 0, false
	}
	i, ok := n.(int64)
	return i, ok
}

// char returns the character of s at place n.
func (r *renderer) char(s string, n int64) (string, bool) {
	r.read(len(s))
	if n < 0 {
		n += int64(utf8.RuneCountInString(s))
	}
	if n < 0 {
		return "", false
	}
	for _, c := range s {
		if n == 0 {
			return string(c), true
		}
		n--
	}
	return "", false
}

// slice is v[start:stop:step], each nil where left out.
func (r *renderer) slice(v, a, b, c any) any {
	bound := func(x any) (int64, bool) {
		if x == nil {
			return 0, false
		}
		n, ok := r.integer(x)
		if !ok {
			r.fail(KindType, "slice indices must be integers or None")
		}
		return n, true
	}
	start, okStart := bound(a)
	stop, okStop := bound(b)
	step, ok := bound(c)
	if !ok {
		step = 1
	}
	if step == 0 {
		r.fail(KindValue, "slice step cannot be zero")
	}
	n, ok := r.length(v)
	if _, undef := v.(Undefined); undef || !ok {
		r.undefined(v)
		return Undefined{what: "a slice of a " + typeName(v)}
	}
	first, count := sliceBounds(int64(n), start, okStart, stop, okStop, step)
	switch v := v.(type) {
	case string:
		return r.substring(v, n, first, count, step)
	case *ojson.Object:
		return Undefined{what: "a slice of a dict"}
	case []any, tuple, intRange:
		list := r.iterate(v)
		r.spend(16 * count)
		out := make([]any, count)
		for i := range out {
			out[i] = list[first+i*int(step)]
		}
		if _, ok := v.(tuple); ok {
			return tuple(out)
		}
		return out
	}
	return nil
}

// sliceBounds returns the first place that a slice of n items takes, and how many it takes, as Python counts.
func sliceBounds(n, start int64, okStart bool, stop int64, okStop bool, step int64) (first, count int) {
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i int64) int64 {
		if i < 0 {
			return max(i+n, low)
		}
		return min(i, high)
	}
	from, to := low, high
	if step < 0 {
		from, to = high, low
	}
	if okStart {
		from = clamp(start)
	}
	if okStop {
		to = clamp(stop)
	}
	if step > 0 && to > from {
		return int(from), int((to-from-1)/step + 1)
	}
	if step < 0 && to < from {
		step = max(step, -n) // a longer step takes the first item alone, as -n does
		return int(from), int((from-to-1)/-step + 1)
	}
	return 0, 0
}

// substring returns count characters of s, of which there are n.
func (r *renderer) substring(s string, n, first, count int, step int64) string {
	if n == len(s) && step == 1 {
		return s[first : first+count]
	}
	r.spend(4*n + 4*count)
	runes := []rune(s)
	out := make([]rune, count)
	for i := range out {
		out[i] = runes[first+i*int(step)]
	}
	return string(out)
}
