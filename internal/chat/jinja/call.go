package jinja

import (
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	engine "github.com/ardanlabs/jinja"

	"splash/internal/chat/ojson"
)

// The methods of each type, and those that the sandbox keeps back because they change the value.
var (
	strMethods = []string{
		"capitalize", "count", "endswith", "find", "join", "lower", "lstrip", "removeprefix", "removesuffix", "replace",
		"rfind", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper",
	}
	dictMethods  = []string{"copy", "get", "items", "keys", "values"}
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
	listMethods  = []string{"copy", "count", "index"}
	listMutators = []string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
)

// attr is v.name: a method of v's type, else the item of that name.
func (r *renderer) attr(v any, name string) any {
	r.undefined(v)
	missing := Undefined{what: "'" + typeName(v) + " object' has no attribute '" + name + "'; it"}
	unsafe := Undefined{what: "attribute '" + name + "' of a " + typeName(v), unsafe: true}
	var methods, mutators []string
	switch v := v.(type) {
	case string:
		methods = strMethods
	case *ojson.Object:
		if !slices.Contains(dictMethods, name) && !slices.Contains(dictMutators, name) {
			if x, ok := v.Get(name); ok {
				return x
			}
		}
		methods, mutators = dictMethods, dictMutators
	case []any:
		methods, mutators = listMethods, listMutators
	case tuple:
		methods = listMethods[1:]
	case *namespace:
		if x, ok := v.attrs.Get(name); ok {
			return x
		}
	case loop:
		return r.loopAttr(v, name, missing)
	}
	switch {
	case slices.Contains(methods, name):
		return method{v, name}
	case slices.Contains(mutators, name), strings.HasPrefix(name, "_"):
		return unsafe
	}
	return missing
}

func (r *renderer) loopAttr(l loop, name string, missing Undefined) any {
	switch name {
	case "index", "index0", "revindex", "revindex0", "first", "last", "length":
		return unbox(l.Data[name])
	case "previtem", "nextitem":
		v := unbox(l.Data[name])
		if _, ok := v.(Undefined); ok {
			return Undefined{what: "'loop." + name + "'"}
		}
		return v
	case "depth":
		return int64(1) // of recursive loops, which there are none of
	case "depth0":
		return int64(0)
	case "cycle", "changed":
		return method{l, name}
	}
	return missing
}

func (r *renderer) call(f any, a args) any {
	r.undefined(f)
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case *macro:
		return r.callMacro(f, a)
	case method:
		switch self := f.self.(type) {
		case string:
			return r.strMethod(self, f.name, a)
		case *ojson.Object:
			return r.dictMethod(self, f.name, a)
		case loop:
			return r.loopMethod(self, f.name, a)
		}
		return r.listMethod(f.self, f.name, a)
	}
	r.fail(KindType, "'%s' object is not callable", typeName(f))
	return nil
}

// callMacro has the engine run a macro. Arguments that are not given are absent; the macro's body sets their defaults.
func (r *renderer) callMacro(m *macro, a args) any {
	if len(a.pos) > len(m.Params) {
		r.fail(KindType, "macro '%s' takes not more than %d argument(s)", m.Name, len(m.Params))
	}
	for _, name := range a.names {
		if !slices.Contains(m.Params, name) {
			r.fail(KindType, "macro '%s' takes no keyword argument '%s'", m.Name, name)
		}
	}
	values := make([]engine.Value, len(m.Params))
	for i, name := range m.Params {
		v, given := a.keyword(name)
		switch {
		case i < len(a.pos) && given:
			r.fail(KindType, "macro '%s' got multiple values for argument '%s'", m.Name, name)
		case i < len(a.pos):
			v = a.pos[i]
		case !given && i < len(m.Params)-len(m.Defaults):
			v = Undefined{what: "parameter '" + name + "'"}
		case !given:
			v = absent{}
		}
		values[i] = box(v)
	}
	r.enter()
	r.captures++
	line := r.line
	text, err := m.fn.AsCallable().Fn(values, nil)
	if err != nil {
		r.failWith(err)
	}
	r.line = line
	r.captures--
	r.leave()
	return text.AsString()
}

func (a args) keyword(name string) (any, bool) {
	if i := slices.Index(a.names, name); i >= 0 {
		return a.named[i], true
	}
	return nil, false
}

// bindArgs orders a's arguments by the names of a built-in's parameters. One that is not given is absent.
func (r *renderer) bindArgs(what string, a args, params ...string) []any {
	out := make([]any, len(params))
	if len(a.pos) > len(params) {
		r.fail(KindType, "%s takes at most %d argument(s)", what, len(params))
	}
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
	for i, name := range a.names {
		k := slices.Index(params, name)
		if k < 0 {
			r.fail(KindType, "%s takes no keyword argument '%s'", what, name)
		}
		if k < len(a.pos) {
			r.fail(KindType, "%s got multiple values for argument '%s'", what, name)
		}
		out[k] = a.named[i]
	}
	return out
}

