package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// message answers POST /v1/messages.
func (x *exchange) message(body *ojson.Object) error {
	g, c, err := x.messageRequest(body)
	if err != nil {
		return err
	}
	if err := x.converse(g, c.conversation); err != nil {
		return err
	}
	return x.generate(g, &messageWriter{writer: newWriter(x, g), omit: c.omit, key: x.s.o.Thinking})
}

// countTokens answers POST /v1/messages/count_tokens.
func (x *exchange) countTokens(body *ojson.Object) error {
	f := &fields{o: body}
	g := newGeneration("msg_")
	c, err := x.messageConversation(f, g)
	if err != nil {
		return err
	}
	if err := x.converse(g, c.conversation); err != nil {
		return err
	}
	x.json(200, map[string]int{"input_tokens": len(g.prompt)})
	return nil
}

// A messageConversation is a conversation of the Messages interface.
type messageConversation struct {
	conversation
	omit bool // the reasoning is not shown
}

func (x *exchange) messageRequest(body *ojson.Object) (*generation, messageConversation, error) {
	g := newGeneration("msg_")
	f := &fields{o: body}
	x.common(f, g)
	g.stream = f.bool("stream", false)
	f.progress(g)
	g.policy, g.seed = f.sampling(false)
	g.stop = f.stop("stop_sequences")
	g.maxField, g.clamp = "max_tokens", true
	if g.maxTokens = f.positive("max_tokens"); g.maxTokens == 0 {
		f.fault("max_tokens must be a positive integer")
	}
	c, err := x.messageConversation(f, g)
	if err != nil {
		return nil, c, err
	}
	if len(g.stop) > 0 && g.tools.calling() {
		return nil, c, invalidf("stop_sequences cannot be combined with tools")
	}
	if last := c.messages[len(c.messages)-1]; last.Role == chat.RoleAssistant {
		return nil, c, invalidf("a final assistant message (prefill) is not supported")
	}
	return g, c, nil
}

// messageConversation reads what makes the prompt.
func (x *exchange) messageConversation(f *fields, g *generation) (c messageConversation, err error) {
	name := f.string("model", "")
	if name == "" {
		f.fault("model must be a non-empty string")
	} else if err := x.s.checkName(name); err != nil && f.err == nil {
		return c, err
	}
	g.tools = f.messageTools()
	format := f.thinking(&c)
	if f.err == nil {
		c.messages, err = parseMessages(f.o, x.s.o.Thinking)
		if err != nil {
			return c, err
		}
	}
	if f.err != nil {
		return c, f.err
	}
	for _, what := range []string{g.tools.constraint(), format} {
		if err := constrained(what); err != nil {
			return c, err
		}
	}
	return c, nil
}

// thinking reads how the model is to reason, and names an output format.
func (f *fields) thinking(c *messageConversation) (format string) {
	effort := "high"
	if v := f.o.Value("output_config"); v != nil {
		config, ok := v.(*ojson.Object)
		if !ok {
			f.fault("output_config must be an object")
			return ""
		}
		switch e := config.Value("effort"); e {
		case nil:
		case "low", "medium", "high", "xhigh", "max":
			effort = e.(string)
		default:
			f.fault("output_config.effort must be low, medium, high, xhigh or max")
		}
		if config.Value("format") != nil {
			format = "output_config.format"
		}
	}
	if f.has("output_format") {
		if format != "" {
			f.fault("output_config.format and output_format cannot be combined")
		}
		format = "output_format"
	}
	c.Effort = "none"
	if v := f.o.Value("thinking"); v != nil {
		f.thinkingMode(c, v, effort)
	}
	f.contextManagement(c)
	return format
}

func (f *fields) thinkingMode(c *messageConversation, v any, effort string) {
	o, _ := v.(*ojson.Object)
	if o == nil {
		f.fault("thinking must be an object")
		return
	}
	switch o.Value("type") {
	case "disabled":
	case "enabled", "adaptive":
		c.Effort = effort
	default:
		f.fault("thinking.type must be enabled, adaptive or disabled")
	}
	switch o.Value("display") {
	case nil, "summarized":
	case "omitted", "updates":
		c.omit = true
	default:
		f.fault("thinking.display must be summarized, omitted or updates")
	}
}

// contextManagement reads edits of the conversation. All reasoning can be kept, and nothing else be edited.
func (f *fields) contextManagement(c *messageConversation) {
	v := f.o.Value("context_management")
	if v == nil {
		return
	}
	o, _ := v.(*ojson.Object)
	var edits []any
	if o != nil {
		edits, _ = o.Value("edits").([]any)
	}
	for _, v := range edits {
		edit, _ := v.(*ojson.Object)
		if edit == nil || edit.Value("type") != "clear_thinking_20251015" || edit.Value("keep") != "all" {
			f.fault("context_management.edits takes clear_thinking_20251015 that keeps all, and nothing else")
			return
		}
		keep := true
		c.PreserveThinking = &keep
	}
	if o == nil {
		f.fault("context_management must be an object")
	}
}

