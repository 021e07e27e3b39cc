package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

// A responseWriter writes Responses. A response in one piece is made of the same events as a stream, which nobody hears.
type responseWriter struct {
	writer
	q     *responseRequest
	begun bool
	next  int // the number of the next event
	items []*outputItem
	open  bool // the last of them is
	calls int
}

// The statuses of responses and their items.
const (
	statusRunning    = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

// An itemKind is the kind of an item of the output, and how its ID begins.
type itemKind string

const (
	reasoningItem itemKind = "rs"
	messageItem   itemKind = "msg"
	callItem      itemKind = "fc"
)

// An outputItem is an item of the output.
type outputItem struct {
	kind   itemKind
	id     string
	index  int
	status string
	text   strings.Builder // reasoning, content or arguments

	callID string
	tool   string     // as the model calls it
	of     namespaced // where the tool is in a namespace
}

// name is the tool's, as the request has it.
func (i *outputItem) name() string {
	if i.of.space != "" {
		return i.of.name
	}
	return i.tool
}

// object is the item as the response has it. One in progress is empty.
func (i *outputItem) object() *ojson.Object {
	text := i.text.String()
	if i.status == statusRunning {
		text = ""
	}
	kinds := map[itemKind]string{reasoningItem: "reasoning", messageItem: "message", callItem: "function_call"}
	o := ojson.NewObject("id", i.id, "type", kinds[i.kind], "status", i.status)
	switch i.kind {
	case reasoningItem:
		summary, content := []any{}, []any{}
		if text != "" {
			summary = append(summary, summaryPart(text))
			content = append(content, ojson.NewObject("type", "reasoning_text", "text", text))
		}
		o.Set("summary", summary)
		o.Set("content", content)
		o.Set("encrypted_content", nil)
	case messageItem:
		content := []any{}
		if i.status != statusRunning {
			content = append(content, outputPart(text))
		}
		o.Set("role", chat.RoleAssistant)
		o.Set("content", content)
	case callItem:
		o.Set("call_id", i.callID)
		o.Set("name", i.name())
		o.Set("arguments", text)
		if i.of.space != "" {
			o.Set("namespace", i.of.space)
		}
	}
	return o
}

func summaryPart(text string) *ojson.Object {
	return ojson.NewObject("type", "summary_text", "text", text)
}

func outputPart(text string) *ojson.Object {
	return ojson.NewObject("type", "output_text", "text", text, "annotations", []any{})
}

// whole replays the answer.
func (w *responseWriter) whole(t *turn, m *message) any {
	say := func(kind chat.EventKind, call int, text string) {
		if text != "" || kind == chat.CallEnd {
			w.event(chat.Event{Kind: kind, Call: call, Text: text})
		}
	}
	say(chat.ReasoningDelta, 0, m.reasoning)
	from := 0
	for i, c := range m.calls {
		say(chat.ContentDelta, 0, m.content[from:c.at])
		from = c.at
		say(chat.CallStart, i, c.name)
		say(chat.ArgumentsDelta, i, c.arguments)
		if json.Valid([]byte(c.arguments)) {
			say(chat.CallEnd, i, "")
		}
	}
	say(chat.ContentDelta, 0, m.content[from:])
	w.finish(t)
	_, text := w.keep(t)
	return json.RawMessage(text)
}

// send sends an event.
func (w *responseWriter) send(kind string, more ...any) error {
	if !w.g.stream {
		return nil
	}
	w.next++
	return w.out.event(kind, ojson.NewObject(append([]any{"type", kind, "sequence_number", w.next - 1}, more...)...))
}

// start sends the events that a stream begins with.
func (w *responseWriter) start() error {
	if w.begun {
		return nil
	}
	w.begun = true
	if err := w.send("response.created", "response", w.response(statusRunning, nil)); err != nil {
		return err
	}
	return w.running(nil)
}

// running says that there is no output yet.
func (w *responseWriter) running(p *progress) error {
	more := []any{"response", w.response(statusRunning, nil)}
	if p != nil {
		more = append(more, "prompt_progress", ojson.NewObject(
			"total", p.Total, "cache", p.Cache, "processed", p.Processed, "time_ms", p.MS))
	}
	return w.send("response.in_progress", more...)
}

// waiting begins the stream before the request has started: clients count events alone as signs of life.
func (w *responseWriter) waiting() error {
	if !w.begun {
		return w.start()
	}
	return w.running(nil)
}

func (w *responseWriter) begin(*turn) error { return w.start() }

func (w *responseWriter) idle() error {
	if len(w.items) > 0 {
		return w.out.comment("splash-keepalive")
	}
	return w.running(nil)
}

func (w *responseWriter) progress(p *progress) error {
	if len(w.items) > 0 {
		return nil
	}
	return w.running(p)
}

func (w *responseWriter) event(e chat.Event) error {
	switch e.Kind {
	case chat.ReasoningDelta:
		return w.delta(reasoningItem, e.Text)
	case chat.ContentDelta:
		return w.delta(messageItem, e.Text)
	case chat.CallStart:
		return w.add(&outputItem{kind: callItem, callID: w.g.callID(e.Call), tool: e.Text, of: w.q.namespaces[e.Text]})
	case chat.ArgumentsDelta:
		return w.delta(callItem, e.Text)
	case chat.CallEnd:
		return w.endItem(statusCompleted)
	}
	return nil
}

// last is the item that is open, or nil.
func (w *responseWriter) last() *outputItem {
	if !w.open {
		return nil
	}
	return w.items[len(w.items)-1]
}

// delta goes on with an item of a kind, or begins one.
func (w *responseWriter) delta(kind itemKind, text string) error {
	if i := w.last(); i == nil || i.kind != kind {
		if err := w.add(&outputItem{kind: kind}); err != nil {
			return err
		}
	}
	i := w.last()
	i.text.WriteString(text)
	switch kind {
	case reasoningItem:
		return w.sendOf(i, "response.reasoning_summary_text.delta", "summary_index", 0, "delta", text)
	case messageItem:
		return w.sendOf(i, "response.output_text.delta", "content_index", 0, "delta", text, "logprobs", []any{})
	}
	return w.sendOf(i, "response.function_call_arguments.delta", "delta", text)
}

// sendOf sends an event of an item.
func (w *responseWriter) sendOf(i *outputItem, kind string, more ...any) error {
	return w.send(kind, append([]any{"item_id", i.id, "output_index", i.index}, more...)...)
}

// add begins an item, and ends the one before.
func (w *responseWriter) add(i *outputItem) error {
	if err := w.endItem(statusCompleted); err != nil {
		return err
	}
	i.index, i.status = len(w.items), statusRunning
	i.id = fmt.Sprintf("%s_%s_%d", i.kind, strings.TrimPrefix(w.g.id, "resp_"), i.index)
	w.items, w.open = append(w.items, i), true
	if i.kind == callItem {
		w.calls++
	}
	if err := w.send("response.output_item.added", "output_index", i.index, "item", i.object()); err != nil {
		return err
	}
	switch i.kind {
	case reasoningItem:
		return w.sendOf(i, "response.reasoning_summary_part.added", "summary_index", 0, "part", summaryPart(""))
	case messageItem:
		return w.sendOf(i, "response.content_part.added", "content_index", 0, "part", outputPart(""))
	}
	return nil
}

// endItem ends the item that is open.
func (w *responseWriter) endItem(status string) error {
	i := w.last()
	if i == nil {
		return nil
	}
	w.open = false
	i.status = status
	if err := w.endText(i); err != nil {
		return err
	}
	return w.send("response.output_item.done", "output_index", i.index, "item", i.object())
}

func (w *responseWriter) endText(i *outputItem) error {
	text := i.text.String()
	switch i.kind {
	case reasoningItem:
		if err := w.sendOf(i, "response.reasoning_summary_text.done", "summary_index", 0, "text", text); err != nil {
			return err
		}
		more := []any{"summary_index", 0, "part", summaryPart(text)}
		if i.status == statusIncomplete {
			more = append(more, "status", i.status)
		}
		return w.sendOf(i, "response.reasoning_summary_part.done", more...)
	case messageItem:
		if err := w.sendOf(i, "response.output_text.done", "content_index", 0, "text", text, "logprobs", []any{}); err != nil {
			return err
		}
		return w.sendOf(i, "response.content_part.done", "content_index", 0, "part", outputPart(text))
	}
	return w.sendOf(i, "response.function_call_arguments.done", "name", i.name(), "arguments", text)
}

// finish ends the output, whose last item the limit may have cut. An output without text and calls ends with an empty
// message.
func (w *responseWriter) finish(t *turn) error {
	status := t.responseStatus()
	if err := w.endItem(status); err != nil {
		return err
	}
	for _, i := range w.items {
		if i.kind != reasoningItem {
			return nil
		}
	}
	if err := w.add(&outputItem{kind: messageItem}); err != nil {
		return err
	}
	return w.endItem(status)
}

func (w *responseWriter) end(t *turn) error {
	if err := w.finish(t); err != nil {
		return err
	}
	r, _ := w.keep(t)
	return w.send("response."+t.responseStatus(), "response", r)
}

// responseStatus is how a turn that is over came to its end.
func (t *turn) responseStatus() string {
	if t.cut {
		return statusIncomplete
	}
	return statusCompleted
}

// keep makes the response, and stores it if that is asked for and possible.
func (w *responseWriter) keep(t *turn) (*ojson.Object, []byte) {
	r, text := w.encoded(t)
	if !w.q.store {
		return r, text
	}
	store := &w.x.s.responses
	history, err := w.history(store.limit())
	// Copies take no more memory than is counted.
	stored := &storedResponse{id: w.g.id, response: bytes.Clone(text), history: bytes.Clone(history)}
	if err == nil && store.fits(stored) {
		store.put(stored)
		return r, text
	}
	w.q.store = false
	return w.encoded(t)
}

func (w *responseWriter) encoded(t *turn) (*ojson.Object, []byte) {
	r := w.response(t.responseStatus(), t)
	return r, encode(r)
}

// history is the JSON of the conversation so far, if it is no longer than most.
func (w *responseWriter) history(most int64) ([]byte, error) {
	items := w.q.items[:len(w.q.items):len(w.q.items)]
	for _, i := range w.items {
		items = append(items, i.object())
	}
	style := ojson.Compact
	style.MaxBytes = int(most)
	return ojson.Append(nil, items, style)
}

// response is the response as it stands; the turn is nil where it has no end yet.
func (w *responseWriter) response(status string, t *turn) *ojson.Object {
	output := []any{}
	for _, i := range w.items {
		output = append(output, i.object())
	}
	var details, use any
	if status == statusIncomplete {
		details = ojson.NewObject("reason", "max_output_tokens")
	}
	if t != nil {
		use = t.responseUsage()
	}
	o := ojson.NewObject(
		"id", w.g.id, "object", "response", "created_at", w.created, "status", status, "incomplete_details", details,
		"error", nil, "model", w.g.model, "output", output, "parallel_tool_calls", w.g.tools.parallel, "store", w.q.store,
		"previous_response_id", w.q.previous, "text", ojson.NewObject("format", w.q.format), "usage", use,
		"end_turn", status == statusCompleted && w.calls == 0)
	if w.q.metadata != nil {
		o.Set("metadata", w.q.metadata)
	}
	if len(w.q.warnings) > 0 {
		o.Set("warnings", w.q.warnings)
	}
	return o
}

// responseUsage is what a request cost, as the Responses interface tells it.
func (t *turn) responseUsage() *ojson.Object {
	prompt, output := len(t.g.prompt), t.reader.Tokens()
	return ojson.NewObject(
		"input_tokens", prompt,
		"input_tokens_details", ojson.NewObject("cached_tokens", t.stream.Cached(), "cache_write_tokens", t.uncached()),
		"output_tokens", output,
		"output_tokens_details", ojson.NewObject("reasoning_tokens", t.reader.ReasoningTokens()),
		"total_tokens", prompt+output)
}

// fail ends a stream that has begun.
func (w *responseWriter) fail(e *Error) {
	if i := w.last(); i != nil {
		i.status, w.open = statusIncomplete, false
	}
	r := w.response(statusFailed, nil)
	cause := openAI.body(e).(openAIError).Error
	r.Set("error", ojson.NewObject("message", cause.Message, "type", cause.Type, "code", cause.Code))
	_ = w.send("response.failed", "response", r)
}
