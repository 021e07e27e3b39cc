package server

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// responseMessages gives instructions and items the shape of Chat Completions: the items of an assistant that follow each
// other are one message, whose text precedes its calls.
func responseMessages(instructions string, items []any) ([]any, error) {
	var m itemReader
	if instructions != "" {
		m.add(ojson.NewObject("role", chat.RoleSystem, "content", instructions))
	}
	for _, v := range items {
		item, ok := v.(*ojson.Object)
		if !ok {
			return nil, invalidf("each input item must be an object")
		}
		if err := m.read(item); err != nil {
			return nil, err
		}
	}
	m.endTurn()
	return m.out, nil
}

// An itemReader makes messages of items.
type itemReader struct {
	out  []any
	open bool // an assistant's turn is
	text strings.Builder
	why  strings.Builder // its reasoning
	call []any
}

func (m *itemReader) add(message *ojson.Object) {
	m.endTurn()
	m.out = append(m.out, message)
}

// endTurn ends the assistant's turn, if there is one.
func (m *itemReader) endTurn() {
	if !m.open {
		return
	}
	turn := ojson.NewObject("role", chat.RoleAssistant, "content", m.text.String())
	if m.why.Len() > 0 {
		turn.Set("reasoning_content", m.why.String())
	}
	if len(m.call) > 0 {
		turn.Set("tool_calls", m.call)
	}
	out := append(m.out, turn)
	*m = itemReader{out: out}
}

func (m *itemReader) read(item *ojson.Object) error {
	switch kind := item.Value("type"); kind {
	case nil, "message":
		return m.message(item)
	case "reasoning":
		return m.reasoning(item)
	case "function_call":
		return m.functionCall(item)
	case "function_call_output":
		return m.callOutput(item)
	default:
		name, _ := kind.(string)
		return invalidf("unsupported input item type %s: only message, reasoning, function_call and function_call_output are read", shorten(name))
	}
}

func (m *itemReader) message(item *ojson.Object) error {
	role, _ := item.Value("role").(string)
	content := item.Value("content")
	switch role {
	case chat.RoleUser:
		parts, err := itemContent(content)
		if err != nil {
			return err
		}
		m.add(ojson.NewObject("role", role, "content", parts))
	case chat.RoleSystem, "developer":
		text, err := itemText(content, messageText)
		if err != nil {
			return err
		}
		m.add(ojson.NewObject("role", chat.RoleSystem, "content", text))
	case chat.RoleAssistant:
		text, err := itemText(content, messageText)
		if err != nil {
			return err
		}
		m.open = true
		m.text.WriteString(text)
	default:
		return invalidf("unsupported message role: %s", shorten(role))
	}
	return nil
}

// reasoning reads what the assistant thought: its content, or the summary where a client has kept no more.
func (m *itemReader) reasoning(item *ojson.Object) error {
	text, err := itemText(item.Value("content"), func(kind string) bool { return kind == "reasoning_text" || kind == "text" })
	if err == nil && text == "" {
		text, err = itemText(item.Value("summary"), func(kind string) bool { return kind == "summary_text" })
	}
	if err != nil || text == "" {
		return err
	}
	m.open = true
	m.why.WriteString(text)
	return nil
}

func (m *itemReader) functionCall(item *ojson.Object) error {
	id, _ := item.Value("call_id").(string)
	name, _ := item.Value("name").(string)
	if id == "" || name == "" {
		return invalidf("function_call needs a call_id and a name")
	}
	arguments, ok := item.Value("arguments").(string)
	if !ok {
		return invalidf("function_call.arguments must be a string of JSON")
	}
	if v := item.Value("namespace"); v != nil {
		space, _ := v.(string)
		if name, ok = toolAlias(space, name); !ok {
			return invalidf(badNamespace)
		}
	}
	m.open = true
	m.call = append(m.call, ojson.NewObject(
		"id", id, "type", "function", "function", ojson.NewObject("name", name, "arguments", arguments)))
	return nil
}

func (m *itemReader) callOutput(item *ojson.Object) error {
	id, _ := item.Value("call_id").(string)
	if id == "" {
		return invalidf("function_call_output needs a call_id")
	}
	output := item.Value("output")
	if o, ok := output.(*ojson.Object); ok {
		output = o.Value("content")
	}
	content, err := itemContent(output)
	if err != nil {
		return err
	}
	m.add(ojson.NewObject("role", chat.RoleTool, "tool_call_id", id, "content", content))
	return nil
}

func messageText(kind string) bool {
	return kind == "input_text" || kind == "output_text" || kind == "text"
}

// itemText joins content that is text alone: null, a string, or parts of the types that accepted takes.
func itemText(content any, accepted func(kind string) bool) (string, error) {
	var text strings.Builder
	switch v := content.(type) {
	case nil:
	case string:
		return v, nil
	case []any:
		for _, v := range v {
			part, _ := v.(*ojson.Object)
			if part == nil {
				return "", invalidf("content parts must be objects")
			}
			kind, _ := part.Value("type").(string)
			s, ok := part.Value("text").(string)
			if !ok || !accepted(kind) {
				return "", invalidf("unsupported content part %s: only text is read here", shorten(kind))
			}
			text.WriteString(s)
		}
	default:
		return "", invalidf("content must be a string or an array of parts")
	}
	return text.String(), nil
}

