package jinja

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"splash/internal/chat/ojson"
)

// A filterFunc is a filter. Its arguments are bound to the parameters' names.
type filterFunc struct {
	params []string // after the value
	call   func(r *renderer, v any, a []any) any
}

var filters map[string]filterFunc

// The table is set here because map, select and the like look filters and tests up.
func init() {
	text := func(name string) filterFunc {
		return filterFunc{nil, func(r *renderer, v any, _ []any) any { return r.changeCase(name, r.str(v)) }}
	}
	filters = map[string]filterFunc{
		"abs":        {nil, filterAbs},
		"capitalize": text("capitalize"),
		"count":      {nil, filterLength},
		"d":          {[]string{"default_value", "boolean"}, filterDefault},
		"default":    {[]string{"default_value", "boolean"}, filterDefault},
		"dictsort":   {[]string{"case_sensitive", "by", "reverse"}, filterDictsort},
		"first":      {nil, filterFirst},
		"float":      {[]string{"default"}, filterFloat},
		"indent":     {[]string{"width", "first", "blank"}, filterIndent},
		"int":        {[]string{"default", "base"}, filterInt},
		"items":      {nil, filterItems},
		"join":       {[]string{"d", "attribute"}, filterJoin},
		"last":       {nil, filterLast},
		"length":     {nil, filterLength},
		"list":       {nil, func(r *renderer, v any, _ []any) any { return r.iterate(v) }},
		"lower":      text("lower"),
		"replace":    {[]string{"old", "new", "count"}, filterReplace},
		"reverse":    {nil, filterReverse},
		"safe":       {nil, func(r *renderer, v any, _ []any) any { return r.str(v) }},
		"sort":       {[]string{"reverse", "case_sensitive", "attribute"}, filterSort},
		"string":     {nil, func(r *renderer, v any, _ []any) any { return r.str(v) }},
		"title":      {nil, filterTitle},
		"tojson":     {[]string{"ensure_ascii", "indent", "separators", "sort_keys"}, filterTojson},
		"trim":       {[]string{"chars"}, filterTrim},
		"unique":     {[]string{"case_sensitive", "attribute"}, filterUnique},
		"upper":      text("upper"),
	}
}

func (r *renderer) applyFilter(name string, v any, a args) any {
	switch name {
	case "map":
		return r.mapItems(v, a)
	case "select", "reject":
		return r.selectItems(v, a, "", name == "select")
	case "selectattr", "rejectattr":
		if len(a.pos) == 0 {
			r.fail(KindType, "%s takes an attribute", name)
		}
		attr := r.text(name, a.pos[0])
		a.pos = a.pos[1:]
		return r.selectItems(v, a, attr, name == "selectattr")
	}
	f, ok := filters[name]
	if !ok {
		r.fail(KindRuntime, "no filter named '%s'", name)
	}
	if u, ok := v.(Undefined); ok && u.unsafe {
		r.undefined(v)
	}
	return f.call(r, v, r.bindArgs("filter "+name, a, f.params...))
}

func filterDefault(r *renderer, v any, a []any) any {
	_, undefined := v.(Undefined)
	if undefined || given(a[1]) && truth(a[1]) && !truth(v) {
		if !given(a[0]) {
			return ""
		}
		return a[0]
	}
	return v
}

// filterTitle begins words with a capital; words end at white space and opening brackets alone, unlike the method's.
func filterTitle(r *renderer, v any, _ []any) any {
	s := r.str(v)
	r.spend(len(s))
	start := true
	return strings.Map(func(c rune) rune {
		first := start
		start = isSpace(c) || strings.ContainsRune("-({[<", c)
		if first {
			return unicode.ToTitle(c)
		}
		return unicode.ToLower(c)
	}, s)
}

func filterLength(r *renderer, v any, _ []any) any {
	n, ok := r.length(v)
	if !ok {
		r.fail(KindType, "object of type '%s' has no len()", typeName(v))
	}
	return int64(n)
}

func filterFirst(r *renderer, v any, _ []any) any {
	if s, ok := v.(string); ok {
		_, n := utf8.DecodeRuneInString(s)
		v = s[:n]
	}
	if list := r.iterate(v); len(list) > 0 {
		return list[0]
	}
	return Undefined{what: "the first item of nothing"}
}