// messageTools reads the tools, and gives them the shape of Chat Completions.
func (f *fields) messageTools() *toolUse {
	t := &toolUse{names: map[string]bool{}, choice: choiceAuto, parallel: true}
	if v := f.o.Value("tools"); v != nil {
		list, ok := v.([]any)
		if !ok {
			f.fault("tools must be an array")
			return t
		}
		for _, v := range list {
			f.messageTool(t, v)
		}
	}
	f.messageChoice(t)
	return t
}

func (f *fields) messageTool(t *toolUse, v any) {
	tool, ok := v.(*ojson.Object)
	if !ok {
		f.fault("each tool must be an object")
		return
	}
	if kind := tool.Value("type"); kind != nil && kind != "custom" {
		f.fault("only custom function tools are supported, not %s", shorten(fmt.Sprint(kind)))
		return
	}
	f.offer(t, tool, "input_schema")
	function := ojson.NewObject("name", tool.Value("name"))
	if d := tool.Value("description"); d != nil {
		function.Set("description", d)
	}
	schema := tool.Value("input_schema")
	if schema == nil {
		schema = &ojson.Object{}
	}
	function.Set("parameters", schema)
	t.list = append(t.list, ojson.NewObject("type", "function", "function", function))
}

func (f *fields) messageChoice(t *toolUse) {
	v := f.o.Value("tool_choice")
	if v == nil {
		return
	}
	o, ok := v.(*ojson.Object)
	if !ok {
		f.fault("tool_choice must be an object")
		return
	}
	switch kind := o.Value("type"); kind {
	case "auto", "none":
		t.choice = kind.(string)
	case "any":
		if t.choice = choiceRequired; len(t.list) == 0 {
			f.fault("tool_choice any needs tools")
		}
	case "tool":
		name, _ := o.Value("name").(string)
		if t.choice, t.named = choiceNamed, name; !t.names[name] {
			f.fault("invalid named tool_choice")
		}
	default:
		f.fault("tool_choice.type must be auto, any, tool or none")
	}
	choice := &fields{o: o}
	t.parallel = !choice.bool("disable_parallel_tool_use", false)
	if choice.err != nil {
		f.fault("tool_choice.disable_parallel_tool_use must be a boolean")
	}
}

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

// A messageWriter writes Messages.
type messageWriter struct {
	writer
	omit   bool // reasoning is not shown, but hidden in a signature
	key    *ThinkingKey
	hidden strings.Builder // the reasoning of the open block

	index  int            // of the next block
	open   chat.EventKind // what the open block holds
	blocks int            // written
	isOpen bool
}

type messageResponse struct {
	ID           string       `json:"id"`
	Type         string       `json:"type"`
	Role         string       `json:"role"`
	Model        string       `json:"model"`
	Content      []any        `json:"content"`
	StopReason   *string      `json:"stop_reason"`
	StopSequence *string      `json:"stop_sequence"`
	Usage        messageUsage `json:"usage"`
}

