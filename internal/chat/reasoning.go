package chat

import (
	"slices"

	"splash/internal/chat/ojson"
)

// Efforts are the values of reasoning_effort.
var Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// ValidEffort reports whether s is a reasoning effort.
func ValidEffort(s string) bool { return slices.Contains(Efforts, s) }

// reserved are the variables that chat_template_kwargs cannot set.
var reserved = []string{
	"add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "messages",
	"return_dict", "tokenize", "tools",
}

// CheckKwargs checks a request's chat_template_kwargs. Nil is none. Errors are *RequestError.
func CheckKwargs(kwargs *ojson.Object) error {
	if kwargs == nil {
		return nil
	}
	for name, v := range kwargs.All() {
		if slices.Contains(reserved, name) {
			return requestErrorf("chat_template_kwargs cannot set %s", name)
		}
		if _, ok := v.(bool); name == "enable_thinking" && v != nil && !ok {
			return requestErrorf("chat_template_kwargs enable_thinking must be a boolean")
		}
	}
	return nil
}

// Variables are what a request sets for its template beside the conversation.
type Variables struct {
	Effort           string        // a reasoning effort; empty sets none
	PreserveThinking *bool         // nil sets none
	Kwargs           *ojson.Object // chat_template_kwargs, which outrank the effort; nil is none
}

// values returns the variables as the template gets them. An effort reaches it twice, as enable_thinking and as
// reasoning_effort, because templates switch on either. The request's own enable_thinking decides both: false is effort
// none, and true drops an effort of none, so that the template's default applies.
func (v Variables) values() *ojson.Object {
	o := &ojson.Object{}
	thinking, hasThinking := false, v.Effort != ""
	effort := v.Effort
	if hasThinking {
		thinking = effort != "none"
	}
	if v.Kwargs != nil {
		if own, ok := v.Kwargs.Value("enable_thinking").(bool); ok {
			thinking, hasThinking = own, true
			if !own {
				effort = "none"
			} else if effort == "none" {
				effort = ""
			}
		}
	}
	if hasThinking {
		o.Set("enable_thinking", thinking)
	}
	if effort != "" {
		o.Set("reasoning_effort", effort)
	}
	if v.PreserveThinking != nil {
		o.Set("preserve_thinking", *v.PreserveThinking)
	}
	if v.Kwargs != nil {
		for name, x := range v.Kwargs.All() {
			if name != "enable_thinking" {
				o.Set(name, x)
			}
		}
	}
	return o
}

// fallback returns the variables to try where a template raises for those of v, in the form vars: an effort near the
// one it does not know. Thinking off is enough said by enable_thinking, unless the request itself set effort none.
func (v Variables) fallback(vars *ojson.Object) (*ojson.Object, bool) {
	effort, _ := vars.Value("reasoning_effort").(string)
	out := &ojson.Object{}
	for name, x := range vars.All() {
		if name == "reasoning_effort" {
			switch effort {
			case "high", "max":
				x = "xhigh"
			case "minimal":
				x = "low"
			case "none":
				if vars.Value("enable_thinking") != false || v.Kwargs != nil && v.Kwargs.Value(name) == "none" {
					return nil, false
				}
				continue
			default:
				return nil, false
			}
		}
		out.Set(name, x)
	}
	return out, effort != ""
}