// absent marks an argument that was not given.
type absent struct{}

func given(v any) bool { _, ok := v.(absent); return !ok }

// text is an argument that must be a string.
func (r *renderer) text(what string, v any) string {
	s, ok := v.(string)
	if !ok {
		r.undefined(v)
		r.fail(KindType, "%s takes a string, not '%s'", what, typeName(v))
	}
	return s
}

// intArg is an optional argument that must be an integer.
func (r *renderer) intArg(what string, v any, def int) int {
	if !given(v) || v == nil {
		return def
	}
	n, ok := r.integer(v)
	if !ok {
		r.undefined(v)
		r.fail(KindType, "%s takes an integer, not '%s'", what, typeName(v))
	}
	return int(max(min(n, math.MaxInt32), math.MinInt32))
}

// strMethod calls a method of s.
func (r *renderer) strMethod(s, name string, a args) any {
	what := "str." + name
	r.read(len(s))
	switch name {
	case "startswith", "endswith":
		return r.affix(what, s, r.one(what, a), name == "startswith")
	case "split", "rsplit":
		v := r.bindArgs(what, a, "sep", "maxsplit")
		return r.split(what, s, v[0], r.intArg(what, v[1], -1), name == "rsplit")
	case "strip", "lstrip", "rstrip":
		v := r.bindArgs(what, a, "chars")
		return r.strip(what, s, v[0], name != "rstrip", name != "lstrip")
	case "replace":
		v := r.bindArgs(what, a, "old", "new", "count")
		return r.replace(s, r.text(what, v[0]), r.text(what, v[1]), r.intArg(what, v[2], -1))
	case "find", "rfind":
		return r.find(s, r.text(what, r.one(what, a)), name == "rfind")
	case "count":
		return r.countOf(s, r.text(what, r.one(what, a)))
	case "join":
		return r.joinItems(what, s, r.one(what, a))
	case "removeprefix":
		return strings.TrimPrefix(s, r.text(what, r.one(what, a)))
	case "removesuffix":
		return strings.TrimSuffix(s, r.text(what, r.one(what, a)))
	}
	r.bindArgs(what, a)
	switch name {
	case "splitlines":
		return r.strings(splitLines(s))
	}
	return r.changeCase(name, s)
}