type messageUsage struct {
	Input  int `json:"input_tokens"`
	Cached int `json:"cache_read_input_tokens"`
	Output int `json:"output_tokens"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolUseBlock struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// stopReason is why the answer ended, as the Messages interface says it.
func (t *turn) stopReason() (reason string, sequence *string) {
	switch {
	case t.cut && t.g.clamped:
		return "model_context_window_exceeded", nil
	case t.cut:
		return "max_tokens", nil
	case t.reader.StopString() != "":
		text := t.reader.StopString()
		return "stop_sequence", &text
	case t.reader.Calls() > 0:
		return "tool_use", nil
	}
	return "end_turn", nil
}

func (w *messageWriter) response() *messageResponse {
	return &messageResponse{ID: w.g.id, Type: "message", Role: "assistant", Model: w.g.model, Content: []any{}}
}

func (w *messageWriter) whole(t *turn, m *message) any {
	r := w.response()
	if m.reasoning != "" {
		b := thinkingBlock{Type: "thinking", Thinking: m.reasoning}
		if w.omit {
			b.Thinking, b.Signature = "", w.key.seal(m.reasoning, time.Now())
		}
		r.Content = append(r.Content, b)
	}
	if m.content != "" {
		r.Content = append(r.Content, textBlock{"text", m.content})
	}
	for i, c := range m.calls {
		if !json.Valid([]byte(c.arguments)) {
			continue // cut by the limit
		}
		r.Content = append(r.Content, toolUseBlock{"tool_use", w.g.callID(i), c.name, json.RawMessage(c.arguments)})
	}
	if m.content == "" && len(m.calls) == 0 {
		r.Content = append(r.Content, textBlock{"text", ""})
	}
	reason, sequence := t.stopReason()
	r.StopReason, r.StopSequence = &reason, sequence
	r.Usage = messageUsage{Input: t.uncached(), Cached: t.stream.Cached(), Output: t.reader.Tokens()}
	return r
}

func (w *messageWriter) send(kind string, more ...any) error {
	return w.out.event(kind, ojson.NewObject(append([]any{"type", kind}, more...)...))
}

func (w *messageWriter) waiting() error { return w.send("ping") }
func (w *messageWriter) idle() error    { return w.send("ping") }

func (w *messageWriter) progress(p *progress) error {
	return w.out.event("ping", struct {
		Type     string    `json:"type"`
		Progress *progress `json:"prompt_progress"`
	}{"ping", p})
}

func (w *messageWriter) begin(t *turn) error {
	r := w.response()
	r.Usage = messageUsage{Input: t.uncached(), Cached: t.stream.Cached()}
	return w.out.event("message_start", struct {
		Type    string           `json:"type"`
		Message *messageResponse `json:"message"`
	}{"message_start", r})
}

type blockEvent struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Block any    `json:"content_block,omitempty"`
	Delta any    `json:"delta,omitempty"`
}

func (w *messageWriter) event(e chat.Event) error {
	switch e.Kind {
	case chat.ReasoningDelta:
		text := e.Text
		if w.omit {
			w.hidden.WriteString(text)
			if w.isOpen && w.open == e.Kind {
				return nil
			}
			text = ""
		}
		if err := w.openBlock(e.Kind, thinkingBlock{Type: "thinking"}); err != nil {
			return err
		}
		return w.delta(map[string]string{"type": "thinking_delta", "thinking": text})
	case chat.ContentDelta:
		if err := w.openBlock(e.Kind, textBlock{Type: "text"}); err != nil {
			return err
		}
		return w.delta(map[string]string{"type": "text_delta", "text": e.Text})
	case chat.CallStart:
		if err := w.closeBlock(); err != nil {
			return err
		}
		return w.openBlock(e.Kind, toolUseBlock{"tool_use", w.g.callID(e.Call), e.Text, json.RawMessage("{}")})
	case chat.ArgumentsDelta:
		return w.delta(map[string]string{"type": "input_json_delta", "partial_json": e.Text})
	case chat.CallEnd:
		return w.closeBlock()
	}
	return nil
}

// openBlock begins a block, unless one of its kind is open.
func (w *messageWriter) openBlock(kind chat.EventKind, block any) error {
	if w.isOpen && w.open == kind {
		return nil
	}
	if err := w.closeBlock(); err != nil {
		return err
	}
	w.isOpen, w.open = true, kind
	w.blocks++
	return w.out.event("content_block_start", blockEvent{Type: "content_block_start", Index: w.index, Block: block})
}

func (w *messageWriter) delta(d any) error {
	return w.out.event("content_block_delta", blockEvent{Type: "content_block_delta", Index: w.index, Delta: d})
}

func (w *messageWriter) closeBlock() error {
	if !w.isOpen {
		return nil
	}
	if w.omit && w.open == chat.ReasoningDelta {
		signature := w.key.seal(w.hidden.String(), time.Now())
		w.hidden.Reset()
		if err := w.delta(map[string]string{"type": "signature_delta", "signature": signature}); err != nil {
			return err
		}
	}
	w.isOpen = false
	w.index++
	return w.out.event("content_block_stop", blockEvent{Type: "content_block_stop", Index: w.index - 1})
}

func (w *messageWriter) end(t *turn) error {
	if w.blocks == 0 || w.blocks == 1 && w.open == chat.ReasoningDelta {
		if err := w.openBlock(chat.ContentDelta, textBlock{Type: "text"}); err != nil {
			return err
		}
	}
	if err := w.closeBlock(); err != nil {
		return err
	}
	reason, sequence := t.stopReason()
	err := w.out.event("message_delta", struct {
		Type  string `json:"type"`
		Delta any    `json:"delta"`
		Usage any    `json:"usage"`
	}{
		"message_delta",
		struct {
			Reason   string  `json:"stop_reason"`
			Sequence *string `json:"stop_sequence"`
		}{reason, sequence},
		map[string]int{"output_tokens": t.reader.Tokens()},
	})
	if err != nil {
		return err
	}
	return w.send("message_stop")
}

func (w *messageWriter) fail(e *Error) { w.out.event("error", anthropic.body(e)) }
