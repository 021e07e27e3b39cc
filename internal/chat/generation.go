package chat

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"

	"splash/internal/chat/ojson"
)

// maxPrompts is how many generation prompts of other variables than the efforts a template remembers.
const maxPrompts = 64

// generationPrompts remembers the generation prompts of a template by the variables they depend on.
type generationPrompts struct {
	efforts map[promptKey]generationPrompt // of no effort and of each, found at start

	mu     sync.Mutex
	others map[promptKey]generationPrompt
	recent []promptKey // of others, the least recently used first
}

type promptKey [sha256.Size]byte

// generationPrompt is what a template appends for the model to answer; ok is false where it appends none.
type generationPrompt struct {
	text string
	ok   bool
}

func keyOf(v Variables) promptKey {
	text, err := ojson.String(v.values(), ojson.Compact)
	if err != nil {
		text = fmt.Sprint(err) // a value that is not JSON, which no request holds
	}
	return sha256.Sum256([]byte(text))
}

// probePrompts finds the generation prompts of no effort and of each.
func (t *Template) probePrompts(ctx context.Context) error {
	t.prompts.efforts = map[promptKey]generationPrompt{}
	t.prompts.others = map[promptKey]generationPrompt{}
	for _, effort := range append([]string{""}, Efforts...) {
		v := Variables{Effort: effort}
		p, err := t.probePrompt(ctx, v)
		if err != nil {
			return err
		}
		t.prompts.efforts[keyOf(v)] = p
	}
	return nil
}

// generationPrompt returns the generation prompt for v, which it finds the first time.
func (t *Template) generationPrompt(ctx context.Context, v Variables) (string, bool, error) {
	key := keyOf(v)
	if p, ok := t.prompts.efforts[key]; ok {
		return p.text, p.ok, nil
	}
	if p, ok := t.prompts.get(key); ok {
		return p.text, p.ok, nil
	}
	p, err := t.probePrompt(ctx, v)
	if err != nil {
		return "", false, err
	}
	t.prompts.put(key, p)
	return p.text, p.ok, nil
}

func (g *generationPrompts) get(key promptKey) (generationPrompt, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.others[key]
	if ok {
		g.touch(key)
	}
	return p, ok
}

func (g *generationPrompts) put(key promptKey, p generationPrompt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.others[key] = p
	g.touch(key)
	if len(g.recent) > maxPrompts {
		delete(g.others, g.recent[0])
		g.recent = slices.Delete(g.recent, 0, 1)
	}
}

func (g *generationPrompts) touch(key promptKey) {
	if i := slices.Index(g.recent, key); i >= 0 {
		g.recent = slices.Delete(g.recent, i, i+1)
	}
	g.recent = append(g.recent, key)
}

// probePrompt renders three conversations with and without a generation prompt. It is what they have in addition,
// where that is the same for all of them. The error is the context's.
func (t *Template) probePrompt(ctx context.Context, v Variables) (generationPrompt, error) {
	found := ""
	for i, messages := range promptCanaries() {
		req := Request{Messages: messages, Variables: v, limits: probeLimits}
		without, err := t.render(ctx, t.main, req)
		req.AddGenerationPrompt = true
		with := ""
		if err == nil {
			with, err = t.render(ctx, t.main, req)
		}
		if ctx.Err() != nil {
			return generationPrompt{}, ctx.Err()
		}
		text, ok := strings.CutPrefix(with, without)
		if err != nil || !ok || text == "" || i > 0 && text != found {
			return generationPrompt{}, nil
		}
		found = text
	}
	return generationPrompt{found, true}, nil
}

func promptCanaries() [][]Message {
	reasoning := "I know this one."
	question := Message{Role: RoleUser, Text: "What is two plus two?"}
	call, _ := NewCall("add", ojson.NewObject("a", int64(2), "b", int64(2)))
	return [][]Message{
		{question},
		{question, {Role: RoleAssistant, Text: "Four.", Reasoning: &reasoning}, {Role: RoleUser, Text: "And three plus three?"}},
		{question, {Role: RoleAssistant, Calls: []Call{call}}, {Role: RoleTool, Text: "4"}},
	}
}

// describePrompts tells how long the generation prompts of the efforts are.
func (t *Template) describePrompts() string {
	low, high := 0, 0
	for _, p := range t.prompts.efforts {
		if !p.ok || t.opt.Count == nil {
			continue
		}
		n, ok := t.opt.Count(p.text)
		if !ok {
			continue
		}
		if low == 0 || n < low {
			low = n
		}
		high = max(high, n)
	}
	switch {
	case high == 0:
		return "generation prompt unknown"
	case high == 1:
		return "generation prompt 1 token"
	case low == high:
		return fmt.Sprintf("generation prompt %d tokens", high)
	}
	return fmt.Sprintf("generation prompt %d-%d tokens", low, high)
}
