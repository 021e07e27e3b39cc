// Package schema turns JSON Schemas into grammars of the JSON they describe, and validates JSON against them.
//
// Parse checks a schema, of draft 4 to 2020-12. A Builder adds rules to a grammar: of a schema's values (Value), of
// any object, or of the arguments of a tool (Arguments). What a grammar cannot say of a schema is left to Validate,
// and listed by Unenforced.
//
// The grammar is narrower than the schema where JSON leaves a choice that means nothing:
//
//   - declared properties come in the order of the schema, others after them;
//   - integers are written as such, not as 1.0; bounded numbers have no exponent, others one of at most three digits;
//   - listed values have the schema's own spelling, and strings under a pattern escape only what must be;
//   - white space between JSON's tokens is at most 64 characters;
//   - a schema that names no type, and has keywords for one type alone, is taken to mean that type.
package schema

import (
	"errors"
	"fmt"
)

// An Error is a schema's fault, or that of what it is to be used for; a server answers it with status 400 and the
// message.
type Error struct{ Msg string }

func (e *Error) Error() string { return e.Msg }

func errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// ErrTooLarge is the Error of a schema whose grammar is too large.
var ErrTooLarge error = &Error{"tool or output schema is too large to compile"}

// An InvalidError says why a value is not valid under a schema.
type InvalidError struct{ Msg string }

func (e *InvalidError) Error() string { return e.Msg }

// ErrNotEvaluated says that a value could not be validated: a pattern, or the schema as a whole, takes too long.
var ErrNotEvaluated = errors.New("the output could not be validated in good time")

// A Use is what a schema describes.
type Use uint8

const (
	Response   Use = iota // an answer
	Tool                  // a tool's arguments
	StrictTool            // a tool's arguments, which take nothing that is not declared
)

func (u Use) String() string { return [...]string{"output", "tool", "tool"}[u] }
