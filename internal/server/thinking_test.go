package server

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFernet reads the token of the Fernet specification's verify.json, and its generate.json.
func TestFernet(t *testing.T) {
	key, err := ParseThinkingKey([]byte("cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4="))
	if err != nil {
		t.Fatal(err)
	}
	const token = "gAAAAAAdwJ6wAAECAwQFBgcICQoLDA0ODy021cpGVWKZ_eEwCGM4BLLF_5CV9dOPmrhuVUPgJobwOz7JcbmrR64jVmpU4IwqDA=="
	if text, ok := key.open(token); !ok || text != "hello" {
		t.Errorf("%q %v", text, ok)
	}
	for i := range token {
		changed := token[:i] + string(token[i]^1) + token[i+1:]
		if text, ok := key.open(changed); ok && i < len(token)-4 {
			t.Errorf("with character %d changed it reads %q", i, text)
		}
	}
	for n := range 50 {
		text := strings.Repeat("é", n)
		if got, ok := key.open(key.seal(text, time.Now())); !ok || got != text {
			t.Errorf("%d characters read as %q, %v", n, got, ok)
		}
	}
	if _, ok := NewThinkingKey().open(token); ok {
		t.Error("another key opens it")
	}
	for _, s := range []string{"", "x", "gAAA", strings.Repeat("A", 100), strings.Repeat("A", mostSignature+4)} {
		if _, ok := key.open(s); ok {
			t.Errorf("%.20q opens", s)
		}
	}
}

func TestThinkingKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "thinking.key")
	keys := make([]*ThinkingKey, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = LoadThinkingKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if *k != *keys[0] {
			t.Error("processes that start at once have other keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", dir.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadThinkingKey(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged key: %v", err)
	}
}

// TestHiddenReasoning: reasoning that a client does not see comes back in the next turn's prompt.
func TestHiddenReasoning(t *testing.T) {
	f := serve(t, Options{})
	f.says("why</think>\n\nanswer")
	const omitted = `"thinking":{"type":"enabled","display":"omitted"}`
	r := f.post(msgs, "{"+mu+","+omitted+"}")
	block := func(keys ...any) string {
		s, _ := field(t, r.body, append([]any{"content", 0}, keys...)...).(string)
		return s
	}
	if block("type") != "thinking" || block("thinking") != "" || block("signature") == "" {
		t.Fatalf("row 96: %s", r.body)
	}
	events := f.stream(msgs, "{"+mu+`,"stream":true,`+omitted+"}")
	if joined(t, events, "delta", "thinking") != "" {
		t.Error("row 96: the stream shows it")
	}
	deltas := 0
	for _, e := range events {
		if field(t, e.data, "delta", "type") == "thinking_delta" {
			deltas++
		}
	}
	if deltas != 1 {
		t.Errorf("row 96: %d thinking deltas, want an empty one", deltas)
	}
	for _, signature := range []string{block("signature"), joined(t, events, "delta", "signature")} {
		f.post(msgs, `{"model":"test/model","max_tokens":9,`+omitted+`,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[
			{"type":"thinking","thinking":"","signature":"`+signature+`"},{"type":"tool_use","id":"c","name":"add","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"3"}]}]}`)
		if prompt := f.tok.Decode(f.prompt); !strings.Contains(prompt, "<think>\nwhy\n</think>") {
			t.Errorf("row 96: the prompt is %q", prompt)
		}
	}
}
