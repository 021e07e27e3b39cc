package server

import (
	"encoding/json"
	"strings"
	"time"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
)

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
