package server

import (
	"context"
	"net/http"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// tokenize answers POST /tokenize.
func (x *exchange) tokenize(body *ojson.Object) error {
	f := &fields{o: body}
	content, ok := body.Value("content").(string)
	if !ok {
		f.fault("content must be a string")
	}
	f.bool("add_special", false) // no profile adds tokens
	if !f.bool("parse_special", true) || f.bool("with_pieces", false) {
		f.fault("only parse_special=true is supported")
	}
	if f.err != nil {
		return f.err
	}
	return x.prepared(func() error {
		x.json(http.StatusOK, map[string][]int32{"tokens": append([]int32{}, x.s.model.Tokenizer.Encode(content, true)...)})
		return nil
	})
}

// applyTemplate answers POST /apply-template.
func (x *exchange) applyTemplate(body *ojson.Object) error {
	f := &fields{o: body}
	generation := f.bool("add_generation_prompt", true)
	c := conversation{tools: f.chatTools().list, Variables: x.s.variables(f)}
	if f.err != nil {
		return f.err
	}
	var err error
	if c.messages, err = chat.ParseMessages(body.Value("messages")); err != nil {
		return err
	}
	return x.prepared(func() error {
		var text string
		if generation {
			p, err := x.render(c)
			if err != nil {
				return err
			}
			text = p.Text
		} else if text, err = x.renderTurns(x.ctx, c); err != nil {
			return err
		}
		x.json(http.StatusOK, map[string]string{"prompt": text})
		return nil
	})
}

// renderTurns renders a conversation that nobody is to answer.
func (x *exchange) renderTurns(ctx context.Context, c conversation) (string, error) {
	req, template, err := x.request(c)
	if err != nil {
		return "", err
	}
	text, err := template.Render(ctx, req)
	return text, x.renderError(err)
}
