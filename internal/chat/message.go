package chat

import (
	"errors"
	"strings"

	"splash/internal/chat/ojson"
)

// The roles of messages. A developer message is a system message.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// A Message is one turn of a conversation.
type Message struct {
	Role  string
	Text  string // the content, where Parts is nil
	Parts []Part // the content of a user or tool turn that holds images or files, in the author's order

	Reasoning *string // of an assistant turn; nil where there is none
	Calls     []Call  // of an assistant turn, after its text

	CallID *string // of a tool turn: the call it answers
}

// A Call is a tool call of an assistant turn.
type Call struct {
	ID        *string
	Name      string
	Arguments *ojson.Object // nil for a call that the output limit cut, whose arguments are Cut
	Cut       string        // unfinished JSON
}

// PartKind is the kind of a part of a message's content.
type PartKind uint8

// The kinds of parts.
const (
	TextPart PartKind = iota
	ImagePart
	FilePart // which Prepare replaces by what the file holds
)

// A Part is a piece of a message's content.
type Part struct {
	Kind PartKind
	Text string        // of a TextPart
	URL  string        // of an ImagePart
	File *ojson.Object // of a FilePart: the "file" object, as the client wrote it
}

// ParseMessages reads the "messages" of a Chat Completions request, decoded by ojson. It checks their shape; what they
// ask for is Prepare's to check. Errors are *RequestError.
func ParseMessages(messages any) ([]Message, error) {
	list, _ := messages.([]any)
	if len(list) == 0 {
		return nil, requestErrorf("messages must be a non-empty array")
	}
	out := make([]Message, 0, len(list))
	for _, v := range list {
		o, ok := v.(*ojson.Object)
		if !ok {
			return nil, requestErrorf("each message must be an object")
		}
		m, err := parseMessage(o)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMessage(o *ojson.Object) (m Message, err error) {
	role := o.Value("role")
	content := o.Value("content")
	switch role {
	case RoleSystem, "developer":
		m.Role = RoleSystem
		m.Text, err = textContent(content)
	case RoleUser:
		m.Role = RoleUser
		m.Text, m.Parts, err = mediaContent(content)
	case RoleTool:
		m.Role = RoleTool
		if m.Text, m.Parts, err = mediaContent(content); err == nil {
			m.CallID, err = optionalString(o, "tool_call_id", "tool_call_id must be a string")
		}
	case RoleAssistant:
		return parseAssistant(o)
	default:
		s, _ := ojson.String(role, ojson.Compact)
		if r, ok := role.(string); ok {
			s = r
		}
		return m, requestErrorf("unsupported message role: %.100s", s)
	}
	return m, err
}

func parseAssistant(o *ojson.Object) (Message, error) {
	m := Message{Role: RoleAssistant}
	var err error
	if m.Text, err = textContent(o.Value("content")); err != nil {
		return m, err
	}
	if v := o.Value("reasoning_content"); v != nil {
		s, err := textContent(v)
		if err != nil {
			return m, err
		}
		m.Reasoning = &s
	}
	v := o.Value("tool_calls")
	if v == nil {
		return m, nil
	}
	calls, ok := v.([]any)
	if !ok {
		return m, requestErrorf("assistant tool_calls must be an array")
	}
	for _, v := range calls {
		c, err := parseCall(v)
		if err != nil {
			return m, err
		}
		m.Calls = append(m.Calls, c)
	}
	return m, nil
}

func optionalString(o *ojson.Object, key, msg string) (*string, error) {
	v, ok := o.Get(key)
	if !ok {
		return nil, nil
	}
	s, ok := v.(string)
	if !ok {
		return nil, &RequestError{msg}
	}
	return &s, nil
}

func parseCall(v any) (Call, error) {
	invalid := requestErrorf("invalid assistant tool call")
	o, ok := v.(*ojson.Object)
	if !ok {
		return Call{}, invalid
	}
	function, ok := o.Value("function").(*ojson.Object)
	if !ok {
		return Call{}, invalid
	}
	name, ok := function.Value("name").(string)
	if !ok {
		return Call{}, invalid
	}
	arguments, ok := function.Get("arguments")
	if !ok {
		arguments = &ojson.Object{}
	}
	c, err := NewCall(name, arguments)
	if err != nil {
		return c, err
	}
	c.ID, err = optionalString(o, "id", "tool call id must be a string")
	return c, err
}

// NewCall returns a call with the given arguments: an object, or its JSON text. No text at all is an empty object, and
// text that could go on to be JSON is that of a call that was cut.
func NewCall(name string, arguments any) (Call, error) {
	c := Call{Name: name}
	if text, ok := arguments.(string); ok {
		if text == "" {
			text = "{}"
		}
		v, err := ojson.Decode(text, ojson.Options{})
		if errors.Is(err, ojson.ErrUnfinished) {
			c.Cut = text
			return c, nil
		}
		if err != nil {
			return c, requestErrorf("tool call arguments must be valid JSON")
		}
		arguments = v
	}
	var ok bool
	if c.Arguments, ok = arguments.(*ojson.Object); !ok {
		return c, requestErrorf("invalid assistant tool call")
	}
	return c, nil
}

// isText reports whether a part of this type is text, which every API spells in its own way.
func isText(kind any) bool { return kind == "text" || kind == "input_text" || kind == "output_text" }

// textContent reads content that is text alone: null, a string, or text parts, joined.
func textContent(content any) (string, error) {
	switch c := content.(type) {
	case nil:
		return "", nil
	case string:
		return c, nil
	case []any:
		var text strings.Builder
		for _, v := range c {
			part, ok := v.(*ojson.Object)
			if !ok || !isText(part.Value("type")) {
				return "", requestErrorf("only text message content is supported")
			}
			s, err := partText(part)
			if err != nil {
				return "", err
			}
			text.WriteString(s)
		}
		return text.String(), nil
	}
	return "", requestErrorf("message content must be text")
}

func partText(part *ojson.Object) (string, error) {
	v, ok := part.Get("text")
	if !ok {
		return "", nil
	}
	s, ok := v.(string)
	if !ok {
		return "", requestErrorf("text message content must be a string")
	}
	return s, nil
}

// mediaContent reads content that may hold images and files. Without any, it is text.
func mediaContent(content any) (string, []Part, error) {
	list, ok := content.([]any)
	if !ok {
		text, err := textContent(content)
		return text, nil, err
	}
	parts := make([]Part, 0, len(list))
	for _, v := range list {
		p, err := parsePart(v)
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, p)
	}
	return joinText(parts)
}

func parsePart(v any) (Part, error) {
	o, ok := v.(*ojson.Object)
	if !ok {
		return Part{}, requestErrorf("message content parts must be objects")
	}
	kind := o.Value("type")
	switch {
	case isText(kind):
		text, err := partText(o)
		return Part{Kind: TextPart, Text: text}, err
	case kind == "image_url":
		url := o.Value("image_url")
		if inner, ok := url.(*ojson.Object); ok {
			url = inner.Value("url")
		}
		s, ok := url.(string)
		if !ok {
			return Part{}, requestErrorf("invalid image content part")
		}
		return Part{Kind: ImagePart, URL: s}, nil
	case kind == "file":
		file, ok := o.Value("file").(*ojson.Object)
		if !ok {
			return Part{}, requestErrorf("invalid file content part")
		}
		return Part{Kind: FilePart, File: file}, nil
	case kind == "video" || kind == "video_url" || kind == "input_audio":
		return Part{}, requestErrorf("%s content is not supported", kind)
	}
	return Part{}, requestErrorf("unsupported message content part")
}

// joinText returns parts as one text where all of them are text.
func joinText(parts []Part) (string, []Part, error) {
	n := 0
	for _, p := range parts {
		if p.Kind != TextPart {
			return "", parts, nil
		}
		n += len(p.Text)
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = append(b, p.Text...)
	}
	return string(b), nil, nil
}

// value returns the message as templates see it.
func (m *Message) value() *ojson.Object {
	o := ojson.NewObject("role", m.Role, "content", m.content())
	if m.Reasoning != nil {
		o.Set("reasoning_content", *m.Reasoning)
	}
	if m.Calls != nil {
		calls := make([]any, len(m.Calls))
		for i, c := range m.Calls {
			call := ojson.NewObject("type", "function", "function", ojson.NewObject("name", c.Name, "arguments", c.Arguments))
			if c.ID != nil {
				call.Set("id", *c.ID)
			}
			calls[i] = call
		}
		o.Set("tool_calls", calls)
	}
	if m.CallID != nil {
		o.Set("tool_call_id", *m.CallID)
	}
	return o
}

func (m *Message) content() any {
	if m.Parts == nil {
		return m.Text
	}
	parts := make([]any, len(m.Parts))
	for i, p := range m.Parts {
		if p.Kind == ImagePart {
			parts[i] = ojson.NewObject("type", "image_url", "image_url", ojson.NewObject("url", p.URL))
		} else {
			parts[i] = ojson.NewObject("type", "text", "text", p.Text)
		}
	}
	return parts
}

// images counts the images of a conversation.
func images(messages []Message) int {
	n := 0
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Kind == ImagePart {
				n++
			}
		}
	}
	return n
}
