package jinja

import (
	"strings"

	engine "github.com/ardanlabs/jinja"

	"splash/internal/chat/ojson"
)

// boxName is the name of the callables that carry values through the engine.
const boxName = "value"

// boxed carries a value out of its callable.
type boxed struct{ v any }

func (b *boxed) Error() string { return "a value" }

// box makes a value of the engine of v. Scalars are the engine's own; the others travel as callables, since its lists
// and dicts are not ours and nothing but a callable holds a Go value.
func box(v any) engine.Value {
	switch v := v.(type) {
	case nil:
		return engine.None()
	case bool:
		return engine.NewBool(v)
	case int64:
		return engine.NewInt(v)
	case float64:
		return engine.NewFloat(v)
	case string:
		return engine.NewString(v)
	}
	b := &boxed{v}
	return engine.NewCallable(boxName, func([]engine.Value, map[string]engine.Value) (engine.Value, error) {
		return engine.Value{}, b
	})
}

// unbox returns the value of a value of the engine.
func unbox(v engine.Value) any {
	switch {
	case v.IsNone():
		return nil
	case v.IsBool():
		return v.AsBool()
	case v.IsInt():
		return v.AsInt()
	case v.IsFloat():
		return v.AsFloat()
	case v.IsString():
		return v.AsString()
	case v.IsDict():
		return loop{v.AsDict()} // the only dict that the engine makes of its own
	case v.IsCallable():
		if _, err := v.AsCallable().Fn(nil, nil); err != nil {
			return err.(*boxed).v
		}
	}
	return Undefined{}
}

// A helper is a function that the compiled template calls for a node.
type helper func(r *renderer, n node, a []engine.Value) engine.Value

// helpers are the functions of compiled templates.
var helpers map[string]helper

// The table is set here because running a macro comes back to it.
func init() {
	helpers = map[string]helper{
		"text":      writeText,
		"out":       writeOut,
		"yes":       isTrue,
		"hold":      holdLeft,
		"pick":      pickLeft,
		"items":     loopItems,
		"tick":      func(r *renderer, _ node, _ []engine.Value) engine.Value { r.step(); return engine.Value{} },
		"part":      partOf,
		"attribute": setAttribute,
		"capture":   captureText,
		"bind":      bindMacro,
		"missing":   isMissing,
		"op":        operate,
	}
}

func writeText(r *renderer, n node, _ []engine.Value) engine.Value {
	return engine.NewString(r.write(n.(*Text).Text))
}

func writeOut(r *renderer, _ node, a []engine.Value) engine.Value {
	return engine.NewString(r.write(r.str(unbox(a[0]))))
}

func isTrue(r *renderer, _ node, a []engine.Value) engine.Value {
	r.step()
	return engine.NewBool(truth(unbox(a[0])))
}

func holdLeft(r *renderer, n node, a []engine.Value) engine.Value {
	r.step()
	v := unbox(a[0])
	ok := truth(v)
	if ok == (n.(*Logic).Op == "or") {
		r.held = append(r.held, v)
	}
	return engine.NewBool(ok)
}

func pickLeft(r *renderer, _ node, _ []engine.Value) engine.Value {
	v := r.held[len(r.held)-1]
	r.held = r.held[:len(r.held)-1]
	return box(v)
}

func loopItems(r *renderer, n node, a []engine.Value) engine.Value {
	r.step()
	list := r.iterate(r.named(unbox(a[0]), n.(*For).Iter))
	r.spend(64 * len(list))
	values := make([]engine.Value, len(list))
	for i, v := range list {
		values[i] = box(v)
	}
	return engine.NewList(values)
}

// partOf is one of the values that a tuple of names is set to.
func partOf(r *renderer, n node, a []engine.Value) engine.Value {
	r.step()
	v := unbox(a[0])
	r.undefined(v)
	var t Target
	switch n := n.(type) {
	case *For:
		t = n.Target
	case *Set:
		t = n.Target
	case *SetBlock:
		t = n.Target
	}
	list := r.iterate(v)
	if len(list) != len(t.Names) {
		r.fail(KindValue, "%d values to unpack into %d names", len(list), len(t.Names))
	}
	return box(list[a[1].AsInt()])
}

