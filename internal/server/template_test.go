package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/internal/chat"
	"splash/internal/engine"
)

// TestLaterSystemMessages: a system message after another turn is rendered where it stands by a template that was patched,
// and refused where none can be.
func TestLaterSystemMessages(t *testing.T) {
	const later = `{"messages":[{"role":"system","content":"first"},{"role":"user","content":"one"},{"role":"assistant","content":"two"},
		{"role":"system","content":"later"},{"role":"user","content":"three"}]}`
	for _, c := range []struct {
		template, status string
		check
	}{
		{"qwen.jinja", "patched", check{row: 78, path: cc, body: later, status: 200}},
		{"", "unsupported", check{row: 78, path: cc, body: later, status: 400, has: []string{
			badRequest, "this model's chat template does not accept system messages after the first message"}}},
		{"", "unsupported", check{row: 78, path: cc, body: chatBody(""), status: 200}},
	} {
		source := "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" +
			"{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
		if c.template != "" {
			data, err := os.ReadFile(filepath.Join("..", "chat", "testdata", "templates", c.template))
			if err != nil {
				t.Fatal(err)
			}
			source = string(data)
		}
		f := serveModel(t, Options{}, func(m *Model, _ *engine.Options) {
			var err error
			if m.Templates, err = chat.NewTemplates(t.Context(), map[string]string{"default": source}, chat.TemplateOptions{Format: chat.QWEN}); err != nil {
				t.Fatal(err)
			}
		})
		c.run(f)
		if c.status == "patched" {
			prompt := f.tok.Decode(f.prompt)
			two, at, three := strings.Index(prompt, "two"), strings.Index(prompt, "later"), strings.Index(prompt, "three")
			if two < 0 || at < two || three < at {
				t.Errorf("row 78: the prompt is %q", prompt)
			}
		}
		status := check{row: 78, path: "/status", status: 200, has: []string{`"chat_template":{"later_system":"` + c.status + `"}`}}
		status.run(f)
	}
}

// TestCountTokens: the count is that of the prompt that the same request gives.
func TestCountTokens(t *testing.T) {
	f := serve(t, Options{})
	for _, more := range []string{"", `,"system":"Be kind."`, `,"thinking":{"type":"enabled"}`,
		`,"tools":[{"name":"add","description":"Adds.","input_schema":{"type":"object","properties":{"a":{"type":"integer"}}}}]`} {
		counted := f.post(msgs+"/count_tokens", `{"model":"test/model","messages":[{"role":"user","content":"hi"}]`+more+`}`)
		f.post(msgs, "{"+mu+more+"}")
		if got := field(t, counted.body, "input_tokens"); counted.status != 200 || got != float64(len(f.prompt)) {
			t.Errorf("row 100: %d %s, the prompt of %s has %d", counted.status, counted.body, more, len(f.prompt))
		}
	}
}
