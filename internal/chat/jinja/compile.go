package jinja

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	engine "github.com/ardanlabs/jinja"
)

// maxHeight bounds the height of an expression, and so the stack that parsing and running it takes.
const maxHeight = 500

// A node is a statement or an expression that the compiled template names by its number.
type node interface{ line() int }

// A program is a template compiled for the engine.
//
// The compiled template holds no text of the source: statements of the engine, numbered variables, and calls of the
// functions below, which take the number of the node they stand for. What it works around in the engine:
//
//   - operators, filters, tests, methods and printing are calls, because the engine's differ from Python's (None
//     prints as nothing, undefined operands are no error, floats print as %g), cannot be counted, and are unbounded;
//   - a name that a body assigns is a variable of that body, set from the outer one where the body begins, because the
//     engine keeps a loop's names from one iteration to the next;
//   - text is written by calls, because the engine's white space rules differ in details, and so that it is counted;
//   - and, or and if expressions ask yes and hold for the truth of their operands;
//   - every tag ends in -%} and a line feed, which it strips: the engine looks for the text beside each tag, and would
//     look through the whole template were there none.
type program struct {
	engine *engine.Template
	nodes  []node
	consts map[string]engine.Value
	free   map[string]string // names of the template that the variables or the globals may set, and their variables
}

// compiler writes the engine's template.
type compiler struct {
	program
	b     strings.Builder
	vars  int
	scope *names
	block string // the variable that blockText stands for
}

// names are the variables of one body. Loops, macros, set blocks and generation blocks have bodies of their own.
type names struct {
	vars  map[string]string // what stands for each name: a variable, or an expression in a loop's filter
	outer *names
}

func compile(body []Stmt) (p *program, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case syntax:
			p, err = nil, e.err
		default:
			panic(e)
		}
	}()
	c := &compiler{program: program{consts: map[string]engine.Value{}, free: map[string]string{}}}
	c.scope = &names{vars: c.free}
	c.body(body)
	c.engine, err = engine.Compile(c.b.String())
	if err != nil {
		return nil, &Error{Line: 1, Kind: KindSyntax, Msg: "the template engine refuses the compiled template: " + err.Error()}
	}
	return &c.program, nil
}

// run renders the program.
func (p *program) run(r *renderer, vars map[string]any) string {
	r.nodes = p.nodes
	data := make(map[string]engine.Value, len(p.consts)+len(p.free)+len(helpers))
	maps.Copy(data, p.consts)
	for name, v := range p.free {
		if x, ok := vars[name]; ok {
			data[v] = box(x)
		} else if f, ok := globals[name]; ok {
			data[v] = box(f)
		}
	}
	for name, f := range helpers {
		data[name] = engine.NewCallable(name, func(args []engine.Value, _ map[string]engine.Value) (engine.Value, error) {
			id := args[0].AsInt()
			r.line = r.nodes[id].line()
			return f(r, r.nodes[id], args[1:]), nil
		})
	}
	out, err := p.engine.RenderValues(data)
	if err != nil {
		r.failWith(err)
	}
	return out
}

// failWith gives up with an error of the engine.
func (r *renderer) failWith(err error) {
	var e *Error
	if errors.As(err, &e) {
		panic(e)
	}
	r.fail(KindRuntime, "%v", err)
}

func (c *compiler) node(n node) string {
	c.nodes = append(c.nodes, n)
	return strconv.Itoa(len(c.nodes) - 1)
}

func (c *compiler) variable() string {
	c.vars++
	return "v" + strconv.Itoa(c.vars)
}

// tag and print write tags of the engine.
func (c *compiler) tag(format string, args ...any) {
	fmt.Fprintf(&c.b, "{%% "+format+" -%%}\n", args...)
}

func (c *compiler) print(format string, args ...any) {
	fmt.Fprintf(&c.b, "{{ "+format+" -}}\n", args...)
}

