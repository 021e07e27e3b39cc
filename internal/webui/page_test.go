package webui_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswer(t *testing.T) {
	f, p := open(t, view{})
	f.answers(stream(role, content("Hello *th"), content("ere*."), finish("stop")))
	p.ask("Hi <b>you</b>\nthere")
	p.done(2)
	for selector, want := range map[string]string{
		"#model":              "incoai/Pebble-1M",
		"title":               "Pebble-1M – Splash",
		".question .said":     "Hi <b>you</b>\nthere",
		".answer .content":    "Hello there.",
		".answer .content em": "there",
		".answer .stats":      "345 tokens · 42.3 tokens/s · 1,184 of 1,200 prompt tokens cached",
	} {
		if got := p.text(selector); got != want {
			t.Errorf("%s is %q, want %q", selector, got, want)
		}
	}
	const want = `{"messages":[{"role":"user","content":"Hi <b>you</b>\nthere"}],"stream":true,"stream_options":{"include_usage":true},"return_progress":true}`
	if got := f.request(0).raw; got != want {
		t.Errorf("request %s, want %s", got, want)
	}
	if got := f.request(0).header.Get("Authorization"); got != "" {
		t.Errorf("the request has the key %q", got)
	}
	f.answers(text("Fine."))
	p.ask("And?")
	p.done(4)
	if got := f.request(1).body.Messages; len(got) != 3 || got[1].Role != "assistant" || got[1].Content != "Hello *there*." {
		t.Errorf("the second request's messages are %v", got)
	}
}

// TestStreamOfBytes answers with a write for every byte, so that events, characters and marks are split everywhere.
func TestStreamOfBytes(t *testing.T) {
	f, p := open(t, view{})
	const answer = "# Größe 😀\n\n**fett** und `code` 家\n\n```go\nx := \"ü\"\n```\n"
	events := ": splash-keepalive\n\n" + role + strings.ReplaceAll(content(answer[:9]), "\n", "\r\n") + sse(`{"choices":[{"index":0,"delta":{}}]}`) +
		content(answer[9:]) + finish("stop")
	f.answers(stream(strings.Split(strings.ToValidUTF8(events, "?"), "")...), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range len(events) {
			io.WriteString(w, events[i:i+1])
			w.(http.Flusher).Flush()
		}
	})
	for i, want := range []string{"Größe 😀", "Größe 😀"} {
		p.ask("Go")
		p.done(2 * (i + 1))
		if got := p.text(".turn:last-child h3"); got != want {
			t.Errorf("heading %q, want %q", got, want)
		}
		if got, want := p.text(".turn:last-child pre"), "x := \"ü\""; got != want {
			t.Errorf("code %q, want %q", got, want)
		}
	}
}

// TestEventData splits a stream at every byte and line end.
func TestEventData(t *testing.T) {
	_, p := open(t, view{})
	const events = "\ufeffdata: a😀\n\n: comment\ndata:b\r\ndata:  c\r\n\r\nevent: x\nid: 1\ndata: d\rdata\r\rdata: [DONE]\n\ndata: cut"
	var got [][]string
	p.eval(&got, `(async () => {
		const bytes = new TextEncoder().encode($0);
		const read = async (pieces) => {
			const body = new ReadableStream({start(c) { for (const x of pieces) c.enqueue(x); c.close(); }});
			const out = [];
			for await (const data of eventData(body)) out.push(data);
			return out;
		};
		const all = [await read([...bytes].map((b) => new Uint8Array([b])))];
		for (let i = 0; i <= bytes.length; i++) all.push(await read([bytes.slice(0, i), bytes.slice(i)]));
		return all;
	})()`, events)
	want := []string{"a😀", "b\n c", "d", "[DONE]"}
	for i, data := range got {
		if diff := cmp.Diff(want, data); diff != "" {
			t.Fatalf("split %d (-want +got):\n%s", i-1, diff)
		}
	}
}

func TestStop(t *testing.T) {
	f, p := open(t, view{})
	for i, stop := range []func(){func() { p.key("Escape", 0) }, func() { p.click("#stop") }} {
		l := newLive()
		f.answers(l.serve)
		p.ask("Go on")
		l.send(role, content("One **two"))
		p.wait(`document.querySelector('.turn:last-child .content p')`)
		if p.is(`document.getElementById('stop').hidden`) || !p.is(`document.getElementById('send').hidden`) {
			t.Error("there is no stop button in place of the send button")
		}
		if !p.is(`document.querySelector('.turn:last-child').getAttribute('aria-busy') === 'true'`) {
			t.Error("the answer is not marked as busy")
		}
		p.ask("not yet")
		if p.is(`chat.turns.length !== $0`, 2*(i+1)) {
			t.Error("a message was sent while an answer was running")
		}
		p.eval(nil, `document.getElementById('message').value = ''`)
		stop()
		<-l.gone // the server sees that the page hung up
		p.done(2 * (i + 1))
		if got, want := p.text(".turn:last-child .content"), "One two"; got != want {
			t.Errorf("what came is %q, want %q", got, want)
		}
		if got, want := p.text(".turn:last-child .stats"), "Stopped"; got != want {
			t.Errorf("status %q, want %q", got, want)
		}
		if !p.is(`document.activeElement.id === 'message' && document.getElementById('stop').hidden && document.querySelector('.turn:last-child .problem').hidden`) {
			t.Error("the message box does not have the focus, or something is wrong")
		}
	}
}

