package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"splash/internal/engine"
	"splash/internal/server"
	"splash/internal/target"
)

// demo serves the demonstration model, with its draft, as splash serve does.
func demo(t *testing.T, lanes int) (url string, e *engine.Engine) {
	t.Helper()
	return demoOn(t, "oracle", lanes)
}

func demoOn(t *testing.T, backend string, lanes int) (url string, e *engine.Engine) {
	t.Helper()
	m, err := target.Open(t.Context(), target.Options{Chat: true, Backend: backend, Engine: engine.Options{Lanes: lanes}})
	if err != nil {
		t.Fatal(err)
	}
	e = engine.New(m.Network, m.Engine)
	s, err := server.New(server.Model{
		ID: m.Name, Engine: e, Tokenizer: m.Tokenizer, Format: m.Format, Templates: m.Templates, Stop: m.Plan.Stop,
		Context: m.Engine.Context, Lanes: lanes, Backend: m.Backend, Drafted: true, Rows: "all",
	}, server.Options{Console: &server.Console{Out: io.Discard, Err: io.Discard}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		e.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String(), e
}

type choice struct {
	Message, Delta struct {
		Content   string
		Reasoning string `json:"reasoning_content"`
		Calls     []struct {
			ID       string
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	Finish string `json:"finish_reason"`
}

// A completion is what the tests read of a Chat Completions response, whole or a chunk.
type completion struct {
	Choices []choice
	Usage   struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func post(ctx context.Context, url string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err == nil && res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		return nil, fmt.Errorf("status %d: %s", res.StatusCode, text)
	}
	return res, err
}

type object = map[string]any

func user(text string) []object { return []object{{"role": "user", "content": text}} }

// ask asks for a whole answer.
func ask(t *testing.T, url string, body object) completion {
	t.Helper()
	c := completion{Choices: make([]choice, 1)}
	res, err := post(t.Context(), url, body)
	if err != nil {
		t.Error(err)
		return c
	}
	defer res.Body.Close()
	var got completion
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || len(got.Choices) != 1 {
		t.Errorf("%+v %v", got, err)
		return c
	}
	return got
}

// askStream asks for a stream and joins it.
func askStream(t *testing.T, url string, body object) (content, reasoning, finish string) {
	t.Helper()
	body["stream"] = true
	res, err := post(t.Context(), url, body)
	if err != nil {
		t.Error(err)
		return "", "", ""
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var c completion
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Errorf("%v: %s", err, data)
		}
		for _, choice := range c.Choices {
			content += choice.Delta.Content
			reasoning += choice.Delta.Reasoning
			finish += choice.Finish
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return content, reasoning, finish
}

func TestDemoAnswers(t *testing.T) {
	url, e := demo(t, 4)
	const want = "The capital of France is Paris."
	body := object{"messages": user("What is the capital of France?"), "temperature": 0}
	c := ask(t, url, body)
	m := c.Choices[0].Message
	if m.Content != want || !strings.Contains(m.Reasoning, "Its capital is Paris") || c.Choices[0].Finish != "stop" {
		t.Errorf("%+v", c)
	}
	content, reasoning, finish := askStream(t, url, body)
	if content != want || reasoning != m.Reasoning || finish != "stop" {
		t.Errorf("streamed: %q %q %s", content, reasoning, finish)
	}
	delete(body, "stream")
	body["reasoning_effort"] = "none"
	if m := ask(t, url, body).Choices[0].Message; m.Content != want || m.Reasoning != "" {
		t.Errorf("without reasoning: %+v", m)
	}
	// Sampled, and the same for the same seed.
	sampled := object{"messages": user("Tell me a short story."), "seed": 7, "max_tokens": 60}
	first := ask(t, url, sampled).Choices[0].Message
	if again := ask(t, url, sampled).Choices[0].Message; again.Content != first.Content || again.Reasoning != first.Reasoning {
		t.Errorf("the same seed gives %q and %q", first, again)
	}
	if n := e.Speculation(); n.Counts.TokensPerCycle() < 2 {
		t.Errorf("%.2f tokens a cycle: the draft is not used", n.Counts.TokensPerCycle())
	}
}

// TestDemoTools: the model calls a tool that it is shown, and goes on from its result.
func TestDemoTools(t *testing.T) {
	url, _ := demo(t, 2)
	tools := []object{{"type": "function", "function": object{
		"name": "get_weather", "description": "Get the weather of a city.",
		"parameters": object{"type": "object", "properties": object{"city": object{"type": "string"}}, "required": []string{"city"}},
	}}}
	messages := user("What is the weather in Paris?")
	body := object{"messages": messages, "tools": tools, "temperature": 0}
	c := ask(t, url, body)
	m := c.Choices[0].Message
	if len(m.Calls) != 1 || c.Choices[0].Finish != "tool_calls" {
		t.Fatalf("no call: %+v", c)
	}
	call := m.Calls[0]
	var arguments struct{ City string }
	if err := json.Unmarshal([]byte(call.Function.Arguments), &arguments); err != nil || call.Function.Name != "get_weather" || arguments.City != "Paris" {
		t.Fatalf("the call is %+v: %v", call, err)
	}
	body["messages"] = append(messages,
		object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": call.ID, "type": "function",
			"function": object{"name": call.Function.Name, "arguments": call.Function.Arguments}}}},
		object{"role": "tool", "tool_call_id": call.ID, "content": "sunny, 21 degrees"})
	c = ask(t, url, body)
	if m := c.Choices[0].Message; m.Content == "" || len(m.Calls) > 0 || c.Choices[0].Finish != "stop" {
		t.Errorf("after the result: %+v", c)
	} else {
		t.Logf("after the result: %s", m.Content)
	}
	body["tool_choice"] = "none"
	body["messages"] = messages
	if m := ask(t, url, body).Choices[0].Message; len(m.Calls) > 0 {
		t.Errorf("tool_choice none calls %+v", m.Calls)
	}
}

// questions are the demonstration model's own.
func questions(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "fixtures", "pebble", "prompts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Prompts []struct{ Question string } }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range file.Prompts {
		if p.Question != "" {
			all = append(all, p.Question)
		}
	}
	return all
}

// TestDemoTogether: greedy answers are the same alone, with four clients at once and with eight, beside clients that hang
// up on their way (the oracle's rows do not depend on their neighbours).
func TestDemoTogether(t *testing.T) {
	url, e := demo(t, 4)
	asked := questions(t)[:8]
	// Prompts of other lengths among them.
	asked[1] = "x"
	asked[2] = strings.Repeat("The cat sat on the mat. ", 25) + asked[2]
	request := func(q string) object {
		return object{"messages": user(q), "temperature": 0, "max_tokens": 24}
	}
	var alone []string
	for _, q := range asked {
		m := ask(t, url, request(q)).Choices[0].Message
		alone = append(alone, m.Reasoning+"|"+m.Content)
	}
	for _, clients := range []int{3, 4, 8} {
		got := make([]string, len(asked))
		var wg sync.WaitGroup
		next := make(chan int)
		for range clients {
			wg.Go(func() {
				for i := range next {
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					content, reasoning, _ := askStream(t, url, request(asked[i]))
					got[i] = reasoning + "|" + content
				}
			})
		}
		wg.Go(func() { hangUp(t, url, request(asked[3])) })
		for _, i := range rand.Perm(len(asked)) {
			next <- i
		}
		close(next)
		wg.Wait()
		if !slices.Equal(got, alone) {
			t.Errorf("%d clients: %q, alone %q", clients, got, alone)
		}
	}
	for s := e.Stats(); s.Active > 0; s = e.Stats() {
		time.Sleep(time.Millisecond)
	}
}

// hangUp asks, and goes after the first bytes.
func hangUp(t *testing.T, url string, body object) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body["stream"] = true
	res, err := post(ctx, url, body)
	if err != nil {
		t.Error(err)
		return
	}
	res.Body.Read(make([]byte, 100))
	cancel()
	res.Body.Close()
}

