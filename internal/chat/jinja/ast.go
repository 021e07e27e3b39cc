package jinja

// A Span is a range of bytes of a template's normalized source.
type Span struct{ Start, End int }

// A Stmt is a statement: *Text, *Output, *If, *For, *Set, *SetBlock, *Macro, *Block or *Jump.
type Stmt interface{ line() int }

// An Expr is an expression.
type Expr interface{ line() int }

// Pos is the line of a node, from 1.
type Pos int

func (p Pos) line() int { return int(p) }

// Text is what stands between tags.
type Text struct {
	Pos
	Text string
}

// Output is {{ expression }}.
type Output struct {
	Pos
	Tag  Span
	Expr Expr
}

// If is an if with its elif and else branches.
type If struct {
	Pos
	Branches []Branch
}

// A Branch of an If. The else branch has no test.
type Branch struct {
	Tag  Span
	Test Expr
	Body []Stmt
}

// For is a loop.
type For struct {
	Pos
	Tag    Span
	Target Target
	Iter   Expr
	Filter Expr // nil without one
	Body   []Stmt
	Else   []Stmt
}

// A Target is what a loop or a set assigns to: one name, several in a tuple, or an attribute of a namespace.
type Target struct {
	Names []string
	Tuple bool
	Attr  string
}

// Set is {% set target = expression %}.
type Set struct {
	Pos
	Target Target
	Value  Expr
}

// SetBlock is {% set target %} ... {% endset %}; Filter holds the filters of the block, applied to Body's text.
type SetBlock struct {
	Pos
	Target Target
	Filter Expr // ends in blockText
	Body   []Stmt
}

// Macro is a macro's definition.
type Macro struct {
	Pos
	Name     string
	Params   []string
	Defaults []Expr // of the last parameters
	Body     []Stmt
}

// Block is {% generation %}, which renders as its body.
type Block struct {
	Pos
	Body []Stmt
}

// Jump is break or continue.
type Jump struct {
	Pos
	Break bool
}

// The expressions. Names say what they are; operators are spelled as in the template.
type (
	Const struct {
		Pos
		Value any
	}
	Name struct {
		Pos
		Name string
	}
	List struct {
		Pos
		Items []Expr
		Tuple bool
	}
	DictLit struct {
		Pos
		Keys, Values []Expr
	}
	Attr struct {
		Pos
		Value Expr
		Name  string
	}
	Item struct {
		Pos
		Value, Index Expr
	}
	Slice struct {
		Pos
		Value             Expr
		Start, Stop, Step Expr // nil where left out
	}
	Call struct {
		Pos
		Func Expr
		Args Args
	}
	Filter struct {
		Pos
		Value Expr
		Name  string
		Args  Args
	}
	Test struct {
		Pos
		Value Expr
		Name  string
		Args  Args
		Not   bool
	}
	Unary struct {
		Pos
		Op    string // not, -, +
		Value Expr
	}
	Binary struct {
		Pos
		Op          string // + - * / // % **
		Left, Right Expr
	}
	Logic struct {
		Pos
		Op          string // and, or
		Left, Right Expr
	}
	Concat struct {
		Pos
		Items []Expr
	}
	Compare struct {
		Pos
		First Expr
		Ops   []string // == != < <= > >= in, not in
		Rest  []Expr
	}
	Cond struct {
		Pos
		Then, Test, Else Expr // Else is nil where left out
	}
	// blockText stands for the text of a set block under its filters, in SetBlock.Filter.
	blockText struct{ Pos }
)

// Args are the arguments of a call.
type Args struct {
	Pos      []Expr
	Keywords []Keyword
}

// A Keyword is a named argument.
type Keyword struct {
	Name  string
	Value Expr
}
