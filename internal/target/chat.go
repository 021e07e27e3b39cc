package target

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"splash/internal/chat"
	"splash/internal/tokenizer"
	"splash/planner"
)

// openChat probes the chat templates, and holds the tokenizer to the family's chat format.
func (t *Target) openChat(ctx context.Context) (err error) {
	switch t.Plan.Family.Chat {
	case planner.ChatQwen:
		t.Format = chat.QWEN
	case planner.ChatFlint:
		t.Format = chat.FLINT
	default:
		return fmt.Errorf("family %s has no chat format", t.Plan.Family.Name)
	}
	if !slices.Contains(t.Plan.Stop, t.Vocabulary.EOS) {
		return fmt.Errorf("tokenizer EOS token does not match the model: %d is none of %v", t.Vocabulary.EOS, t.Plan.Stop)
	}
	t.Templates, err = chat.NewTemplates(ctx, t.Vocabulary.Templates, chat.TemplateOptions{
		Format: t.Format, Special: specialTokens(t.Vocabulary),
		Count: func(text string) (int, bool) { return len(t.Tokenizer.Encode(text, true)), true },
	})
	if err != nil {
		return err
	}
	for _, tools := range []bool{false, true} {
		if c := t.Templates.Select(tools); c.Err != nil { // every request would fail
			return fmt.Errorf("the chat template %q cannot be read: %s", c.Name, strings.Join(strings.Fields(c.Err.Error()), " "))
		}
	}
	return nil
}

// specialTokens are the tokens that templates know by name.
func specialTokens(v *tokenizer.Vocabulary) map[string]string {
	special := map[string]string{}
	for name, id := range map[string]int32{"bos_token": v.BOS, "eos_token": v.EOS, "pad_token": v.Padding} {
		if id >= 0 && int(id) < len(v.Tokens) {
			special[name] = v.Tokens[id]
		}
	}
	return special
}