func filterLast(r *renderer, v any, _ []any) any {
	if s, ok := v.(string); ok {
		_, n := utf8.DecodeLastRuneInString(s)
		v = s[len(s)-n:]
	}
	if list := r.iterate(v); len(list) > 0 {
		return list[len(list)-1]
	}
	return Undefined{what: "the last item of nothing"}
}

func filterReverse(r *renderer, v any, _ []any) any {
	if s, ok := v.(string); ok {
		r.spend(5 * len(s))
		runes := []rune(s)
		slices.Reverse(runes)
		return string(runes)
	}
	list := r.iterate(v)
	r.spend(16 * len(list))
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func filterTrim(r *renderer, v any, a []any) any {
	s := r.str(v)
	r.read(len(s))
	return r.strip("filter trim", s, a[0], true, true)
}

func filterReplace(r *renderer, v any, a []any) any {
	old, with := r.str(a[0]), r.str(a[1])
	return r.replace(r.str(v), old, with, r.intArg("filter replace", a[2], -1))
}

func filterItems(r *renderer, v any, _ []any) any {
	switch v := v.(type) {
	case Undefined:
		return []any{}
	case *ojson.Object:
		return r.pairs(v)
	}
	r.fail(KindType, "Can only get item pairs from a mapping.")
	return nil
}

func filterJoin(r *renderer, v any, a []any) any {
	sep := ""
	if given(a[0]) {
		sep = r.str(a[0])
	}
	if given(a[1]) && a[1] != nil {
		v = r.mapAttr(r.iterate(v), a[1], absent{})
	}
	return r.joinItems("", sep, v)
}

func filterIndent(r *renderer, v any, a []any) any {
	s := r.str(v)
	pad := "    "
	if t, ok := a[0].(string); ok {
		pad = t
	} else if n := r.intArg("filter indent", a[0], 4); n*strings.Count(s, "\n") > r.memory || n > r.memory {
		r.limit("builds too much text")
	} else {
		pad = strings.Repeat(" ", max(n, 0))
	}
	first := given(a[1]) && truth(a[1])
	blank := given(a[2]) && truth(a[2])
	lines := splitLines(s + "\n")
	r.spend(len(s) + len(lines)*len(pad))
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			b.WriteString(pad)
		}
		b.WriteString(line)
	}
	return b.String()
}

func filterInt(r *renderer, v any, a []any) any {
	r.undefined(v)
	var def any = int64(0)
	if given(a[0]) {
		def = a[0]
	}
	base := r.intArg("filter int", a[1], 10)
	switch v := v.(type) {
	case string:
		s := strings.TrimFunc(v, isSpace)
		if base < 2 || base > 36 {
			base = 10
		}
		if n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), base, 64); err == nil {
			return n
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			return r.truncate(f, def)
		}
		return def
	}
	n, ok := number(v)
	if !ok {
		return def
	}
	if f, ok := n.(float64); ok {
		return r.truncate(f, def)
	}
	return n
}

func (r *renderer) truncate(f float64, def any) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return def
	}
	if math.Abs(f) >= 1<<63 {
		r.fail(KindValue, "an integer is out of range")
	}
	return int64(f)
}

func filterFloat(r *renderer, v any, a []any) any {
	r.undefined(v)
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f
		}
	} else if n, ok := number(v); ok {
		return toFloat(n)
	}
	if given(a[0]) {
		return a[0]
	}
	return 0.0
}

func filterAbs(r *renderer, v any, _ []any) any {
	n, ok := number(v)
	if !ok {
		r.fail(KindType, "bad operand type for abs(): '%s'", typeName(v))
	}
	if truth(r.less(n, int64(0))) {
		return r.unary("-", n)
	}
	return n
}

// sortKey is what a value sorts and compares by: strings without regard to case unless sensitive.
func (r *renderer) sortKey(v any, sensitive bool) any {
	if s, ok := v.(string); ok && !sensitive {
		return r.changeCase("lower", s)
	}
	return v
}