func TestProblems(t *testing.T) {
	f, p := open(t, view{})
	p.allow("Failed to load resource", "net::ERR")
	shown := make(chan struct{}, 1)
	hangUp := func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }
	hangUpLater := func(w http.ResponseWriter, r *http.Request) {
		stream(role, content("So far"))(w, r)
		<-shown
		panic(http.ErrAbortHandler)
	}
	for _, test := range []struct {
		name          string
		answer        http.HandlerFunc
		content       string
		title, detail string
	}{
		{"refused", refuse(400, "invalid_request_error", "temperature must be <at most> 2"), "", "The server refused the request", "temperature must be <at most> 2"},
		{"too long", refuse(400, "context_length_exceeded", "prompt exceeds the context window"), "",
			"This conversation is longer than the model can read", "prompt exceeds the context window"},
		{"key", refuse(401, "authentication_error", "the API key is missing or wrong"), "", "The server asks for an API key", "the API key is missing or wrong"},
		{"busy", refuse(503, "frontend_overloaded", "frontend request capacity is exhausted"), "", "The server is busy", "frontend request capacity is exhausted"},
		{"not JSON", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "bad gateway", 502) }, "", "The server failed", "The server answered with status 502."},
		{"JSON of another kind", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 500, []int{1}) }, "", "The server failed", "The server answered with status 500."},
		{"in the stream", stream(role, content("So far"), sse(apiError("engine_failed", "the engine failed")), sse("[DONE]")), "So far", "The server failed", "the engine failed"},
		{"without an end", stream(role, content("So far")), "So far", "The answer broke off", "The server ended the connection before the answer did."},
		{"hung up", hangUpLater, "So far", "The answer broke off", "The connection to the server was lost."},
		{"hung up at once", hangUp, "", "The server cannot be reached", "See whether it is running, and try again."},
	} {
		f.answers(test.answer, text("Now it works."))
		p.ask("Hi")
		if test.name == "hung up" {
			p.wait(`document.querySelector('.turn:last-child .content p')`)
			shown <- struct{}{}
		}
		p.wait(`chat.running === null && chat.turns.at(-1).message.error`)
		got := []string{p.text(".turn:last-child .content"), p.text(".turn:last-child .title"), p.text(".turn:last-child .detail")}
		if diff := cmp.Diff([]string{test.content, test.title, test.detail}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if unlock := p.is(`!document.querySelector('.turn:last-child .unlock').hidden`); unlock != (test.name == "key") {
			t.Errorf("%s: the key is asked for: %v", test.name, unlock)
		}
		p.wait(`server.state === 'ready'`)
		p.click(".turn:last-child .retry")
		p.wait(`chat.running === null && chat.turns.at(-1).message.text === 'Now it works.'`)
		if !p.is(`document.querySelector('.turn:last-child .problem').hidden`) {
			t.Errorf("%s: the problem stays", test.name)
		}
	}
	// What cannot be read as JSON is said in the browser's words.
	f.answers(stream(role, "data: {\n\n"))
	p.ask("Hi")
	p.wait(`chat.running === null && chat.turns.at(-1).message.error`)
	if got, want := p.text(".turn:last-child .title"), "The server’s answer cannot be read"; got != want {
		t.Errorf("title %q, want %q", got, want)
	}
}

func TestReasoning(t *testing.T) {
	f, p := open(t, view{})
	l := newLive()
	f.answers(l.serve)
	p.ask("Why?")
	p.wait(`document.querySelector('.answer .stats').textContent === 'Waiting'`)
	l.send(sse(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta{}}}, "prompt_progress": map[string]int{"total": 8000, "cache": 100, "processed": 2048}}))
	p.wait(`document.querySelector('.answer .stats').textContent === 'Reading 2,048 of 8,000 tokens'`)
	l.send(role, reasoning("Because **it"))
	p.wait(`document.querySelector('.reasoning strong')`)
	if p.is(`document.querySelector('.reasoning').open`) {
		t.Error("the reasoning is not folded")
	}
	if got := p.text(".reasoning .label"); !strings.HasPrefix(got, "Thinking") {
		t.Errorf("label %q while it thinks", got)
	}
	p.click(".reasoning summary")
	l.send(reasoning(" is** so."), content("So."))
	p.wait(`document.querySelector('.answer .content p')`)
	if got := p.text(".reasoning .label"); !strings.HasPrefix(got, "Thought") {
		t.Errorf("label %q when it has thought", got)
	}
	if !p.is(`document.querySelector('.reasoning').open`) {
		t.Error("the reasoning was folded again")
	}
	l.send(finish("stop"))
	l.end()
	p.done(2)
	if got, want := p.text(".reasoning > .prose"), "Because it is so."; got != want {
		t.Errorf("reasoning %q, want %q", got, want)
	}
	f.answers(text("Yes."))
	p.ask("Sure?")
	p.done(4)
	if got, want := f.request(1).body.Messages[1].Reasoning, "Because **it is** so."; got != want {
		t.Errorf("the reasoning sent back is %q, want %q", got, want)
	}
}

