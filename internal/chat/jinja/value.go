package jinja

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	engine "github.com/ardanlabs/jinja"

	"splash/internal/chat/ojson"
)

// Beside the values of ojson, and int64 and float64 for the numbers it computes, a template handles these.
type (
	// Undefined is the value of a name, attribute or item that is not there. It tests false, prints as nothing, and
	// fails on most operations.
	Undefined struct {
		what   string
		unsafe bool // there, but the sandbox does not give it out
	}
	// tuple is a list in parentheses.
	tuple []any
	// intRange is what range returns.
	intRange struct{ start, step, n int64 }
	// namespace is an object whose attributes a template may set.
	namespace struct{ attrs *ojson.Object }
	// loop is the loop variable, which the engine keeps up to date.
	loop struct{ *engine.Dict }
	// macro is a macro and the engine's callable for it.
	macro struct {
		*Macro
		fn engine.Value
	}
	// method is a method of a value.
	method struct {
		self any
		name string
	}
	// function is a global function.
	function struct {
		name string
		call func(r *renderer, a args) any
	}
)

// args are evaluated arguments.
type args struct {
	pos   []any
	names []string
	named []any
}

// typeName names the type of v as Python does.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case string:
		return "str"
	case int64, int:
		return "int"
	case float64:
		return "float"
	case json.Number:
		if ojson.IsInteger(v) {
			return "int"
		}
		return "float"
	case []any:
		return "list"
	case tuple:
		return "tuple"
	case *ojson.Object:
		return "dict"
	case intRange:
		return "range"
	case *namespace:
		return "Namespace"
	case Undefined:
		return "Undefined"
	}
	return "object"
}

// items returns the elements of a list or tuple.
func items(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case tuple:
		return v, true
	}
	return nil, false
}

func (g intRange) at(i int64) int64 { return g.start + i*g.step }

// truth is Python's bool(v).
func truth(v any) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int64:
		return v != 0
	case float64:
		return v != 0
	case json.Number:
		f, err := v.Float64()
		return err != nil || f != 0
	case []any:
		return len(v) > 0
	case tuple:
		return len(v) > 0
	case intRange:
		return v.n > 0
	case *ojson.Object:
		return v.Len() > 0
	}
	return true
}

// number is an int64 or a float64 of v; booleans are 0 and 1.
func number(v any) (any, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case int64, float64:
		return v, true
	case int:
		return int64(v), true
	case json.Number:
		if ojson.IsInteger(v) {
			if n, err := v.Int64(); err == nil {
				return n, true
			}
		}
		f, _ := v.Float64()
		return f, true
	}
	return nil, false
}

func toFloat(n any) float64 {
	if i, ok := n.(int64); ok {
		return float64(i)
	}
	return n.(float64)
}

// str is Python's str(v).
func (r *renderer) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Undefined:
		return ""
	}
	b := r.appendRepr(nil, v)
	r.spend(len(b))
	return string(b)
}