func (r *renderer) sortBy(list []any, key func(any) any, reverse bool) []any {
	r.spend(48 * len(list))
	type pair struct{ key, value any }
	pairs := make([]pair, len(list))
	for i, v := range list {
		pairs[i] = pair{key(v), v}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if reverse {
			a, b = b, a
		}
		if r.less(a.key, b.key) {
			return -1
		}
		if r.less(b.key, a.key) {
			return 1
		}
		return 0
	})
	out := make([]any, len(list))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out
}

func filterDictsort(r *renderer, v any, a []any) any {
	r.undefined(v)
	o, ok := v.(*ojson.Object)
	if !ok {
		r.fail(KindType, "dictsort takes a mapping, not '%s'", typeName(v))
	}
	place := 0
	if given(a[1]) {
		switch r.text("filter dictsort", a[1]) {
		case "key":
		case "value":
			place = 1
		default:
			r.fail(KindValue, "dictsort sorts by 'key' or 'value'")
		}
	}
	sensitive := given(a[0]) && truth(a[0])
	key := func(v any) any { return r.sortKey(v.(tuple)[place], sensitive) }
	return r.sortBy(r.pairs(o), key, given(a[2]) && truth(a[2]))
}

func filterSort(r *renderer, v any, a []any) any {
	sensitive := given(a[1]) && truth(a[1])
	key := func(v any) any {
		if given(a[2]) && a[2] != nil {
			v = r.path(v, a[2], absent{})
		}
		return r.sortKey(v, sensitive)
	}
	return r.sortBy(r.iterate(v), key, given(a[0]) && truth(a[0]))
}

func filterUnique(r *renderer, v any, a []any) any {
	sensitive := given(a[0]) && truth(a[0])
	seen := map[any]bool{}
	out := []any{}
	for _, v := range r.iterate(v) {
		key := v
		if given(a[1]) && a[1] != nil {
			key = r.path(v, a[1], absent{})
		}
		key = r.sortKey(key, sensitive)
		if n, ok := number(key); ok {
			key = toFloat(n)
		}
		switch key.(type) {
		case nil, string, float64, Undefined:
		default:
			r.fail(KindType, "unhashable type: '%s'", typeName(key))
		}
		r.step()
		if !seen[key] {
			seen[key] = true
			r.spend(64)
			out = append(out, v)
		}
	}
	return out
}

// path is a dotted attribute of v, or an index; def replaces what is undefined on the way, if given.
func (r *renderer) path(v, attr, def any) any {
	if n, ok := r.integer(attr); ok {
		return r.item(v, n)
	}
	for part := range strings.SplitSeq(r.text("attribute", attr), ".") {
		r.step()
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = r.item(v, n)
		} else {
			v = r.item(v, part)
		}
		if _, undefined := v.(Undefined); undefined && given(def) {
			v = def
		}
	}
	return v
}

func (r *renderer) mapAttr(list []any, attr, def any) []any {
	r.spend(16 * len(list))
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = r.path(v, attr, def)
	}
	return out
}

// mapItems is map(attribute=...) or map("filter", arguments).
func (r *renderer) mapItems(v any, a args) any {
	list := r.iterate(v)
	if attr, ok := a.keyword("attribute"); ok && len(a.pos) == 0 {
		def, ok := a.keyword("default")
		if !ok {
			def = absent{}
		}
		return r.mapAttr(list, attr, def)
	}
	if len(a.pos) == 0 {
		r.fail(KindType, "map requires a filter argument")
	}
	name := r.text("map", a.pos[0])
	a.pos = a.pos[1:]
	r.enter()
	defer r.leave()
	r.spend(16 * len(list))
	out := make([]any, len(list))
	for i, v := range list {
		r.step()
		out[i] = r.applyFilter(name, v, a)
	}
	return out
}

// selectItems keeps the items, or those whose attribute attr, pass a test or do not.
func (r *renderer) selectItems(v any, a args, attr string, keep bool) any {
	out := []any{}
	for _, v := range r.iterate(v) {
		x := v
		if attr != "" {
			x = r.path(v, attr, absent{})
		}
		ok := truth(x)
		if len(a.pos) > 0 {
			ok = r.test(r.text("select", a.pos[0]), x, a.pos[1:])
		}
		r.step()
		if ok == keep {
			r.spend(16)
			out = append(out, v)
		}
	}
	return out
}