// changeCase is the method or filter upper, lower, title or capitalize.
func (r *renderer) changeCase(name, s string) string {
	r.spend(len(s))
	switch name {
	case "upper":
		return strings.ToUpper(s)
	case "lower":
		return strings.ToLower(s)
	case "capitalize":
		_, n := utf8.DecodeRuneInString(s)
		return strings.ToTitle(s[:n]) + strings.ToLower(s[n:])
	}
	inWord := false
	return strings.Map(func(c rune) rune {
		cased := unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
		defer func() { inWord = cased }()
		if inWord {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

// one is the only argument of a method.
func (r *renderer) one(what string, a args) any {
	if len(a.pos) != 1 || len(a.names) != 0 {
		r.fail(KindType, "%s takes exactly one argument", what)
	}
	return a.pos[0]
}

func (r *renderer) affix(what, s string, v any, prefix bool) bool {
	has := strings.HasSuffix
	if prefix {
		has = strings.HasPrefix
	}
	if list, ok := v.(tuple); ok {
		return slices.ContainsFunc(list, func(v any) bool { return has(s, r.text(what, v)) })
	}
	return has(s, r.text(what, v))
}

// strings makes a list.
func (r *renderer) strings(list []string) []any {
	r.spend(32 * len(list))
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// split splits s at most limit times, from the right or the left; without a separator at white space.
func (r *renderer) split(what, s string, sep any, limit int, right bool) any {
	if !given(sep) || sep == nil {
		return r.strings(fields(s, limit, right))
	}
	by := r.text(what, sep)
	if by == "" {
		r.fail(KindValue, "empty separator")
	}
	r.spend(16 * strings.Count(s, by))
	if limit < 0 {
		return r.strings(strings.Split(s, by))
	}
	if !right {
		return r.strings(strings.SplitN(s, by, limit+1))
	}
	var list []string
	for len(list) < limit {
		i := strings.LastIndex(s, by)
		if i < 0 {
			break
		}
		list = append(list, s[i+len(by):])
		s = s[:i]
	}
	list = append(list, s)
	slices.Reverse(list)
	return r.strings(list)
}

// fields splits at runs of white space.
func fields(s string, limit int, right bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var list []string
	for {
		if right {
			s = strings.TrimRightFunc(s, isSpace)
		} else {
			s = strings.TrimLeftFunc(s, isSpace)
		}
		if s == "" {
			break
		}
		i := strings.IndexFunc(s, isSpace)
		if right {
			i = strings.LastIndexFunc(s, isSpace)
		}
		if i < 0 || len(list) == limit {
			list = append(list, s)
			break
		}
		if right {
			_, n := utf8.DecodeRuneInString(s[i:])
			list = append(list, s[i+n:])
			s = s[:i]
		} else {
			list = append(list, s[:i])
			s = s[i:]
		}
	}
	if right {
		slices.Reverse(list)
	}
	return list
}

// splitLines is str.splitlines.
func splitLines(s string) []string {
	var list []string
	for len(s) > 0 {
		i := strings.IndexFunc(s, func(c rune) bool {
			return '\n' <= c && c <= '\r' || 0x1c <= c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
		})
		if i < 0 {
			return append(list, s)
		}
		list = append(list, s[:i])
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		s = s[i+n:]
	}
	return list
}

// strip takes characters from the ends of s: white space, or those of a given string.
func (r *renderer) strip(what, s string, chars any, left, right bool) string {
	cut := isSpace
	if given(chars) && chars != nil {
		set := r.text(what, chars)
		r.read(len(set))
		cut = func(c rune) bool {
			r.step()
			return strings.ContainsRune(set, c)
		}
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

func (r *renderer) replace(s, old, with string, count int) string {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if n > 0 && len(with) > r.memory/n {
		r.limit("builds too much text")
	}
	r.spend(len(s) + n*len(with))
	return strings.Replace(s, old, with, count)
}

func (r *renderer) find(s, sub string, last bool) int64 {
	i := strings.Index(s, sub)
	if last {
		i = strings.LastIndex(s, sub)
	}
	if i < 0 {
		return -1
	}
	return int64(utf8.RuneCountInString(s[:i]))
}

func (r *renderer) countOf(s, sub string) int64 { return int64(strings.Count(s, sub)) }

// joinItems joins strings with sep; the items are printed where what is empty.
func (r *renderer) joinItems(what, sep string, v any) string {
	if what != "" {
		r.undefined(v)
	}
	list := r.iterate(v)
	parts := make([]string, len(list))
	total := 0
	for i, v := range list {
		if what != "" {
			parts[i] = r.text(what, v)
		} else {
			parts[i] = r.str(v)
		}
		r.step()
		if total += len(parts[i]) + len(sep); total > r.memory {
			r.limit("builds too much text")
		}
	}
	r.spend(total)
	return strings.Join(parts, sep)
}

func (r *renderer) dictMethod(o *ojson.Object, name string, a args) any {
	if name == "get" {
		v := r.bindArgs("dict.get", a, "key", "default")
		if k, ok := v[0].(string); ok {
			if x, ok := o.Get(k); ok {
				return x
			}
		}
		if given(v[1]) {
			return v[1]
		}
		return nil
	}
	r.bindArgs("dict."+name, a)
	switch name {
	case "copy":
		return o
	case "items":
		return r.pairs(o)
	case "keys":
		return r.iterate(o)
	}
	r.spend(16 * o.Len())
	list := make([]any, o.Len())
	for i := range list {
		_, list[i] = o.At(i)
	}
	return list
}

// pairs returns the items of a dict.
func (r *renderer) pairs(o *ojson.Object) []any {
	r.spend(64 * o.Len())
	list := make([]any, o.Len())
	for i := range list {
		k, v := o.At(i)
		list[i] = tuple{k, v}
	}
	return list
}

func (r *renderer) listMethod(self any, name string, a args) any {
	list, _ := items(self)
	if name == "copy" {
		r.bindArgs("list.copy", a)
		return list
	}
	v := r.one("list."+name, a)
	n := int64(0)
	for i, x := range list {
		if !r.equal(x, v) {
			continue
		}
		if name == "index" {
			return int64(i)
		}
		n++
	}
	if name == "index" {
		r.fail(KindValue, "the value is not in the list")
	}
	return n
}

func (r *renderer) loopMethod(l loop, name string, a args) any {
	if name == "cycle" {
		if len(a.pos) == 0 {
			r.fail(KindType, "no items for cycling given")
		}
		i, _ := r.integer(unbox(l.Data["index0"]))
		return a.pos[i%int64(len(a.pos))]
	}
	last, ok := r.changed[l.Dict]
	if r.changed == nil {
		r.changed = map[*engine.Dict][]any{}
	}
	r.changed[l.Dict] = a.pos
	return !ok || !r.equalItems(last, a.pos)
}
