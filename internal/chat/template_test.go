package chat

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"splash/internal/chat/ojson"
)

func readTemplate(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/templates/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func decode(t testing.TB, text string) any {
	t.Helper()
	v, err := ojson.Decode(text, ojson.Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func parseMessages(t testing.TB, text string) []Message {
	t.Helper()
	messages, err := ParseMessages(decode(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if messages, err = Prepare(context.Background(), messages, PrepareOptions{Vision: true}); err != nil {
		t.Fatal(err)
	}
	return messages
}

// runes counts one token a character.
func runes(text string) (int, bool) { return utf8.RuneCountInString(text), true }

func newTemplates(t testing.TB, format *Format, source string) *Templates {
	t.Helper()
	ts, err := NewTemplates(context.Background(), map[string]string{"default": source}, TemplateOptions{Format: format, Count: runes})
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

func formatOf(template string) *Format {
	if template == "flint.jinja" {
		return FLINT
	}
	return QWEN
}

// The goldens are of Jinja2 (testdata/goldens.py), of the templates as they are; the ones that were patched must still
// render them.
func TestGoldens(t *testing.T) {
	data, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	file := decode(t, string(data)).(*ojson.Object)
	tools := file.Value("tools").([]any)
	conversations := map[string][]Message{}
	for name, v := range file.Value("conversations").(*ojson.Object).All() {
		if conversations[name], err = ParseMessages(v); err != nil {
			t.Fatal(err)
		}
	}
	templates := map[string]*Template{}
	for _, v := range file.Value("goldens").([]any) {
		g := v.(*ojson.Object)
		name := g.Value("template").(string)
		if templates[name] == nil {
			templates[name] = newTemplates(t, formatOf(name), readTemplate(t, name)).Select(false)
		}
		req := Request{
			Messages:            conversations[g.Value("conversation").(string)],
			AddGenerationPrompt: g.Value("add_generation_prompt").(bool),
			Variables:           Variables{Kwargs: g.Value("variables").(*ojson.Object)},
		}
		if g.Value("tools").(bool) {
			req.Tools = tools
		}
		got, err := templates[name].Render(context.Background(), req)
		if err != nil {
			t.Fatalf("%s, %s: %v", name, g.Value("conversation"), err)
		}
		if diff := cmp.Diff(g.Value("want"), any(got)); diff != "" {
			t.Errorf("%s, %s, tools %v (-want +got):\n%s", name, g.Value("conversation"), g.Value("tools"), diff)
		}
	}
}

func TestProbeOutcomes(t *testing.T) {
	native := "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	chatml := "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
	for name, c := range map[string]struct {
		source   string
		original Behavior
		later    LaterSystem
	}{
		"pebble":  {readTemplate(t, "pebble.jinja"), Renders, Native},
		"qwen":    {readTemplate(t, "qwen.jinja"), Rejects, Patched},
		"unsloth": {readTemplate(t, "unsloth.jinja"), Drops, Patched},
		"flint":   {readTemplate(t, "flint.jinja"), Renders, Native},
		"native":  {native, Renders, Native},
		"rejects before the loop": {
			"{% for m in messages[1:] %}{% if m.role == 'system' %}{{ raise_exception('x') }}{% endif %}{% endfor %}" +
				"{% for m in messages %}" + chatml + "{% endfor %}", Rejects, Unsupported},
		"rejects in two places": {
			"{% for m in messages %}{% if m.role == 'system' and not loop.first %}x{% endif %}" +
				"{% if m.role == 'system' %}{% if not loop.first %}{{ raise_exception('a') }}{% else %}{{ raise_exception('b') }}{% endif %}{% endif %}{% endfor %}", Rejects, Unsupported},
		"drops by loop filter": {
			"{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}" +
				"{% for m in messages if m.role != 'system' %}" + chatml + "{% endfor %}", Drops, Unsupported},
		"gathers at the front": {
			"{% for m in messages if m.role == 'system' %}" + chatml + "{% endfor %}" +
				"{% for m in messages if m.role != 'system' %}" + chatml + "{% endfor %}", Misplaces, Unsupported},
		"writes twice": {"{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", Misplaces, Unsupported},
		"a BOS token before the block": {
			"<s>" + strings.Replace(readTemplate(t, "qwen.jinja"), "{%- if tools and", "{{- '' }}{%- if tools and", 1), Rejects, Unsupported},
		"unbalanced": {strings.Replace(readTemplate(t, "qwen.jinja"), "{%- endmacro %}", "", 1), Rejects, Unsupported},
		// The construct is found, but tool results share the branch, so that the patch would change them.
		"tool results raise too": {
			strings.Replace(readTemplate(t, "qwen.jinja"), `{%- if message.role == "system" %}`, `{%- if message.role == "system" or message.role == "tool" %}`, 1), Rejects, Unsupported},
		"endless": {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", Rejects, Unsupported},
	} {
		tmpl := newTemplates(t, QWEN, c.source).Select(false)
		if tmpl.Original != c.original || tmpl.LaterSystem != c.later {
			t.Errorf("%s: %s and %s, want %s and %s", name, tmpl.Original, tmpl.LaterSystem, c.original, c.later)
		}
		if c.later != Patched && tmpl.Source != c.source {
			t.Errorf("%s: the source was changed", name)
		}
	}
}

// A guard that raises for the leading system message under one effort as well makes a patch render it twice there.
func TestPatchIsVerifiedUnderEveryEffort(t *testing.T) {
	source := readTemplate(t, "qwen.jinja")
	guard := "{%- if not loop.first %}"
	if strings.Count(source, guard) != 1 {
		t.Fatal("the fixture has another guard")
	}
	for _, effort := range []string{"none", "low", "medium", "xhigh"} {
		text := strings.Replace(source, guard, "{%- if not loop.first or reasoning_effort == '"+effort+"' %}", 1)
		if got := newTemplates(t, QWEN, text).Select(false); got.LaterSystem != Unsupported {
			t.Errorf("effort %s: %s", effort, got.LaterSystem)
		}
	}
}

// cosmetic are changes to the fixtures that keep what they render, around the construct that is patched.
func cosmetic(t *testing.T, name string) map[string]string {
	s := readTemplate(t, name)
	replace := func(old, with string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("%s does not hold %q", name, old)
		}
		return strings.Replace(s, old, with, 1)
	}
	loop := "{%- for message in messages %}"
	end := "{{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}"
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	v := map[string]string{
		"CRLF":                strings.ReplaceAll(s, "\n", "\r\n"),
		"CR":                  strings.ReplaceAll(s, "\n", "\r"),
		"one line":            strings.Join(lines, ""),
		"space after macro":   replace("{%- endmacro %}", "{%- endmacro %} "),
		"newlines at the end": s + "\n\n",
		"dict literal":        replace(loop, loop+"{{- {'a': {'b': ''}}['a']['b'] ~ '{% if x %}' if false }}"),
		"generation":          replace(end, "{%- generation %}{{- '<|im_end|>\\n' }}{%- endgeneration %}\n    {%- elif message.role == \"tool\" %}"),
		"continue":            replace(`{%- elif message.role == "assistant" %}`, `{%- elif message.role == "ignored" %}{%- continue %}{%- elif message.role == "assistant" %}`),
	}
	if name == "qwen.jinja" {
		raise := "{{- raise_exception('Only the first message can be a system message.') }}"
		v["reformatted"] = replace(raise, `{{-   raise_exception(  "Only the first message can be a system message."  )   -}}`)
		v["reworded"] = replace(raise, "{{ raise_exception('No.') }}")
		v["another spelling"] = replace(`{%- if message.role == "system" %}`, `{%- if 'x' in message or "system" == message['role'] %}`)
	} else {
		skip := `{%- if loop.index0 >= leading and message.role != "system" and message.role != "developer" %}`
		v["reformatted"] = replace(skip, `{%-if loop.index0>=leading and message['role']!='system'and message.role != "developer"-%}`)
	}
	return v
}

func TestCosmeticVariantsArePatched(t *testing.T) {
	messages := parseMessages(t, `[{"role":"system","content":"A"},{"role":"user","content":"Q"},{"role":"assistant","content":"R"},
		{"role":"system","content":" B "},{"role":"developer","content":"C"},{"role":"user","content":"N"}]`)
	for _, name := range []string{"qwen.jinja", "unsloth.jinja"} {
		want, err := newTemplates(t, QWEN, readTemplate(t, name)).Select(false).Render(context.Background(), Request{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		for variant, source := range cosmetic(t, name) {
			tmpl := newTemplates(t, QWEN, source).Select(false)
			if tmpl.LaterSystem != Patched {
				t.Errorf("%s, %s: %s", name, variant, tmpl.LaterSystem)
				continue
			}
			got, err := tmpl.Render(context.Background(), Request{Messages: messages})
			if err != nil || strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("%s, %s: %v %s", name, variant, err, cmp.Diff(want, got))
			}
		}
	}
}

// The official template refuses a system message that is not first: it is rendered where it stands, in the template's
// own markup, leading ones merge by a blank line, and what comes before it is what it was.
func TestLaterSystemMessages(t *testing.T) {
	const a, b = "<|im_start|>system\nA<|im_end|>\n", "<|im_start|>system\nB<|im_end|>\n"
	const q, r, n = "<|im_start|>user\nQ<|im_end|>\n", "<|im_start|>assistant\nR<|im_end|>\n", "<|im_start|>user\nN<|im_end|>\n"
	const gen = "<|im_start|>assistant\n<think>\n"
	templates := map[string]*Template{}
	for _, name := range []string{"qwen.jinja", "unsloth.jinja"} {
		templates[name] = newTemplates(t, QWEN, readTemplate(t, name)).Select(false)
	}
	for _, c := range []struct{ name, messages, want string }{
		{"system B after an answer", `[{"role":"system","content":"A"},{"role":"user","content":"Q"},{"role":"assistant","content":"R"},{"role":"system","content":"B"},{"role":"user","content":"N"}]`, a + q + r + b + n + gen},
		{"developer", `[{"role":"developer","content":"A"},{"role":"user","content":"Q"},{"role":"assistant","content":"R"},{"role":"developer","content":"B"},{"role":"user","content":"N"}]`, a + q + r + b + n + gen},
		{"user, system", `[{"role":"user","content":"Q"},{"role":"system","content":"B"}]`, q + b + gen},
		{"system, system, user", `[{"role":"system","content":"A"},{"role":"system","content":"B"},{"role":"user","content":"Q"}]`, "<|im_start|>system\nA\n\nB<|im_end|>\n" + q + gen},
		{"two later ones", `[{"role":"user","content":"Q"},{"role":"assistant","content":"R"},{"role":"system","content":"A"},{"role":"system","content":"B"},{"role":"user","content":"N"}]`, q + r + a + b + n + gen},
	} {
		for name, tmpl := range templates {
			p, err := tmpl.Prompt(context.Background(), Request{Messages: parseMessages(t, c.messages)})
			if diff := cmp.Diff(c.want, p.Text); err != nil || diff != "" {
				t.Errorf("%s, %s: %v (-want +got):\n%s", name, c.name, err, diff)
			}
		}
	}
}

// Instructions in the middle of a conversation leave what is before them as it was, with calls and results around.
func TestLaterSystemKeepsThePrefix(t *testing.T) {
	before := `{"role":"system","content":"A"},{"role":"user","content":"Q"},
		{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
		{"role":"tool","content":"42"}`
	for _, name := range []string{"pebble.jinja", "qwen.jinja", "unsloth.jinja", "flint.jinja"} {
		tmpl := newTemplates(t, formatOf(name), readTemplate(t, name)).Select(false)
		render := func(text string) string {
			out, err := tmpl.Render(context.Background(), Request{Messages: parseMessages(t, "["+text+"]")})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return out
		}
		first := render(before)
		second := render(before + `,{"role":"system","content":"Plan mode is on."}`)
		third := render(before + `,{"role":"system","content":"Plan mode is on."},{"role":"assistant","content":"Yes."}`)
		if !strings.HasPrefix(second, first) || !strings.HasPrefix(third, second) || strings.Count(third, "Plan mode is on.") != 1 {
			t.Errorf("%s:\n%s\n---\n%s", name, second, third)
		}
	}
}

func TestUnsupportedTemplateRefusesBeforeRendering(t *testing.T) {
	tmpl := newTemplates(t, QWEN, "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}").Select(false)
	later := parseMessages(t, `[{"role":"user","content":"Q"},{"role":"developer","content":"B"}]`)
	var e *RequestError
	if _, err := tmpl.Render(context.Background(), Request{Messages: later}); !errors.As(err, &e) ||
		e.Msg != "this model's chat template does not accept system messages after the first message" {
		t.Errorf("Render: %v", err)
	}
	if _, err := tmpl.Prompt(context.Background(), Request{Messages: later}); !errors.As(err, &e) {
		t.Errorf("Prompt: %v", err)
	}
	first := parseMessages(t, `[{"role":"system","content":"B"},{"role":"user","content":"Q"}]`)
	if got, err := tmpl.Render(context.Background(), Request{Messages: first}); err != nil || got != "BBQQ" {
		t.Errorf("a leading system message: %q, %v", got, err)
	}
}

func TestNamedTemplates(t *testing.T) {
	native := "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"
	one := func(string) (int, bool) { return 1, true }
	ts, err := NewTemplates(context.Background(), map[string]string{"default": native, "tool_use": readTemplate(t, "qwen.jinja"), "rag": ""},
		TemplateOptions{Format: QWEN, Count: one})
	if err != nil {
		t.Fatal(err)
	}
	if ts.Select(false).Name != "default" || ts.Select(true).Name != "tool_use" {
		t.Error("tools do not select tool_use")
	}
	if got, _ := ojson.String(ts.Status(), ojson.Compact); got != `{"later_system":{"default":"native","tool_use":"patched"}}` {
		t.Errorf("status %s", got)
	}
	want := "default renders later system messages in place, generation prompt unknown · tool_use patched to render later system " +
		"messages in place (the original template rejects them), generation prompt 1 token"
	if got := ts.Describe(); got != want {
		t.Errorf("described as %q", got)
	}
	for _, c := range []struct {
		sources map[string]string
		want    string
	}{
		{nil, "the tokenizer defines no chat template"},
		{map[string]string{"default": ""}, "the tokenizer defines no chat template"},
		{map[string]string{"tool_use": native}, "the tokenizer's named chat templates have no default"},
	} {
		if _, err := NewTemplates(context.Background(), c.sources, TemplateOptions{Format: QWEN}); err == nil || err.Error() != c.want {
			t.Errorf("%v: %v, want %q", c.sources, err, c.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		format       *Format
		source, want string
	}{
		{QWEN, readTemplate(t, "pebble.jinja"), "renders later system messages in place, generation prompt 30-41 tokens"},
		{QWEN, readTemplate(t, "unsloth.jinja"), "patched to render later system messages in place (the original template drops them), generation prompt 30-41 tokens"},
		{FLINT, readTemplate(t, "flint.jinja"), "renders later system messages in place, generation prompt 13 tokens"},
		{QWEN, "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
			"requests with later system messages are rejected (the original template misplaces them), generation prompt unknown"},
	} {
		ts := newTemplates(t, c.format, c.source)
		if got := ts.Describe(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got, _ := ojson.String(newTemplates(t, QWEN, readTemplate(t, "qwen.jinja")).Status(), ojson.Compact); got != `{"later_system":"patched"}` {
		t.Errorf("status %s", got)
	}
}

func TestGenerationPrompts(t *testing.T) {
	user := parseMessages(t, `[{"role":"user","content":"Hi"}]`)
	yes, no := true, false
	switches := "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% if thinking %}<think>{% else %}</think>{% endif %}{% endif %}"
	for name, c := range map[string]struct {
		format     *Format
		source     string
		vars       Variables
		generation string
		thinking   bool
		err        string
	}{
		"thinks by default": {QWEN, readTemplate(t, "qwen.jinja"), Variables{}, "<|im_start|>assistant\n<think>\n", true, ""},
		"effort none":       {QWEN, readTemplate(t, "qwen.jinja"), Variables{Effort: "none"}, "<|im_start|>assistant\n<think>\n\n</think>\n\n", false, ""},
		"effort max":        {QWEN, readTemplate(t, "qwen.jinja"), Variables{Effort: "max"}, "<|im_start|>assistant\n<think>\n", true, ""},
		"preserved":         {QWEN, readTemplate(t, "qwen.jinja"), Variables{PreserveThinking: &yes}, "<|im_start|>assistant\n<think>\n", true, ""},
		"not preserved":     {QWEN, readTemplate(t, "qwen.jinja"), Variables{PreserveThinking: &no}, "<|im_start|>assistant\n<think>\n", true, ""},
		"a switch":          {QWEN, switches, Variables{Kwargs: ojson.NewObject("thinking", true)}, "<|assistant|><think>", true, ""},
		"a switch unset":    {QWEN, switches, Variables{}, "<|assistant|></think>", false, ""},
		"wrong mode":        {QWEN, switches, Variables{Effort: "low"}, "", false, "chat template does not support the requested thinking mode"},
		"flint":             {FLINT, readTemplate(t, "flint.jinja"), Variables{Effort: "low"}, "<|assistant|>", false, ""},
		"flint off":         {FLINT, readTemplate(t, "flint.jinja"), Variables{Effort: "none"}, "<|assistant|>", false, ""},
		"appends nothing":   {QWEN, "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}", Variables{}, "", false, "chat template must end with an assistant generation prefix"},
		"rewrites the last turn": {QWEN, "{% for m in messages %}{{ m.content }}{% if add_generation_prompt and loop.last %}?{% endif %} {% endfor %}{% if add_generation_prompt %}>{% endif %}",
			Variables{}, "", false, "chat template must end with an assistant generation prefix"},
		"differs by conversation": {QWEN, "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}{{ messages | length }}{% endif %}",
			Variables{}, "", false, "chat template must end with an assistant generation prefix"},
	} {
		tmpl := newTemplates(t, c.format, c.source).Select(false)
		p, err := tmpl.Prompt(context.Background(), Request{Messages: user, Variables: c.vars})
		if c.err != "" {
			var e *RequestError
			if !errors.As(err, &e) || e.Msg != c.err {
				t.Errorf("%s: %v, want %q", name, err, c.err)
			}
			continue
		}
		if err != nil || p.Generation != c.generation || p.Thinking != c.thinking || !strings.HasSuffix(p.Text, p.Generation) {
			t.Errorf("%s: %q, thinking %v, %v", name, p.Generation, p.Thinking, err)
		}
	}
}

func TestGenerationPromptsAreRemembered(t *testing.T) {
	tmpl := newTemplates(t, QWEN, readTemplate(t, "pebble.jinja")).Select(false)
	user := parseMessages(t, `[{"role":"user","content":"Hi"}]`)
	ask := func(i int) {
		v := Variables{Kwargs: ojson.NewObject("n", int64(i))}
		if _, err := tmpl.Prompt(context.Background(), Request{Messages: user, Variables: v}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 200 {
		ask(i)
		ask(0)
	}
	if n := len(tmpl.prompts.others); n != maxPrompts || len(tmpl.prompts.recent) != n {
		t.Errorf("%d are remembered in %d places, want %d", n, len(tmpl.prompts.recent), maxPrompts)
	}
	if _, ok := tmpl.prompts.get(keyOf(Variables{Kwargs: ojson.NewObject("n", int64(0))})); !ok {
		t.Error("the one used most is forgotten")
	}
}

func TestEffortsReachTheTemplate(t *testing.T) {
	// What a template sees, beside raising for the efforts that it does not know.
	shows := func(known string) string {
		return "{% if reasoning_effort is defined and reasoning_effort not in [" + known + "] %}{{ raise_exception('effort') }}{% endif %}" +
			"{% for m in messages %}{% endfor %}{{ enable_thinking | default('unset') }} {{ reasoning_effort | default('unset') }} {{ preserve_thinking | default('unset') }} {{ x | default('unset') }}"
	}
	all := "'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'"
	kwargs := func(pairs ...any) *ojson.Object { return ojson.NewObject(pairs...) }
	yes := true
	for _, c := range []struct {
		known string
		vars  Variables
		want  string // empty: the rendering fails
	}{
		{all, Variables{}, "unset unset unset unset"},
		{all, Variables{Effort: "none"}, "False none unset unset"},
		{all, Variables{Effort: "high"}, "True high unset unset"},
		{all, Variables{PreserveThinking: &yes}, "unset unset True unset"},
		{all, Variables{Effort: "low", Kwargs: kwargs("x", "y")}, "True low unset y"},
		{all, Variables{Effort: "low", Kwargs: kwargs("reasoning_effort", "max")}, "True max unset unset"},
		{all, Variables{Effort: "high", Kwargs: kwargs("enable_thinking", false)}, "False none unset unset"},
		{all, Variables{Effort: "none", Kwargs: kwargs("enable_thinking", true)}, "True unset unset unset"},
		{all, Variables{Effort: "low", Kwargs: kwargs("enable_thinking", true)}, "True low unset unset"},
		{all, Variables{Effort: "none", Kwargs: kwargs("enable_thinking", nil)}, "False none unset unset"},
		{all, Variables{Kwargs: kwargs("enable_thinking", true)}, "True unset unset unset"},
		{all, Variables{Kwargs: kwargs("preserve_thinking", false)}, "unset unset False unset"},
		{"'low', 'xhigh'", Variables{Effort: "high"}, "True xhigh unset unset"},
		{"'low', 'xhigh'", Variables{Effort: "max"}, "True xhigh unset unset"},
		{"'low', 'xhigh'", Variables{Effort: "minimal"}, "True low unset unset"},
		{"'low', 'xhigh'", Variables{Effort: "medium"}, ""},
		{"'low', 'xhigh'", Variables{Effort: "none"}, "False unset unset unset"},
		{"'low', 'xhigh'", Variables{Kwargs: kwargs("enable_thinking", false)}, "False unset unset unset"},
		{"'low', 'xhigh'", Variables{Kwargs: kwargs("reasoning_effort", "none")}, ""},
		{"'low', 'xhigh'", Variables{Kwargs: kwargs("reasoning_effort", "none", "enable_thinking", false)}, ""},
		{"'high'", Variables{Effort: "max"}, ""},
	} {
		tmpl := newTemplates(t, QWEN, shows(c.known)).Select(false)
		got, err := tmpl.Render(context.Background(), Request{Messages: []Message{{Role: RoleUser, Text: "Q"}}, Variables: c.vars})
		if got != c.want || (err != nil) != (c.want == "") {
			s, _ := ojson.String(c.vars.values(), ojson.Compact)
			t.Errorf("[%s] %s: %q, %v; want %q", c.known, s, got, err, c.want)
		}
	}
}

func TestCheckKwargs(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", `{"enable_thinking":null,"x":{}}`: "", `{"enable_thinking":false}`: "", `{"preserve_thinking":1}`: "",
		`{"tools":[]}`:                   "chat_template_kwargs cannot set tools",
		`{"a":1,"messages":null}`:        "chat_template_kwargs cannot set messages",
		`{"add_generation_prompt":true}`: "chat_template_kwargs cannot set add_generation_prompt",
		`{"enable_thinking":"x"}`:        "chat_template_kwargs enable_thinking must be a boolean",
		`{"enable_thinking":0}`:          "chat_template_kwargs enable_thinking must be a boolean",
	} {
		err := CheckKwargs(decode(t, text).(*ojson.Object))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := CheckKwargs(nil); err != nil {
		t.Error(err)
	}
}

func TestImages(t *testing.T) {
	const content = `[{"type":"text","text":"See <|image_pad|>é "},{"type":"image_url","image_url":{"url":"data:,1"}},{"type":"image_url","image_url":"data:,2"}]`
	messages := parseMessages(t, `[{"role":"user","content":`+content+`},{"role":"assistant","content":"<|image_pad|>"},{"role":"user","content":"N"}]`)
	for _, name := range []string{"qwen.jinja", "unsloth.jinja"} {
		tmpl := newTemplates(t, QWEN, readTemplate(t, name)).Select(false)
		p, err := tmpl.Prompt(context.Background(), Request{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		plain, err := tmpl.Render(context.Background(), Request{Messages: messages, AddGenerationPrompt: true})
		if err != nil || plain != p.Text {
			t.Errorf("%s: the marked rendering differs: %v %s", name, err, cmp.Diff(plain, p.Text))
		}
		if len(p.Images) != 2 {
			t.Fatalf("%s: %d pads", name, len(p.Images))
		}
		for _, at := range p.Images {
			if !strings.HasPrefix(p.Text[at:], "<|image_pad|><|vision_end|>") || !strings.HasSuffix(p.Text[:at], "<|vision_start|>") {
				t.Errorf("%s: no pad at %d", name, at)
			}
		}
	}
	// The demonstration model's template writes nothing for an image.
	tmpl := newTemplates(t, QWEN, readTemplate(t, "pebble.jinja")).Select(false)
	_, err := tmpl.Prompt(context.Background(), Request{Messages: messages})
	var e *RequestError
	if !errors.As(err, &e) || e.Msg != "image count does not match the rendered template" {
		t.Errorf("got %v", err)
	}
}

func TestTemplateErrors(t *testing.T) {
	tmpl := newTemplates(t, QWEN, "{% for m in messages %}\n{% if m.content == 'secret' %}{{ raise_exception('no ' ~ m.content) }}{% endif %}{% endfor %}").Select(false)
	_, err := tmpl.Render(context.Background(), Request{Messages: []Message{{Role: RoleUser, Text: "secret"}}})
	var e *TemplateError
	if !errors.As(err, &e) || e.Error() != "template error · TemplateError · <template>:2" {
		t.Errorf("got %v", err)
	}
	broken := newTemplates(t, QWEN, "one\n{% if %}").Select(false)
	if _, err := broken.Render(context.Background(), Request{Messages: []Message{{Role: RoleUser, Text: "x"}}}); !errors.As(err, &e) || e.Line != 2 {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewTemplates(ctx, map[string]string{"default": "{% for i in range(100000) %}{% endfor %}"}, TemplateOptions{Format: QWEN}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled probe: %v", err)
	}
}

func TestSpecialTokensAndTime(t *testing.T) {
	ts, err := NewTemplates(context.Background(), map[string]string{"default": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }} {{ strftime_now('%Y') }} {{ tools is defined }}"},
		TemplateOptions{Format: QWEN, Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>"},
			Now: func() time.Time { return time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ts.Select(false).Render(context.Background(), Request{Messages: []Message{{Role: RoleUser, Text: "x"}}, Variables: Variables{Kwargs: ojson.NewObject("eos_token", "E")}})
	if got != "<s>xE 2031 False" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The demonstration model's prompts were rendered by the program that trained it.
func TestDemonstrationPrompts(t *testing.T) {
	tmpl := newTemplates(t, QWEN, readTemplate(t, "pebble.jinja")).Select(false)
	for _, r := range recordings(t) {
		v := Variables{}
		if !r.thinking {
			v.Effort = "none"
		}
		req := Request{Messages: []Message{{Role: RoleUser, Text: r.question}}, Tools: r.tools, Variables: v}
		p, err := tmpl.Prompt(context.Background(), req)
		if diff := cmp.Diff(r.prompt, p.Text); err != nil || diff != "" || p.Thinking != r.thinking {
			t.Errorf("%s: %v, thinking %v (-want +got):\n%s", r.question, err, p.Thinking, diff)
		}
	}
}

// A recording is a prompt of the demonstration model and its answer.
type recording struct {
	question, prompt, output string
	thinking                 bool
	tools                    []any
}

func recordings(t testing.TB) []recording {
	t.Helper()
	data, err := os.ReadFile("testdata/outputs.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []recording
	for _, v := range decode(t, string(data)).([]any) {
		o := v.(*ojson.Object)
		r := recording{thinking: o.Value("thinking").(bool)}
		r.question, r.prompt, r.output = o.Value("question").(string), o.Value("prompt").(string), o.Value("output").(string)
		r.tools, _ = o.Value("tools").([]any)
		list = append(list, r)
	}
	return list
}

func TestConcurrentRequests(t *testing.T) {
	tmpl := newTemplates(t, QWEN, readTemplate(t, "qwen.jinja")).Select(false)
	messages := parseMessages(t, `[{"role":"system","content":"A"},{"role":"user","content":"Q"},{"role":"system","content":"B"}]`)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 20 {
				v := Variables{Effort: "low", Kwargs: ojson.NewObject("n", int64(i*k))}
				if _, err := tmpl.Prompt(context.Background(), Request{Messages: messages, Variables: v}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzTemplates(f *testing.F) {
	for _, name := range []string{"pebble.jinja", "qwen.jinja", "unsloth.jinja", "flint.jinja"} {
		f.Add(readTemplate(f, name))
	}
	f.Add("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('x') }}{% endif %}{{ m.content }}{% endfor %}")
	f.Add("{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}")
	f.Fuzz(func(t *testing.T, source string) {
		if source == "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		ts, err := NewTemplates(ctx, map[string]string{"default": source}, TemplateOptions{Format: QWEN, Count: runes})
		if err != nil {
			if ctx.Err() == nil {
				t.Fatal(err)
			}
			return
		}
		tmpl := ts.Select(true)
		ts.Describe()
		if tmpl.LaterSystem != Unsupported {
			for _, c := range canaries() {
				text, err := tmpl.Render(ctx, Request{Messages: c, AddGenerationPrompt: true})
				if ctx.Err() == nil && (err != nil || !inPlace(text)) {
					t.Fatalf("%s, but %q, %v", tmpl.LaterSystem, text, err)
				}
			}
		}
		p, err := tmpl.Prompt(ctx, Request{Messages: []Message{{Role: RoleUser, Parts: []Part{{Kind: TextPart, Text: "x"}, {Kind: ImagePart}}}}})
		if err == nil && (len(p.Images) != 1 || !strings.HasSuffix(p.Text, p.Generation) || p.Generation == "") {
			t.Fatalf("%+v", p)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	tmpl := newTemplates(b, QWEN, readTemplate(b, "qwen.jinja")).Select(false)
	messages := parseMessages(b, `[{"role":"system","content":"A"},{"role":"user","content":"Q"}]`)
	for range 100 {
		messages = append(messages, Message{Role: RoleAssistant, Text: strings.Repeat("answer ", 50)}, Message{Role: RoleUser, Text: strings.Repeat("question ", 50)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(context.Background(), Request{Messages: messages}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	for b.Loop() {
		newTemplates(b, QWEN, readTemplate(b, "qwen.jinja"))
	}
}