// TestDemoSecondTurn: a conversation that goes on is not read again from its beginning.
func TestDemoSecondTurn(t *testing.T) {
	url, _ := demo(t, 2)
	messages := append([]object{{"role": "system", "content": strings.Repeat("Answer in one sentence. ", 20)}}, user("What is the capital of France?")...)
	body := object{"messages": messages, "temperature": 0, "reasoning_effort": "none"}
	first := ask(t, url, body)
	if first.Usage.Details.Cached != 0 {
		t.Errorf("the first turn: %+v", first.Usage)
	}
	body["messages"] = append(messages, object{"role": "assistant", "content": first.Choices[0].Message.Content},
		object{"role": "user", "content": "What is the capital of Italy?"})
	second := ask(t, url, body)
	const tail = 7 // tokens of the generation prompt
	if least := (first.Usage.Prompt - tail) / 32 * 32; second.Usage.Details.Cached < least || second.Usage.Details.Cached%32 != 0 {
		t.Errorf("row 120: %d cached tokens, at least %d expected", second.Usage.Details.Cached, least)
	}
	cold, _ := demo(t, 2)
	if c := ask(t, cold, body); c.Choices[0].Message.Content != second.Choices[0].Message.Content {
		t.Errorf("%q with what was kept, %q without", second.Choices[0].Message.Content, c.Choices[0].Message.Content)
	}
}