func setAttribute(r *renderer, n node, a []engine.Value) engine.Value {
	r.spend(64)
	ns, ok := unbox(a[0]).(*namespace)
	if !ok {
		r.fail(KindRuntime, "cannot assign attribute on non-namespace object")
	}
	name := ""
	switch n := n.(type) {
	case *Set:
		name = n.Target.Attr
	case *SetBlock:
		name = n.Target.Attr
	}
	ns.attrs.Set(name, unbox(a[1]))
	return engine.Value{}
}

func captureText(r *renderer, _ node, a []engine.Value) engine.Value {
	r.step()
	r.captures += int(a[0].AsInt())
	return engine.Value{}
}

func bindMacro(r *renderer, n node, a []engine.Value) engine.Value {
	r.spend(64)
	return box(&macro{n.(*Macro), a[0]})
}

func isMissing(r *renderer, _ node, a []engine.Value) engine.Value {
	r.step()
	return engine.NewBool(!given(unbox(a[0])))
}

// operate evaluates an expression whose operands are evaluated.
func operate(r *renderer, n node, a []engine.Value) engine.Value {
	r.spend(16 * len(a))
	v := make([]any, len(a))
	exprs := Operands(n)
	for i := range a {
		v[i] = r.named(unbox(a[i]), exprs[i])
	}
	return box(r.operation(n, v))
}

// named gives an undefined value the name of what it was read from, for errors.
func (r *renderer) named(v any, e Expr) any {
	if u, ok := v.(Undefined); ok && u.what == "" {
		if name, ok := e.(*Name); ok {
			return Undefined{what: "'" + name.Name + "'"}
		}
		return Undefined{what: "a value"}
	}
	return v
}

func (r *renderer) operation(n node, v []any) any {
	switch e := n.(type) {
	case *List:
		if e.Tuple {
			return tuple(v)
		}
		return v
	case *DictLit:
		return r.dict(v)
	case *Attr:
		return r.attr(v[0], e.Name)
	case *Item:
		return r.item(v[0], v[1])
	case *Slice:
		return r.slice(v[0], v[1], v[2], v[3])
	case *Call:
		return r.call(v[0], e.Args.values(v[1:]))
	case *Filter:
		return r.applyFilter(e.Name, v[0], e.Args.values(v[1:]))
	case *Test:
		return r.test(e.Name, v[0], v[1:]) != e.Not
	case *Unary:
		return r.unary(e.Op, v[0])
	case *Binary:
		return r.binary(e.Op, v[0], v[1])
	case *Concat:
		return r.concat(v)
	case *Compare:
		for i, op := range e.Ops {
			if !r.compareTwo(op, v[i], v[i+1]) {
				return false
			}
		}
		return true
	case *Cond:
		return Undefined{what: "the inline if-expression without else"}
	}
	r.fail(KindRuntime, "unknown expression %T", n)
	return nil
}

// values pairs evaluated arguments with their names.
func (a Args) values(v []any) args {
	out := args{pos: v[:len(a.Pos)], named: v[len(a.Pos):]}
	for _, k := range a.Keywords {
		out.names = append(out.names, k.Name)
	}
	return out
}

func (r *renderer) dict(v []any) any {
	o := &ojson.Object{}
	r.spend(32 * len(v))
	for i := 0; i < len(v); i += 2 {
		key, ok := v[i].(string)
		if !ok {
			r.fail(KindType, "the keys of a dict are strings here")
		}
		o.Set(key, v[i+1])
	}
	return o
}

func (r *renderer) concat(v []any) any {
	var b strings.Builder
	for _, x := range v {
		s := r.str(x)
		r.spend(len(s))
		b.WriteString(s)
	}
	return b.String()
}