func TestToolCalls(t *testing.T) {
	f, p := open(t, view{})
	p.eval(nil, `settings.tools = JSON.stringify([{type: 'function', function: {name: 'get_weather'}}])`)
	f.answers(
		stream(role, content("Let me see."), call(0, "call_a_0", "get_weather", ""), call(0, "", "", `{"city":"Zür`), call(0, "", "", `ich","id":12345678901234567890}`),
			call(1, "call_a_1", "no_arguments", "{}"), finish("tool_calls")),
		text("Sunny."),
	)
	p.ask("Weather?")
	p.done(2)
	var shown []string
	p.eval(&shown, `[...document.querySelectorAll('.call')].map((c) => c.querySelector('summary').textContent.trim() + '\n' + c.querySelector('pre').textContent)`)
	// The digits of a number are those that the model wrote.
	want := []string{"Calls get_weather\n{\n  \"city\": \"Zürich\",\n  \"id\": 12345678901234567890\n}", "Calls no_arguments\n{}"}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if len(f.request(0).body.Tools) != 1 {
		t.Error("the request has no tools")
	}
	p.click(".call:nth-child(1) .result textarea")
	p.write("21 °C\n<b>")
	p.click(".calls > .row button")
	p.done(3)
	messages := f.request(1).body.Messages
	if len(messages) != 4 {
		t.Fatalf("messages %v", messages)
	}
	if c := messages[1]; c.Content != "Let me see." || len(c.Calls) != 2 || c.Calls[0].ID != "call_a_0" || c.Calls[0].Function.Arguments != `{"city":"Zürich","id":12345678901234567890}` {
		t.Errorf("the calls sent back are %+v", c)
	}
	if a, b := messages[2], messages[3]; a.Role != "tool" || a.CallID != "call_a_0" || a.Content != "21 °C\n<b>" || b.CallID != "call_a_1" || b.Content != "" {
		t.Errorf("the results are %+v and %+v", a, b)
	}
	if got, want := p.text(".call .result pre"), "21 °C\n<b>"; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	if got, want := p.text(".turn:last-child .content"), "Sunny."; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	// Calls without a result, one of them cut: the conversation goes on.
	f.answers(stream(role, call(0, "call_b_0", "get_weather", "{}"), call(1, "call_b_1", "get_weather", `{"city":"Z`), finish("length")), text("Bye."))
	p.ask("Again")
	p.done(5)
	if got := p.text(".turn:last-child .stats"); !strings.HasPrefix(got, "Reached the token limit · ") {
		t.Errorf("status %q", got)
	}
	p.ask("Never mind")
	p.done(7)
	messages = f.request(3).body.Messages
	if len(messages) != 9 {
		t.Fatalf("messages %v", messages)
	}
	if c := messages[6]; len(c.Calls) != 2 || c.Calls[1].Function.Arguments != `{"city":"Z` {
		t.Errorf("the calls sent back are %+v", c)
	}
	if r := messages[7]; r.CallID != "call_b_0" || r.Content != "The call was not made." {
		t.Errorf("result %+v", r)
	}
}

func TestIndentJSON(t *testing.T) {
	_, p := open(t, view{})
	for text, want := range map[string]string{
		`{"a":[],"b":{},"c":[1e400,-0.10,"\"{[,:\u0041"],"d":null}`: "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1e400,\n    -0.10,\n    \"\\\"{[,:\\u0041\"\n  ],\n  \"d\": null\n}",
		`[[ ]]`: "[\n  []\n]", ` 3 `: "3", `{"a":`: `{"a":`, ``: ``, `<b>`: `<b>`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000): "",
	} {
		var got string
		p.eval(&got, `indentJSON($0)`, text)
		if want == "" && text != "" {
			got, want = strings.Join(strings.Fields(got), ""), text
		}
		if got != want {
			t.Errorf("%.60s: got %.200s, want %.200s", text, got, want)
		}
	}
}