// resolve returns what stands for a name that is read here.
func (c *compiler) resolve(name string) string {
	for s := c.scope; s != nil; s = s.outer {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	c.free[name] = c.variable()
	return c.free[name]
}

// target returns the variable of a name that is assigned here.
func (c *compiler) target(name string) string {
	if v, ok := c.scope.vars[name]; ok {
		return v
	}
	c.scope.vars[name] = c.variable()
	return c.scope.vars[name]
}

// open begins a body with its own names: those it sets begin as what they are outside. Names of given are there.
func (c *compiler) open(body []Stmt, given map[string]string) {
	outer := c.scope
	inner := &names{vars: given, outer: outer}
	for _, name := range assigned(body) {
		if _, ok := given[name]; !ok {
			v := c.resolve(name)
			given[name] = c.variable()
			c.tag("set %s = %s", given[name], v)
		}
	}
	c.scope = inner
}

func (c *compiler) close() { c.scope = c.scope.outer }

// assigned lists the names that a body assigns, bodies with their own names left out, in order.
func assigned(body []Stmt) []string {
	var list []string
	for _, s := range body {
		switch s := s.(type) {
		case *If:
			for _, b := range s.Branches {
				list = append(list, assigned(b.Body)...)
			}
		case *Set:
			list = append(list, s.Target.assigned()...)
		case *SetBlock:
			list = append(list, s.Target.assigned()...)
		case *Macro:
			list = append(list, s.Name)
		}
	}
	return list
}

func (t Target) assigned() []string {
	if t.Attr != "" {
		return nil
	}
	return t.Names
}

func (c *compiler) body(stmts []Stmt) {
	for _, s := range stmts {
		c.stmt(s)
	}
}

func (c *compiler) stmt(s Stmt) {
	switch s := s.(type) {
	case *Text:
		c.print("text(%s)", c.node(s))
	case *Output:
		c.print("out(%s, %s)", c.node(s), c.expr(s.Expr))
	case *If:
		c.ifStmt(s)
	case *For:
		c.forStmt(s)
	case *Set:
		c.assign(s, s.Target, c.expr(s.Value))
	case *SetBlock:
		c.setBlock(s)
	case *Macro:
		c.macro(s)
	case *Block:
		c.open(s.Body, map[string]string{})
		c.body(s.Body)
		c.close()
	case *Jump:
		c.tag("%s", map[bool]string{true: "break", false: "continue"}[s.Break])
	}
}

func (c *compiler) ifStmt(s *If) {
	for i, b := range s.Branches {
		switch {
		case i == 0:
			c.tag("if yes(%s, %s)", c.node(b.Test), c.expr(b.Test))
		case b.Test != nil:
			c.tag("elif yes(%s, %s)", c.node(b.Test), c.expr(b.Test))
		default:
			c.tag("else")
		}
		c.body(b.Body)
	}
	c.tag("endif")
}

func (c *compiler) forStmt(s *For) {
	id := c.node(s)
	item := c.variable()
	vars := map[string]string{}
	if !s.Target.Tuple {
		vars[s.Target.Names[0]] = item
	} else {
		for i, name := range s.Target.Names {
			vars[name] = fmt.Sprintf("part(%s, %s, %d)", id, item, i)
		}
	}
	filter := ""
	iter := c.expr(s.Iter)
	if s.Filter != nil {
		c.scope = &names{vars: maps.Clone(vars), outer: c.scope}
		filter = fmt.Sprintf(" if yes(%s, %s)", c.node(s.Filter), c.expr(s.Filter))
		c.close()
	}
	c.tag("for %s in items(%s, %s)%s", item, id, iter, filter)
	c.print("tick(%s)", id)
	if s.Target.Tuple {
		for i, name := range s.Target.Names {
			vars[name] = c.variable()
			c.tag("set %s = part(%s, %s, %d)", vars[name], id, item, i)
		}
	}
	// The engine's loop variable is found under its own name.
	vars["loop"] = "loop"
	c.open(s.Body, vars)
	c.body(s.Body)
	c.close()
	if s.Else != nil {
		c.tag("else")
		c.open(s.Else, map[string]string{})
		c.body(s.Else)
		c.close()
	}
	c.tag("endfor")
}

// assign sets a target to the value of an expression.
func (c *compiler) assign(n node, t Target, value string) {
	switch {
	case t.Attr != "":
		c.print("attribute(%s, %s, %s)", c.node(n), c.resolve(t.Names[0]), value)
	case t.Tuple:
		list := c.variable()
		id := c.node(n)
		c.tag("set %s = %s", list, value)
		for i, name := range t.Names {
			c.tag("set %s = part(%s, %s, %d)", c.target(name), id, list, i)
		}
	default:
		c.tag("set %s = %s", c.target(t.Names[0]), value)
	}
}

func (c *compiler) setBlock(s *SetBlock) {
	id, text := c.node(s), c.variable()
	c.tag("set %s", text)
	c.print("capture(%s, 1)", id)
	c.open(s.Body, map[string]string{})
	c.body(s.Body)
	c.close()
	c.print("capture(%s, -1)", id)
	c.tag("endset")
	outer := c.block
	c.block = text
	value := c.expr(s.Filter)
	c.block = outer
	c.assign(s, s.Target, value)
}

func (c *compiler) macro(s *Macro) {
	id, name := c.node(s), c.variable()
	vars := map[string]string{}
	params := make([]string, len(s.Params))
	for i, p := range s.Params {
		vars[p] = c.variable()
		params[i] = vars[p]
	}
	c.tag("macro %s(%s)", name, strings.Join(params, ", "))
	c.print("tick(%s)", id)
	c.open(s.Body, vars)
	for i, def := range s.Defaults {
		p := params[len(params)-len(s.Defaults)+i]
		c.tag("if missing(%s, %s)", id, p)
		c.tag("set %s = %s", p, c.expr(def))
		c.tag("endif")
	}
	c.body(s.Body)
	c.close()
	c.tag("endmacro")
	c.tag("set %s = bind(%s, %s)", c.target(s.Name), id, name)
}

// expr returns the engine's expression for e.
func (c *compiler) expr(e Expr) string {
	if heightAbove(e, maxHeight) {
		panic(syntax{&Error{Line: e.line(), Kind: KindSyntax, Msg: fmt.Sprintf("an expression of more than %d levels", maxHeight)}})
	}
	var b strings.Builder
	c.write(&b, e)
	return b.String()
}

// write appends the engine's expression for e.
func (c *compiler) write(b *strings.Builder, e Expr) {
	switch e := e.(type) {
	case *Const:
		name := "c" + strconv.Itoa(len(c.consts))
		c.consts[name] = box(e.Value)
		b.WriteString(name)
	case *Name:
		b.WriteString(c.resolve(e.Name))
	case blockText:
		b.WriteString(c.block)
	case *Logic:
		c.logic(b, e)
	case *Cond:
		id := c.node(e)
		b.WriteByte('(')
		c.write(b, e.Then)
		fmt.Fprintf(b, " if yes(%s, ", id)
		c.write(b, e.Test)
		b.WriteString(") else ")
		if e.Else == nil {
			fmt.Fprintf(b, "op(%s)", id)
		} else {
			c.write(b, e.Else)
		}
		b.WriteByte(')')
	default:
		fmt.Fprintf(b, "op(%s", c.node(e))
		for _, x := range Operands(e) {
			b.WriteString(", ")
			if x == nil {
				b.WriteString("none")
			} else {
				c.write(b, x)
			}
		}
		b.WriteByte(')')
	}
}

// logic evaluates the left operand once: hold tells its truth, and keeps it where it is the value.
func (c *compiler) logic(b *strings.Builder, e *Logic) {
	id := c.node(e)
	before, after := "(pick("+id+")", ""
	if e.Op == "and" {
		b.WriteByte('(')
		c.write(b, e.Right)
		before, after = "", "pick("+id+"))"
	}
	fmt.Fprintf(b, "%s if hold(%s, ", before, id)
	c.write(b, e.Left)
	b.WriteString(") else ")
	if e.Op == "or" {
		c.write(b, e.Right)
		after = ")"
	}
	b.WriteString(after)
}

// Operands lists what an expression other than a constant, a name or a choice works on. Nil is left out in a slice.
func Operands(e Expr) []Expr {
	switch e := e.(type) {
	case *List:
		return e.Items
	case *DictLit:
		list := make([]Expr, 0, 2*len(e.Keys))
		for i, k := range e.Keys {
			list = append(list, k, e.Values[i])
		}
		return list
	case *Attr:
		return []Expr{e.Value}
	case *Item:
		return []Expr{e.Value, e.Index}
	case *Slice:
		return []Expr{e.Value, e.Start, e.Stop, e.Step}
	case *Call:
		return e.Args.append([]Expr{e.Func})
	case *Filter:
		return e.Args.append([]Expr{e.Value})
	case *Test:
		return e.Args.append([]Expr{e.Value})
	case *Unary:
		return []Expr{e.Value}
	case *Binary:
		return []Expr{e.Left, e.Right}
	case *Concat:
		return e.Items
	case *Compare:
		return append([]Expr{e.First}, e.Rest...)
	case *Logic:
		return []Expr{e.Left, e.Right}
	case *Cond:
		return []Expr{e.Then, e.Test, e.Else}
	}
	return nil
}

func (a Args) append(list []Expr) []Expr {
	list = append(list, a.Pos...)
	for _, k := range a.Keywords {
		list = append(list, k.Value)
	}
	return list
}

// heightAbove reports whether e is higher than max, without going deeper.
func heightAbove(e Expr, max int) bool {
	if max == 0 {
		return true
	}
	for _, x := range Operands(e) {
		if x != nil && heightAbove(x, max-1) {
			return true
		}
	}
	return false
}
