package server

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/engine"
)

// Scoring asks a model which of some answers it would give, and takes its logits instead of the answer. The answers are
// letters, each one token.

// scoringInstruction is the system message of every scored prompt.
const scoringInstruction = "Judge the evidence by the criterion. " +
	"Answer with the uppercase letter of exactly one of the listed options, and with nothing else."

// errScoring says that the vocabulary has no single tokens for the answers.
var errScoring = &Error{
	Status: http.StatusInternalServerError, Code: "scoring_unsupported",
	Message: "the tokenizer cannot express the answers as single tokens",
}

// mostSlots is the most answers that a question can have.
const mostSlots = 255

// findSlots lists the labels A to Z, AA, AB and so on that are single tokens.
func (s *Server) findSlots() []string {
	var slots []string
	words := []string{""}
	for range 3 {
		var longer []string
		for _, w := range words {
			for c := 'A'; c <= 'Z'; c++ {
				longer = append(longer, w+string(c))
			}
		}
		for _, w := range longer {
			if _, ok := s.slotToken(w); ok && len(slots) < mostSlots {
				slots = append(slots, w)
			}
		}
		words = longer
	}
	return slots
}

// slotToken is the token of a label that is one token and reads back as itself.
func (s *Server) slotToken(label string) (int32, bool) {
	ids := s.model.Tokenizer.Encode(label, true)
	if len(ids) != 1 || s.model.Tokenizer.Decode(ids) != label {
		return 0, false
	}
	return ids[0], true
}

// A scored is a prompt whose answers are scored.
type scored struct {
	text   string // of the prompt
	prompt []int32
	tail   int
	tokens []int32 // of the answers
}

// scorePrompt makes the prompt that gives the payload, and holds the answers to it: each goes on from it by one token.
func (x *exchange) scorePrompt(payload *ojson.Object, slots []string) (*scored, error) {
	text, err := ojson.String(payload, ojson.Spaced)
	if err != nil {
		return nil, invalidf("the evidence is not JSON")
	}
	c := conversation{
		messages:  []chat.Message{{Role: chat.RoleSystem, Text: scoringInstruction}, {Role: chat.RoleUser, Text: text}},
		Variables: chat.Variables{Effort: "none"},
	}
	sc := &scored{}
	return sc, x.prepared(func() error {
		p, err := x.render(c)
		if err != nil {
			return err
		}
		sc.text, sc.prompt = p.Text, x.encode(p.Text)
		if tail := x.s.model.Tokenizer.Encode(p.Generation, true); hasSuffix(sc.prompt, tail) {
			sc.tail = len(tail)
		}
		if len(sc.prompt) > x.s.model.Context {
			return tooLongf("prompt exceeds the context window")
		}
		for _, slot := range slots {
			token, ok := x.s.slotToken(slot)
			longer := x.s.model.Tokenizer.Encode(p.Text+slot, true)
			if !ok || len(longer) != len(sc.prompt)+1 || !slices.Equal(longer[:len(sc.prompt)], sc.prompt) || longer[len(sc.prompt)] != token {
				return errScoring
			}
			sc.tokens = append(sc.tokens, token)
		}
		return nil
	})
}

// score runs a prompt and returns the logits of its answers, and how long the engine took.
func (x *exchange) score(sc *scored) (logits []float32, took time.Duration, err error) {
	if x.ctx.Err() != nil {
		return nil, 0, context.Cause(x.ctx)
	}
	s, err := x.s.model.Engine.Submit(x.ctx, engine.Request{Prompt: sc.prompt, Tail: sc.tail, Score: sc.tokens, Priority: x.priority})
	if err != nil {
		return nil, 0, err
	}
	for more := true; more; {
		_, more = s.Next(nil)
	}
	if _, err := s.End(); err != nil {
		return nil, 0, err
	}
	at := s.Timing()
	x.s.metrics.stages[stageQueue].Observe(at.Started.Sub(at.Submitted).Seconds())
	return s.Scores(), at.Ended.Sub(at.Started), nil
}

// softmax is the probabilities that logits stand for.
func softmax(logits []float32) []float64 {
	top := math.Inf(-1)
	for _, x := range logits {
		top = max(top, float64(x))
	}
	p := make([]float64, len(logits))
	sum := 0.0
	for i, x := range logits {
		p[i] = math.Exp(float64(x) - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// evidence reads the state that is judged: text, an object or an array, and nothing empty.
func evidence(v any) (any, error) {
	switch v := v.(type) {
	case string:
		if v != "" {
			return v, nil
		}
	case *ojson.Object, []any:
		return v, nil
	}
	return nil, errors.New("must be a non-empty string, an object or an array")
}
