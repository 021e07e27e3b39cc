package chat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat/ojson"
)

// prepared returns what templates see of a conversation, as JSON, or the error.
func prepared(t *testing.T, text string, opt PrepareOptions) string {
	t.Helper()
	messages, err := ParseMessages(decode(t, text))
	if err == nil {
		messages, err = Prepare(context.Background(), messages, opt)
	}
	if err != nil {
		var e *RequestError
		if !errors.As(err, &e) {
			t.Errorf("%s: %v is not the request's fault", text, err)
		}
		return "error: " + err.Error()
	}
	list := make([]any, len(messages))
	for i := range messages {
		list[i] = messages[i].value()
	}
	s, err := ojson.String(list, ojson.Compact)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPrepare(t *testing.T) {
	const u = `{"role":"user","content":"u"}`
	pages := func(_ context.Context, file *ojson.Object) ([]Part, error) {
		if file.Value("file_data") == "text" {
			return []Part{{Kind: TextPart, Text: "plain"}}, nil
		}
		return append(PDFPage(1, "one", "data:,1"), PDFPage(2, "two", "data:,2")...), nil
	}
	vision := PrepareOptions{Vision: true, File: pages}
	for _, c := range []struct {
		name, in, want string
		opt            PrepareOptions
	}{
		{"a user turn", `[` + u + `]`, `[` + u + `]`, vision},
		{"a single system message is not trimmed", `[{"role":"system","content":"  Only  "},` + u + `]`, `[{"role":"system","content":"  Only  "},` + u + `]`, vision},
		{"leading ones merge", `[{"role":"system","content":"One"},{"role":"developer","content":[{"type":"text","text":"Tw"},{"type":"input_text","text":"o"}]},{"role":"system","content":""},{"role":"developer","content":"Three"},` + u + `,{"role":"developer","content":"Later"},{"role":"system","content":"Later still"}]`,
			`[{"role":"system","content":"One\n\nTwo\n\nThree"},` + u + `,{"role":"system","content":"Later"},{"role":"system","content":"Later still"}]`, vision},
		{"an empty one leads", `[{"role":"system","content":null},{"role":"system","content":"x"},` + u + `]`, `[{"role":"system","content":"x"},` + u + `]`, vision},
		{"none leads", `[` + u + `,{"role":"system","content":"a"},{"role":"system","content":"b"}]`, `[` + u + `,{"role":"system","content":"a"},{"role":"system","content":"b"}]`, vision},
		{"text parts join", `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"},{"type":"output_text","text":"c"},{"type":"text"}]}]`, `[{"role":"user","content":"abc"}]`, vision},
		{"null content", `[{"role":"user"},{"role":"assistant","content":null},{"role":"tool","content":null}]`, `[{"role":"user","content":""},{"role":"assistant","content":""},{"role":"tool","content":""}]`, vision},
		{"images keep their places", `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,x","detail":"high"}},{"type":"text","text":"b"},{"type":"image_url","image_url":"data:,y"}]}]`,
			`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,x"}},{"type":"text","text":"b"},{"type":"image_url","image_url":{"url":"data:,y"}}]}]`, vision},
		{"an image in a tool result", `[` + u + `,{"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":"data:,y"}]}]`, `[` + u + `,{"role":"tool","content":[{"type":"image_url","image_url":{"url":"data:,y"}}],"tool_call_id":"c"}]`, vision},
		{"a PDF", `[{"role":"user","content":[{"type":"file","file":{"file_data":"x"}}]}]`,
			`[{"role":"user","content":[{"type":"text","text":"PDF page 1:\none\n"},{"type":"image_url","image_url":{"url":"data:,1"}},{"type":"text","text":"PDF page 2:\ntwo\n"},{"type":"image_url","image_url":{"url":"data:,2"}}]}]`, vision},
		{"a file of text", `[{"role":"user","content":[{"type":"text","text":"a "},{"type":"file","file":{"file_data":"text"}}]}]`, `[{"role":"user","content":"a plain"}]`, vision},
		{"reasoning", `[` + u + `,{"role":"assistant","content":"a","reasoning_content":[{"type":"text","text":"r"}]},{"role":"assistant","content":"b","reasoning_content":null}]`,
			`[` + u + `,{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"assistant","content":"b"}]`, vision},
		{"calls keep order and numbers", `[` + u + `,{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\": 1.50, \"a\": [1e3]}"}},{"function":{"name":"g","arguments":{"y":1,"b":2}}},{"function":{"name":"h"}},{"function":{"name":"i","arguments":""}}]}]`,
			`[` + u + `,{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"z":1.50,"a":[1e3]}},"id":"c1"},{"type":"function","function":{"name":"g","arguments":{"y":1,"b":2}}},{"type":"function","function":{"name":"h","arguments":{}}},{"type":"function","function":{"name":"i","arguments":{}}}]}]`, vision},
		{"a cut call", `[` + u + `,{"role":"assistant","content":"t","reasoning_content":"r","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":"{\"é\": \"x"}},{"function":{"name":"h","arguments":{}}}]}]`,
			`[` + u + `,{"role":"assistant","content":"t","reasoning_content":"r","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]},{"role":"assistant","content":"Incomplete tool call:\n{\"name\": \"g\", \"arguments\": \"{\\\"é\\\": \\\"x\"}"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"h","arguments":{}}}]}]`, vision},
		{"only a cut call", `[` + u + `,{"role":"assistant","content":"","tool_calls":[{"function":{"name":"g","arguments":"{\"a\":"}}]}]`,
			`[` + u + `,{"role":"assistant","content":"Incomplete tool call:\n{\"name\": \"g\", \"arguments\": \"{\\\"a\\\":\"}"}]`, vision},

		{"no array", `{}`, "error: messages must be a non-empty array", vision},
		{"no messages", `[]`, "error: messages must be a non-empty array", vision},
		{"no object", `[1]`, "error: each message must be an object", vision},
		{"no user", `[{"role":"system","content":"x"}]`, "error: messages must include a user message", vision},
		{"a role", `[{"role":"robot","content":"x"}]`, "error: unsupported message role: robot", vision},
		{"no role", `[{"content":"x"}]`, "error: unsupported message role: null", vision},
		{"a number as content", `[{"role":"user","content":1}]`, "error: message content must be text", vision},
		{"an image of the system", `[{"role":"system","content":[{"type":"image_url","image_url":"x"}]},` + u + `]`, "error: only text message content is supported", vision},
		{"text that is none", `[{"role":"user","content":[{"type":"text","text":1}]}]`, "error: text message content must be a string", vision},
		{"a part that is none", `[{"role":"user","content":["x"]}]`, "error: message content parts must be objects", vision},
		{"an image without a URL", `[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]`, "error: invalid image content part", vision},
		{"a file that is none", `[{"role":"user","content":[{"type":"file","file":"x"}]}]`, "error: invalid file content part", vision},
		{"video", `[{"role":"user","content":[{"type":"video_url","video_url":"x"}]}]`, "error: video_url content is not supported", vision},
		{"audio", `[{"role":"user","content":[{"type":"input_audio"}]}]`, "error: input_audio content is not supported", vision},
		{"another part", `[{"role":"user","content":[{"type":"hologram"}]}]`, "error: unsupported message content part", vision},
		{"calls that are none", `[` + u + `,{"role":"assistant","tool_calls":{}}]`, "error: assistant tool_calls must be an array", vision},
		{"a call that is none", `[` + u + `,{"role":"assistant","tool_calls":[{}]}]`, "error: invalid assistant tool call", vision},
		{"a call without a name", `[` + u + `,{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}]`, "error: invalid assistant tool call", vision},
		{"invalid arguments", `[` + u + `,{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{bad}"}}]}]`, "error: tool call arguments must be valid JSON", vision},
		{"arguments of another type", `[` + u + `,{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}]`, "error: invalid assistant tool call", vision},
		{"null arguments", `[` + u + `,{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":null}}]}]`, "error: invalid assistant tool call", vision},
		{"a call's ID", `[` + u + `,{"role":"assistant","tool_calls":[{"id":1,"function":{"name":"f"}}]}]`, "error: tool call id must be a string", vision},
		{"a result's ID", `[` + u + `,{"role":"tool","tool_call_id":1,"content":"x"}]`, "error: tool_call_id must be a string", vision},
		{"an image without vision", `[{"role":"user","content":[{"type":"image_url","image_url":"data:,x"}]}]`, "error: image input is not supported: this model is serving without vision (started with --language-only)", PrepareOptions{}},
		{"a PDF without vision", `[{"role":"user","content":[{"type":"file","file":{}}]}]`, "error: PDF input is not supported: this model is serving without vision (the model has no vision tower)", PrepareOptions{NoVisionReason: "the model has no vision tower"}},
		{"an image in a result without vision", `[` + u + `,{"role":"tool","content":[{"type":"image_url","image_url":"data:,x"}]}]`, "error: image input is not supported: this model is serving without vision (started with --language-only)", PrepareOptions{}},
		{"a file without a reader", `[{"role":"user","content":[{"type":"file","file":{}}]}]`, "error: file content is not supported", PrepareOptions{Vision: true}},
	} {
		if diff := cmp.Diff(c.want, prepared(t, c.in, c.opt)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// Media are refused before any file is read.
func TestVisionIsCheckedFirst(t *testing.T) {
	read := false
	opt := PrepareOptions{File: func(context.Context, *ojson.Object) ([]Part, error) { read = true; return nil, nil }}
	_, err := Prepare(context.Background(), []Message{{Role: RoleUser, Parts: []Part{{Kind: FilePart}, {Kind: ImagePart}}}}, opt)
	if err == nil || read {
		t.Errorf("error %v, file read: %v", err, read)
	}
	boom := errors.New("boom")
	opt = PrepareOptions{Vision: true, File: func(context.Context, *ojson.Object) ([]Part, error) { return nil, boom }}
	if _, err := Prepare(context.Background(), []Message{{Role: RoleUser, Parts: []Part{{Kind: FilePart}}}}, opt); !errors.Is(err, boom) {
		t.Errorf("the reader's error is lost: %v", err)
	}
}

// What an API builds by hand goes through the same checks.
func TestPrepareChecksRoles(t *testing.T) {
	for _, messages := range [][]Message{nil, {{Role: "developer", Text: "x"}}, {{Role: RoleAssistant, Text: "x"}}} {
		var e *RequestError
		if _, err := Prepare(context.Background(), messages, PrepareOptions{}); !errors.As(err, &e) {
			t.Errorf("%v: %v", messages, err)
		}
	}
}

func TestPrepareDoesNotChangeItsInput(t *testing.T) {
	messages := []Message{{Role: RoleSystem, Text: "a"}, {Role: RoleSystem, Text: "b"}, {Role: RoleUser, Text: "c"}}
	if _, err := Prepare(context.Background(), messages, PrepareOptions{}); err != nil {
		t.Fatal(err)
	}
	if messages[0].Text != "a" {
		t.Errorf("the first message became %q", messages[0].Text)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(`[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":"}}]}]`)
	f.Add(`[{"role":"system","content":[{"type":"text","text":"a"}]},{"role":"developer"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:,"}},{"type":"file","file":{}}]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := ojson.Decode(text, ojson.Options{})
		if err != nil {
			return
		}
		messages, err := ParseMessages(v)
		var e *RequestError
		if err == nil {
			messages, err = Prepare(context.Background(), messages, PrepareOptions{Vision: true})
		}
		if err != nil {
			if !errors.As(err, &e) || strings.ContainsRune(err.Error(), '\n') && len(err.Error()) > 200 {
				t.Fatalf("%s: %v", text, err)
			}
			return
		}
		// A prepared conversation stays as it is.
		again, err := Prepare(context.Background(), messages, PrepareOptions{Vision: true})
		if err != nil || cmp.Diff(messages, again, cmp.Comparer(func(a, b *ojson.Object) bool { return a == b })) != "" {
			t.Fatalf("%s: %v", text, err)
		}
		for i := range messages {
			if _, err := ojson.String(messages[i].value(), ojson.Compact); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	})
}
