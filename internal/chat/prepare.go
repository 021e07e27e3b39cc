package chat

import (
	"context"
	"fmt"

	"splash/internal/chat/ojson"
)

// PrepareOptions say what the served model takes.
type PrepareOptions struct {
	// Vision says that the model takes images, and files as images of their pages.
	Vision bool
	// NoVisionReason says in parentheses why it does not: "started with --language-only" unless set.
	NoVisionReason string
	// Image checks an image by its URL, before any file is read. Nil takes every one.
	Image func(url string) error
	// File reads a file part: the text and the images it holds. Nil refuses files.
	File func(ctx context.Context, file *ojson.Object) ([]Part, error)
}

// Prepare normalizes a conversation before it is rendered. The leading system messages become one, joined by blank
// lines; a system message after another turn stays where it is. Media are checked before any file is read, and files
// replaced by what they hold. A call that the output limit cut becomes text. Errors of the request are *RequestError;
// others are of opt.Image and opt.File.
func Prepare(ctx context.Context, messages []Message, opt PrepareOptions) ([]Message, error) {
	if len(messages) == 0 {
		return nil, requestErrorf("messages must be a non-empty array")
	}
	if err := check(messages, opt); err != nil {
		return nil, err
	}
	out := make([]Message, 0, len(messages))
	for _, m := range messages {
		switch {
		case m.Role == RoleSystem && len(out) == 1 && out[0].Role == RoleSystem:
			out[0].Text = joinBlank(out[0].Text, m.Text)
			continue
		case m.Role == RoleAssistant:
			out = appendAssistant(out, m)
			continue
		}
		var err error
		if m.Text, m.Parts, err = expandFiles(ctx, m, opt); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func joinBlank(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// check looks for what the model cannot take, before anything is decoded.
func check(messages []Message, opt PrepareOptions) error {
	hasUser := false
	for _, m := range messages {
		switch m.Role {
		case RoleUser:
			hasUser = true
		case RoleSystem, RoleAssistant, RoleTool:
		default:
			return requestErrorf("unsupported message role: %.100s", m.Role)
		}
		for _, p := range m.Parts {
			if err := checkPart(p, opt); err != nil {
				return err
			}
		}
	}
	if !hasUser {
		return requestErrorf("messages must include a user message")
	}
	return nil
}

func checkPart(p Part, opt PrepareOptions) error {
	kind := map[PartKind]string{ImagePart: "image", FilePart: "PDF"}[p.Kind]
	if kind == "" {
		return nil
	}
	if !opt.Vision {
		reason := opt.NoVisionReason
		if reason == "" {
			reason = "started with --language-only"
		}
		return requestErrorf("%s input is not supported: this model is serving without vision (%s)", kind, reason)
	}
	switch {
	case p.Kind == FilePart && opt.File == nil:
		return requestErrorf("file content is not supported")
	case p.Kind == ImagePart && opt.Image != nil:
		return opt.Image(p.URL)
	}
	return nil
}

// expandFiles returns a message's content with the files replaced by their parts.
func expandFiles(ctx context.Context, m Message, opt PrepareOptions) (string, []Part, error) {
	if m.Parts == nil {
		return m.Text, nil, nil
	}
	parts := make([]Part, 0, len(m.Parts))
	for _, p := range m.Parts {
		if p.Kind != FilePart {
			parts = append(parts, p)
			continue
		}
		pages, err := opt.File(ctx, p.File)
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, pages...)
	}
	return joinText(parts)
}

// PDFPage returns the parts of one page of a PDF, counted from 1: its text, and its image.
func PDFPage(n int, text, imageURL string) []Part {
	return []Part{
		{Kind: TextPart, Text: fmt.Sprintf("PDF page %d:\n%s\n", n, text)},
		{Kind: ImagePart, URL: imageURL},
	}
}

// appendAssistant appends an assistant turn, split at each call that was cut: such a call is not rendered as one.
func appendAssistant(out []Message, m Message) []Message {
	rest := m
	rest.Calls = nil
	split := false
	flush := func() {
		if rest.Text != "" || rest.Reasoning != nil && *rest.Reasoning != "" || len(rest.Calls) > 0 {
			out = append(out, rest)
		}
		rest = Message{Role: RoleAssistant}
	}
	for _, c := range m.Calls {
		if c.Arguments != nil {
			rest.Calls = append(rest.Calls, c)
			continue
		}
		split = true
		flush()
		function, _ := ojson.String(ojson.NewObject("name", c.Name, "arguments", c.Cut), ojson.Spaced)
		out = append(out, Message{Role: RoleAssistant, Text: "Incomplete tool call:\n" + function})
	}
	if split {
		flush()
		return out
	}
	return append(out, m)
}
