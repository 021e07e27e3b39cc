package server

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/grammar/output"
)

// A toolUse is the tools that a request offers, and how they may be used.
type toolUse struct {
	list     []any // in the shape of Chat Completions, as the template sees them
	names    map[string]bool
	offered  []output.Tool
	choice   string // auto, none, required or named
	named    string
	parallel bool
}

// The choices.
const (
	choiceAuto     = "auto"
	choiceNone     = "none"
	choiceRequired = "required"
	choiceNamed    = "named"
)

// calling reports whether the answer may call a tool.
func (t *toolUse) calling() bool { return len(t.list) > 0 && t.choice != choiceNone }

// single reports whether the answer has one call at most.
func (t *toolUse) single() bool { return !t.parallel || t.choice == choiceNamed }

// print is how the console tells tool lists apart: their number, and the beginning of a digest.
func (t *toolUse) print() string {
	if len(t.list) == 0 {
		return ""
	}
	text, err := ojson.String(t.list, ojson.Compact)
	if err != nil {
		text = err.Error()
	}
	sum := sha1.Sum([]byte(text))
	return fmt.Sprintf("%d tools %s", len(t.list), hex.EncodeToString(sum[:4]))
}

func validToolName(name string) bool {
	return len(name) >= 1 && len(name) <= 128 && strings.IndexFunc(name, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '-')
	}) < 0
}

// chatTools reads the tools of a Chat Completions request.
func (f *fields) chatTools() *toolUse {
	t := &toolUse{names: map[string]bool{}, choice: choiceAuto, parallel: f.bool("parallel_tool_calls", true)}
	if v := f.o.Value("tools"); v != nil {
		list, ok := v.([]any)
		if !ok {
			f.fault("tools must be an array")
			return t
		}
		for _, v := range list {
			f.chatTool(t, v)
		}
		t.list = list
	}
	f.chatChoice(t)
	return t
}

func (f *fields) chatTool(t *toolUse, v any) {
	tool, ok := v.(*ojson.Object)
	if !ok {
		f.fault("each tool must be an object")
		return
	}
	if kind := tool.Value("type"); kind != "function" {
		f.fault("only function tools are supported")
		return
	}
	function, ok := tool.Value("function").(*ojson.Object)
	if !ok {
		f.fault("a tool's function must be an object")
		return
	}
	f.offer(t, function, "parameters")
}

// offer adds a function, whose schema is under a key of its own in every interface.
func (f *fields) offer(t *toolUse, function *ojson.Object, schema string) {
	name, _ := function.Value("name").(string)
	switch {
	case !validToolName(name):
		f.fault("a tool's name must be 1 to 128 letters, digits, _ or -")
	case t.names[name]:
		f.fault("tool %s is offered twice", name)
	}
	t.names[name] = true
	if _, ok := function.Value("description").(string); !ok && function.Value("description") != nil {
		f.fault("tool %s: description must be a string", name)
	}
	tool := output.Tool{Name: name, Parameters: function.Value(schema)}
	switch tool.Parameters.(type) {
	case nil:
		tool.Parameters = &ojson.Object{}
	case bool, *ojson.Object:
	default:
		f.fault("tool %s: %s must be a JSON Schema: an object or a boolean", name, schema)
	}
	switch strict := function.Value("strict").(type) {
	case nil:
	case bool:
		tool.Strict = strict
	default:
		f.fault("tool %s: strict must be a boolean", name)
	}
	t.offered = append(t.offered, tool)
}

func (f *fields) chatChoice(t *toolUse) {
	switch v := f.o.Value("tool_choice").(type) {
	case nil:
	case string:
		switch v {
		case choiceAuto, choiceNone:
			t.choice = v
		case choiceRequired:
			t.choice = v
			if len(t.list) == 0 {
				f.fault("tool_choice required needs tools")
			}
		default:
			f.fault("invalid tool_choice")
		}
	case *ojson.Object:
		function, _ := v.Value("function").(*ojson.Object)
		name := ""
		if function != nil {
			name, _ = function.Value("name").(string)
		}
		if v.Value("type") != "function" || !t.names[name] {
			f.fault("invalid named tool_choice")
		}
		t.choice, t.named = choiceNamed, name
	default:
		f.fault("invalid tool_choice")
	}
}

// set is what a parser needs to know of the tools.
func (t *toolUse) set() *chat.ToolSet {
	if len(t.list) == 0 {
		return nil
	}
	return chat.NewToolSet(t.list)
}
