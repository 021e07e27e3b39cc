package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"splash/internal/chat/ojson"
)

const (
	// maxSteps bounds how many schemas a value is held to, each as often as it is reached: alternatives in recursion can
	// multiply without end.
	maxSteps = 200_000
	// patternTime bounds the patterns that Go's package regexp does not take, all of a validation together.
	patternTime = time.Second
	// maxMessage is the most bytes of an error's message.
	maxMessage = 500
	// maxNumber is the most characters of a number in a value, and the largest exponent.
	maxNumber = 10_000
	// maxValueDepth is the most levels of arrays and objects in a value.
	maxValueDepth = 512
)

// A validator holds values to a schema by package jsonschema, one at a time.
type validator struct {
	schema *jsonschema.Schema

	mu     sync.Mutex
	budget *budget
}

// A budget is what a validation may still take.
type budget struct {
	steps    int
	deadline time.Time
	expired  bool
}

// errBudget is what a validation panics with that has used its budget up: package jsonschema cannot be stopped otherwise.
var errBudget = errors.New("the budget is used up")

func (b *budget) step() {
	if b.steps--; b.steps < 0 {
		panic(errBudget)
	}
}

func newValidator(source any) (v *validator, err error) {
	v = &validator{budget: &budget{steps: maxSteps, deadline: time.Now().Add(patternTime)}}
	defer v.recover(&err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(v.compilePattern)
	const name = "schema.json"
	if err := c.AddResource(name, plainSchema(source)); err != nil {
		return nil, explained(err)
	}
	if v.schema, err = c.Compile(name); err != nil {
		return nil, explained(err)
	}
	v.meter(v.schema, map[*jsonschema.Schema]bool{})
	return v, nil
}

// recover turns the panic of a used-up budget into an error.
func (v *validator) recover(err *error) {
	switch p := recover(); p {
	case nil:
	case errBudget:
		*err = ErrNotEvaluated
	default:
		panic(p)
	}
}

// Validate holds a value, decoded by ojson, to the schema. Errors are *InvalidError, or ErrNotEvaluated.
func (s *Schema) Validate(value any) error { return s.validator.validate(value) }

// ValidateText holds the JSON of a value to the schema.
func (s *Schema) ValidateText(text string) error {
	v, err := ojson.Decode(text, ojson.Options{MaxDepth: maxValueDepth})
	if err != nil {
		return &InvalidError{err.Error()}
	}
	return s.Validate(v)
}

func (v *validator) validate(value any) (err error) {
	plain, ok := plainValue(value)
	if !ok {
		return ErrNotEvaluated
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	*v.budget = budget{steps: maxSteps, deadline: time.Now().Add(patternTime)}
	defer v.recover(&err)
	err = v.schema.Validate(plain)
	if v.budget.expired {
		return ErrNotEvaluated
	}
	if err != nil {
		return &InvalidError{explained(err).Error()}
	}
	return nil
}

// meter has every schema count when a value is held to it. Package jsonschema asks for the format before it goes into a
// value.
func (v *validator) meter(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) {
	queue := []*jsonschema.Schema{s}
	add := func(list ...*jsonschema.Schema) {
		for _, s := range list {
			if s != nil && !seen[s] {
				seen[s] = true
				queue = append(queue, s)
			}
		}
	}
	seen[s] = true
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		s.Format = v.metered(s.Format)
		add(s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020,
			s.UnevaluatedItems, s.ContentSchema)
		if s.DynamicRef != nil {
			add(s.DynamicRef.Ref)
		}
		add(s.AllOf...)
		add(s.AnyOf...)
		add(s.OneOf...)
		add(s.PrefixItems...)
		for _, sub := range s.Properties {
			add(sub)
		}
		for _, sub := range s.PatternProperties {
			add(sub)
		}
		for _, sub := range s.DependentSchemas {
			add(sub)
		}
		for _, sub := range s.Dependencies {
			if sub, ok := sub.(*jsonschema.Schema); ok {
				add(sub)
			}
		}
		for _, other := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
			switch other := other.(type) {
			case *jsonschema.Schema:
				add(other)
			case []*jsonschema.Schema:
				add(other...)
			}
		}
	}
}

func (v *validator) metered(f *jsonschema.Format) *jsonschema.Format {
	name, validate := "any", func(any) error { return nil }
	switch {
	case f == nil:
	case f.Name == "regex":
		// Package jsonschema would take its own way to the engine.
		name, validate = "regular expression", func(x any) error {
			if text, ok := x.(string); ok {
				_, err := v.compilePattern(text)
				return err
			}
			return nil
		}
	default:
		name, validate = f.Name, f.Validate
	}
	return &jsonschema.Format{Name: name, Validate: func(x any) error {
		v.budget.step()
		return validate(x)
	}}
}

