package webui_test

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"splash/internal/engine"
	"splash/internal/server"
	"splash/internal/target"
)

// serveDemo serves the demonstration model, and the page, as splash serve does.
func serveDemo(t *testing.T, key string) string {
	t.Helper()
	m, err := target.Open(t.Context(), target.Options{Chat: true, Engine: engine.Options{Lanes: 2}})
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(m.Network, m.Engine)
	s, err := server.New(server.Model{
		ID: m.Name, Engine: e, Tokenizer: m.Tokenizer, Format: m.Format, Templates: m.Templates, Stop: m.Plan.Stop,
		Context: m.Engine.Context, Lanes: 2, Backend: m.Backend, Drafted: true, Rows: "all",
	}, server.Options{Access: server.Access{Key: key}, Console: &server.Console{Out: io.Discard, Err: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(s)
	h.Config.SetKeepAlivesEnabled(false)
	h.Start()
	t.Cleanup(func() {
		h.Close()
		e.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return h.URL
}

// TestDemo has conversations with the demonstration model: an answer with its reasoning and a second turn, a tool's round
// trip, and a stop.
func TestDemo(t *testing.T) {
	b := chromium(t)
	p := b.open(t, serveDemo(t, "open-sesame")+"/", view{})
	p.allow("status of 401")
	p.wait(`document.querySelector('#model button')`)
	p.click("#model button")
	p.write("open-sesame")
	p.eval(nil, `document.getElementById('temperature').value = '0'`)
	p.key("Enter", 0)
	p.wait(`server.state === 'ready' && server.model !== null`)

	p.ask("What is the capital of France?")
	p.done(2)
	if got, want := p.text(".answer .content"), "The capital of France is Paris."; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if got := p.text(".reasoning > .prose"); !strings.Contains(got, "Its capital is Paris") {
		t.Errorf("reasoning %q", got)
	}
	if got := p.text(".answer .stats"); !strings.Contains(got, " tokens/s · 0 of ") {
		t.Errorf("status %q", got)
	}
	p.ask("What is the capital of Italy?")
	p.done(4)
	if !p.is(`chat.messages[3].text && chat.messages[3].stats.prompt > chat.messages[1].stats.prompt`) {
		t.Errorf("the second answer is %q, %q", p.text(".turn:last-child .content"), p.text(".turn:last-child .stats"))
	}

	p.click("#new")
	p.eval(nil, `settings.tools = $0`, `[{"type":"function","function":{"name":"get_weather","description":"Get the weather of a city.",`+
		`"parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`)
	p.ask("What is the weather in Paris?")
	p.done(2)
	if got, want := p.text(".call .name")+p.text(".call pre"), "get_weather{\n  \"city\": \"Paris\"\n}"; got != want {
		t.Fatalf("call %q, want %q; %s", got, want, p.text(".problem"))
	}
	p.click(".call .result textarea")
	p.write("sunny, 21 degrees")
	p.click(".calls > .row button")
	p.done(3)
	if !p.is(`chat.messages[2].text && !chat.messages[2].error`) {
		t.Errorf("after the result: %q, %s", p.text(".turn:last-child .content"), p.text(".turn:last-child .problem"))
	}

	p.click("#new")
	p.eval(nil, `settings.tools = ''; settings.temperature = '2'; settings.max_tokens = ''`)
	p.ask("Tell me a long story.")
	p.wait(`chat.messages[1].text || chat.messages[1].reasoning`)
	p.key("Escape", 0)
	p.done(2)
	if p.is(`chat.messages[1].error`) {
		t.Errorf("stopping: %s", p.text(".problem"))
	}
}
