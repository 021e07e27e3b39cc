package chat

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat/ojson"
)

// tools returns the tools of a JSON object of names and parameter schemas.
func tools(t testing.TB, schemas string) *ToolSet {
	t.Helper()
	ts := &ToolSet{}
	for name, schema := range decode(t, schemas).(*ojson.Object).All() {
		ts.Add(name, schema)
	}
	return ts
}

// pieces cuts an output into pieces. For a format whose tags are tokens, each tag of the text is a piece of its own.
func pieces(f *Format, output string) []piece {
	if !f.TagTokens {
		return []piece{{text: output}}
	}
	var list []piece
	for output != "" {
		at, tag := len(output), ""
		for _, t := range f.Tags {
			if i := strings.Index(output, t); i >= 0 && i < at {
				at, tag = i, t
			}
		}
		if at > 0 {
			list = append(list, piece{text: output[:at]})
		}
		if tag != "" {
			list = append(list, piece{text: tag, tag: true})
		}
		output = output[at+len(tag):]
	}
	return list
}

// cuts splits the text of pieces at random places, on average every n bytes.
func cuts(rng *rand.Rand, list []piece, n int) []piece {
	var out []piece
	for _, p := range list {
		for !p.tag && len(p.text) > 1 {
			k := 1 + rng.IntN(2*n)
			if k >= len(p.text) {
				break
			}
			out = append(out, piece{text: p.text[:k]})
			p.text = p.text[k:]
		}
		out = append(out, p)
	}
	return out
}

// read feeds pieces to a parser and returns its events, neighbours of a kind joined.
func read(p *Parser, list []piece, cut bool) []Event {
	var out []Event
	add := func(events []Event) {
		for _, e := range events {
			if n := len(out) - 1; n >= 0 && e.Kind != CallStart && e.Kind != CallEnd && out[n].Kind == e.Kind && out[n].Call == e.Call {
				out[n].Text += e.Text
				continue
			}
			out = append(out, e)
		}
	}
	for _, q := range list {
		if q.tag {
			add(p.FeedTag(q.text))
		} else {
			add(p.Feed(q.text))
		}
	}
	add(p.Finish(cut))
	return out
}

// show writes events as one line: reasoning in R(), content in C(), calls as name and arguments, an open one with "...".
func show(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		switch e.Kind {
		case ReasoningDelta:
			fmt.Fprintf(&b, "R(%s)", e.Text)
		case ContentDelta:
			fmt.Fprintf(&b, "C(%s)", e.Text)
		case CallStart:
			fmt.Fprintf(&b, "%d:%s", e.Call, e.Text)
		case ArgumentsDelta:
			b.WriteString(e.Text)
		case CallEnd:
			b.WriteString(";")
		}
	}
	return b.String()
}

func replyOf(events []Event) Reply {
	var c Collector
	c.Add(events)
	return c.Reply()
}

// An outcome is how an output reads.
type outcome struct {
	name   string
	output string
	opt    ParserOptions
	cut    bool
	want   string
}

// checkOutcomes reads each output whole, cut at every place, byte by byte, and cut at random.
func checkOutcomes(t *testing.T, f *Format, cases []outcome) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range cases {
		whole := pieces(f, c.output)
		want := read(f.NewParser(c.opt), whole, c.cut)
		if diff := cmp.Diff(c.want, show(want)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
			continue
		}
		var splits [][]piece
		for i := range whole {
			for k := 1; !whole[i].tag && k < len(whole[i].text); k++ {
				split := append(slices.Clone(whole[:i]), piece{text: whole[i].text[:k]}, piece{text: whole[i].text[k:]})
				splits = append(splits, append(split, whole[i+1:]...))
			}
		}
		splits = append(splits, cuts(rng, whole, 1))
		for range 50 {
			splits = append(splits, cuts(rng, whole, 1+rng.IntN(8)))
		}
		for _, split := range splits {
			if diff := cmp.Diff(want, read(f.NewParser(c.opt), split, c.cut)); diff != "" {
				t.Errorf("%s, cut as %+v (-whole +cut):\n%s", c.name, split, diff)
				break
			}
		}
	}
}

// qcall is a call in Qwen's layout of a name and pairs of keys and values.
func qcall(name string, pairs ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<tool_call>\n<function=%s>\n", name)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "<parameter=%s>\n%s\n</parameter>\n", pairs[i], pairs[i+1])
	}
	return b.String() + "</function>\n</tool_call>"
}

const cutSchemas = `{"cut":{"type":"object","properties":{"at":{"type":"string"},"shift":{"type":"number"},"item":{"type":"string"}}},
	"when":{"type":"object","properties":{"time":{"type":["string","number"]}}}}`