// TestScriptsInTexts has a model and a server write what would be code if it were taken for HTML.
func TestScriptsInTexts(t *testing.T) {
	b := chromium(t)
	f := newFake(t)
	attacks := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `<iframe srcdoc="<script>alert(1)</script>"></iframe>`,
		`"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `<style>*{display:none}</style>`, `<a href="javascript:alert(1)">x</a>`,
		`[x](javascript:alert(1))`, `[x](JaVaScRiPt:alert(1))`, "[x](java\tscript:alert(1))", `[x](&#106;avascript:alert(1))`, `[x](\javascript:alert(1))`,
		`[x](javascript&colon;alert(1))`, `[x](data:text/html,<script>alert(1)</script>)`, `[x](vbscript:x)`, `[x](//outside.example/)`, `[x](https://a" onclick="alert(1))`,
		`[x](<https://a b" onclick=alert(1)>)`, `[x](https://a.b "t\" onclick=\"alert(1)")`, `![x](https://outside.example/x.png)`, `![x](javascript:alert(1))`,
		`<javascript:alert(1)>`, `<https://a.b/"onclick="alert(1)>`, `https://a.b/"onmouseover=alert(1)//`, "```<img/src=x/onerror=alert(1)>\n</code></pre><script>alert(1)</script>\n```",
		"|<img src=x onerror=alert(1)>|b|\n|-|-|\n|<script>alert(1)</script>|`<b>`|\n", "- [x] <input autofocus onfocus=alert(1)>", "&lt;script&gt;alert(1)&lt;/script&gt;",
		"$<img src=x onerror=alert(1)>$", `\(<svg onload=alert(1)>\)`, `<form id=composer><input name=chat>`, `<base href=https://outside.example/>`, "<!-- --><![CDATA[<script>alert(1)</script>",
	}
	all := strings.Join(attacks, "\n\n")
	f.model["id"] = `<img src=x onerror=alert(1)>"'` + "`/x"
	p := b.open(t, f.URL+"/", view{})
	p.allow("status of 500")
	p.wait(`server.model !== null`)
	f.answers(
		stream(role, reasoning(all), content(all), call(0, all, all, `{"<img src=x onerror=alert(1)>":"`+"<script>alert(1)</script>"+`"}`), finish("tool_calls")),
		stream(role, content(all)+sse(apiError(all, all))), refuse(500, all, all),
	)
	for i := range 3 {
		p.ask(all)
		p.done(2 * (i + 1))
	}
	p.reload() // what is kept is drawn again
	p.wait(`chat.turns.length === 6 && server.model !== null`)
	p.eval(nil, `for (const d of document.querySelectorAll('details')) d.open = true`)
	var found []string
	p.eval(&found, `(() => {
		const found = [];
		const expected = new Set(['class', 'href', 'target', 'rel', 'title', 'start', 'type', 'disabled', 'checked', 'aria-label', 'open', 'hidden', 'role', 'aria-hidden', 'viewBox', 'rows']);
		for (const e of document.querySelectorAll('#conversation *, #model *, #model')) {
			if (/^(script|img|iframe|style|base|object|embed|link|meta)$/i.test(e.tagName)) found.push(e.outerHTML);
			for (const a of e.attributes) if (!expected.has(a.name) && !(e.id && a.name === 'id')) found.push(a.name + '=' + a.value);
			if (e.tagName === 'A' && !/^(https?|mailto):$/.test(e.protocol)) found.push(e.outerHTML);
			if (e.tagName === 'A' && (!/noopener/.test(e.rel) || e.target !== '_blank')) found.push(e.outerHTML);
		}
		return found;
	})()`)
	if len(found) > 0 {
		t.Errorf("%d parts of the page should not be there, such as %s", len(found), found[0])
	}
	for _, selector := range []string{".answer .content", ".reasoning .prose"} {
		if got := p.text(selector); !strings.Contains(got, "<script>alert(1)</script>") || !strings.Contains(got, "<svg onload=alert(1)>") {
			t.Errorf("%s does not show the text", selector)
		}
	}
	if got, want := p.text("#model"), f.model["id"]; got != want {
		t.Errorf("the model is called %q, want %q", got, want)
	}
}

// TestPolicy has the browser refuse what the page's policy forbids.
func TestPolicy(t *testing.T) {
	_, p := open(t, view{})
	p.allow("Content Security Policy", "TrustedHTML", "TrustedScript", "outside request", "Failed to load resource")
	for name, script := range map[string]string{
		"HTML":             `(() => { try { document.body.insertAdjacentHTML('beforeend', '<p>x'); return 'allowed'; } catch (e) { return e.name; } })()`,
		"script text":      `(() => { try { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); return window.ran ? 'allowed' : 'TypeError'; } catch (e) { return e.name; } })()`,
		"outside requests": `fetch('http://outside.example/').then(() => 'allowed', (e) => e.name)`,
		"outside images":   `new Promise((done) => { const i = new Image(); i.onload = () => done('allowed'); i.onerror = () => done('TypeError'); i.src = 'http://outside.example/x.png'; })`,
		"frames":           `new Promise((done) => { const i = document.createElement('iframe'); i.src = '/health'; i.onload = () => { let text = ''; try { text = i.contentDocument.body.textContent; } catch {} done(text ? 'allowed' : 'TypeError'); }; document.body.append(i); })`,
	} {
		var got string
		p.eval(&got, script)
		if got != "TypeError" {
			t.Errorf("%s: %s, want a TypeError", name, got)
		}
	}
}

func TestEditAndRegenerate(t *testing.T) {
	f, p := open(t, view{})
	f.answers(text("One."), text("Two."), text("Two again."), text("New one."))
	p.ask("First")
	p.done(2)
	p.ask("Second")
	p.done(4)
	if n := p.number(`document.querySelectorAll('.again:not([hidden])').length`); n != 1 {
		t.Errorf("%d answers can be regenerated, want the last alone", n)
	}
	p.click(".turn:last-child .again")
	p.wait(`chat.running === null && chat.messages.at(-1).text === 'Two again.'`)
	if got := f.request(2).body.Messages; len(got) != 3 || got[2].Content != "Second" {
		t.Errorf("regenerated from %v", got)
	}
	// The last message is edited from the empty box, and cancelled.
	p.eval(nil, `document.getElementById('message').focus()`)
	p.key("ArrowUp", 0)
	p.wait(`document.activeElement === document.querySelector('.question form textarea') && document.activeElement.value === 'Second'`)
	p.write("!")
	p.key("Escape", 0)
	p.wait(`!document.querySelector('.question form') && document.activeElement.className.includes('edit')`)
	if p.is(`chat.turns.length !== 4`) {
		t.Error("cancelling an edit changed the conversation")
	}
	// The first message is edited: what came after it goes.
	p.click(".turn:nth-child(1) .edit")
	p.write(" edited")
	p.key("Enter", 8) // Shift: a line
	p.write("twice")
	p.key("Enter", 0)
	p.wait(`chat.running === null && chat.messages.at(-1).text === 'New one.'`)
	if got := f.request(3).body.Messages; len(got) != 1 || got[0].Content != "First edited\ntwice" {
		t.Errorf("resent %v", got)
	}
	if p.is(`document.querySelectorAll('.turn').length !== 2 || document.activeElement.id !== 'message'`) {
		t.Error("the turns after the edited one are still there, or the box lost the focus")
	}
}

