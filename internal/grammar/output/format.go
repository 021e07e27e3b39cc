package output

import (
	"fmt"
	"slices"

	"splash/internal/chat"
)

// FormatOf returns what grammars need to know of a chat format whose tags id finds in the vocabulary, as
// (*tokenizer.Tokenizer).ID does.
func FormatOf(f *chat.Format, id func(text string) (int32, bool)) (Format, error) {
	out := Format{ModelThinks: f.ThinkOpen != "", ThinkOpen: -1}
	r := resolver{format: f, id: id}
	out.ThinkClose, out.CallOpen, out.CallClose = r.token(f.ThinkClose), r.token(f.CallOpen), r.token(f.CallClose)
	const thinkOpen = "<think>"
	if out.ModelThinks {
		out.ThinkOpen = r.token(f.ThinkOpen)
	} else if slices.Contains(f.Tags, thinkOpen) {
		if n, ok := id(thinkOpen); ok {
			out.ThinkOpen = n
		}
	}
	if f.TagTokens {
		out.Syntax = GLMArgs
		out.KeyOpen, out.KeyClose = r.token(chat.ArgKeyOpen), r.token(chat.ArgKeyClose)
		out.ValueOpen, out.ValueClose = r.token(chat.ArgValueOpen), r.token(chat.ArgValueClose)
	}
	for _, text := range f.Stop {
		out.Stop = append(out.Stop, r.token(text))
	}
	return out, r.err
}

type resolver struct {
	format *chat.Format
	id     func(string) (int32, bool)
	err    error
}

func (r *resolver) token(text string) int32 {
	n, ok := r.id(text)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("the vocabulary has no token %s, which the chat format %s needs", text, r.format.Name)
	}
	return n
}