// noLoader loads nothing: schemas are whole, or refused.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%.100s is another document", url)
}

// compilePattern is the engine of patterns: Go's where it takes them, which needs time in proportion to the text; or one
// with look-around and back-references, and a deadline.
func (v *validator) compilePattern(pattern string) (jsonschema.Regexp, error) {
	if text, err := translate(pattern); err == nil {
		if re, err := regexp.Compile(text); err == nil {
			return re, nil
		}
	} else if errors.Is(err, errLarge) {
		return nil, fmt.Errorf("a pattern has more than %d bytes", maxPattern)
	}
	re, err := regexp2.Compile(pattern, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		return nil, fmt.Errorf("%.100q is no pattern", pattern)
	}
	return &slowPattern{re, v.budget}, nil
}

type slowPattern struct {
	*regexp2.Regexp
	budget *budget
}

func (p *slowPattern) MatchString(text string) bool {
	left := time.Until(p.budget.deadline)
	if left <= 0 || p.budget.expired {
		p.budget.expired = true
		return false
	}
	p.MatchTimeout = left
	ok, err := p.Regexp.MatchString(text)
	p.budget.expired = p.budget.expired || err != nil
	return ok && err == nil
}

// plainSchema returns a schema as package jsonschema takes it, with OpenAPI's nullable written as a type.
func plainSchema(source any) any {
	v, _ := plainValue(source)
	if o, ok := source.(*ojson.Object); ok {
		allowNull(o, v.(map[string]any))
	}
	return v
}

// allowNull adds null to the types of a schema that is nullable, and does so for those in it. Plain is the schema's copy.
func allowNull(o *ojson.Object, plain map[string]any) {
	if nullable(o) {
		switch t := plain["type"].(type) {
		case string:
			if t != "null" {
				plain["type"] = []any{t, "null"}
			}
		case []any:
			has := false
			for _, x := range t {
				has = has || x == "null"
			}
			if !has {
				plain["type"] = append(t, "null")
			}
		}
		if list, ok := plain["enum"].([]any); ok {
			has := false
			for _, x := range list {
				has = has || x == nil
			}
			if !has {
				plain["enum"] = append(list, nil)
			}
		}
		if c, ok := plain["const"]; ok && c != nil {
			delete(plain, "const")
			plain["enum"] = []any{c, nil}
		}
	}
	for sub, path := range subschemas(o) {
		at := any(plain)
		for _, step := range path {
			switch v := at.(type) {
			case map[string]any:
				at = v[step]
			case []any:
				var i int
				fmt.Sscan(step, &i)
				at = v[i]
			}
		}
		so, isObject := sub.(*ojson.Object)
		if sp, ok := at.(map[string]any); ok && isObject {
			allowNull(so, sp)
		}
	}
}

// plainValue returns a JSON value with maps for objects, and whether its numbers are of a size to compute with.
func plainValue(v any) (any, bool) {
	switch v := v.(type) {
	case json.Number:
		return v, computable(string(v))
	case []any:
		out, all := make([]any, len(v)), true
		for i := range v {
			x, ok := plainValue(v[i])
			out[i], all = x, all && ok
		}
		return out, all
	case *ojson.Object:
		out, all := make(map[string]any, v.Len()), true
		for k, x := range v.All() {
			x, ok := plainValue(x)
			out[k], all = x, all && ok
		}
		return out, all
	}
	return v, true
}

// computable reports whether a number is small enough to compute with exactly.
func computable(number string) bool {
	if len(number) > maxNumber {
		return false
	}
	i := strings.IndexAny(number, "eE")
	if i < 0 {
		return true
	}
	e, err := strconv.Atoi(number[i+1:])
	return err == nil && -maxNumber <= e && e <= maxNumber
}

var english = message.NewPrinter(language.English)

// explained returns an error of package jsonschema as one line: its first cause and where it is.
func explained(err error) error {
	var invalid *jsonschema.ValidationError
	var bad *jsonschema.SchemaValidationError
	if errors.As(err, &bad) {
		err = bad.Err
	}
	if !errors.As(err, &invalid) {
		return errors.New(oneLine(err.Error()))
	}
	for len(invalid.Causes) > 0 {
		next := invalid.Causes[0]
		switch invalid.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			// The alternative that went furthest says most.
			for _, c := range invalid.Causes[1:] {
				if depth(c) > depth(next) {
					next = c
				}
			}
		}
		invalid = next
	}
	at := "the value"
	if len(invalid.InstanceLocation) > 0 {
		at = place{}.at(invalid.InstanceLocation...).path
	}
	return errors.New(oneLine(at + ": " + invalid.ErrorKind.LocalizedString(english)))
}

// depth returns how deep in the value the first cause of an error lies.
func depth(e *jsonschema.ValidationError) int {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	return len(e.InstanceLocation)
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}