// filterTojson is Transformers' tojson: json.dumps with ensure_ascii off.
func filterTojson(r *renderer, v any, a []any) any {
	style := ojson.Spaced
	style.ASCII = given(a[0]) && truth(a[0])
	style.SortKeys = given(a[3]) && truth(a[3])
	style.MaxBytes = max(r.memory, 1)
	if given(a[1]) && a[1] != nil {
		style.Lines, style.ItemSep = true, ","
		if s, ok := a[1].(string); ok {
			style.Indent = s
		} else {
			style.Indent = strings.Repeat(" ", min(max(r.intArg("filter tojson", a[1], 0), 0), 1000))
		}
	}
	if given(a[2]) && a[2] != nil {
		pair, ok := items(a[2])
		if !ok || len(pair) != 2 {
			r.fail(KindType, "tojson takes two separators")
		}
		style.ItemSep, style.KeySep = r.text("tojson", pair[0]), r.text("tojson", pair[1])
	}
	style.Other = func(v any) (any, bool) {
		r.step()
		list, ok := v.(tuple)
		return []any(list), ok
	}
	b, err := ojson.Append(nil, v, style)
	if errors.Is(err, ojson.ErrTooLong) || errors.Is(err, ojson.ErrDepth) {
		r.limit("builds too much JSON")
	}
	if err != nil {
		r.fail(KindType, "Object of type %s is not JSON serializable", typeName(v))
	}
	r.spend(len(b))
	return string(b)
}

// test is "v is name(a)".
func (r *renderer) test(name string, v any, a []any) bool {
	if op, ok := testOps[name]; ok {
		return r.compareTwo(op, v, r.testArg(name, a))
	}
	switch name {
	case "sameas":
		return r.same(v, r.testArg(name, a))
	case "divisibleby":
		return truth(r.equal(r.binary("%", v, r.testArg(name, a)), int64(0)))
	}
	if len(a) > 0 {
		r.fail(KindType, "test '%s' takes no argument", name)
	}
	switch name {
	case "odd", "even":
		n := r.binary("%", v, int64(2))
		return r.equal(n, int64(1)) == (name == "odd")
	case "lower", "upper":
		s := r.str(v)
		return s == r.changeCase(name, s) && s != r.changeCase(map[string]string{"lower": "upper", "upper": "lower"}[name], s)
	}
	return r.typeTest(name, v)
}

var testOps = map[string]string{
	"eq": "==", "equalto": "==", "==": "==", "ne": "!=", "!=": "!=", "in": "in",
	"lt": "<", "lessthan": "<", "<": "<", "le": "<=", "<=": "<=",
	"gt": ">", "greaterthan": ">", ">": ">", "ge": ">=", ">=": ">=",
}

func (r *renderer) testArg(name string, a []any) any {
	if len(a) != 1 {
		r.fail(KindType, "test '%s' takes one argument", name)
	}
	return a[0]
}

// same is Python's identity, of the values that have only one object of their kind.
func (r *renderer) same(a, b any) bool {
	_, numA := number(a)
	if numA || typeName(a) == "str" {
		return typeName(a) == typeName(b) && r.equal(a, b)
	}
	switch a.(type) {
	case nil, *ojson.Object, *namespace:
		return a == b
	}
	return false
}

func (r *renderer) typeTest(name string, v any) bool {
	switch name {
	case "defined", "undefined":
		_, undefined := v.(Undefined)
		return undefined == (name == "undefined")
	case "none":
		return v == nil
	case "true":
		return v == true
	case "false":
		return v == false
	case "boolean":
		return v == true || v == false
	case "string":
		_, ok := v.(string)
		return ok
	case "number":
		_, ok := number(v)
		return ok
	case "integer":
		return typeName(v) == "int"
	case "float":
		return typeName(v) == "float"
	case "mapping":
		_, ok := v.(*ojson.Object)
		return ok
	case "sequence", "iterable":
		switch v.(type) {
		case string, Undefined, []any, tuple, intRange, *ojson.Object:
			return true
		}
		return false
	case "callable":
		switch v.(type) {
		case *function, *macro, method, Undefined:
			return true
		}
		return false
	}
	r.fail(KindRuntime, "no test named '%s'", name)
	return false
}
