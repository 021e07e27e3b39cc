package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/engine"
	"splash/internal/grammar"
	"splash/internal/grammar/output"
	"splash/internal/grammar/schema"
)

// newOutputs returns the compiler of the grammars of the model's answers. They end as the engine's do.
func newOutputs(m *Model) (*output.Compiler, error) {
	tags := *m.Format
	tags.Stop = nil
	format, err := output.FormatOf(&tags, m.Tokenizer.ID)
	if err != nil {
		return nil, err
	}
	format.Stop = m.Stop
	return output.New(m.Tokenizer, m.Tokenizer.Size(), format)
}

// jsonSchema reads the schema of an answer's format, which is the field called name.
func (f *fields) jsonSchema(name string, format *ojson.Object) *output.Response {
	s := format.Value("schema")
	switch s.(type) {
	case bool, *ojson.Object:
		return &output.Response{Schema: s}
	}
	f.fault("%s.schema must be a JSON Schema: an object or a boolean", name)
	return nil
}

// request is what the generation says about its answer.
func (g *generation) request() *output.Request {
	choices := map[string]output.Choice{
		choiceAuto: output.Auto, choiceNone: output.None, choiceRequired: output.Required, choiceNamed: output.Named,
	}
	return &output.Request{
		Thinking: g.thinking, Tools: g.tools.offered, Choice: choices[g.tools.choice], Name: g.tools.named,
		Serial: !g.tools.parallel, Response: g.response,
	}
}

// checkConstraint refuses what an answer that follows a grammar cannot be: one that goes on after its end, or ends before
// it. Stop is what the interface calls stop strings.
func (f *fields) checkConstraint(g *generation, stop string) {
	if g.ignoreEOS && g.request().Constrained() {
		f.fault("ignore_eos cannot be combined with constrained output")
	}
	switch {
	case len(g.stop) == 0:
	case g.tools.calling():
		f.fault("%s cannot be combined with tools", stop)
	case g.response != nil:
		f.fault("%s cannot be combined with a response format", stop)
	}
}

// compilePatience bounds the making of a request's grammar, its schemas included. What takes longer is no schema that
// people write.
const compilePatience = 10 * time.Second

// constrain makes what the generation's answer is held to. It waits no longer than the request does, and what nobody waits
// for ends.
func (x *exchange) constrain(g *generation) error {
	if g.response == nil && len(g.tools.offered) == 0 {
		return nil
	}
	defer x.s.metrics.stage(stageGrammar, time.Now())
	ctx, cancel := context.WithTimeoutCause(x.ctx, compilePatience, schema.ErrTooLarge)
	defer cancel()
	var err error
	g.output, err = x.s.outputs.Compile(ctx, g.request())
	if err != nil && x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	return err
}

// constraint is what the engine holds the generation's tokens to; nil is nothing.
func (x *exchange) constraint(g *generation) engine.Constraint {
	if g.output == nil || x.s.o.unmasked {
		return nil
	}
	m := g.output.Matcher()
	if m == nil {
		return nil
	}
	return &constraint{m, x.s.metrics}
}

// A constraint is a matcher whose masks are counted.
type constraint struct {
	matcher *grammar.Matcher
	metrics *metrics
}

func (c *constraint) Allowed(row []uint64) error {
	began := time.Now()
	err := c.matcher.Allowed(row)
	c.metrics.mask(1, time.Since(began), err)
	return err
}

func (c *constraint) Rows(rows []uint64, proposals []int32) (allowed int, err error) {
	began := time.Now()
	allowed, err = c.matcher.Rows(rows, proposals)
	c.metrics.mask(int64(len(proposals)+1), time.Since(began), err)
	return allowed, err
}

func (c *constraint) Accept(token int32) error { return c.matcher.Accept(token) }

// maskFigures are what the masks of all answers came to.
type maskFigures struct {
	rows, failures int64
	took, longest  time.Duration
}

func (m *metrics) mask(rows int64, took time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.masks.rows += rows
	m.masks.took += took
	m.masks.longest = max(m.masks.longest, took)
	if err != nil {
		m.masks.failures++
	}
}

func (m *metrics) masked() maskFigures {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.masks
}

func (f maskFigures) status() *ojson.Object {
	return ojson.NewObject(
		"rows", f.rows, "failures", f.failures, "total_ms", milliseconds(f.took), "longest_ms", milliseconds(f.longest))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (s *Server) grammarStatus() *ojson.Object {
	c := s.outputs.Stats()
	return ojson.NewObject(
		"entries", c.Entries, "capacity", c.Capacity, "source_bytes", c.SourceBytes, "source_budget_bytes", c.SourceBudgetBytes,
		"hits", c.Hits, "misses", c.Misses)
}

// keep gathers content that is to be validated.
func (t *turn) keep(events []chat.Event) {
	if t.g.response == nil {
		return
	}
	for _, e := range events {
		if e.Kind == chat.ContentDelta {
			t.content.WriteString(e.Text)
		}
	}
}

// validate holds a complete answer to the request's response format. One that was cut cannot be complete, and calls are not
// of that format.
func (t *turn) validate() error {
	if t.g.response == nil || t.cut || t.reader.Calls() > 0 {
		return nil
	}
	err := t.g.output.Validate(t.content.String())
	var invalid *schema.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return outputError(codeOutput, fmt.Sprintf("model returned invalid structured output: %s", invalid.Msg))
	case errors.Is(err, schema.ErrNotEvaluated):
		return outputError(codeNotChecked, err.Error())
	}
	return err
}

// isOutput reports the error of an answer that is not what was asked for.
func (e *Error) isOutput() bool { return e.Code == codeOutput || e.Code == codeNotChecked }

func outputError(code, message string) *Error {
	return &Error{Status: http.StatusInternalServerError, Code: code, Message: message}
}