func TestEditWhileAnswering(t *testing.T) {
	f, p := open(t, view{})
	l := newLive()
	f.answers(l.serve, text("Done."))
	p.ask("First")
	l.send(role, content("Long"))
	p.wait(`document.querySelector('.content p')`)
	p.click(".edit")
	p.write(" edited")
	p.key("Enter", 0)
	<-l.gone
	p.wait(`chat.running === null && chat.messages.at(-1).text === 'Done.'`)
	p.done(2)
}

func TestSettings(t *testing.T) {
	f, p := open(t, view{})
	p.click("#open-settings")
	p.wait(`document.getElementById('settings').open`)
	fill := func(id, text string) {
		t.Helper()
		p.eval(nil, `document.getElementById($0).focus(); document.getElementById($0).select()`, id)
		p.write(text)
	}
	fill("temperature", "5")
	p.click("#settings [type=submit]")
	if !p.is(`document.getElementById('settings').open && document.activeElement.id === 'temperature'`) {
		t.Error("a temperature of 5 was taken")
	}
	fill("temperature", "0.7")
	p.eval(nil, `document.getElementById('functions').value = '{'; checkTools()`)
	p.click("#settings [type=submit]")
	if !p.is(`document.getElementById('settings').open && document.activeElement.id === 'functions'`) {
		t.Error("tools that are not JSON were taken")
	}
	fill("functions", "[]")
	fill("system", "Be brief.")
	fill("top_p", "0.9")
	fill("max_tokens", "64")
	fill("key", "secret-key")
	p.eval(nil, `document.getElementById('effort').value = 'low'`)
	p.click("#settings [type=submit]")
	p.wait(`!document.getElementById('settings').open`)
	p.ask("Hi")
	p.done(2)
	const want = `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true},"return_progress":true,` +
		`"temperature":0.7,"top_p":0.9,"max_tokens":64,"reasoning_effort":"low","tools":[]}`
	if got := f.request(0).raw; got != want {
		t.Errorf("request %s, want %s", got, want)
	}
	if got := f.request(0).header.Get("Authorization"); got != "Bearer secret-key" {
		t.Errorf("key %q", got)
	}
	if !p.is(`!JSON.stringify({...localStorage}).includes('secret-key') && sessionStorage.getItem('splash.key') === 'secret-key' && !document.cookie`) {
		t.Error("the key is kept outside of the tab's storage")
	}
	p.reload()
	p.wait(`server.model !== null`)
	p.click("#open-settings")
	p.wait(`document.getElementById('temperature').value === '0.7' && document.getElementById('system').value === 'Be brief.' && document.getElementById('key').value === 'secret-key'`)
	fill("system", "Something else.")
	p.key("Escape", 0)
	p.wait(`!document.getElementById('settings').open`)
	if !p.is(`settings.system === 'Be brief.' && document.activeElement.id === 'open-settings'`) {
		t.Error("a cancelled change was taken, or the focus is lost")
	}
}

func TestKey(t *testing.T) {
	b := chromium(t)
	f := newFake(t)
	f.key = "open-sesame"
	p := b.open(t, f.URL+"/index.html", view{})
	p.allow("status of 401")
	p.wait(`document.querySelector('#model button')`)
	p.ask("Hi")
	p.done(2)
	if got, want := p.text(".problem .title"), "The server asks for an API key"; got != want {
		t.Errorf("problem %q, want %q", got, want)
	}
	p.click(".problem .unlock")
	p.wait(`document.activeElement.id === 'key'`)
	p.write("open-sesame")
	p.key("Enter", 0)
	p.wait(`server.model !== null && document.getElementById('model').textContent === 'incoai/Pebble-1M'`)
	f.answers(text("Open."))
	p.click(".problem .retry")
	p.wait(`chat.running === null && chat.messages.at(-1).text === 'Open.'`)
}

func TestKeeping(t *testing.T) {
	f, p := open(t, view{})
	l := newLive()
	f.answers(stream(role, reasoning("Hm."), content("**Kept**"), finish("stop")), l.serve)
	p.ask("Keep this")
	p.done(2)
	p.ask("And this")
	l.send(role, content("Half an ans"))
	p.wait(`document.querySelector('.turn:last-child .content p')`)
	p.reload()
	<-l.gone
	p.wait(`chat.turns.length === 4 && document.querySelectorAll('.content')[1].textContent === 'Half an ans'`)
	if got, want := p.text(".turn:last-child .stats"), "Stopped"; got != want {
		t.Errorf("status %q, want %q", got, want)
	}
	if got, want := p.text(".answer .stats"), "345 tokens · 42.3 tokens/s · 1,184 of 1,200 prompt tokens cached"; got != want {
		t.Errorf("status %q, want %q", got, want)
	}
	if !p.is(`document.querySelector('.content strong').textContent === 'Kept' && document.querySelector('.reasoning .prose').textContent === 'Hm.' && document.getElementById('welcome').hidden`) {
		t.Error("the conversation is not what it was")
	}
	p.click("#new")
	p.wait(`chat.turns.length === 0 && !document.getElementById('welcome').hidden && !document.getElementById('notice').hidden`)
	p.click("#notice button")
	p.wait(`chat.turns.length === 4 && document.getElementById('notice').hidden`)
	p.click("#new")
	p.wait(`chat.turns.length === 0`)
	p.reload()
	p.wait(`server.model !== null && chat.turns.length === 0`)
}