// appendRepr appends Python's repr(v).
func (r *renderer) appendRepr(b []byte, v any) []byte {
	r.step()
	if len(b) > r.memory {
		r.limit("builds too much text")
	}
	switch v := v.(type) {
	case nil:
		return append(b, "None"...)
	case bool:
		if v {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case string:
		return appendStrRepr(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return append(b, ojson.FormatFloat(v)...)
	case json.Number:
		return append(b, v...)
	case []any:
		return append(r.appendItems(append(b, '['), v), ']')
	case tuple:
		b = r.appendItems(append(b, '('), v)
		if len(v) == 1 {
			b = append(b, ',')
		}
		return append(b, ')')
	case intRange:
		b = fmt.Appendf(b, "range(%d, %d", v.start, v.at(v.n))
		if v.step != 1 {
			b = fmt.Appendf(b, ", %d", v.step)
		}
		return append(b, ')')
	case *ojson.Object:
		return r.appendDict(b, v)
	case Undefined:
		return append(b, "Undefined"...)
	}
	r.fail(KindType, "a %s has no text", typeName(v))
	return nil
}

func (r *renderer) appendItems(b []byte, list []any) []byte {
	r.enter()
	defer r.leave()
	for i, v := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = r.appendRepr(b, v)
	}
	return b
}

func (r *renderer) appendDict(b []byte, o *ojson.Object) []byte {
	r.enter()
	defer r.leave()
	b = append(b, '{')
	for i := range o.Len() {
		k, v := o.At(i)
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendStrRepr(b, k)
		b = append(b, ": "...)
		b = r.appendRepr(b, v)
	}
	return append(b, '}')
}

// appendStrRepr quotes s as Python does: in single quotes unless it holds them and no double ones.
func appendStrRepr(b []byte, s string) []byte {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b = append(b, byte(quote))
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case unicode.IsPrint(c):
			b = utf8.AppendRune(b, c)
		case c < 0x100:
			b = fmt.Appendf(b, `\x%02x`, c)
		case c < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\U%08x`, c)
		}
	}
	return append(b, byte(quote))
}

// equal is Python's a == b.
func (r *renderer) equal(a, b any) bool {
	r.step()
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && numbersEqual(x, y)
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		b, ok := b.(string)
		if ok && len(a) == len(b) {
			r.read(len(a))
			return a == b
		}
		return false
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case []any:
		b, ok := b.([]any)
		return ok && r.equalItems(a, b)
	case tuple:
		b, ok := b.(tuple)
		return ok && r.equalItems(a, b)
	case intRange:
		return a == b
	case *ojson.Object:
		b, ok := b.(*ojson.Object)
		return ok && r.equalDicts(a, b)
	case *namespace, *macro, loop:
		return a == b
	}
	return false
}

func numbersEqual(x, y any) bool {
	if a, ok := x.(int64); ok {
		if b, ok := y.(int64); ok {
			return a == b
		}
	}
	return toFloat(x) == toFloat(y)
}

func (r *renderer) equalItems(a, b []any) bool {
	r.enter()
	defer r.leave()
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !r.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func (r *renderer) equalDicts(a, b *ojson.Object) bool {
	r.enter()
	defer r.leave()
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		k, v := a.At(i)
		if w, ok := b.Get(k); !ok || !r.equal(v, w) {
			return false
		}
	}
	return true
}

// less orders numbers, strings and lists as Python does.
func (r *renderer) less(a, b any) bool {
	r.step()
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return numbersLess(x, y)
		}
	}
	if a, ok := a.(string); ok {
		if b, ok := b.(string); ok {
			r.read(min(len(a), len(b)))
			return a < b
		}
	}
	if x, ok := items(a); ok && typeName(a) == typeName(b) {
		r.enter()
		defer r.leave()
		y, _ := items(b)
		for i := range min(len(x), len(y)) {
			if !r.equal(x[i], y[i]) {
				return r.less(x[i], y[i])
			}
		}
		return len(x) < len(y)
	}
	r.undefined(a)
	r.undefined(b)
	r.fail(KindType, "'<' not supported between instances of '%s' and '%s'", typeName(a), typeName(b))
	return false
}

func numbersLess(x, y any) bool {
	if a, ok := x.(int64); ok {
		if b, ok := y.(int64); ok {
			return a < b
		}
	}
	return toFloat(x) < toFloat(y)
}

// contains is Python's item in container.
func (r *renderer) contains(container, item any) bool {
	switch c := container.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			r.fail(KindType, "'in <string>' requires string as left operand, not %s", typeName(item))
		}
		r.read(len(c))
		return strings.Contains(c, s)
	case *ojson.Object:
		s, ok := item.(string)
		if !ok {
			return false
		}
		_, ok = c.Get(s)
		return ok
	case intRange:
		n, ok := number(item)
		if !ok {
			return false
		}
		f := (toFloat(n) - float64(c.start)) / float64(c.step)
		return f == math.Trunc(f) && f >= 0 && f < float64(c.n)
	case Undefined:
		return false
	}
	list, ok := items(container)
	if !ok {
		r.fail(KindType, "argument of type '%s' is not iterable", typeName(container))
	}
	for _, v := range list {
		if r.equal(v, item) {
			return true
		}
	}
	return false
}

// iterate returns what a loop over v visits.
func (r *renderer) iterate(v any) []any {
	switch v := v.(type) {
	case Undefined:
		if v.unsafe {
			r.undefined(v)
		}
		return nil
	case string:
		n := utf8.RuneCountInString(v)
		r.spend(16 * n)
		list := make([]any, 0, n)
		for _, c := range v {
			list = append(list, string(c))
		}
		return list
	case *ojson.Object:
		r.spend(16 * v.Len())
		list := make([]any, v.Len())
		for i := range list {
			list[i], _ = v.At(i)
		}
		return list
	case intRange:
		r.spend(16 * int(v.n))
		list := make([]any, v.n)
		for i := range list {
			list[i] = v.at(int64(i))
		}
		return list
	}
	list, ok := items(v)
	if !ok {
		r.fail(KindType, "'%s' object is not iterable", typeName(v))
	}
	return list
}

// length is Python's len(v).
func (r *renderer) length(v any) (int, bool) {
	switch v := v.(type) {
	case Undefined:
		return 0, true
	case string:
		r.read(len(v))
		return utf8.RuneCountInString(v), true
	case *ojson.Object:
		return v.Len(), true
	case intRange:
		return int(v.n), true
	}
	list, ok := items(v)
	return len(list), ok
}
