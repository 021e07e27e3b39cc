package server

import (
	"strings"
	"testing"
)

// TestFieldsOfAgents: a request was once refused whole for a field that asks nothing of the server. What agents send beside
// what is read is ignored: marks of caching on every kind of block, names of betas, schemas' rarer keywords.
func TestFieldsOfAgents(t *testing.T) {
	f := serve(t, Options{})
	const mark = `"cache_control":{"type":"ephemeral","ttl":"1h"}`
	c := check{path: msgs, header: header("anthropic-beta", "made-up-2099-01-01,other", "anthropic-version", "2099-01-01"), status: 200,
		has: []string{`"text":"answer"`},
		body: `{"model":"test/model","max_tokens":16,"metadata":{"user_id":"u"},"service_tier":"auto","container":null,
			"system":[{"type":"text","text":"s",` + mark + `}],
			"tools":[{"name":"t","input_schema":{"type":"object","properties":{"a":{"type":"string"}},"propertyNames":{"pattern":"^[a-z]+$"}},` +
			mark + `,"eager_input_streaming":true}],
			"messages":[{"role":"user","content":[{"type":"text","text":"x",` + mark + `}]},
			{"role":"assistant","content":[{"type":"text","text":"y",` + mark + `},{"type":"tool_use","id":"i","name":"t","input":{},` + mark + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"i","content":[{"type":"text","text":"z",` + mark + `}],` + mark + `}]}]}`}
	c.run(f)
	c = check{path: msgs + "/count_tokens", status: 200, has: []string{`"input_tokens":`},
		body: strings.Replace(c.body, `"max_tokens":16,`, "", 1)}
	c.run(f)
	c = check{path: cc, status: 200, has: []string{`"content":"answer"`}, body: `{"messages":[{"role":"user","content":[{"type":"text","text":"x",` + mark + `}]}],
		"user":"u","store":false,"metadata":{"a":"b"},"service_tier":"auto","prompt_cache_key":"k","verbosity":"low","safety_identifier":"s",
		"tools":[{"type":"function","function":{"name":"t","parameters":{"type":"object","propertyNames":{"maxLength":9}}},` + mark + `}]}`}
	c.run(f)
}
