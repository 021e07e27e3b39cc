// Package chat turns conversations into prompts and a model's output back into messages.
//
// A request's messages become a normalized list (ParseMessages, Prepare), which the model's own chat template renders
// (Templates, Template). Templates are probed at start: how they treat a system message that comes after the first,
// and what they append for the model to answer. A Format, QWEN or FLINT, says how the model frames its reasoning and
// its tool calls; its Parser reads output as it arrives.
//
// The package knows no HTTP, no tokenizer and no model: text comes in and goes out.
package chat

import "fmt"

// A RequestError is a request's own fault; a server answers it with status 400 and the message.
type RequestError struct{ Msg string }

func (e *RequestError) Error() string { return e.Msg }

func requestErrorf(format string, args ...any) error {
	return &RequestError{fmt.Sprintf(format, args...)}
}
