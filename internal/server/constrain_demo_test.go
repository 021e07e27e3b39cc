package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// keywords are schemas that together have every keyword that answers are held to, and those they are only validated by.
var keywords = []struct{ name, schema string }{
	{"types", `{"type":"object","properties":{"s":{"type":"string","maxLength":12},"i":{"type":"integer","minimum":0,"maximum":99},
		"n":{"type":"number","minimum":-1.5,"exclusiveMaximum":2.5},"b":{"type":"boolean"},"z":{"type":"null"},
		"a":{"type":"array","items":{"type":"boolean"},"maxItems":3},"m":{"type":["integer","null"],"minimum":1,"maximum":9}},
		"required":["s","i","n","b","z","a","m"],"additionalProperties":false}`},
	{"enum, const", `{"type":"object","properties":{"color":{"enum":["red","green","blue",null,3]},"kind":{"const":{"a":[1,"x"]}}},"required":["color","kind"],"additionalProperties":false}`},
	{"anyOf, oneOf", `{"anyOf":[{"type":"object","properties":{"ok":{"const":true}},"required":["ok"],"additionalProperties":false},
		{"type":"object","properties":{"error":{"oneOf":[{"type":"integer","minimum":400,"maximum":599},{"type":"boolean"}]}},"required":["error"],"additionalProperties":false}]}`},
	{"allOf", `{"allOf":[{"type":"object","properties":{"a":{"type":"integer","minimum":3}}},{"properties":{"a":{"maximum":5},"b":{"type":"boolean"}},"required":["a","b"]}],
		"unevaluatedProperties":false}`},
	{"$ref and recursion", `{"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer","minimum":0,"maximum":9},
		"next":{"anyOf":[{"$ref":"#/$defs/leaf"},{"$ref":"#/$defs/tree"}]}},"required":["v","next"],"additionalProperties":false},
		"leaf":{"type":"null"}},"$ref":"#/$defs/tree"}`},
	{"items, prefixItems", `{"type":"array","prefixItems":[{"const":"first"},{"type":"boolean"}],"items":{"type":"integer","minimum":0,"maximum":9},"minItems":3,"maxItems":5}`},
	{"minItems, maxItems", `{"type":"array","items":{"enum":["a","b"]},"minItems":3,"maxItems":4}`},
	{"numbers", `{"type":"array","prefixItems":[{"type":"integer","exclusiveMinimum":10,"maximum":12},{"type":"number","minimum":0.25,"maximum":0.5},
		{"type":"integer","multipleOf":7,"minimum":1,"maximum":30},{"type":"number","multipleOf":0.5,"minimum":1,"maximum":2}],"items":false,"minItems":4}`},
	{"strings", `{"type":"object","properties":{"code":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{3}$"},"short":{"type":"string","minLength":3,"maxLength":5},
		"date":{"type":"string","format":"date"},"id":{"type":"string","format":"uuid"},"word":{"type":"string","pattern":"^(yes|no|maybe)$"}},
		"required":["code","short","date","id","word"],"additionalProperties":false}`},
	{"properties of other names", `{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"patternProperties":{"^x[0-9]$":{"type":"integer","minimum":0,"maximum":9}},
		"additionalProperties":{"enum":[1,2]},"maxProperties":4}`},
	{"validated only", `{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer","minimum":1,"maximum":1},"uniqueItems":true,"contains":{"const":1},"minItems":1,"maxItems":1},
		"b":{"not":{"type":"string"},"enum":[1,2]},"c":{"type":"integer","minimum":600,"maximum":600,"multipleOf":200},"d":{"type":"string","pattern":"^\\byes\\b$","maxLength":3,"enum":["yes"]}},
		"required":["a","b","c","d"],"propertyNames":{"maxLength":1},"dependentRequired":{"a":["b"]},"dependentSchemas":{"a":{"required":["c"]}},
		"if":{"required":["a"]},"then":{"required":["d"]},"else":{"required":["e"]},"unevaluatedProperties":false,"additionalProperties":false}`},
	{"draft 7", `{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{"type":"integer","minimum":1,"maximum":2}},"type":"array",
		"items":[{"$ref":"#/definitions/x"}],"additionalItems":{"type":"boolean"},"minItems":2,"maxItems":3}`},
}

