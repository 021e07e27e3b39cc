package server

import (
	"fmt"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/grammar/output"
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
	g.counting = true
	if err := x.prepared(func() error { return x.prompt(g, c.conversation) }); err != nil {
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
	f.thread()
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
	if f.checkConstraint(g, "stop_sequences"); f.err != nil {
		return nil, c, f.err
	}
	if last := c.messages[len(c.messages)-1]; last.Role == chat.RoleAssistant {
		return nil, c, invalidf("a final assistant message (prefill) is not supported")
	}
	return g, c, nil
}

// thread refuses to keep a conversation for the client, which then sends all of it each time. A request that goes on with one
// would make no sense without it, so that the field cannot be passed over.
func (f *fields) thread() {
	if f.has("thread") {
		e := invalidf("thread is not supported: send the whole conversation")
		e.details = &errorDetails{Code: "thread_unsupported_request"}
		f.err = e
	}
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
	effort := f.outputConfig(g)
	f.thinking(&c, effort)
	if f.err == nil {
		c.messages, err = parseMessages(f.o, x.s.o.Thinking)
		if err != nil {
			return c, err
		}
	}
	return c, f.err
}

// outputConfig reads the format of the answer, and the effort of reasoning where there is to be any.
func (f *fields) outputConfig(g *generation) (effort string) {
	effort = "high"
	var format any
	if v := f.o.Value("output_config"); v != nil {
		config, ok := v.(*ojson.Object)
		if !ok {
			f.fault("output_config must be an object")
			return effort
		}
		switch e := config.Value("effort"); e {
		case nil:
		case "low", "medium", "high", "xhigh", "max":
			effort = e.(string)
		default:
			f.fault("output_config.effort must be low, medium, high, xhigh or max")
		}
		format = config.Value("format")
	}
	if format != nil {
		g.response = f.messageFormat("output_config.format", format)
	}
	if v := f.o.Value("output_format"); v != nil {
		if format != nil {
			f.fault("output_config.format and output_format cannot be combined")
		}
		g.response = f.messageFormat("output_format", v)
	}
	return effort
}

func (f *fields) messageFormat(name string, v any) *output.Response {
	o, ok := v.(*ojson.Object)
	if !ok {
		f.fault("%s must be an object", name)
		return nil
	}
	if o.Value("type") != "json_schema" {
		f.fault("%s.type must be json_schema", name)
		return nil
	}
	return f.jsonSchema(name, o)
}

// thinking reads whether the model is to reason, and what becomes of its reasoning.
func (f *fields) thinking(c *messageConversation, effort string) {
	c.Effort = "none"
	if v := f.o.Value("thinking"); v != nil {
		f.thinkingMode(c, v, effort)
	}
	f.contextManagement(c)
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
