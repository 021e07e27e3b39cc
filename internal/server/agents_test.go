package server

import "testing"

// TestAgentRequests is case 40: what coding agents send beside what is read here does not refuse their requests.
func TestAgentRequests(t *testing.T) {
	f := serve(t, Options{})
	const draft7 = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","title":"T","description":"d","properties":{"path":{"type":"string","format":"uri",
		"examples":["a"],"default":"b","deprecated":true},"depth":{"type":"integer","minimum":0,"exclusiveMaximum":99,"nullable":true},"mode":{"enum":["a","b",null]},"edits":{"type":"array",
		"items":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"additionalProperties":false},"minItems":1},"x":{}},
		"required":["path"],"propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":false,"x-order":1}`
	for name, c := range map[string]check{
		"Claude Code": {path: msgs + "?beta=true", header: header("anthropic-beta", "claude-code-20250219,interleaved-thinking-2025-05-14,future-2099-01-01", "anthropic-version", "2023-06-01",
			"anthropic-dangerous-direct-browser-access", "true", "x-app", "cli", "x-stainless-retry-count", "0"),
			body: `{"model":"test/model","max_tokens":32000,"temperature":1,"stream":true,"metadata":{"user_id":"u"},"service_tier":"auto","container":null,"mcp_servers":[],"speed":"fast",
			"thinking":{"type":"adaptive","budget_tokens":31999},"output_config":{"effort":"xhigh","format":null},"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]},
			"system":[{"type":"text","text":"x-anthropic-billing-header: v=1;"},{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
			"tools":[{"name":"Read","description":"Reads.","input_schema":` + draft7 + `,"cache_control":{"type":"ephemeral"},"eager_input_streaming":true,"defer_loading":false,"strict":null},
			{"type":"custom","name":"Bash","input_schema":{"type":"object"},"input_examples":[{"a":1}],"allowed_callers":["direct"]}],
			"messages":[{"role":"user","content":[{"type":"text","text":"<system-reminder>x</system-reminder>"},{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},{"type":"redacted_thinking","data":"x"},{"type":"tool_use","id":"t","name":"Read","input":{"path":"a"},"caller":{"type":"direct"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"b","citations":null}],"is_error":false,"cache_control":{"type":"ephemeral"}}]}]}`},
		"OpenCode": {path: cc, body: `{"model":"test/model","max_tokens":1000,"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false},"reasoning_effort":"medium","store":false,
			"prompt_cache_key":"k","verbosity":"low","user":"u","safety_identifier":"s","metadata":{"a":"b"},"service_tier":"auto","logprobs":false,"top_logprobs":null,"modalities":["text"],
			"parallel_tool_calls":true,"tool_choice":"auto","tools":[{"type":"function","function":{"name":"read","description":"d","strict":false,"parameters":` + draft7 + `}}],
			"messages":[{"role":"system","content":"You are an agent."},{"role":"user","content":[{"type":"text","text":"hi"}]},
			{"role":"assistant","content":"","reasoning_content":"hm","refusal":null,"annotations":[],"audio":null,"function_call":null,"tool_calls":[{"id":"c","type":"function","index":0,"function":{"name":"read","arguments":"{\"path\":\"a\"}"}}]},
			{"role":"tool","tool_call_id":"c","name":"read","content":[{"type":"text","text":"b"}]}]}`},
		"Hermes": {path: cc, body: `{"model":"test/model","stream":false,"provider":{"order":[]},"transforms":[],"extra_body":{"a":1},"reasoning":{"enabled":true,"effort":"high"},"include_reasoning":true,
			"tool_choice":"auto","tools":[{"type":"function","function":{"name":"terminal","parameters":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}},"cache_control":{"type":"ephemeral"}}],
			"messages":[{"role":"system","content":[{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"hi","name":"n","timestamp":1},
			{"role":"assistant","content":null,"finish_reason":"tool_calls","reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}],"tool_calls":[{"id":"c","call_id":"c","response_item_id":"r","type":"function","function":{"name":"terminal","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":""}]}`},
		"Codex": {path: "/v1/responses", body: `{"model":"test/model","instructions":"You are an agent.","stream":true,"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","service_tier":null,
			"parallel_tool_calls":false,"tool_choice":"auto","reasoning":{"effort":"medium","summary":"auto"},"text":{"verbosity":"low"},"client_metadata":{"a":"b"},
			"tools":[{"type":"function","name":"shell","description":"d","strict":false,"parameters":` + draft7 + `},{"type":"web_search","external_web_access":true},{"type":"custom","name":"apply_patch","format":{"type":"grammar"}}],
			"input":[{"type":"message","role":"developer","content":[{"type":"input_text","text":"x"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
			{"type":"reasoning","id":"rs_1","summary":[],"content":null,"encrypted_content":"x"},{"type":"function_call","id":"fc_1","call_id":"c","name":"shell","arguments":"{}","status":"completed"},
			{"type":"function_call_output","call_id":"c","output":[{"type":"output_text","text":"ok"}]}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			g := *f
			g.T = t
			c.status, c.hasNot = 200, []string{`"error":{`, "response.failed"}
			c.run(&g)
		})
	}
}
