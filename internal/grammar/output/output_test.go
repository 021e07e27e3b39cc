package output

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/grammar"
	"splash/internal/grammar/schema"
	"splash/internal/tokenizer"
)

// tags are the special tokens of the small vocabulary, after its 256 bytes.
var tags = []string{
	"<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|end|>", "<|user|>",
}

// pieces are further tokens: parts of tags, as text.
var pieces = []string{"<tool", "_call>", "</th", "ink>", "</", "\n\n", "\n<function=", "{\"", "\":", "answer", " the", "é", ">\n"}

type smallTokens struct{}

func (smallTokens) Size() int { return 256 + len(tags) + len(pieces) }

func (smallTokens) Bytes(id int32) []byte {
	switch {
	case id < 256:
		return []byte{byte(id)}
	case int(id) < 256+len(tags):
		return []byte(tags[id-256])
	}
	return []byte(pieces[int(id)-256-len(tags)])
}

func (smallTokens) Kind(id int32) tokenizer.Kind {
	switch {
	case id >= 256 && id < 260:
		return tokenizer.UserDefined
	case id >= 260 && int(id) < 256+len(tags):
		return tokenizer.Control
	}
	return tokenizer.Normal
}

func qwen(t testing.TB) *Compiler { return newCompiler(t, QwenXML) }
func glm(t testing.TB) *Compiler  { return newCompiler(t, GLMArgs) }