func TestBounds(t *testing.T) {
	_, p := open(t, view{})
	var sizes []int
	p.eval(&sizes, `(() => {
		const turn = (n) => [{role: 'user', text: 'q'.repeat(n), files: []}, {role: 'assistant', text: 'a'.repeat(n), reasoning: '', calls: [], stats: {}, finish: 'stop', stopped: false}];
		const kept = (json) => { const r = restored(json); return [json.length, r.messages.length, Number(r.dropped), Number(r.messages[0]?.role === 'assistant')]; };
		return [kept(bounded([...turn(10), ...turn(10)], 2000)), kept(bounded([...turn(1000), ...turn(300), ...turn(300)], 2000)), kept(bounded(turn(3000), 2000)), kept(bounded([], 2000))].flat();
	})()`)
	for i, want := range [][]int{{4, 0}, {4, 1}, {0, 1}, {0, 0}} {
		if got := sizes[4*i:]; got[0] > 2000 || got[1] != want[0] || got[2] != want[1] || got[3] != 0 {
			t.Errorf("case %d: %d characters, %d messages, dropped %d, begins with an answer %d; want %d messages, dropped %d", i, got[0], got[1], got[2], got[3], want[0], want[1])
		}
	}
	// A full storage takes less; what is not ours is ignored.
	for _, kept := range []string{``, `{`, `null`, `[]`, `{"messages":3}`, `{"messages":[null,3,{"role":"x"},{"role":"user","text":3,"files":"y"},{"role":"assistant","calls":[null,{"name":5}],"stats":"z","error":7}]}`} {
		p.eval(nil, `localStorage.setItem('splash.chat', $0); localStorage.setItem('splash.settings', $0); localStorage.setItem('splash.theme', $0); chat.messages = restored($0).messages; drawAll();`, kept)
	}
	p.eval(nil, `localStorage.setItem('filler', 'x'.repeat(4_000_000)); chat.messages = Array.from({length: 40}, (_, i) => ({role: i % 2 ? 'assistant' : 'user', text: 'm'.repeat(50_000), reasoning: '', calls: [], stats: {}, finish: 'stop'})); keep();`)
	if !p.is(`restored(localStorage.getItem('splash.chat')).messages.length >= 2 && restored(localStorage.getItem('splash.chat')).dropped`) {
		t.Error("a full storage keeps nothing")
	}
	p.eval(nil, `chat.messages = []`)
	p.eval(nil, `localStorage.removeItem('filler')`)
}

