// Package output makes the grammars of answers: reasoning, then content and calls as a chat format lays them out, under
// the tools, the tool choice and the response format of a request.
package output

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"splash/internal/chat/ojson"
	"splash/internal/grammar"
	"splash/internal/grammar/schema"
)

// A Syntax is how a chat format lays out calls.
type Syntax uint8

const (
	// QwenXML is Qwen3-Coder's:
	//
	//	<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n ... </function>\n</tool_call>
	QwenXML Syntax = iota
	// GLMArgs is GLM-4.7's, each tag a token:
	//
	//	<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value> ... </tool_call>
	GLMArgs
)

// A Format is what grammars need to know of a chat format: its syntax and the tokens of its tags.
type Format struct {
	Syntax Syntax

	// ModelThinks says that the model opens its reasoning itself, where it reasons, by the token ThinkOpen. Otherwise the
	// prompt does, and ThinkOpen is only kept out of text; it may be -1, absent.
	ModelThinks           bool
	ThinkOpen, ThinkClose int32
	CallOpen, CallClose   int32

	KeyOpen, KeyClose, ValueOpen, ValueClose int32 // of GLMArgs

	Stop []int32 // the tokens that end an answer
}

// A Choice is a request's tool choice.
type Choice uint8

const (
	Auto Choice = iota
	None
	Required
	Named // the one tool that Request.Name says, and one call
)

// A Tool is a function that a request offers.
type Tool struct {
	Name       string
	Parameters any // its JSON Schema, decoded by ojson; nil for any arguments
	Strict     bool
}

// A Response is a request's response format: JSON under a schema, decoded by ojson, or any object (json_object).
type Response struct {
	Schema    any
	AnyObject bool
}

// A Request is what a request says about its answer. Names of tools have been checked.
type Request struct {
	Thinking bool // the prompt opens reasoning
	Tools    []Tool
	Choice   Choice
	Name     string // of a Named choice
	Serial   bool   // parallel_tool_calls false
	Response *Response
}

const (
	cacheEntries  = 32
	cacheBytes    = 8 << 20
	cachedSchemas = 1024 // those of tools come with every request
	// maxToolBytes bounds the schemas of a request's strict tools together.
	maxToolBytes = 16 << 20
	// maxMemory is what a grammar keeps of states and masks.
	maxMemory = 8 << 20
)

// A Compiler makes the grammars of a model's answers. It is safe for concurrent use.
type Compiler struct {
	format     Format
	vocabulary *grammar.Vocabulary
	thinkClose string // texts of tokens
	callOpen   string
	grammars   *grammar.Cache[*compiled]
	schemas    *grammar.Cache[*schema.Schema]
}

// compiled is what the cache keeps.
type compiled struct {
	grammar    *grammar.Grammar
	unenforced []string
}

// New returns the compiler of a model with so many logits a row.
func New(t grammar.Tokens, rows int, f Format) (*Compiler, error) {
	tags := []int32{f.ThinkClose, f.CallOpen, f.CallClose}
	if f.ThinkOpen >= 0 {
		tags = append(tags, f.ThinkOpen)
	}
	if f.Syntax == GLMArgs {
		tags = append(tags, f.KeyOpen, f.KeyClose, f.ValueOpen, f.ValueClose)
	}
	v, err := grammar.NewVocabulary(t, rows, tags, f.Stop)
	if err != nil {
		return nil, err
	}
	return &Compiler{
		format: f, vocabulary: v, thinkClose: string(t.Bytes(f.ThinkClose)), callOpen: string(t.Bytes(f.CallOpen)),
		grammars: grammar.NewCache[*compiled](cacheEntries, cacheBytes),
		schemas:  grammar.NewCache[*schema.Schema](cachedSchemas, cacheBytes),
	}, nil
}

// Stats returns the counters of the grammar cache.
func (c *Compiler) Stats() grammar.CacheStats { return c.grammars.Stats() }

// An Output is how an answer is constrained.
type Output struct {
	grammar    *grammar.Grammar
	response   *schema.Schema
	anyObject  bool
	unenforced []string
}

// Matcher returns a matcher for one answer, nil where the answer is free.
func (o *Output) Matcher() *grammar.Matcher {
	if o.grammar == nil {
		return nil
	}
	return o.grammar.Matcher()
}

// Unenforced lists keywords of the schemas that the grammar does not keep to, as JSON pointers.
func (o *Output) Unenforced() []string { return o.unenforced }

