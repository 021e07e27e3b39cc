package server

import (
	"strings"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// parseMessages gives a request's system text and messages the shape of package chat. Reasoning that key hid is in its place
// again.
func parseMessages(body *ojson.Object, key *ThinkingKey) ([]chat.Message, error) {
	var out []chat.Message
	if v := body.Value("system"); v != nil {
		text, err := systemText(v)
		if err != nil {
			return nil, err
		}
		out = append(out, chat.Message{Role: chat.RoleSystem, Text: text})
	}
	list, _ := body.Value("messages").([]any)
	if len(list) == 0 {
		return nil, invalidf("messages must be a non-empty array")
	}
	for _, v := range list {
		o, ok := v.(*ojson.Object)
		if !ok {
			return nil, invalidf("each message must be an object")
		}
		blocks, err := contentBlocks(o.Value("content"))
		if err != nil {
			return nil, err
		}
		switch role := o.Value("role"); role {
		case "user":
			out, err = appendUser(out, blocks)
		case "assistant":
			out, err = appendTurn(out, blocks, key)
		case "system":
			var text string
			text, err = joinBlocks(blocks)
			out = append(out, chat.Message{Role: chat.RoleSystem, Text: text})
		default:
			name, _ := role.(string)
			return nil, invalidf("unsupported message role: %s", shorten(name))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// systemText is the text of a system field, without the blocks by which a client's billing is told.
func systemText(v any) (string, error) {
	blocks, err := contentBlocks(v)
	if err != nil {
		return "", invalidf("system must be a string or text blocks")
	}
	kept := blocks[:0]
	for _, b := range blocks {
		text, _ := b.Value("text").(string)
		if !strings.HasPrefix(text, "x-anthropic-billing-header") {
			kept = append(kept, b)
		}
	}
	return joinBlocks(kept)
}

// contentBlocks are the blocks of a content; a string is one of text.
func contentBlocks(v any) ([]*ojson.Object, error) {
	switch v := v.(type) {
	case string:
		return []*ojson.Object{ojson.NewObject("type", "text", "text", v)}, nil
	case []any:
		blocks := make([]*ojson.Object, 0, len(v))
		for _, b := range v {
			o, ok := b.(*ojson.Object)
			if !ok {
				return nil, invalidf("content blocks must be objects")
			}
			blocks = append(blocks, o)
		}
		return blocks, nil
	}
	return nil, invalidf("message content must be a string or an array of blocks")
}

func joinBlocks(blocks []*ojson.Object) (string, error) {
	var text strings.Builder
	for _, b := range blocks {
		s, ok := b.Value("text").(string)
		if b.Value("type") != "text" || !ok {
			return "", invalidf("only text content is supported here")
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

// appendUser appends a user's turn: the results of tools first, then what the user says.
func appendUser(out []chat.Message, blocks []*ojson.Object) ([]chat.Message, error) {
	var rest []chat.Part
	for _, b := range blocks {
		if b.Value("type") == "tool_result" {
			m, err := toolResult(b)
			if err != nil {
				return nil, err
			}
			out = append(out, m)
			continue
		}
		parts, err := blockParts(b)
		if err != nil {
			return nil, err
		}
		rest = append(rest, parts...)
	}
	if len(rest) == 0 && len(blocks) > 0 {
		return out, nil
	}
	text, parts := joinParts(rest)
	return append(out, chat.Message{Role: chat.RoleUser, Text: text, Parts: parts}), nil
}

// joinParts makes one text of parts that are text alone.
func joinParts(parts []chat.Part) (string, []chat.Part) {
	var text strings.Builder
	for _, p := range parts {
		if p.Kind != chat.TextPart {
			return "", parts
		}
		text.WriteString(p.Text)
	}
	return text.String(), nil
}

func toolResult(b *ojson.Object) (chat.Message, error) {
	m := chat.Message{Role: chat.RoleTool}
	id, ok := b.Value("tool_use_id").(string)
	if !ok {
		return m, invalidf("tool_result.tool_use_id must be a string")
	}
	m.CallID = &id
	var all []chat.Part
	if v := b.Value("is_error"); v == true {
		all = append(all, chat.Part{Kind: chat.TextPart, Text: "Tool execution failed:\n"})
	} else if v != nil && v != false {
		return m, invalidf("tool_result.is_error must be a boolean")
	}
	if v := b.Value("content"); v != nil {
		blocks, err := contentBlocks(v)
		if err != nil {
			return m, err
		}
		for _, b := range blocks {
			parts, err := blockParts(b)
			if err != nil {
				return m, err
			}
			all = append(all, parts...)
		}
	}
	m.Text, m.Parts = joinParts(all)
	return m, nil
}

// blockParts are the parts of a block that a user or a tool wrote.
func blockParts(b *ojson.Object) ([]chat.Part, error) {
	kind, _ := b.Value("type").(string)
	switch kind {
	case "text":
		text, ok := b.Value("text").(string)
		if !ok {
			return nil, invalidf("a text block's text must be a string")
		}
		return []chat.Part{{Kind: chat.TextPart, Text: text}}, nil
	case "image":
		source, _ := b.Value("source").(*ojson.Object)
		if source == nil || source.Value("type") != "base64" {
			return nil, invalidf("only base64 image sources are supported")
		}
		media, _ := source.Value("media_type").(string)
		data, _ := source.Value("data").(string)
		return []chat.Part{{Kind: chat.ImagePart, URL: "data:" + media + ";base64," + data}}, nil
	case "document":
		return documentParts(b)
	case "tool_reference":
		name, ok := b.Value("tool_name").(string)
		if !ok {
			return nil, invalidf("tool_reference.tool_name must be a string")
		}
		return []chat.Part{{Kind: chat.TextPart, Text: "\nAvailable tool: " + name + "\n"}}, nil
	}
	return nil, invalidf("unsupported content block: %s", shorten(kind))
}

// documentParts are a PDF with what its block says about it.
func documentParts(b *ojson.Object) ([]chat.Part, error) {
	source, _ := b.Value("source").(*ojson.Object)
	if source == nil || source.Value("type") != "base64" || source.Value("media_type") != "application/pdf" {
		return nil, invalidf("only base64 application/pdf document sources are supported")
	}
	if c, ok := b.Value("citations").(*ojson.Object); ok && c.Value("enabled") == true {
		return nil, invalidf("document citations are not supported")
	}
	var parts []chat.Part
	for _, name := range []string{"title", "context"} {
		if text, ok := b.Value(name).(string); ok && text != "" {
			parts = append(parts, chat.Part{Kind: chat.TextPart, Text: text + "\n"})
		}
	}
	file := ojson.NewObject("file_data", source.Value("data"))
	return append(parts, chat.Part{Kind: chat.FilePart, File: file}), nil
}

// appendTurn appends an assistant's turn: its text, then its calls.
func appendTurn(out []chat.Message, blocks []*ojson.Object, key *ThinkingKey) ([]chat.Message, error) {
	m := chat.Message{Role: chat.RoleAssistant}
	var reasoning strings.Builder
	for _, b := range blocks {
		kind, _ := b.Value("type").(string)
		switch kind {
		case "text":
			text, ok := b.Value("text").(string)
			if !ok {
				return nil, invalidf("a text block's text must be a string")
			}
			m.Text += text
		case "thinking":
			text, ok := b.Value("thinking").(string)
			if !ok {
				return nil, invalidf("a thinking block's thinking must be a string")
			}
			if signature, ok := b.Value("signature").(string); ok {
				if hidden, ok := key.open(signature); ok {
					text = hidden
				}
			}
			reasoning.WriteString(text)
		case "redacted_thinking":
		case "tool_use":
			name, ok := b.Value("name").(string)
			if !ok {
				return nil, invalidf("tool_use.name must be a string")
			}
			input := b.Value("input")
			if input == nil {
				input = &ojson.Object{}
			}
			if _, ok := input.(*ojson.Object); !ok {
				return nil, invalidf("tool_use.input must be an object")
			}
			call, err := chat.NewCall(name, input)
			if err != nil {
				return nil, err
			}
			if id, ok := b.Value("id").(string); ok {
				call.ID = &id
			}
			m.Calls = append(m.Calls, call)
		default:
			return nil, invalidf("unsupported content block: %s", shorten(kind))
		}
	}
	if reasoning.Len() > 0 {
		text := reasoning.String()
		m.Reasoning = &text
	}
	return append(out, m), nil
}