func TestReadiness(t *testing.T) {
	b := chromium(t)
	f := newFake(t)
	f.setReady(func(w http.ResponseWriter) {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unavailable"})
	})
	p := b.open(t, f.URL+"/", view{})
	p.allow("Failed to load resource")
	p.wait(`server.state === 'loading'`)
	if got := p.text("#state"); !strings.Contains(got, "loading") {
		t.Errorf("state %q", got)
	}
	p.ask("Early")
	if p.is(`chat.turns.length > 0 || document.getElementById('message').value !== 'Early' || document.getElementById('send').getAttribute('aria-disabled') !== 'true'`) {
		t.Error("a message was sent before the model was ready, or is lost")
	}
	f.setReady(nil)
	p.wait(`server.state === 'ready' && server.model !== null && document.getElementById('state').hidden`)
	p.key("Enter", 0)
	p.done(2)
	for _, test := range []struct {
		state string
		ready func(w http.ResponseWriter)
	}{
		{"failed", func(w http.ResponseWriter) { writeJSON(w, 503, map[string]string{"status": "failed"}) }},
		{"failed", func(w http.ResponseWriter) { http.Error(w, "no", 500) }},
		{"loading", func(w http.ResponseWriter) { http.Error(w, "not JSON", 503) }},
		{"unreachable", func(w http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		{"ready", nil},
	} {
		f.setReady(test.ready)
		p.eval(nil, `connect()`)
		p.wait(`server.state === $0`, test.state)
		if got := p.text("#state"); (got == "") != (test.state == "ready") {
			t.Errorf("%s: %q", test.state, got)
		}
	}
}

func TestKeyboard(t *testing.T) {
	f, p := open(t, view{})
	p.wait(`document.activeElement.id === 'message'`)
	p.write("one")
	p.key("Enter", 8) // Shift
	p.write("two")
	if !p.is(`document.getElementById('message').value === 'one\ntwo'`) {
		t.Error("Shift and Enter do not start a line")
	}
	// An Enter that ends the input of a character does not send.
	p.eval(nil, `document.getElementById('message').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))`)
	if p.is(`chat.turns.length > 0`) {
		t.Error("the Enter of a composition sent the message")
	}
	f.answers(text("A [link](https://a.b) and\n\n```go\nx\n```"))
	p.key("Enter", 0)
	p.done(2)
	// From the top, Tab goes through everything in order, and what has the focus can be seen.
	p.eval(nil, `document.querySelector('.skip').focus()`)
	var order []string
	for i := range 13 {
		if i > 0 {
			p.key("Tab", 0)
		}
		var at struct {
			Name    string
			Visible bool
		}
		p.eval(&at, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
			const ring = s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 || getComputedStyle(e.closest('form') ?? e).boxShadow !== 'none';
			return {name: e.id || e.className.split(' ').at(-1) || e.textContent.slice(0, 40), visible: ring && r.width > 1 && r.bottom > 0 && r.top < innerHeight};
		})()`)
		order = append(order, at.Name)
		if !at.Visible {
			t.Errorf("the focus on %s cannot be seen", at.Name)
		}
	}
	want := []string{"skip", "skip", "new", "theme", "open-settings", "edit", "copy", "link", "copy", "copy", "again", "message", "send"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order of focus (-want +got):\n%s", diff)
	}
	p.eval(nil, `document.querySelector('.skip').focus()`)
	p.key("Enter", 0)
	p.wait(`document.activeElement.id === 'message'`)
	p.eval(nil, `document.querySelectorAll('.skip')[1].focus()`)
	p.key("Enter", 0)
	p.wait(`document.activeElement.id === 'conversation'`)
}

// TestNames asks the browser's accessibility tree for the names of all that can be used.
func TestNames(t *testing.T) {
	f, p := open(t, view{})
	f.answers(stream(role, reasoning("x"), content("- [x] a\n\n```go\nx\n```"), call(0, "c", "f", "{}"), finish("tool_calls")))
	p.ask("Hi")
	p.done(2)
	check := func(where string) {
		t.Helper()
		var tree struct {
			Nodes []struct {
				Ignored    bool
				Role, Name struct{ Value any }
			}
		}
		p.call("Accessibility.getFullAXTree", nil, &tree)
		roles := map[string]int{}
		for _, n := range tree.Nodes {
			role, _ := n.Role.Value.(string)
			name, _ := n.Name.Value.(string)
			if n.Ignored {
				continue
			}
			roles[role]++
			switch role {
			case "button", "textbox", "spinbutton", "combobox", "checkbox", "link", "dialog", "DisclosureTriangle":
				if strings.TrimSpace(name) == "" {
					t.Errorf("%s: a %s has no name", where, role)
				}
			}
		}
		t.Log(where, roles)
		if where == "page" && (roles["main"] != 1 || roles["banner"] != 1 || roles["heading"] < 3 || roles["article"] != 2) {
			t.Errorf("landmarks: %v", roles)
		}
	}
	check("page")
	p.click("#open-settings")
	p.wait(`document.getElementById('settings').open`)
	check("settings")
}

func TestSpoken(t *testing.T) {
	f, p := open(t, view{})
	l := newLive()
	f.answers(l.serve)
	p.ask("Hi")
	if !p.is(`document.getElementById('spoken').getAttribute('aria-live') === 'polite' && document.getElementById('state').getAttribute('role') === 'status'`) {
		t.Error("nothing is spoken")
	}
	spoken := `[...document.getElementById('spoken').children].map((p) => p.textContent)`
	l.send(role, reasoning("Hm"), content("First *para"))
	p.wait(`document.querySelector('.content p')`)
	var got []string
	p.eval(&got, spoken)
	if diff := cmp.Diff([]string{"Thinking."}, got); diff != "" {
		t.Errorf("spoken before the block ends (-want +got):\n%s", diff)
	}
	l.send(content("graph*.\n\n- one\n- two\n\n```go\nx\ny\n```\n\n|a|\n|-|\n|b|\n\nLast"), finish("stop"))
	l.end()
	p.done(2)
	p.eval(&got, spoken)
	want := []string{"Thinking.", "First paragraph.", "one", "two", "Code, go, 2 lines.", "Table, 1 row.", "Last", "The answer is complete."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spoken (-want +got):\n%s", diff)
	}
}

// TestLongAnswer follows a long answer, and lets its reader go.
func TestLongAnswer(t *testing.T) {
	f, p := open(t, view{})
	l := newLive()
	f.answers(l.serve)
	p.ask("Go")
	at := func() (y, below float64) {
		var v [2]float64
		p.eval(&v, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done([scrollY, belowView()]))))`)
		return v[0], v[1]
	}
	var whole strings.Builder
	send := func(from, to int) {
		for i := from; i < to; i++ {
			piece := fmt.Sprintf("Paragraph %d with *some* words, `code` and a [link](https://a.b/%d).\n\n- item\n- item\n\n", i, i)
			whole.WriteString(piece)
			l.send(content(piece))
		}
	}
	l.send(role)
	send(0, 100)
	p.wait(`document.querySelector('.content').textContent.includes('Paragraph 99 ')`)
	if y, below := at(); y < 1000 || below > 5 {
		t.Errorf("the page is at %v with %v below, and does not follow the answer", y, below)
	}
	p.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": 400, "y": 300, "deltaX": 0, "deltaY": -700}, nil)
	p.wait(`belowView() > 400 && !pinned`)
	before, _ := at()
	send(100, 200)
	p.wait(`document.querySelector('.content').textContent.includes('Paragraph 199 ')`)
	if y, _ := at(); y != before {
		t.Errorf("the page went from %v to %v while its reader looks at something", before, y)
	}
	p.click("#latest")
	if y, below := at(); y <= before || below > 5 {
		t.Errorf("the page is at %v with %v below after going to the latest", y, below)
	}
	// Much at once, and in one line.
	huge := strings.Repeat("All in one line, again and again. ", 6000)
	whole.WriteString(huge)
	for i := 0; i < len(huge); i += 5000 {
		l.send(content(huge[i:min(len(huge), i+5000)]))
	}
	l.send(finish("stop"))
	l.end()
	p.done(2)
	if !p.is(`chat.messages[1].text === $0`, whole.String()) {
		t.Error("the answer is not whole")
	}
	if n := p.number(`document.querySelectorAll('.content > p').length`); n != 201 {
		t.Errorf("%d paragraphs, want 201", n)
	}
}