func TestQwenOutput(t *testing.T) {
	offered := ParserOptions{Tools: tools(t, cutSchemas)}
	thinking := ParserOptions{Tools: offered.Tools, Thinking: true}
	none := ParserOptions{Tools: offered.Tools, NoCalls: true}
	json := ParserOptions{Tools: offered.Tools, Structured: true}
	jsonThinking := ParserOptions{Tools: offered.Tools, Structured: true, Thinking: true}
	a := qcall("cut", "item", "s1")
	const read = `0:cut{"item":"s1"};`
	long := strings.Repeat("n", MaxName)
	checkOutcomes(t, QWEN, []outcome{
		{"content", "Hello <b>you</b> <", ParserOptions{}, false, "C(Hello <b>you</b> <)"},
		{"no tools, tags are text", " a</think>" + a, ParserOptions{}, false, "C( a</think>" + a + ")"},
		{"reasoning", "why</think>\n\nanswer", ParserOptions{Thinking: true}, false, "R(why)C(answer)"},
		{"reasoning ends in a newline", "why\n</think>\nan\n\nswer\n", ParserOptions{Thinking: true}, false, "R(why\n)C(an\n\nswer\n)"},
		{"reasoning cut", "why </thi", ParserOptions{Thinking: true}, true, "R(why </thi)"},
		{"reasoning that holds tags", "a <b> </thinking> <think> </think>x", ParserOptions{Thinking: true}, false, "R(a <b> </thinking> <think> )C(x)"},
		{"a second close without tools", "a</think>b</think>c", ParserOptions{Thinking: true}, false, "R(a)C(b</think>c)"},
		{"a second close with tools", "a</think>b</think>c", thinking, false, "R(a)C(bc)"},
		{"only newlines after it", "a</think>\n\n", ParserOptions{Thinking: true}, false, "R(a)"},
		{"no reasoning asked for", "a</think>b", ParserOptions{}, false, "C(a</think>b)"},

		{"a call", a, offered, false, read},
		{"an order of keys", qcall("cut", "item", "s1", "shift", "-0.5", "at", "é\n\"x\""), offered, false, `0:cut{"item":"s1","shift":-0.5,"at":"é\n\"x\""};`},
		{"a union with a string", qcall("when", "time", "12:00"), offered, false, `0:when{"time":"12:00"};`},
		{"no arguments", qcall("cut"), offered, false, `0:cut{};`},
		{"no </tool_call>", strings.TrimSuffix(a, "\n</tool_call>"), offered, false, read},
		{"</tool_call> for </function>", strings.Replace(a, "</function>\n", "", 1), offered, false, read},
		{"space around the names", "<tool_call>\n<function= cut >\n<parameter=\titem >\ns1\n</parameter>\n</function>\n</tool_call>", offered, false, read},
		{"a tool not offered", qcall("search", "limit", "5", "query", "a b"), offered, false, `0:search{"limit":5,"query":"a b"};`},
		{"no name", "a" + qcall("", "item", "x") + "b", offered, false, "C(ab)"},
		{"a value of several lines", qcall("cut", "item", "\nline 1\n<b>line 2</b>\n"), offered, false, `0:cut{"item":"\nline 1\n<b>line 2</b>\n"};`},
		{"an empty value", qcall("cut", "item", "", "shift", ""), offered, false, `0:cut{"item":"","shift":""};`},
		{"a value without its newline", "<tool_call>\n<function=cut>\n<parameter=item>s1\n</parameter>\n</function>\n</tool_call>", offered, false, read},
		{"a value closed at once", "<tool_call>\n<function=cut>\n<parameter=item>\n</parameter>\n</function>\n</tool_call>", offered, false, `0:cut{"item":""};`},
		{"a value that holds the tags", qcall("cut", "item", "<p>\n</parameter>\n</p>\nEND = \"</function>\"\nOPEN = \"<parameter=\" \"<tool_call>\"\n</parameter>"), offered, false,
			`0:cut{"item":"<p>\n</parameter>\n</p>\nEND = \"</function>\"\nOPEN = \"<parameter=\" \"<tool_call>\"\n</parameter>"};`},
		{"a value that holds a call", qcall("cut", "item", "hello</function>\n</tool_call>world"), offered, false, `0:cut{"item":"hello</function>\n</tool_call>world"};`},
		{"a value that holds a bad parameter", qcall("cut", "item", "x\n</parameter>\n<parameter=a b>\ny"), offered, false, `0:cut{"item":"x\n</parameter>\n<parameter=a b>\ny"};`},
		{"a value that holds half a close", qcall("cut", "item", "x\n</parameter>\n</parameter>\n\n</parameter"), offered, false, `0:cut{"item":"x\n</parameter>\n</parameter>\n\n</parameter"};`},
		{"a repeated parameter", qcall("cut", "item", "a", "shift", "1", "item", "b"), offered, false, `0:cut{"item":"a","shift":1};`},
		{"a parameter without a name", qcall("cut", "", "a", "item", "s1"), offered, false, read},
		{"text before a parameter", "<tool_call>\n<function=cut>\nnote <b>\n<parameter=item>\ns1\n</parameter>\n</function>\n</tool_call>", offered, false, read},

		{"two calls", a + "\n" + qcall("when", "time", "1"), offered, false, read + `1:when{"time":1};`},
		{"text, call, text", "visible prefix " + a + " visible suffix", offered, false, "C(visible prefix )" + read + "C( visible suffix)"},
		{"text, calls, text", "a\n" + a + "\n" + a + "\n\nb", offered, false, "C(a\n)" + read + `1:cut{"item":"s1"};` + "C(\n\nb)"},
		{"framing", "\n \n" + a + "\n\n", offered, false, read},
		{"space before the text", "\n\n Hi.\n", offered, false, "C(Hi.\n)"},
		{"text after a call", a + "\nDone.", offered, false, read + "C(Done.)"},
		{"text after a call without </tool_call>", strings.TrimSuffix(a, "\n</tool_call>") + "\nDone.", offered, false, read + "C(Done.)"},
		{"text after both", "a" + strings.TrimSuffix(a, "\n</tool_call>") + "\n <Done.", offered, false, "C(a)" + read + "C(\n <Done.)"},
		{"a close in text", "Sure.</think> Here" + qcall("cut"), offered, false, "C(Sure. Here)0:cut{};"},

		{"tags in prose", "Fix the </parameter> and <function= handling.\n" + a, offered, false, "C(Fix the </parameter> and <function= handling.\n)" + read},
		{"tags named in prose", "Wrap <tool_call> tags with <function=NAME> inside.\n" + a, offered, false, "C(Wrap <tool_call> tags with <function=NAME> inside.\n)" + read},
		{"a call as JSON", "<tool_call>\n{\"name\": \"cut\"}\n</tool_call>\n" + a, offered, false, "C(<tool_call>\n{\"name\": \"cut\"}\n</tool_call>\n)" + read},
		{"a mark inside a mark", "<<tool_call>\n<tool_call>\n<function=cut>\n</function>", offered, false, "C(<<tool_call>\n)0:cut{};"},
		{"a name with a space", "<tool_call>\n<function=a b>\n" + a, offered, false, "C(<tool_call>\n<function=a b>\n)" + read},
		{"a name with a line break", "<tool_call>\n<function=a\nb>\n" + a, offered, false, "C(<tool_call>\n<function=a\nb>\n)" + read},
		{"a name with a no-break space", "<tool_call>\n<function=a\u00a0b>\n" + a, offered, false, "C(<tool_call>\n<function=a\u00a0b>\n)" + read},
		{"a name with a bracket", "<tool_call>\n<function=a<b>\n" + a, offered, false, "C(<tool_call>\n<function=a<b>\n)" + read},
		{"a name that is a call", "<tool_call>\n<function=" + a, offered, false, "C(<tool_call>\n<function=)" + read},
		{"a name of 256 characters", qcall(long), offered, false, "0:" + long + "{};"},
		{"a name of 257 characters", "<tool_call>\n<function=" + long + "n>\n" + a, offered, false, "C(<tool_call>\n<function=" + long + "n>\n)" + read},
		{"a name of 256 wide characters", qcall(strings.Repeat("名", MaxName)), offered, false, "0:" + strings.Repeat("名", MaxName) + "{};"},
		{"a name of 257 wide characters", "<tool_call>\n<function=" + strings.Repeat("名", MaxName+1) + ">", offered, false, "C(<tool_call>\n<function=" + strings.Repeat("名", MaxName+1) + ">)"},
		{"a parameter name with a space", "<tool_call>\n<function=cut>\n<parameter=a b>\nx\n</parameter>\n<parameter=item>\ns1\n</parameter>\n</function>\n</tool_call>", offered, false, read},

		{"an end inside a value", "<tool_call>\n<function=cut>\n<parameter=item>\ns1", offered, false, read},
		{"an end inside a value's line", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</para", offered, false, `0:cut{"item":"s1\n</para"};`},
		{"an end after a value", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</parameter>\n", offered, false, read},
		{"an end right after a value", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</parameter>", offered, false, read},
		{"an end in the next parameter", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</parameter>\n<parameter=sh", offered, false, read},
		{"an end inside another value", "<tool_call>\n<function=cut>\n<parameter=shift>\n1.5", offered, false, `0:cut{"shift":1.5};`},
		{"an end inside a name", "<tool_call>\n<function=cut", offered, false, "0:cut{};"},
		{"an end before a name", "a <tool_call>\n<function=", offered, false, "C(a <tool_call>\n<function=)"},
		{"an end inside a mark", "a <tool_call>\n<func", offered, false, "C(a <tool_call>\n<func)"},
		{"an end inside the close", "<tool_call>\n<function=cut>\n</function>\n</tool", offered, false, "0:cut{};"},

		{"cut inside a string", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</parameter>\n<parameter=at>\n12:", offered, true, `0:cut{"item":"s1","at":"12:`},
		{"cut inside a number", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</parameter>\n<parameter=shift>\n12", offered, true, `0:cut{"item":"s1"`},
		{"cut inside a value's close", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</param", offered, true, `0:cut{"item":"s1`},
		{"cut after a value", "<tool_call>\n<function=cut>\n<parameter=item>\ns1\n</parameter>\n", offered, true, `0:cut{"item":"s1`},
		{"cut inside a name", "a <tool_call>\n<function=cu", offered, true, "C(a )"},
		{"cut inside a mark", "a <tool_c", offered, true, "C(a )"},
		{"cut inside a mark, no tools", "a <tool_c", ParserOptions{}, true, "C(a <tool_c)"},
		{"cut between parameters", "<tool_call>\n<function=cut>\n<param", offered, true, "0:cut{"},
		{"cut after a call", a, offered, true, read},

		{"a call in reasoning", "why" + a, thinking, false, "R(why)" + read},
		{"a call in reasoning, then more", "why\n" + a + "\nand</think>\n\nso", thinking, false, "R(why\n)" + read + "C(and\n\nso)"},
		{"a call after reasoning", "why\n</think>\n\n" + a, thinking, false, "R(why\n)" + read},
		{"prose about calls in reasoning", "some models write <function=...> or <tool_call> tags\n<tool_call> </think>\n\nanswer", thinking, false, "R(some models write <function=...> or <tool_call> tags\n<tool_call> )C(answer)"},
		{"a bad name in reasoning", "as <tool_call>\n<function=the name> says</think>x", thinking, false, "R(as <tool_call>\n<function=the name> says)C(x)"},
		{"a call in reasoning with none allowed", "why" + a + "</think>x", ParserOptions{Tools: offered.Tools, NoCalls: true, Thinking: true}, false, "R(why" + a + ")C(x)"},
		{"a name cut in reasoning", "why<tool_call>\n<function=cu", thinking, true, "R(why)"},
		{"a name that ends in reasoning", "why<tool_call>\n<function=cut", thinking, false, "R(why)0:cut{};"},
		{"a mark that ends in reasoning", "why<tool_call>\n<fun", thinking, false, "R(why<tool_call>\n<fun)"},

		{"none allowed", "a</think>" + a, none, false, "C(a" + a + ")"},
		{"an answer in JSON", " {\"a\": \"" + a + "</think>\"}", json, false, "C( {\"a\": \"" + a + "</think>\"})"},
		{"a call for an answer", "\n" + a + "\n", json, false, read},
		{"JSON after reasoning", "why</think>\n\n [\"<tool_call>\"]", jsonThinking, false, "R(why)C( [\"<tool_call>\"])"},
		{"a call after reasoning for an answer", "why</think>\n\n" + a, jsonThinking, false, "R(why)" + read},
		{"nothing for an answer", "why</think>\n\n ", jsonThinking, false, "R(why)"},
		{"JSON cut", "{\"a\": \"<tool_", json, true, "C({\"a\": \"<tool_)"},
	})
}

// An integer with a date in it and the like: the value keeps its text, and the call stands.
func TestValuesNotOfTheirDeclaredType(t *testing.T) {
	opt := ParserOptions{Tools: tools(t, `{"log_event":{"type":"object","properties":{"day":{"type":"integer"},"on":{"type":"boolean"},
		"tags":{"type":"array"},"note":{"type":["string","null"]}}}}`)}
	output := qcall("log_event", "day", "2026-01-15", "on", "TRUE", "tags", "[1,", "note", "null")
	checkOutcomes(t, QWEN, []outcome{{"log_event", output, opt, false, `0:log_event{"day":"2026-01-15","on":"TRUE","tags":"[1,","note":null};`}})
	glm := "<tool_call>log_event<arg_key>day</arg_key><arg_value>2026-01-15</arg_value><arg_key>on</arg_key><arg_value>TRUE</arg_value>" +
		"<arg_key>tags</arg_key><arg_value>[1,</arg_value><arg_key>note</arg_key><arg_value>null</arg_value></tool_call>"
	checkOutcomes(t, FLINT, []outcome{{"log_event", glm, opt, false, `0:log_event{"day":"2026-01-15","on":"TRUE","tags":"[1,","note":null};`}})
}

// conversions are values by their declared types: the examples of the specification and of the public tests.
var conversions = []struct{ schema, text, want string }{
	{`{"type":"string"}`, `123`, `"123"`},
	{`{"type":"string"}`, `true`, `"true"`},
	{`{"type":"integer"}`, `42`, `42`},
	{`{"type":"integer"}`, ` 12 `, `12`},
	{`{"type":"integer"}`, `1_000`, `"1_000"`},
	{`{"type":"integer"}`, `+5`, `"+5"`},
	{`{"type":"integer"}`, `012`, `"012"`},
	{`{"type":"integer"}`, `4.5`, `4.5`},
	{`{"type":"integer"}`, `abc`, `"abc"`},
	{`{"type":"number"}`, `-0.5`, `-0.5`},
	{`{"type":"number"}`, `2.0`, `2.0`},
	{`{"type":"number"}`, `1e3`, `1000.0`},
	{`{"type":"number"}`, `12345678901234567890`, `12345678901234567890`},
	{`{"type":"number"}`, `inf`, `"inf"`},
	{`{"type":"number"}`, `NaN`, `"NaN"`},
	{`{"type":"number"}`, `1e10000`, `"1e10000"`},
	{`{"type":"boolean"}`, `true`, `true`},
	{`{"type":"boolean"}`, `True`, `true`},
	{`{"type":"boolean"}`, ` False `, `false`},
	{`{"type":"boolean"}`, `TRUE`, `"TRUE"`},
	{`{"type":"boolean"}`, `None`, `"None"`},
	{`{"type":["integer","null"]}`, `None`, `null`},
	{`{"type":"integer"}`, `True`, `"True"`},
	{`{"type":["string","boolean"]}`, `True`, `"True"`},
	{`{"type":["string","boolean"]}`, `1`, `"1"`},
	{`{"type":["string","boolean"]}`, `true`, `true`},
	{`{"type":["string","null"]}`, `None`, `"None"`},
	{`{"type":["string","null"]}`, `null`, `null`},
	{`{"type":["string","null"]}`, `NULL`, `"NULL"`},
	{`{"type":["string","null"]}`, `"null"`, `"\"null\""`},
	{`{"type":"object"}`, `{"b": 1, "a": [1.50, "é"]}`, `{"b":1,"a":[1.5,"é"]}`},
	{`{"type":"object"}`, `{`, `"{"`},
	{`{"type":"object"}`, `{"a":1,"a":2}`, `{"a":2}`},
	{`{"type":"array"}`, `[1, 2]`, `[1,2]`},
	{`{"type":"array"}`, `"x"`, `"x"`},
	{`{"type":"array"}`, `["\ud800"]`, `"[\"\\ud800\"]"`},
	{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `null`, `null`},
	{`{"oneOf":[{"type":"string"},{"type":"null"}]}`, `none`, `"none"`},
	{`{"type":["string","number"]}`, `12:00`, `"12:00"`},
	{`{"type":["string","number"]}`, `12`, `12`},
	{`{"type":["string","integer"]}`, `0800`, `"0800"`},
	{`{"type":["string","integer"]}`, `2.5`, `"2.5"`},
	{`{"type":["string","object"]}`, `123`, `"123"`},
	{`{"type":["string","object"]}`, `{"a": 1}`, `{"a":1}`},
	{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, `abc`, `"abc"`},
	{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, `7`, `7`},
	{`{"anyOf":[{"type":"integer"},{}]}`, `x`, `"x"`},
	{`{"allOf":[{"type":"integer"},{"minimum":0}]}`, `5`, `5`},
	{`{"allOf":[{"type":["integer","string"]},{"type":["string","null"]}]}`, `5`, `"5"`},
	{`{"enum":[1,2,"x"]}`, `1`, `1`},
	{`{"enum":[1,2,"x"]}`, `x`, `"x"`},
	{`{"enum":["1","2"]}`, `1`, `"1"`},
	{`{"const":5}`, `5`, `5`},
	{`{"const":true}`, `True`, `true`},
	{`{"const":"5"}`, `5`, `"5"`},
	{`{}`, `{"a": 1}`, `{"a":1}`},
	{`{}`, `7`, `7`},
	{`{}`, `-0`, `0`},
	{`{}`, `seven`, `"seven"`},
	{`{}`, `True`, `"True"`},
	{`{}`, `"seven"`, `"\"seven\""`},
	{`true`, `7`, `7`},
	{`{"type":"what"}`, `7`, `7`},
	{`{"$ref":"#/$defs/P"}`, `7`, `"7"`},
	{`{"$ref":"#/$defs/a~1b"}`, `7`, `7`},
	{`{"$ref":"#/$defs/a%2Fb"}`, `7`, `7`},
	{`{"$ref":"#/$defs/circle"}`, `7`, `7`},
	{`{"$ref":"#/$defs/tree"}`, `x`, `"x"`},
	{`{"$ref":"#/$defs/none"}`, `7`, `7`},
	{`{"$ref":"http://elsewhere/P"}`, `7`, `7`},
	{`{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"integer"}]}`, `7`, `7`},
}

func TestConversions(t *testing.T) {
	defs := `"$defs":{"P":{"type":"string"},"a/b":{"type":"integer"},"circle":{"$ref":"#/$defs/circle"},
		"tree":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/tree"}]}}`
	for _, c := range conversions {
		opt := ParserOptions{Tools: tools(t, `{"f":{"type":"object","properties":{"v":`+c.schema+`},`+defs+`}}`)}
		if got, want := show(read(QWEN.NewParser(opt), pieces(QWEN, qcall("f", "v", c.text)), false)), `0:f{"v":`+c.want+`};`; got != want {
			t.Errorf("%s %q: %s, want %s", c.schema, c.text, got, want)
		}
		glm := "<tool_call>f<arg_key>v</arg_key><arg_value>" + c.text + "</arg_value></tool_call>"
		if got, want := show(read(FLINT.NewParser(opt), pieces(FLINT, glm), false)), `0:f{"v":`+c.want+`};`; got != want {
			t.Errorf("GLM %s %q: %s, want %s", c.schema, c.text, got, want)
		}
	}
}

// Where a schema keeps the declaration of a parameter.
func TestParameterTypes(t *testing.T) {
	for _, c := range []struct {
		schema string
		want   types
	}{
		{`{"properties":{"v":{"type":"string"}}}`, typeString},
		{`{"$defs":{"N":{"properties":{"v":{"type":"integer"}}}},"$ref":"#/$defs/N"}`, typeInteger},
		{`{"allOf":[{"properties":{"u":{}}},{"properties":{"v":{"type":"null"}}}]}`, typeNull},
		{`{"properties":{"u":{}},"additionalProperties":{"type":"number"}}`, typeNumber},
		{`{"properties":{"u":{}},"additionalProperties":false}`, anyType},
		{`{"properties":{"v":{"$ref":"#"}},"type":"object"}`, typeObject},
		{`true`, anyType}, {`{}`, anyType}, {`null`, anyType}, {`{"$ref":"#"}`, anyType}, {`{"properties":[]}`, anyType},
		{`{"properties":{"v":{"type":["string","what"]}}}`, typeString},
		{`{"properties":{"v":{"allOf":[{"type":"string"},{"type":"integer"}]}}}`, 0},
	} {
		if got := tools(t, `{"f":`+c.schema+`}`).parameter("f", "v"); got != c.want {
			t.Errorf("%s: %b, want %b", c.schema, got, c.want)
		}
	}
	// Alternatives that double at every level are given up, not followed.
	var b strings.Builder
	b.WriteString(`{"f":{"properties":{"v":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&b, `"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	b.WriteString(`"d40":{"type":"string"}}}}`)
	if got := tools(t, b.String()).parameter("f", "v"); got != anyType && got != typeString {
		t.Errorf("doubling alternatives: %b", got)
	}
}

func TestDeepValuesStayText(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + "0" + strings.Repeat("]", n) }
	opt := ParserOptions{Tools: tools(t, `{"f":{}}`)}
	for n, want := range map[int]string{
		maxArgumentDepth:     `0:f{"v":` + nested(maxArgumentDepth) + `};`,
		maxArgumentDepth + 1: `0:f{"v":"` + nested(maxArgumentDepth+1) + `"};`,
		10000:                `0:f{"v":"` + nested(10000) + `"};`,
	} {
		if got := show(read(QWEN.NewParser(opt), pieces(QWEN, qcall("f", "v", nested(n))), false)); got != want {
			t.Errorf("%d levels: %.60s, want %.60s", n, got, want)
		}
	}
	nines := strings.Repeat("9", 5000)
	if got, want := show(read(QWEN.NewParser(opt), pieces(QWEN, qcall("f", "v", nines)), false)), `0:f{"v":"`+nines+`"};`; got != want {
		t.Errorf("an integer of 5000 digits: %.60s", got)
	}
}

func TestFlintOutput(t *testing.T) {
	offered := ParserOptions{Tools: tools(t, cutSchemas)}
	json := ParserOptions{Tools: offered.Tools, Structured: true}
	const a = "<tool_call>cut<arg_key>item</arg_key><arg_value>s1</arg_value></tool_call>"
	const read = `0:cut{"item":"s1"};`
	pair := func(k, v string) string { return "<arg_key>" + k + "</arg_key><arg_value>" + v + "</arg_value>" }
	checkOutcomes(t, FLINT, []outcome{
		{"content", "Hello <b>you</b>", ParserOptions{}, false, "C(Hello <b>you</b>)"},
		{"reasoning", "<think>why</think>\n\nanswer", ParserOptions{}, false, "R(why)C(answer)"},
		{"an empty think block", "<think></think>answer", ParserOptions{}, false, "C(answer)"},
		{"reasoning cut", "<think>why", ParserOptions{}, true, "R(why)"},
		{"a think block that is not first", "a<think>b</think>c", ParserOptions{}, false, "C(a<think>b</think>c)"},
		{"no tools, tags are text", "a</think>" + a, ParserOptions{}, false, "C(a</think>" + a + ")"},
		{"a close with tools", "a</think>b", offered, false, "C(ab)"},
		{"a call in reasoning", "<think>why " + a + " so</think>x", offered, false, "R(why " + a + " so)C(x)"},

		{"a call", a, offered, false, read},
		{"a call after reasoning", "<think>why</think>\n" + a, offered, false, "R(why)" + read},
		{"values", "<tool_call>cut\n" + pair("at", "\né \"x\"") + "\n" + pair(" shift ", "1.50") + "\n" + pair("x", "[1, {\"b\":null}]") + "</tool_call>", offered, false,
			`0:cut{"at":"\né \"x\"","shift":1.5,"x":[1,{"b":null}]};`},
		{"no arguments", "<tool_call>cut</tool_call>", offered, false, "0:cut{};"},
		{"two calls", a + "\n" + "<tool_call>when" + pair("time", "1") + "</tool_call>", offered, false, read + `1:when{"time":1};`},
		{"text, call, text", "a " + a + " b", offered, false, "C(a )" + read + "C( b)"},
		{"framing", "\n" + a + "\n", offered, false, read},
		{"no </tool_call>", strings.TrimSuffix(a, "</tool_call>"), offered, false, read},
		{"a call in a call", strings.TrimSuffix(a, "</tool_call>") + "<tool_call>when</tool_call>", offered, false, read + "1:when{};"},
		{"no name", "a<tool_call> " + pair("item", "x") + "</tool_call>b", offered, false, "C(ab)"},
		{"a name with a space", "<tool_call>a b<arg_key>k</arg_key></tool_call>c", offered, false, "C(<tool_call>a b<arg_key>k</arg_key></tool_call>c)"},
		{"a name with a think tag", "<tool_call>a<think>" + pair("k", "v"), offered, false, "C(<tool_call>a<think>" + pair("k", "v") + ")"},
		{"a name that is too long", "<tool_call>" + strings.Repeat("n", MaxName+1) + "</tool_call>", offered, false, "C(<tool_call>" + strings.Repeat("n", MaxName+1) + "</tool_call>)"},
		{"a name that is much too long", "<tool_call>" + strings.Repeat("n", 5000) + "</tool_call>", offered, false, "C(<tool_call>" + strings.Repeat("n", 5000) + "</tool_call>)"},
		{"a key given twice", "<tool_call>cut" + pair("item", "a") + pair("shift", "1") + pair("item", "b") + "</tool_call>", offered, false, `0:cut{"item":"b","shift":1};`},
		{"a key without a value", "<tool_call>cut<arg_key>at</arg_key>" + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"a key that is not closed", "<tool_call>cut<arg_key>at" + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"a value without a key", "<tool_call>cut<arg_value>x</arg_value>" + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"two keys", "<tool_call>cut<arg_key>at</arg_key></arg_key><arg_value>x</arg_value>" + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"two values", "<tool_call>cut<arg_key>at</arg_key><arg_value>x<arg_value>y</arg_value>" + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"a key in a value", "<tool_call>cut<arg_key>at</arg_key><arg_value>x" + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"an empty key", "<tool_call>cut" + pair(" ", "x") + pair("item", "s1") + "</tool_call>", offered, false, read},
		{"text between pairs", "<tool_call>cut" + "<arg_key>item</arg_key> to <arg_value>s1</arg_value> and </tool_call>", offered, false, read},
		{"think tags in a value", "<tool_call>cut" + pair("item", "a<think>b</think>") + "</tool_call>", offered, false, `0:cut{"item":"a<think>b</think>"};`},
		{"a value that is not closed", "<tool_call>cut<arg_key>item</arg_key><arg_value>s1</tool_call>", offered, false, read},
		{"stray tags", "a</tool_call><arg_key>b</arg_value>", offered, false, "C(a</tool_call><arg_key>b</arg_value>)"},

		{"an end in a name", "<tool_call>cut", offered, false, "0:cut{};"},
		{"an end before a name", "<tool_call>", offered, false, "C(<tool_call>)"},
		{"an end in a key", "<tool_call>cut<arg_key>it", offered, false, "0:cut{};"},
		{"an end in a value", "<tool_call>cut<arg_key>item</arg_key><arg_value>s1", offered, false, read},
		{"cut in a name", "<tool_call>cu", offered, true, ""},
		{"cut in a string", "<tool_call>cut" + pair("shift", "1") + "<arg_key>item</arg_key><arg_value>s\"1", offered, true, `0:cut{"shift":1,"item":"s\"1`},
		{"cut in a number", "<tool_call>cut" + pair("item", "s1") + "<arg_key>shift</arg_key><arg_value>12", offered, true, `0:cut{"item":"s1"`},
		{"cut in a repeated key", "<tool_call>cut" + pair("item", "s1") + "<arg_key>item</arg_key><arg_value>12", offered, true, `0:cut{"item":"s1"`},

		{"none allowed", "a" + a, ParserOptions{Tools: offered.Tools, NoCalls: true}, false, "C(a" + a + ")"},
		{"an answer in JSON", "<think>why</think>\n [\"x\"] ", json, false, "R(why)C( [\"x\"] )"},
		{"a call for an answer", "<think>why</think>\n" + a, json, false, "R(why)" + read},
		{"tags in JSON", "{\"a\":\"" + a + "\"}", json, false, "C({\"a\":\"" + a + "\"})"},
	})
	// The same characters as text are text.
	p := FLINT.NewParser(offered)
	got := show(append(slices.Clone(p.Feed("<think>a</think>"+a)), p.Finish(false)...))
	if want := "C(<think>a</think>" + a + ")"; got != want {
		t.Errorf("tags as text: %s", got)
	}
	p = FLINT.NewParser(offered)
	events := slices.Clone(p.FeedTag("<tool_call>"))
	events = append(events, p.Feed("cut")...)
	events = append(events, p.FeedTag("<arg_key>")...)
	events = append(events, p.Feed("item")...)
	events = append(events, p.FeedTag("</arg_key>")...)
	events = append(events, p.FeedTag("<arg_value>")...)
	events = append(events, p.Feed("a</arg_value></tool_call>b")...)
	events = append(events, p.FeedTag("</arg_value>")...)
	events = append(events, p.FeedTag("</tool_call>")...)
	if got, want := show(events), `0:cut{"item":"a</arg_value></tool_call>b"};`; got != want {
		t.Errorf("tags as the text of a value: %s, want %s", got, want)
	}
}

// The demonstration model's own answers read into what they say.
func TestRecordedOutputs(t *testing.T) {
	calls := 0
	for _, r := range recordings(t) {
		opt := ParserOptions{Thinking: r.thinking, Tools: NewToolSet(r.tools)}
		reply := replyOf(read(QWEN.NewParser(opt), pieces(QWEN, r.output), false))
		if r.thinking != (reply.Reasoning != "") || strings.ContainsAny(reply.Content+reply.Reasoning, "<>") {
			t.Errorf("%s: reasoning %q, content %q", r.question, reply.Reasoning, reply.Content)
		}
		if strings.Contains(r.output, "<tool_call>") != (len(reply.Calls) == 1) || len(reply.Calls) == 1 == (reply.Content != "") {
			t.Errorf("%s: %d calls, content %q", r.question, len(reply.Calls), reply.Content)
		}
		for _, c := range reply.Calls {
			calls++
			if _, ok := decode(t, c.Arguments).(*ojson.Object); !ok || !c.Complete || c.Name == "" {
				t.Errorf("%s: %+v", r.question, c)
			}
		}
	}
	if calls != 12 {
		t.Errorf("%d calls, want the 12 that the recordings hold", calls)
	}
}

// mixed are outputs that hold everything at once, for both formats.
func mixed() map[*Format]string {
	return map[*Format]string{
		QWEN: "think <b> é\n</think>\n\nText < one 😀 <tool_call> <function=x>\n" +
			qcall("cut", "item", "a\n</parameter>\n<b> \"é\" \\ 😀", "shift", "1.5", "at", "\n") + "\n\n" + qcall("when", "time", "12", "x", `{"a": ["é"]}`) +
			"\nmore </think> text\n" + "<tool_call>\n<function=not a name>\n" + qcall("cut", "item", strings.Repeat("long ", 20)) + "\nend <",
		FLINT: "<think>think <b> é <tool_call>x</tool_call></think>\n\nText < one 😀" +
			"<tool_call>cut<arg_key>item</arg_key><arg_value>a\n<b> \"é\" \\ 😀</arg_value>\n<arg_key>shift</arg_key><arg_value>1.5</arg_value></tool_call>\n" +
			"<tool_call>not a name</tool_call> more </think> <tool_call>when<arg_key>time</arg_key><arg_value>12</arg_value></tool_call>\nend <",
	}
}

// However an output is cut, down to the byte, the events joined are those of the whole.
func TestRandomSplits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	type text struct {
		format *Format
		opt    ParserOptions
		pieces []piece
		want   []Event
	}
	var texts []text
	for f, output := range mixed() {
		opt := ParserOptions{Thinking: f == QWEN, Tools: tools(t, cutSchemas)}
		texts = append(texts, text{format: f, opt: opt, pieces: pieces(f, output)})
	}
	for _, r := range recordings(t) {
		opt := ParserOptions{Thinking: r.thinking, Tools: NewToolSet(r.tools)}
		texts = append(texts, text{format: QWEN, opt: opt, pieces: pieces(QWEN, r.output)})
	}
	for i := range texts {
		texts[i].want = read(texts[i].format.NewParser(texts[i].opt), texts[i].pieces, false)
	}
	for i := range 10_000 {
		x := texts[i%len(texts)]
		split := cuts(rng, x.pieces, 1+rng.IntN(6))
		opt := x.opt
		if i%2 == 1 {
			opt.Stop = []string{"no such text", "</thinking", "<tool_calls", "\n\n\n\n\n"}
		}
		if diff := cmp.Diff(x.want, read(x.format.NewParser(opt), split, false)); diff != "" {
			t.Fatalf("cut as %+v (-whole +cut):\n%s", split, diff)
		}
	}
}

// Arguments are valid JSON, in deltas that are not long, whatever their size.
func TestLongArguments(t *testing.T) {
	value := strings.Repeat("é\"\n", 30_000)
	for _, key := range []string{"item", "other"} {
		p := QWEN.NewParser(ParserOptions{Tools: tools(t, cutSchemas)})
		events := append(slices.Clone(p.Feed(qcall("cut", key, value))), p.Finish(false)...)
		for _, e := range events {
			if n := utf8.RuneCountInString(e.Text); n > maxDelta || !utf8.ValidString(e.Text) {
				t.Errorf("a delta of %d characters, valid %v", n, utf8.ValidString(e.Text))
			}
		}
		reply := replyOf(events)
		o, _ := decode(t, reply.Calls[0].Arguments).(*ojson.Object)
		if o == nil || o.Value(key) != value {
			t.Errorf("%s: the value came back changed", key)
		}
	}
}

func TestStopStrings(t *testing.T) {
	for _, c := range []struct {
		stops      []string
		text, want string
		found      string
	}{
		{nil, "answer", "answer", ""},
		{[]string{"wer"}, "answer", "ans", "wer"},
		{[]string{"x"}, "answer", "answer", ""},
		{[]string{"ans"}, "answer", "", "ans"},
		{[]string{"aab"}, "aaaab", "aa", "aab"},
		{[]string{"abab"}, "abaabab", "aba", "abab"},
		{[]string{"answers", "swe"}, "answer", "an", "swe"},
		{[]string{"r", "wer"}, "answer", "ans", "wer"},
		{[]string{"answers"}, "answer", "answer", ""},
		{[]string{"ö"}, "schön", "sch", "ö"},
		{[]string{"", "s"}, "as", "a", "s"},
		{[]string{"abcd", "bc"}, "abcx", "a", "bc"},
		{[]string{"</s>", "\n\nUser:"}, "a\n\nUse\n\nUser: b", "a\n\nUse", "\n\nUser:"},
	} {
		for size := 1; size <= len(c.text); size++ {
			s := NewStopScanner(c.stops)
			got := ""
			for rest := c.text; rest != ""; {
				k := min(size, len(rest))
				ready, _ := s.Scan(rest[:k])
				got += ready
				rest = rest[k:]
			}
			got += s.Flush()
			found, _ := s.Found()
			if got != c.want || found != c.found {
				t.Errorf("%q in %q by %d: %q and %q, want %q and %q", c.stops, c.text, size, got, found, c.want, c.found)
			}
			// The parser stops at the same place.
			p := QWEN.NewParser(ParserOptions{Stop: c.stops})
			var all Collector
			for rest := c.text + " and more"; rest != ""; {
				k := min(size, len(rest))
				all.Add(p.Feed(rest[:k]))
				rest = rest[k:]
			}
			all.Add(p.Finish(false))
			reply := all.Reply()
			if stopped, ok := p.Stopped(); ok && (reply.Content != c.want || stopped != c.found) || !ok && c.found != "" {
				t.Errorf("%q in %q by %d: the parser has %q and %q", c.stops, c.text, size, reply.Content, stopped)
			}
		}
	}
}

// What is held is the longest end that begins a stop string, and no more.
func TestStopScannerHoldsNoMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		word := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = "ab"[rng.IntN(2)]
			}
			return string(b)
		}
		stops := []string{word(1 + rng.IntN(6)), word(1 + rng.IntN(6))}
		text := word(30)
		s := NewStopScanner(stops)
		passed := ""
		for i := range text {
			ready, found := s.Scan(text[i : i+1])
			passed += ready
			seen := text[:i+1]
			if found {
				stop, _ := s.Found()
				if !strings.HasSuffix(seen, stop) || passed+stop != seen || strings.Contains(seen[:i], stops[0]) || strings.Contains(seen[:i], stops[1]) {
					t.Fatalf("%q in %q: stopped at %q with %q passed on", stops, text, stop, passed)
				}
				break
			}
			want := 0
			for _, stop := range stops {
				for k := range len(stop) {
					if strings.HasSuffix(seen, stop[:k]) {
						want = max(want, k)
					}
				}
			}
			if len(seen)-len(passed) != want {
				t.Fatalf("%q: holds %d of %q, want %d", stops, len(seen)-len(passed), seen, want)
			}
		}
	}
}

// Stop strings count in reasoning and across tags, and a tag that is held stays a tag.
func TestStopsAndTags(t *testing.T) {
	for _, c := range []struct {
		stop []string
		want string
	}{
		{[]string{"</thunk>"}, "R(why)C(answer)"},
		{[]string{"y</th"}, "R(wh)"},
		{[]string{"<think>w"}, ""},
		{[]string{"think"}, "C(<)"},
		{[]string{">\n\nans"}, "R(why</think)"},
		{[]string{"wer"}, "R(why)C(ans)"},
	} {
		p := FLINT.NewParser(ParserOptions{Stop: c.stop})
		if got := show(read(p, pieces(FLINT, "<think>why</think>\n\nanswer"), false)); got != c.want {
			t.Errorf("%q: %s, want %s", c.stop, got, c.want)
		}
	}
}

// Plain text costs no allocation, with tools, reasoning and stop strings too.
func TestPlainTextDoesNotAllocate(t *testing.T) {
	tokens := []string{"The", " quick", " brown", " fox", ",", " then", "\n", " é", "."}
	for name, opt := range map[string]ParserOptions{
		"content":    {},
		"tools":      {Tools: tools(t, cutSchemas)},
		"reasoning":  {Tools: tools(t, cutSchemas), Thinking: true},
		"stops":      {Stop: []string{"###", "User:"}},
		"structured": {Tools: tools(t, cutSchemas), Structured: true},
	} {
		for _, f := range []*Format{QWEN, FLINT} {
			p := f.NewParser(opt)
			p.Feed("begin")
			i := 0
			if n := testing.AllocsPerRun(1000, func() { p.Feed(tokens[i%len(tokens)]); i++ }); n != 0 {
				t.Errorf("%s, %s: %v allocations a token", f.Name, name, n)
			}
		}
	}
	value := QWEN.NewParser(ParserOptions{Tools: tools(t, cutSchemas)})
	value.Feed("<tool_call>\n<function=cut>\n<parameter=item>\nbegin")
	if n := testing.AllocsPerRun(1000, func() { value.Feed(" word") }); n != 0 {
		t.Errorf("a string argument: %v allocations a token", n)
	}
}

// hard are texts that make a careless parser quadratic: beginnings of tags without end.
func hard(n int) map[string]string {
	fill := func(s string) string { return strings.Repeat(s, n/len(s)+1)[:n] }
	return map[string]string{
		"<":               fill("<"),
		"openings":        fill("<tool_call>"),
		"half openings":   fill("<tool_call>\n<function="),
		"long names":      fill("<tool_call>\n<function=" + strings.Repeat("n", 255)),
		"closes":          fill("</think"),
		"newlines":        fill("\n"),
		"blanks":          fill(" "),
		"a long value":    "<tool_call>\n<function=cut>\n<parameter=other>\n" + fill("\n</parameter>\n<parameter=a b"),
		"a value of <":    "<tool_call>\n<function=cut>\n<parameter=item>\n" + fill("\n</parameter>\n<"),
		"parameters":      "<tool_call>\n<function=cut>\n" + fill("<parameter="),
		"after a call":    qcall("cut") + fill("\n"),
		"closing":         "<tool_call>\n<function=cut>\n</function>" + fill("\n"),
		"quotes":          "<tool_call>\n<function=cut>\n<parameter=item>\n" + fill("\"\\\n"),
		"many parameters": "<tool_call>\n<function=cut>\n" + fill("<parameter=a>\nx\n</parameter>\n"),
	}
}

// Tag beginnings without end, byte by byte, are no more work than other text: what is held at any time is bounded, which
// the test checks instead of a clock.
func TestHeldTextIsBounded(t *testing.T) {
	const bound = len(callOpening) + len(ParameterClose) + utf8.UTFMax*(MaxName+1)
	for name, text := range hard(1 << 18) {
		p := QWEN.NewParser(ParserOptions{Tools: tools(t, cutSchemas)})
		q := p.reader.(*qwenReader)
		for i := range text {
			p.Feed(text[i : i+1])
			if len(q.held) > bound {
				t.Fatalf("%s: %d bytes are held", name, len(q.held))
			}
		}
		p.Finish(false)
	}
}

func BenchmarkHardText(b *testing.B) {
	for name, text := range hard(1 << 20) {
		for _, size := range []int{1, 4, 1 << 20} {
			b.Run(fmt.Sprintf("%s by %d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					p := QWEN.NewParser(ParserOptions{Tools: &ToolSet{schemas: map[string]any{"cut": nil}}})
					for rest := text; rest != ""; {
						k := min(size, len(rest))
						p.Feed(rest[:k])
						rest = rest[k:]
					}
					p.Finish(false)
				}
			})
		}
	}
}

func BenchmarkPlainText(b *testing.B) {
	p := QWEN.NewParser(ParserOptions{Tools: &ToolSet{schemas: map[string]any{"cut": nil}}})
	p.Feed("begin")
	b.ReportAllocs()
	for b.Loop() {
		p.Feed(" token")
	}
}

// checkEvents fails on events that no output may have: a call inside another, arguments that are not JSON, lost text.
func checkEvents(t *testing.T, events []Event, cut bool) {
	t.Helper()
	open, calls := -1, 0
	var arguments strings.Builder
	for _, e := range events {
		switch e.Kind {
		case CallStart:
			if open >= 0 || e.Call != calls || e.Text == "" {
				t.Fatalf("call %d starts while %d is open: %+v", e.Call, open, events)
			}
			open = e.Call
			calls++
			arguments.Reset()
		case ArgumentsDelta:
			if e.Call != open {
				t.Fatalf("arguments of call %d while %d is open", e.Call, open)
			}
			arguments.WriteString(e.Text)
		case CallEnd:
			v, err := ojson.Decode(strings.ToValidUTF8(arguments.String(), "?"), ojson.Options{})
			if _, ok := v.(*ojson.Object); e.Call != open || err != nil || !ok {
				t.Fatalf("call %d ends with %s: %v", e.Call, arguments.String(), err)
			}
			open = -1
		default:
			if open >= 0 {
				t.Fatalf("text inside call %d", open)
			}
		}
	}
	if open >= 0 && !cut {
		t.Fatal("a call is open at the end")
	}
}

func fuzzParser(f *testing.F, format *Format) {
	add := func(s string) { f.Add(s, uint64(1), uint8(0)); f.Add(s, uint64(2), uint8(255)) }
	add(mixed()[format])
	for _, s := range hard(300) {
		add(s)
	}
	for _, c := range conversions {
		add(qcall("cut", "item", c.text, "shift", c.text))
		add("<tool_call>cut<arg_key>x</arg_key><arg_value>" + c.text + "</arg_value></tool_call>")
	}
	ts := tools(f, cutSchemas)
	f.Fuzz(func(t *testing.T, output string, seed uint64, flags uint8) {
		opt := ParserOptions{Tools: ts, Thinking: flags&1 != 0, NoCalls: flags&2 != 0, Structured: flags&4 != 0}
		if flags&8 != 0 {
			opt.Tools = nil
		}
		if flags&32 != 0 {
			opt.Stop = []string{"</t", "\n\n<"}
		}
		cut := flags&16 != 0
		whole := pieces(format, output)
		want := read(format.NewParser(opt), whole, cut)
		checkEvents(t, want, cut)
		rng := rand.New(rand.NewPCG(seed, 0))
		split := cuts(rng, whole, 1+rng.IntN(10))
		if diff := cmp.Diff(want, read(format.NewParser(opt), split, cut)); diff != "" {
			t.Fatalf("%q cut as %+v (-whole +cut):\n%s", output, split, diff)
		}
		// Without tools and stop strings, all of the text comes back.
		if opt.Tools == nil && opt.Stop == nil && !opt.Thinking && format == QWEN {
			if reply := replyOf(want); reply.Content != output {
				t.Fatalf("%q came back as %q", output, reply.Content)
			}
		}
	})
}

func FuzzQwen(f *testing.F)  { fuzzParser(f, QWEN) }
func FuzzFlint(f *testing.F) { fuzzParser(f, FLINT) }

// FuzzArguments converts values by every set of types, and checks the JSON that comes out.
func FuzzArguments(f *testing.F) {
	for _, c := range conversions {
		f.Add(c.text, c.schema)
	}
	f.Fuzz(func(t *testing.T, text, schema string) {
		v, err := ojson.Decode(schema, ojson.Options{})
		if err != nil || !utf8.ValidString(text) {
			return
		}
		ts := &ToolSet{}
		ts.Add("f", ojson.NewObject("properties", ojson.NewObject("v", v), "$defs", v))
		declared := ts.parameter("f", "v")
		out := string(appendArgument(nil, text, declared))
		got, err := ojson.Decode(out, ojson.Options{RejectSurrogates: true})
		if err != nil {
			t.Fatalf("%q by %s: %s is not JSON: %v", text, schema, out, err)
		}
		if s, ok := got.(string); ok && s != text {
			if w, err := ojson.Decode(text, ojson.Options{}); err != nil || w != any(s) {
				t.Fatalf("%q by %s became %q", text, schema, s)
			}
		}
	})
}
