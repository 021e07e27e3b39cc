package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// message posts to the Messages interface and returns the usage and the text.
func message(t *testing.T, url string, body object) (input, cached int, text string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/v1/messages", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	var got struct {
		Content []struct{ Text string }
		Usage   struct {
			Input  int `json:"input_tokens"`
			Cached int `json:"cache_read_input_tokens"`
		}
	}
	if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(answer, &got) != nil {
		t.Fatalf("status %d: %s %v", res.StatusCode, answer, err)
	}
	for _, c := range got.Content {
		text += c.Text
	}
	return got.Usage.Input, got.Usage.Cached, text
}

// TestDemoLaterInstructions: an agent's system message after a tool result once went to the first block, and everything
// behind it was processed again. It stays where it is: the next request is read from where the one before it ended.
func TestDemoLaterInstructions(t *testing.T) {
	url, _ := demo(t, 1)
	tools := []object{{"name": "get_weather", "description": "Get the weather of a city.", "input_schema": object{
		"type": "object", "properties": object{"city": object{"type": "string"}}}}}
	messages := []object{
		{"role": "user", "content": "What is the weather in Paris?"},
		{"role": "assistant", "content": []object{{"type": "tool_use", "id": "t1", "name": "get_weather", "input": object{"city": "Paris"}}}},
		{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "t1", "content": "sunny, 21 degrees"}}},
	}
	body := object{"model": "splash/pebble", "max_tokens": 4, "temperature": 0, "tools": tools, "messages": messages,
		"system": strings.Repeat("Answer in one sentence. ", 8)}
	before, _, _ := message(t, url, body)
	messages = append(messages, object{"role": "system", "content": "Plan mode is on."})
	body["messages"] = messages
	input, cached, text := message(t, url, body)
	const tail = 7 // tokens of the generation prompt
	if least := (before - tail) / 32 * 32; cached < least {
		t.Errorf("the request with the later message has %d tokens cached of %d, want %d", cached, before, least)
	}
	prompt := input + cached
	body["messages"] = append(messages, object{"role": "assistant", "content": text}, object{"role": "user", "content": "And in Rome?"})
	if _, cached, _ = message(t, url, body); cached < (prompt-tail)/32*32 {
		t.Errorf("the request after it has %d tokens cached of %d, want %d", cached, prompt, (prompt-tail)/32*32)
	}
}
