package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/grammar"
	"splash/internal/grammar/schema"
	"splash/internal/media"
)

// An Error is what a client is told of a request that failed.
type Error struct {
	Status  int
	Code    string
	Message string

	field   *systemOneFault // where the interface names fields
	details *errorDetails   // what Anthropic's clients go by
}

func (e *Error) Error() string { return e.Message }

// Codes of errors.
const (
	codeInvalid     = "invalid_request_error"
	codeContext     = "context_length_exceeded"
	codeAuth        = "authentication_error"
	codeForbidden   = "forbidden"
	codeNoModel     = "model_not_found"
	codeNotFound    = "not_found"
	codeTimeout     = "request_timeout"
	codeTooLarge    = "request_too_large"
	codeInternal    = "internal_server_error"
	codeResult      = "model_result_invalid"
	codeMethod      = "not_implemented"
	codeVersion     = "http_version_not_supported"
	codeShutdown    = "server_shutdown"
	codeOverloaded  = "frontend_overloaded"
	codeUnavailable = "runtime_unavailable"
	codeRecovering  = "engine_recovering"
	codeFailed      = "engine_failed"
	codeResource    = "resource_timeout"
	codeCapacity    = "capacity_exhausted"
	codeOutput      = "invalid_model_output"
	codeNotChecked  = "output_validation_failed"
	codeMask        = "mask_timeout"
)

// invalidf is the error of a request that is malformed or asks for what cannot be.
func invalidf(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeInvalid, Message: fmt.Sprintf(format, args...)}
}

// forbiddenf is the error of a request that this server is not for.
func forbiddenf(format string, args ...any) *Error {
	return &Error{Status: http.StatusForbidden, Code: codeForbidden, Message: fmt.Sprintf(format, args...)}
}

// tooLongf is the error of a prompt that the context does not hold.
func tooLongf(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeContext, Message: fmt.Sprintf(format, args...)}
}

func overloaded(message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: codeOverloaded, Message: message}
}

// Causes of a request's end.
var (
	errDeadline = &Error{Status: http.StatusGatewayTimeout, Code: codeTimeout, Message: "the request took longer than its timeout"}
	errShutdown = &Error{Status: http.StatusServiceUnavailable, Code: codeShutdown, Message: "the server is stopping"}
	errNotFound = &Error{Status: http.StatusNotFound, Code: codeNotFound, Message: "not found"}
	errInternal = &Error{Status: http.StatusInternalServerError, Code: codeInternal, Message: "internal server error"}

	// errGone says that there is nobody to answer.
	errGone = errors.New("the client is gone")
)

// asError is what the client is told of err; ok is false for an error that is this program's fault, whose text is the
// console's alone.
func asError(err error) (e *Error, ok bool) {
	var refused *chat.RequestError
	var template *chat.TemplateError
	var refusedSchema *schema.Error
	var refusedMedia *media.Error
	switch {
	case errors.As(err, &e):
		return e, true
	case errors.As(err, &refusedSchema):
		return invalidf("%s", refusedSchema.Msg), true
	case errors.Is(err, grammar.ErrTooComplex):
		return &Error{Status: http.StatusServiceUnavailable, Code: codeMask, Message: "the tokens that the output may have were not found in good time"}, true
	case errors.As(err, &refusedMedia):
		return invalidf("%v", refusedMedia), true
	case errors.Is(err, media.ErrBusy):
		return overloaded(media.ErrBusy.Error()), true
	case errors.As(err, &refused):
		return invalidf("%s", refused.Msg), true
	case errors.As(err, &template):
		return invalidf("messages could not be rendered"), true
	case errors.Is(err, engine.ErrQueueFull):
		return overloaded("frontend request capacity is exhausted"), true
	case errors.Is(err, engine.ErrStopped):
		return &Error{Status: http.StatusServiceUnavailable, Code: codeUnavailable, Message: "the engine is not running"}, true
	case errors.Is(err, engine.ErrRecovering):
		return &Error{Status: http.StatusServiceUnavailable, Code: codeRecovering, Message: "the engine is recovering; retry shortly"}, true
	case errors.Is(err, engine.ErrGivenUp):
		return &Error{Status: http.StatusInternalServerError, Code: codeFailed, Message: "the engine failed too often; the server must be started again"}, true
	case errors.Is(err, engine.ErrResource):
		return &Error{Status: http.StatusServiceUnavailable, Code: codeResource, Message: "the weights could not be loaded in good time"}, true
	case errors.Is(err, engine.ErrCapacity):
		return &Error{
			Status: http.StatusBadRequest, Code: codeCapacity,
			Message: "the request does not fit in memory even alone; shorten it, or start the server with a larger --max-memory and --max-context",
		}, true
	case errors.Is(err, engine.ErrNotFinite):
		return &Error{Status: http.StatusInternalServerError, Code: codeResult, Message: "the model's result is not finite"}, true
	case errors.Is(err, context.DeadlineExceeded):
		return errDeadline, true
	}
	return errInternal, false
}

// A dialect is how an interface spells errors.
type dialect int

const (
	openAI dialect = iota
	anthropic
	systemOne
)

type openAIError struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	} `json:"error"`
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string        `json:"type"`
		Message string        `json:"message"`
		Details *errorDetails `json:"details,omitempty"`
	} `json:"error"`
}

type errorDetails struct {
	Code string `json:"error_code"`
}

// body is the error as the dialect's clients read it.
func (d dialect) body(e *Error) any {
	if d == systemOne && e.field != nil {
		return map[string][]*systemOneFault{"detail": {e.field}}
	}
	if d == anthropic {
		var b anthropicError
		b.Type, b.Error.Type, b.Error.Message, b.Error.Details = "error", anthropicType(e.Status), e.Message, e.details
		return b
	}
	var b openAIError
	b.Error.Message, b.Error.Code, b.Error.Type = e.Message, e.Code, "invalid_request_error"
	if e.Status >= 500 {
		b.Error.Type = "server_error"
	}
	return b
}

// anthropicType is the type of an error in the Messages interface (docs.anthropic.com, API errors).
func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "timeout_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}