func TestCopying(t *testing.T) {
	b := chromium(t)
	for _, host := range []string{"127.0.0.1", insecureHost} {
		f := newFake(t)
		p := b.open(t, strings.Replace(f.URL, "127.0.0.1", host, 1)+"/", view{})
		p.wait(`server.model !== null`)
		if p.is(`isSecureContext`) != (host != insecureHost) {
			t.Errorf("%s: secure context", host)
		}
		const answer = "Some *text*\n\n```go\nfunc f() {}\n\t// x\n```\n"
		f.answers(text(answer))
		p.ask("A question")
		p.done(2)
		for selector, want := range map[string]string{
			".question .copy": "A question", ".answer > .tools .copy": answer, ".code .copy": "func f() {}\n\t// x",
		} {
			p.click(selector)
			p.wait(`document.querySelector($0).textContent.includes('Copied')`, selector)
			p.eval(nil, `document.getElementById('message').value = ''; document.getElementById('message').focus()`)
			p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": "v", "code": "KeyV", "modifiers": 2, "commands": []string{"paste"}}, nil)
			p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": "v", "code": "KeyV", "modifiers": 2}, nil)
			p.wait(`document.getElementById('message').value === $0`, want)
		}
	}
}

func TestTheme(t *testing.T) {
	_, p := open(t, view{})
	const light, dark = "rgb(251, 250, 247)", "rgb(23, 23, 22)"
	state := func(want string, pressed bool, kept any) {
		t.Helper()
		p.wait(`getComputedStyle(document.documentElement).backgroundColor === $0 &&
			document.getElementById('theme').getAttribute('aria-pressed') === String($1) && localStorage.getItem('splash.theme') === $2`, want, pressed, kept)
	}
	state(light, false, nil)
	p.click("#theme")
	state(dark, true, "dark")
	p.reload()
	p.wait(`server.model !== null`)
	state(dark, true, "dark")
	p.show(view{dark: true})
	state(dark, true, "dark")
	p.click("#theme")
	state(light, false, "light")
	p.click("#theme") // the system's: follow it
	state(dark, true, nil)
	p.show(view{})
	state(light, false, nil)
}

func TestReducedMotion(t *testing.T) {
	f, p := open(t, view{})
	l := newLive()
	f.answers(l.serve)
	p.ask("Hi")
	l.send(role, reasoning("Hm"))
	p.wait(`document.querySelector('.thinking') && document.getAnimations().some((a) => a.animationName === 'breathe')`)
	p.show(view{still: true})
	p.wait(`document.getAnimations().length === 0`)
	l.end()
	p.done(2)
}

func TestAttachments(t *testing.T) {
	f, p := open(t, view{})
	if !p.is(`document.getElementById('attach').hidden`) {
		t.Error("a model of text alone takes files")
	}
	f.mu.Lock()
	f.model["input_modalities"] = []string{"text", "image", "pdf"}
	f.mu.Unlock()
	p.reload()
	p.wait(`!document.getElementById('attach').hidden`)
	dir := t.TempDir()
	var paths []string
	for name, data := range map[string]string{
		"dot.png": "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xff\xff?\x00\x05\xfe\x02\xfe\xa75\x81\x84\x00\x00\x00\x00IEND\xaeB`\x82",
		"a.pdf":   "%PDF-1.4", "b.txt": "text",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	var node struct{ Root struct{ NodeID int } }
	p.call("DOM.getDocument", nil, &node)
	var input struct{ NodeID int }
	p.call("DOM.querySelector", map[string]any{"nodeId": node.Root.NodeID, "selector": "#file"}, &input)
	p.call("DOM.setFileInputFiles", map[string]any{"nodeId": input.NodeID, "files": paths}, nil)
	p.wait(`document.querySelectorAll('#attached li').length === 2`)
	if got := p.text("#notice span"); got != "b.txt is not a file that the model takes." {
		t.Errorf("notice %q", got)
	}
	p.eval(nil, `attached.sort((a, b) => a.name < b.name ? -1 : 1)`)
	f.answers(text("Seen."), text("Gone."))
	p.ask("Look")
	p.done(2)
	want := []any{
		map[string]any{"type": "file", "file": map[string]any{"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0xLjQ="}},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4//8/AAX+Av6nNYGEAAAAAElFTkSuQmCC"}},
		map[string]any{"type": "text", "text": "Look"},
	}
	if diff := cmp.Diff(any(want), f.request(0).body.Messages[0].Content); diff != "" {
		t.Errorf("content (-want +got):\n%s", diff)
	}
	if !p.is(`document.querySelector('.question img').alt === 'dot.png' && document.getElementById('attached').hidden && !localStorage.getItem('splash.chat').includes('base64')`) {
		t.Error("the image is not shown, still attached, or kept")
	}
	p.reload()
	p.wait(`chat.turns.length === 2 && server.model !== null`)
	if got, want := p.text(".question .files"), "a.pdf · not keptdot.png · not kept"; got != want {
		t.Errorf("files %q, want %q", got, want)
	}
	p.ask("Again")
	p.done(4)
	data, _ := json.Marshal(f.request(1).body.Messages[0].Content)
	if want := `[{"text":"[a.pdf, no longer attached]\n","type":"text"},{"text":"[dot.png, no longer attached]\n","type":"text"},{"text":"Look","type":"text"}]`; string(data) != want {
		t.Errorf("content %s, want %s", data, want)
	}
}