// TestDemoSchemas is row 122: whatever the schema, the answer parses and is valid under it. The model knows no JSON, and may
// write blanks and names to the limit; then it is asked again.
func TestDemoSchemas(t *testing.T) {
	url, e := demoOn(t, "auto", 2)
	for i, k := range keywords {
		body := object{
			"messages": user("Write JSON."), "max_tokens": 600, "temperature": 0.6, "frequency_penalty": 0.3,
			"response_format": object{"type": "json_schema", "json_schema": object{"name": "x", "schema": json.RawMessage(k.schema)}},
		}
		if i%3 > 0 {
			body["reasoning_effort"] = "none"
		}
		var content, finish string
		for seed := 0; seed < 8 && finish != "stop"; seed++ {
			body["seed"] = seed
			if i%2 == 0 {
				c := ask(t, url, body)
				content, finish = c.Choices[0].Message.Content, c.Choices[0].Finish
			} else {
				content, _, finish = askStream(t, url, body)
			}
		}
		if finish != "stop" {
			t.Errorf("row 122: %s: ends by %s: %s", k.name, finish, content)
			continue
		}
		if err := valid(k.schema, content); err != nil {
			t.Errorf("row 122: %s: %v: %s", k.name, err, content)
		}
		t.Logf("%s: %s", k.name, content)
	}
	if n := e.Speculation(); n.Counts.Accepted == 0 {
		t.Error("no proposal of the draft was accepted")
	} else {
		t.Logf("%.2f tokens a cycle", n.Counts.TokensPerCycle())
	}
}

// valid holds JSON to a schema by package jsonschema.
func valid(schema, text string) error {
	s, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", s); err != nil {
		return err
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return compiled.Validate(v)
}

// TestDemoToolChoices: the model is made to call tools, and to keep to what they take.
func TestDemoToolChoices(t *testing.T) {
	url, _ := demoOn(t, "auto", 2)
	const parameters = `{"type":"object","properties":{"level":{"type":"integer","minimum":1,"maximum":5},"mode":{"enum":["slow","fast"]}},"required":["level","mode"]}`
	tool := func(name string, strict bool) object {
		return object{"type": "function", "function": object{"name": name, "strict": strict, "parameters": json.RawMessage(parameters)}}
	}
	for i, fields := range []object{
		{"tool_choice": "required", "tools": []object{tool("set_fan", true)}},
		{"tool_choice": "required", "tools": []object{tool("set_fan", true), tool("set_lamp", true)}, "parallel_tool_calls": false},
		{"tool_choice": object{"type": "function", "function": object{"name": "set_lamp"}}, "tools": []object{tool("set_fan", true), tool("set_lamp", true)}},
	} {
		for _, effort := range []string{"none", "low"} {
			body := object{"messages": user("What is the capital of France?"), "temperature": 0, "max_tokens": 200, "reasoning_effort": effort}
			for k, v := range fields {
				body[k] = v
			}
			c := ask(t, url, body)
			m := c.Choices[0].Message
			if len(m.Calls) == 0 || c.Choices[0].Finish != "tool_calls" && c.Choices[0].Finish != "length" || i > 0 && len(m.Calls) > 1 {
				t.Errorf("%v with %s: %+v", fields["tool_choice"], effort, c)
				continue
			}
			call := m.Calls[0].Function
			if i == 2 && call.Name != "set_lamp" {
				t.Errorf("another tool is called: %s", call.Name)
			}
			if err := valid(parameters, call.Arguments); err != nil {
				t.Errorf("%v: %s", err, call.Arguments)
			}
			if effort == "low" && m.Reasoning == "" {
				t.Errorf("no reasoning before the call: %+v", m)
			}
			t.Logf("%s %s", call.Name, call.Arguments)
		}
	}
}
