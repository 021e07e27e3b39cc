package bench

import (
	"context"
	"errors"
	"math/rand/v2"

	"splash/internal/engine"
)

// A SecondTurn is how soon the first token comes of a conversation that has not been seen, and of its second turn, whose prompt
// is all of the first with its answer, and a question more.
type SecondTurn struct {
	Prompt   int     `json:"prompt_tokens"`
	Answer   int     `json:"answer_tokens"`
	Question int     `json:"question_tokens"`
	ColdMs   float64 `json:"first_token_ms"`
	SecondMs float64 `json:"second_turn_first_token_ms"`
	Ratio    float64 `json:"ratio"`
}

// The tokens of a conversation's first answer and of the question after it.
const (
	turnAnswer   = 32
	turnQuestion = 32
)

// TurnTokens is what a conversation takes beside its first prompt: its answer, the question after it and a token.
const TurnTokens = turnAnswer + turnQuestion + 1

// MeasureSecondTurn times a conversation whose first prompt has so many tokens.
func MeasureSecondTurn(ctx context.Context, e *engine.Engine, prompt int, o SpeedOptions) (*SecondTurn, error) {
	random := rand.New(rand.NewPCG(2, o.Seed))
	o.Prompt = prompt
	tokens := o.prompt(random)
	answer, cold, err := firstToken(ctx, e, tokens, turnAnswer)
	if err != nil {
		return nil, err
	}
	tokens = append(tokens, answer...)
	for range turnQuestion {
		tokens = append(tokens, random.Int32N(int32(o.Vocab)))
	}
	_, second, err := firstToken(ctx, e, tokens, 1)
	if err != nil {
		return nil, err
	}
	return &SecondTurn{prompt, len(answer), turnQuestion, cold, second, cold / second}, nil
}

// firstToken answers a prompt and says after how many milliseconds the first token came.
func firstToken(ctx context.Context, e *engine.Engine, prompt []int32, tokens int) (answer []int32, after float64, err error) {
	s, err := e.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: tokens})
	if err != nil {
		return nil, 0, err
	}
	for more := true; more; {
		answer, more = s.Next(answer)
	}
	if _, err := s.End(); err != nil {
		return nil, 0, err
	}
	if len(answer) == 0 {
		return nil, 0, errors.New("bench: a request ended without a token")
	}
	m := s.Timing()
	return answer, ms(m.First.Sub(m.Submitted)), nil
}