func newCompiler(t testing.TB, s Syntax) *Compiler {
	t.Helper()
	c, err := New(smallTokens{}, 300, Format{
		Syntax: s, ModelThinks: s == GLMArgs, ThinkOpen: 256, ThinkClose: 257, CallOpen: 258, CallClose: 259, KeyOpen: 260, KeyClose: 261, ValueOpen: 262, ValueClose: 263,
		Stop: []int32{264, 265},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// encode returns tokens of a text: tags as their tokens, but for those after a §, the rest as bytes or longer tokens.
func encode(text string, r *rand.Rand) []int32 {
	return split(text, func() bool { return r.IntN(2) == 0 })
}

// tokensOf is encode, of longer tokens here and there or of none.
func tokensOf(text string, seed uint64, longer bool) []int32 {
	r := rand.New(rand.NewPCG(seed, 0))
	return split(text, func() bool { return longer && r.IntN(4) > 0 })
}

func split(text string, longer func() bool) []int32 {
	var ids []int32
next:
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "§"); ok && rest != "" {
			ids = append(ids, int32(rest[0]))
			text = rest[1:]
			continue
		}
		for i, tag := range tags {
			if rest, ok := strings.CutPrefix(text, tag); ok {
				ids = append(ids, int32(256+i))
				text = rest
				continue next
			}
		}
		for i, piece := range pieces {
			if rest, ok := strings.CutPrefix(text, piece); ok && longer() {
				ids = append(ids, int32(256+len(tags)+i))
				text = rest
				continue next
			}
		}
		ids = append(ids, int32(text[0]))
		text = text[1:]
	}
	return ids
}

func decode(t testing.TB, text string) any {
	t.Helper()
	v, err := ojson.Decode(text, ojson.Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

// tools are add (strict), say (anything) and note (strict, of many kinds).
func tools(t testing.TB) []Tool {
	return []Tool{
		{"add", decode(t, `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":["integer","null"]},"how":{"enum":["slow","fast",3]}},"required":["a"]}`), true},
		{"say", decode(t, `{"type":"object","properties":{"text":{"type":"string"}}}`), false},
		{"note", decode(t, `{"type":"object","properties":{"text":{"type":"string","maxLength":3},"on":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},
			"any":{}},"required":["text","on"],"additionalProperties":{"type":"integer"}}`), true},
	}
}

const answerSchema = `{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"],"additionalProperties":false}`

// The calls of the tests, in QWEN's layout.
const (
	add   = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
	say   = "<tool_call>\n<function=say>\n<parameter=text>\nHi \"you\"\n</parameter>\n</function>\n</tool_call>"
	json0 = `{"answer":"x"}`
)

// TestTable walks the table of grammars: what each request's answer may be and what not.
func TestTable(t *testing.T) {
	response := &Response{Schema: decode(t, answerSchema)}
	object := &Response{AnyObject: true}
	all := tools(t)
	c := qwen(t)
	r := rand.New(rand.NewPCG(1, 2))
	for name, test := range map[string]struct {
		request Request
		free    bool
		yes, no []string
	}{
		"nothing":                   {request: Request{}, free: true},
		"tools":                     {request: Request{Tools: all[1:2]}, free: true},
		"thinking alone":            {request: Request{Thinking: true}, free: true},
		"a strict tool":             {request: Request{Tools: all}, yes: []string{"", "text", add, "text" + add + "more" + say + "\n" + say, "  \n" + add}, no: []string{"§<tool_call>", "</think>", "§</think>", "<think>", add[:len(add)-20], "<tool_call>{}</tool_call>"}},
		"serial":                    {request: Request{Tools: all, Serial: true}, yes: []string{"", "text", "text" + add, add + " \n"}, no: []string{add + add, add + "x", add + strings.Repeat(" ", 65)}},
		"required":                  {request: Request{Tools: all, Choice: Required}, yes: []string{add, " \n" + say + "then" + add + "end", add + add}, no: []string{"", "text", "text" + add, json0, strings.Repeat("\n", 65) + add}},
		"required, serial":          {request: Request{Tools: all, Choice: Required, Serial: true}, yes: []string{add, "\n" + say + "\n"}, no: []string{"", "x" + add, add + add, add + "x"}},
		"named":                     {request: Request{Tools: all, Choice: Named, Name: "say"}, yes: []string{say, "\n" + say + "\n"}, no: []string{add, say + say, say + "x", ""}},
		"none":                      {request: Request{Tools: all, Choice: None}, yes: []string{"", "text", "<tool", "§<tool_", json0, "<parameter=x>"}, no: []string{"<tool_call>", "§<tool_call>", add, "a§</think>b", "</think>"}},
		"response":                  {request: Request{Response: response}, yes: []string{json0, " \n{ \"answer\" : \"§<tool_call>\"\n}\n", `{"answer":"§</think>"}`}, no: []string{"", "no", `{"answer":1}`, json0 + "x", add, json0 + json0}},
		"object":                    {request: Request{Response: object}, yes: []string{"{}", "\n{\"a\":[1,{}]} "}, no: []string{"[]", "1", "{", ""}},
		"response and auto":         {request: Request{Tools: all, Response: response}, yes: []string{json0, "\n" + json0 + "\n", add, " " + add + "text" + say + "text"}, no: []string{"", "text", add + json0[:5] + "<tool_call>", "text" + add, json0 + add}},
		"response and auto, serial": {request: Request{Tools: all, Response: response, Serial: true}, yes: []string{json0, add, " " + add + " "}, no: []string{add + "x", add + add, "x"}},
		"response and none":         {request: Request{Tools: all, Response: response, Choice: None}, yes: []string{json0}, no: []string{add, "x", ""}},
		"response and required":     {request: Request{Tools: all, Response: response, Choice: Required}, yes: []string{add}, no: []string{json0, ""}},
		"response and named":        {request: Request{Tools: all, Response: response, Choice: Named, Name: "add"}, yes: []string{add}, no: []string{json0, say}},
		"free tools, required":      {request: Request{Tools: all[1:2], Choice: Required}, yes: []string{say, "<tool_call>\n<function=say>\n</function>\n</tool_call>", "<tool_call>\n<function=say>\n<parameter=x-1>\n\n\n</parameter>\n<parameter=é>\n<b>§</tool_call>\n</function>\n\n</parameter>\n</function>\n</tool_call>"}, no: []string{add, "<tool_call>\n<function=say>\n<parameter=>\nx\n</parameter>\n</function>\n</tool_call>", "<tool_call>\n<function=say>\n<parameter=a b>\nx\n</parameter>\n</function>\n</tool_call>", "<tool_call>\n<function=say>\n<parameter=" + strings.Repeat("x", 257) + ">\nx\n</parameter>\n</function>\n</tool_call>"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, thinking := range []bool{false, true} {
				request := test.request
				request.Thinking = request.Thinking || thinking
				o, err := c.Compile(context.Background(), &request)
				if err != nil {
					t.Fatal(err)
				}
				if test.free {
					if o.Matcher() != nil {
						t.Error("the answer is not free")
					}
					continue
				}
				for i, text := range slices.Concat(test.yes, test.no) {
					want := i < len(test.yes)
					if thinking {
						// Reasoning is free, and what constrains the answer begins after it.
						for _, reasoning := range []string{"", "why", "{\"no\":1} some write <tool or <function=x> é\n\n", "§<tool_call> is a tag"} {
							check(t, o, reasoning+"</think>"+text, want, r)
							check(t, o, reasoning+"</think>\n\n"+text, want && !strings.Contains(text, strings.Repeat(" ", 63)), r)
						}
						if !strings.HasSuffix(text, "</think>") {
							check(t, o, text, false, r)
						}
						check(t, o, "why§</think>"+text, false, r)
					} else {
						check(t, o, text, want, r)
					}
				}
			}
		})
	}
}

// check reports whether a text is an answer, in several splits into tokens.
func check(t *testing.T, o *Output, text string, want bool, r *rand.Rand) {
	t.Helper()
	for range 4 {
		m := o.Matcher()
		ok := true
		for _, id := range encode(text, r) {
			if ok = m.Accept(id) == nil; !ok {
				break
			}
		}
		if ok = ok && m.CanEnd(); ok != want {
			t.Errorf("%q is an answer: %v", text, ok)
			return
		}
		if ok {
			for _, stop := range []int32{264, 265} {
				if err := m.Clone().Accept(stop); err != nil {
					t.Errorf("%q: stop token %d: %v", text, stop, err)
				}
			}
		}
	}
}

// TestReasoningBindsCalls says that in QWEN's reasoning a call's opening cannot be spelled, since the parser would read it,
// where calls may follow; and that it may be where they may not.
func TestReasoningBindsCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	opening := "why §<tool_call>\n<function=say>\n</think>"
	for choice, want := range map[Choice]bool{Required: false, None: true} {
		o, err := qwen(t).Compile(context.Background(), &Request{Thinking: true, Tools: tools(t), Choice: choice})
		if err != nil {
			t.Fatal(err)
		}
		answer := ""
		if choice == Required {
			answer = add
		}
		check(t, o, opening+answer, want, r)
	}
}

func TestStrictArguments(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	call := func(name string, args ...string) string {
		s := "<tool_call>\n<function=" + name + ">\n"
		for i := 0; i < len(args); i += 2 {
			s += "<parameter=" + args[i] + ">\n" + args[i+1] + "\n</parameter>\n"
		}
		return s + "</function>\n</tool_call>"
	}
	o, err := qwen(t).Compile(context.Background(), &Request{Tools: tools(t), Choice: Required, Serial: true})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		call("add", "a", "1"):                               true,
		call("add", "a", "-12", "b", "null", "how", "fast"): true,
		call("add", "a", "1", "b", "7", "how", "3"):         true,
		call("add"):                                                     false,
		call("add", "b", "1"):                                           false,
		call("add", "a", "x"):                                           false,
		call("add", "a", "1.5"):                                         false,
		call("add", "a", `"1"`):                                         false,
		call("add", "a", "1", "how", `"fast"`):                          false,
		call("add", "a", "1", "how", "4"):                               false,
		call("add", "a", "1", "other", "4"):                             false,
		call("add", "b", "1", "a", "1"):                                 false,
		call("add", "a", "1", "a", "1"):                                 false,
		call("note", "text", "longer\nthan 3 <b>", "on", "true"):        true,
		call("note", "text", "", "on", "false"):                         true,
		call("note", "text", "x", "on", "True"):                         false,
		call("note", "text", "x", "on", "true", "tags", `["a", "b\n"]`): true,
		call("note", "text", "x", "on", "true", "tags", `[1]`):          false,
		call("note", "text", "x", "on", "true", "any", `{"x":`+"\nwhatever", "more", "5"):   true,
		call("note", "text", "x", "on", "true", "more", "five"):                             false,
		call("note", "text", "x", "on", "true", "more", "5", "evenmore", "6", "texts", "7"): true,
		call("note", "text", "x", "on", "true", "m<re", "5"):                                false,
		call("note", "text", "x", "on", "true", "tex", "5", "o", "1", "tagsand", "2"):       true,
		call("note", "on", "true"):                      false,
		call("say", "text", "a", "text", "b", "x", "1"): true,
		call("none", "text", "a"):                       false,
		"<tool_call>\n<function=add>\n<parameter=a>\n1</parameter>\n</function>\n</tool_call>": false,
		"<tool_call>\n<function=add><parameter=a>\n1\n</parameter>\n</function>\n</tool_call>": false,
	} {
		check(t, o, text, want, r)
	}
}

func TestFlint(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 5))
	call := func(name string, args ...string) string {
		s := "<tool_call>" + name
		for i := 0; i < len(args); i += 2 {
			s += "<arg_key>" + args[i] + "</arg_key><arg_value>" + args[i+1] + "</arg_value>"
		}
		return s + "</tool_call>"
	}
	c := glm(t)
	required, err := c.Compile(context.Background(), &Request{Tools: tools(t), Choice: Required, Serial: true})
	if err != nil {
		t.Fatal(err)
	}
	none, err := c.Compile(context.Background(), &Request{Tools: tools(t), Choice: None})
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Compile(context.Background(), &Request{Response: &Response{Schema: decode(t, answerSchema)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		o    *Output
		text string
		want bool
	}{
		{required, call("add", "a", "1"), true},
		{required, call("say"), true},
		{required, call("say", "x", "a§</arg_value>b\n</parameter>\n§</tool_call>"), true}, // only tokens are tags
		{required, call("add", "a", "1", "how", "slow"), true},
		{required, call("add", "a", "x"), false},
		{required, "\n" + call("note", "text", "<b>", "on", "true", "more", "5") + "\n", true},
		{required, "<tool_call>add<arg_key>a</arg_key>\n<arg_value>1</arg_value></tool_call>", false},
		{required, "<tool_call>add\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", false},
		{required, "text", false},
		{none, "text §<tool_call> as text", true},
		{none, "<tool_call>", false},
		{response, json0, true},
		{response, json0 + "x", false},
	} {
		check(t, test.o, test.text, test.want, r)
		// The model may think first, in one block that its tokens open and close.
		check(t, test.o, "<think></think>"+test.text, test.want, r)
		check(t, test.o, "<think>why §</think> {\"a\":</think>\n"+test.text, test.want, r)
		check(t, test.o, "<think>a<think>b</think>"+test.text, false, r)
		check(t, test.o, "<think>a<tool_call>b</think>"+test.text, false, r)
		check(t, test.o, "why</think>"+test.text, false, r)
	}
}

func TestErrors(t *testing.T) {
	c := qwen(t)
	tool := func(parameters string) []Tool { return []Tool{{"f", decode(t, parameters), true}} }
	for name, test := range map[string]struct {
		request Request
		want    string
	}{
		"remote tool schema":   {Request{Tools: tool(`{"$ref":"https://x"}`)}, "remote tool schema reference is not allowed: https://x"},
		"unused tool schema":   {Request{Tools: []Tool{{"f", decode(t, `{"type":1}`), false}}}, "unsupported tool schema: "},
		"remote schema":        {Request{Response: &Response{Schema: decode(t, `{"$ref":"https://x"}`)}}, "remote schema reference is not allowed: https://x"},
		"deep schema":          {Request{Response: &Response{Schema: decode(t, strings.Repeat(`{"not":`, 64)+"{}"+strings.Repeat("}", 64))}}, "unsupported output schema: more than 64 levels"},
		"impossible schema":    {Request{Response: &Response{Schema: false}}, "unsupported output schema: no value is valid"},
		"large schema":         {Request{Response: &Response{Schema: decode(t, `{"enum":["`+strings.Repeat("x", 1<<20)+`"]}`)}}, "tool or output schema is too large to compile"},
		"framing":              {Request{Tools: tool(`{"type":"object","properties":{"a":{"enum":["x\n</parameter>\ny"]}}}`)}, "tool parameter enum contains XML framing"},
		"name":                 {Request{Tools: tool(`{"type":"object","properties":{"a<b":{}}}`)}, "invalid tool parameter name"},
		"empty name":           {Request{Tools: tool(`{"type":"object","properties":{"":{}}}`)}, "invalid tool parameter name"},
		"name with a space":    {Request{Tools: tool(`{"type":"object","properties":{"a b":{}}}`)}, "invalid tool parameter name"},
		"long name":            {Request{Tools: tool(`{"type":"object","properties":{"` + strings.Repeat("x", 257) + `":{}}}`)}, "invalid tool parameter name"},
		"no value":             {Request{Tools: tool(`{"type":"object","properties":{"a":false},"required":["a"]}`)}, `required parameter "a" of tool "f" can have no value`},
		"not declared":         {Request{Tools: tool(`{"type":"object","properties":{},"required":["a"]}`)}, `required parameter "a" of tool "f" can have no value`},
		"no object":            {Request{Tools: tool(`{"type":"string"}`)}, `tool "f" takes no arguments that its schema allows`},
		"false":                {Request{Tools: tool(`false`)}, `tool "f" takes no arguments that its schema allows`},
		"required without any": {Request{Choice: Required}, "tool_choice asks for a call of a tool that is not offered"},
		"another name":         {Request{Tools: tools(t), Choice: Named, Name: "x"}, "tool_choice asks for a call of a tool that is not offered"},
	} {
		_, err := c.Compile(context.Background(), &test.request)
		var e *schema.Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Compile(ctx, &Request{Tools: tools(t)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCostlyMasks: an output whose masks would keep others waiting for long ends, and one beside it goes on.
func TestCostlyMasks(t *testing.T) {
	var list []string
	for i := range 4000 {
		list = append(list, fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, i, 2*i+1))
	}
	costly := Request{Response: &Response{Schema: decode(t, `{"anyOf":[`+strings.Join(list, ",")+`]}`)}}
	c := qwen(t)
	write := func(r *Request, text string) error {
		o, err := c.Compile(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		m := o.Matcher()
		row := make([]uint64, m.Words())
		for _, id := range []byte(text) {
			if err := m.Allowed(row); err != nil {
				return err
			}
			if err := m.Accept(int32(id)); err != nil {
				return err
			}
		}
		return nil
	}
	text := `"` + strings.Repeat("a", 300)
	if err := write(&costly, text); !errors.Is(err, grammar.ErrTooComplex) {
		t.Errorf("a costly grammar: %v", err)
	}
	if err := write(&Request{Response: &Response{Schema: decode(t, `{"type":"string"}`)}}, text); err != nil {
		t.Errorf("another: %v", err)
	}
}

func TestCaching(t *testing.T) {
	c := qwen(t)
	for range 3 {
		if _, err := c.Compile(context.Background(), &Request{Tools: tools(t)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Compile(context.Background(), &Request{Tools: tools(t), Serial: true}); err != nil {
		t.Fatal(err)
	}
	if s := c.Stats(); s.Hits != 2 || s.Misses != 2 || s.Entries != 2 || s.Capacity != 32 || s.SourceBudgetBytes != 8<<20 {
		t.Errorf("%+v", s)
	}
}

func TestValidate(t *testing.T) {
	c := qwen(t)
	for _, test := range []struct {
		response *Response
		content  string
		want     string
	}{
		{nil, "anything", ""},
		{&Response{AnyObject: true}, "\n{}\n", ""},
		{&Response{AnyObject: true}, "[]", "the value is no object"},
		{&Response{AnyObject: true}, "no", "invalid JSON at byte 1: unexpected 'o' in null"},
		{&Response{Schema: decode(t, answerSchema)}, json0, ""},
		{&Response{Schema: decode(t, answerSchema)}, "no", "invalid JSON at byte 1: unexpected 'o' in null"},
		{&Response{Schema: decode(t, answerSchema)}, `{"answer":1}`, "/answer: got number, want string"},
		{&Response{Schema: decode(t, `{"type":"array","uniqueItems":true}`)}, `[1,1]`, "the value: items at 0 and 1 are equal"},
	} {
		o, err := c.Compile(context.Background(), &Request{Response: test.response})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := o.Validate(test.content); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%q: %q, want %q", test.content, got, test.want)
		}
	}
}

// parsed is what the chat package reads of an output.
type parsed struct {
	Reasoning, Content string
	Calls              []string // name and arguments
}

func parse(f *chat.Format, opt chat.ParserOptions, ids []int32) parsed {
	var p parsed
	take := func(events []chat.Event) {
		for _, e := range events {
			switch e.Kind {
			case chat.ReasoningDelta:
				p.Reasoning += e.Text
			case chat.ContentDelta:
				p.Content += e.Text
			case chat.CallStart:
				p.Calls = append(p.Calls, e.Text+" ")
			case chat.ArgumentsDelta:
				p.Calls[e.Call] += e.Text
			}
		}
	}
	parser := f.NewParser(opt)
	for _, id := range ids {
		text := string(smallTokens{}.Bytes(id))
		if id >= 256 && int(id) < 256+len(tags) {
			take(parser.FeedTag(text))
		} else {
			take(parser.Feed(text))
		}
	}
	take(parser.Finish(false))
	return p
}

// write follows a grammar at random to the end of an answer, hurrying after some tokens.
func write(t *testing.T, o *Output, r *rand.Rand) ([]int32, bool) {
	t.Helper()
	m := o.Matcher()
	row := make([]uint64, m.Words())
	var out []int32
	for len(out) < 3000 {
		if m.CanEnd() && (len(out) > 60 || r.IntN(6) == 0) {
			return out, true
		}
		if err := m.Allowed(row); err != nil {
			t.Fatal(err)
		}
		var list, closing []int32
		for id := range int32(smallTokens{}.Size()) {
			if row[id>>6]>>(id&63)&1 == 0 || id == 264 || id == 265 {
				continue
			}
			list = append(list, id)
			if id >= 256 && int(id) < 256+len(tags) || strings.ContainsRune("\"}]\n<>/", rune(id)) && id < 256 {
				closing = append(closing, id)
			}
		}
		if len(closing) > 0 && r.IntN(80) < len(out) {
			list = closing
		}
		id := list[r.IntN(len(list))]
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, id)
	}
	return nil, false
}

// TestWalks writes random answers under random requests and reads them as the chat package does: the calls are those of
// tools that are offered, as many as may be, with arguments under their schemas; and JSON is valid.
func TestWalks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	all := tools(t)
	set := &chat.ToolSet{}
	schemas := map[string]*schema.Schema{}
	for _, tool := range all {
		set.Add(tool.Name, tool.Parameters)
		use := schema.Tool
		if tool.Strict {
			use = schema.StrictTool
		}
		s, err := schema.Parse(tool.Parameters, use)
		if err != nil {
			t.Fatal(err)
		}
		schemas[tool.Name] = s
	}
	formats := map[*Compiler]*chat.Format{qwen(t): chat.QWEN, glm(t): chat.FLINT}
	answers, calls, contents := 0, 0, 0
	for range 300 {
		request := Request{Thinking: r.IntN(2) == 0, Tools: all, Choice: Choice(r.IntN(4)), Name: all[r.IntN(3)].Name, Serial: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			request.Response = &Response{Schema: decode(t, answerSchema)}
		}
		for c, format := range formats {
			if format == chat.FLINT {
				request.Thinking = false
			}
			o, err := c.Compile(context.Background(), &request)
			if err != nil {
				t.Fatal(err)
			}
			ids, ok := write(t, o, r)
			if !ok {
				continue
			}
			answers++
			p := parse(format, chat.ParserOptions{
				Thinking: request.Thinking, Tools: set, NoCalls: request.Choice == None, Structured: request.Response != nil,
			}, ids)
			fail := func(why string) {
				t.Helper()
				var text strings.Builder
				for _, id := range ids {
					text.Write(smallTokens{}.Bytes(id))
				}
				t.Fatalf("%s: %+v\n%q\nis read as %+v", why, request, text.String(), p)
			}
			calls += len(p.Calls)
			for _, call := range p.Calls {
				name, arguments, _ := strings.Cut(call, " ")
				if request.Choice == None || request.Choice == Named && name != request.Name || schemas[name] == nil {
					fail("a call of " + name)
				}
				if !json.Valid([]byte(arguments)) {
					fail("arguments are no JSON")
				}
				if name == "add" {
					if err := schemas[name].ValidateText(arguments); err != nil {
						fail(err.Error())
					}
				}
			}
			switch {
			case request.Choice >= Required && len(p.Calls) == 0:
				fail("no call")
			case (request.Serial || request.Choice == Named) && len(p.Calls) > 1:
				fail("several calls")
			case request.Response != nil && request.Choice < Required && len(p.Calls) == 0:
				contents++
				if err := o.Validate(p.Content); err != nil {
					fail(err.Error())
				}
			case (request.Serial || request.Choice == Named) && request.Choice >= Required && strings.TrimSpace(p.Content) != "":
				fail("content beside the call")
			}
		}
	}
	t.Logf("%d answers, %d calls, %d JSON contents", answers, calls, contents)
	if answers < 300 || calls < 150 || contents < 50 {
		t.Errorf("%d answers, %d calls, %d JSON contents", answers, calls, contents)
	}
}

// TestUnenforced lists what is left to validation.
func TestUnenforced(t *testing.T) {
	o, err := qwen(t).Compile(context.Background(), &Request{Response: &Response{Schema: decode(t, `{"type":"array","uniqueItems":true,"items":{"not":{"const":1}}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/uniqueItems", "/items/not"}, o.Unenforced()); diff != "" {
		t.Error(diff)
	}
}

// TestFormatOf finds the tokens of the chat formats.
func TestFormatOf(t *testing.T) {
	ids := map[string]int32{"<|end_of_text|>": 300, "<|user|>": 301, "<|observation|>": 302, "<|developer|>": 303, "<|endoftext|>": 304, "<|im_end|>": 305}
	for i, tag := range tags[:8] {
		ids[tag] = int32(256 + i)
	}
	id := func(text string) (int32, bool) { n, ok := ids[text]; return n, ok }
	for f, want := range map[*chat.Format]Format{
		chat.QWEN: {Syntax: QwenXML, ThinkOpen: 256, ThinkClose: 257, CallOpen: 258, CallClose: 259, Stop: []int32{304, 305}},
		chat.FLINT: {
			Syntax: GLMArgs, ModelThinks: true, ThinkOpen: 256, ThinkClose: 257, CallOpen: 258, CallClose: 259,
			KeyOpen: 260, KeyClose: 261, ValueOpen: 262, ValueClose: 263, Stop: []int32{300, 301, 302, 303},
		},
	} {
		got, err := FormatOf(f, id)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", f.Name, diff)
		}
	}
	delete(ids, "</arg_value>")
	if _, err := FormatOf(chat.FLINT, id); err == nil || err.Error() != "the vocabulary has no token </arg_value>, which the chat format flint needs" {
		t.Error(err)
	}
}

var _ grammar.Tokens = (*tokenizer.Tokenizer)(nil)

func ExampleCompiler() {
	c, err := New(smallTokens{}, 300, Format{Syntax: QwenXML, ThinkOpen: 256, ThinkClose: 257, CallOpen: 258, CallClose: 259, Stop: []int32{264}})
	if err != nil {
		panic(err)
	}
	o, err := c.Compile(context.Background(), &Request{Thinking: true, Response: &Response{AnyObject: true}})
	if err != nil {
		panic(err)
	}
	m := o.Matcher()
	row := make([]uint64, m.Words())
	for _, id := range []int32{'w', 'h', 'y', 257, '{', '}'} {
		if err := m.Allowed(row); err != nil { // the sampler keeps to row
			panic(err)
		}
		if err := m.Accept(id); err != nil {
			panic(err)
		}
	}
	fmt.Println(m.CanEnd(), o.Validate("{}"))
	// Output: true <nil>
}