// Validate holds the content of a complete answer to the request's response format; an answer that was cut, or that calls
// tools instead, is not to be validated. Errors are *schema.InvalidError or schema.ErrNotEvaluated.
func (o *Output) Validate(content string) error {
	if o.response != nil {
		return o.response.ValidateText(content)
	}
	if !o.anyObject {
		return nil
	}
	v, err := ojson.Decode(content, ojson.Options{})
	if err != nil {
		return &schema.InvalidError{Msg: err.Error()}
	}
	if _, ok := v.(*ojson.Object); !ok {
		return &schema.InvalidError{Msg: "the value is no object"}
	}
	return nil
}

// Compile returns how the answer to a request is constrained. Errors that are the request's fault are *schema.Error; others
// are the context's.
func (c *Compiler) Compile(ctx context.Context, r *Request) (*Output, error) {
	o := &Output{}
	p := plan{Compiler: c, request: r, tools: make([]*schema.Schema, len(r.Tools))}
	if err := p.parse(ctx, o); err != nil {
		return nil, err
	}
	if r.Choice >= Required && len(p.offered()) == 0 {
		return nil, &schema.Error{Msg: "tool_choice asks for a call of a tool that is not offered"}
	}
	if !r.Constrained() {
		return o, nil
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	g, err := c.grammars.Get(ctx, key, p.compile)
	if err != nil {
		return nil, requestError(err)
	}
	o.grammar, o.unenforced = g.grammar, g.unenforced
	return o, nil
}

// requestError returns what a request's sender is told.
func requestError(err error) error {
	switch {
	case errors.Is(err, grammar.ErrTooLarge):
		return schema.ErrTooLarge
	case errors.Is(err, grammar.ErrEmpty):
		return &schema.Error{Msg: "unsupported output schema: no value is valid"}
	}
	return err
}

// A plan is a request on the way to its grammar.
type plan struct {
	*Compiler
	request  *Request
	tools    []*schema.Schema // nil for those without one
	response *schema.Schema
}

// parse checks the schemas.
func (p *plan) parse(ctx context.Context, o *Output) error {
	size := 0
	for i, tool := range p.request.Tools {
		if tool.Parameters == nil {
			continue
		}
		use := schema.Tool
		if tool.Strict {
			use = schema.StrictTool
		}
		s, n, err := p.schema(ctx, tool.Parameters, use)
		if err != nil {
			return err
		}
		if tool.Strict {
			size += n
		}
		p.tools[i] = s
	}
	if size > maxToolBytes {
		return &schema.Error{Msg: "tool parameter schemas are too complex"}
	}
	if r := p.request.Response; r != nil {
		o.anyObject = r.AnyObject
		if !r.AnyObject {
			s, _, err := p.schema(ctx, r.Schema, schema.Response)
			if err != nil {
				return err
			}
			o.response, p.response = s, s
		}
	}
	return nil
}

// schema returns a checked schema, and the size of its text.
func (p *plan) schema(ctx context.Context, source any, use schema.Use) (*schema.Schema, int, error) {
	text, err := ojson.String(source, ojson.Compact)
	if err != nil {
		return nil, 0, &schema.Error{Msg: fmt.Sprintf("unsupported %s schema: %v", use, err)}
	}
	// A use's first letters do not begin JSON.
	s, err := p.schemas.Get(ctx, fmt.Sprintf("use %d %s", use, text), func(context.Context) (*schema.Schema, error) {
		return schema.Parse(source, use)
	})
	return s, len(text), err
}

// Constrained reports whether the answer needs a grammar.
func (r *Request) Constrained() bool {
	if r.Response != nil {
		return true
	}
	if len(r.Tools) == 0 {
		return false
	}
	return r.Choice != Auto || r.Serial || slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Strict })
}

// offered are the numbers of the tools that may be called.
func (p *plan) offered() []int {
	var list []int
	for i, t := range p.request.Tools {
		if p.request.Choice != Named || t.Name == p.request.Name {
			list = append(list, i)
		}
	}
	return list
}

// key returns the source of the grammar: whatever it depends on.
func (p *plan) key() (string, error) {
	r := p.request
	o := ojson.NewObject("thinking", r.Thinking, "choice", int(r.Choice), "serial", r.Serial)
	var tools []any
	for _, i := range p.offered() {
		t := ojson.NewObject("name", r.Tools[i].Name)
		if r.Tools[i].Strict {
			t.Set("strict", r.Tools[i].Parameters)
		}
		tools = append(tools, t)
	}
	o.Set("tools", tools)
	if r.Response != nil {
		o.Set("object", r.Response.AnyObject)
		o.Set("schema", r.Response.Schema)
	}
	return ojson.String(o, ojson.Compact)
}