// itemContent gives what a user or a tool says the shape of Chat Completions.
func itemContent(content any) (any, error) {
	list, ok := content.([]any)
	if !ok {
		return itemText(content, messageText)
	}
	parts := make([]any, 0, len(list))
	for _, v := range list {
		part, _ := v.(*ojson.Object)
		if part == nil {
			return nil, invalidf("content parts must be objects")
		}
		kind, _ := part.Value("type").(string)
		switch {
		case messageText(kind):
			parts = append(parts, ojson.NewObject("type", "text", "text", part.Value("text")))
		case kind == "input_image":
			parts = append(parts, ojson.NewObject("type", "image_url", "image_url", part.Value("image_url")))
		case kind == "input_file":
			file := &ojson.Object{}
			for key, v := range part.All() {
				if key != "type" {
					file.Set(key, v)
				}
			}
			parts = append(parts, ojson.NewObject("type", "file", "file", file))
		default:
			return nil, invalidf("unsupported content part %s: text, input_image and input_file are read", shorten(kind))
		}
	}
	return parts, nil
}

// A namespaced is the name of a tool within its namespace.
type namespaced struct{ space, name string }

const badNamespace = "a namespace and the names in it must be 1 to 64 letters, digits, _ or -"

// toolAlias is what the model calls a tool of a namespace. Long names are cut, and told apart by a digest.
func toolAlias(space, name string) (string, bool) {
	const most = 64
	if !validToolName(space) || !validToolName(name) || len(space) > most || len(name) > most {
		return "", false
	}
	alias := space + "__" + name
	if len(alias) > most {
		sum := sha256.Sum256([]byte(space + "\x00" + name))
		alias = space[:min(len(space), 20)] + "__" + name[:min(len(name), 24)] + "__" + hex.EncodeToString(sum[:8])
	}
	return alias, true
}

// responseTools reads the tools. Those that are not functions have nobody here to run them: they are not offered to the
// model, and the response says so.
func (f *fields) responseTools(q *responseRequest) {
	if v := f.o.Value("tools"); v != nil {
		list, ok := v.([]any)
		if !ok {
			f.fault("tools must be an array")
			return
		}
		tools := []any{}
		for _, v := range list {
			tools = f.responseTool(q, tools, v)
		}
		q.chat.Set("tools", tools)
	}
	f.responseChoice(q)
}

func (f *fields) responseTool(q *responseRequest, tools []any, v any) []any {
	tool, _ := v.(*ojson.Object)
	if tool == nil {
		f.fault("each tool must be an object")
		return tools
	}
	switch kind, _ := tool.Value("type").(string); kind {
	case "":
		f.fault("each tool must have a type")
	case "function":
		return append(tools, chatFunctionOf(tool, tool.Value("name")))
	case "namespace":
		return f.namespace(q, tools, tool)
	default:
		q.skip(kind)
	}
	return tools
}

// chatFunctionOf gives a function the shape of Chat Completions.
func chatFunctionOf(tool *ojson.Object, name any) *ojson.Object {
	function := ojson.NewObject("name", name)
	for _, key := range []string{"description", "parameters", "strict"} {
		if v := tool.Value(key); v != nil {
			function.Set(key, v)
		}
	}
	return ojson.NewObject("type", "function", "function", function)
}

func (f *fields) namespace(q *responseRequest, tools []any, tool *ojson.Object) []any {
	list, ok := tool.Value("tools").([]any)
	if !ok {
		f.fault("the tools of a namespace must be an array")
		return tools
	}
	space, _ := tool.Value("name").(string)
	for _, v := range list {
		inner, _ := v.(*ojson.Object)
		if inner == nil {
			f.fault("each tool must be an object")
			return tools
		}
		switch kind, _ := inner.Value("type").(string); kind {
		case "function":
		case "":
			f.fault("each tool must have a type")
			return tools
		default:
			q.skip(kind)
			continue
		}
		name, _ := inner.Value("name").(string)
		alias, ok := toolAlias(space, name)
		if !ok {
			f.fault(badNamespace)
			return tools
		}
		q.namespaces[alias] = namespaced{space, name}
		tools = append(tools, chatFunctionOf(inner, alias))
	}
	return tools
}

// skip notes a tool that is not offered. The response names so many types of them.
func (q *responseRequest) skip(kind string) {
	const most = 16
	kind = shorten(kind)
	if q.skipped[kind] || len(q.skipped) == most {
		return
	}
	q.skipped[kind] = true
	q.warnings = append(q.warnings, "tools of type "+kind+" are not run here and were not offered to the model"+setting(kind))
}

// setting says how a client is told not to send tools of a type.
func setting(kind string) string {
	if strings.HasPrefix(kind, "web_search") {
		return ` (in Codex: web_search = "disabled")`
	}
	return ""
}

func (f *fields) responseChoice(q *responseRequest) {
	v := f.o.Value("tool_choice")
	choice, ok := v.(*ojson.Object)
	if !ok {
		q.chat.Set("tool_choice", v)
		return
	}
	kind, _ := choice.Value("type").(string)
	name, _ := choice.Value("name").(string)
	if kind != "function" {
		f.fault("only function tools are supported, not %s in tool_choice%s", shorten(kind), setting(kind))
		return
	}
	if v := choice.Value("namespace"); v != nil {
		space, _ := v.(string)
		alias, _ := toolAlias(space, name)
		if q.namespaces[alias] != (namespaced{space, name}) {
			f.fault("invalid named tool_choice")
		}
		name = alias
	}
	q.chat.Set("tool_choice", ojson.NewObject("type", "function", "function", ojson.NewObject("name", name)))
}
