package planner

import (
	"fmt"
	"strings"
	"testing"

	"splash/dequant"
)

const supported = "supported: Qwen3.8-27B, Qwen3.6-35B-A3B, Qwen3.5-122B-A10B, Qwen3.8-Flash-Next, Flint, Qwen3.5-0.8B, " +
	"Qwen3.5-2B, Qwen3.5-4B, Qwen3.5-9B"

// TestGGUFRefused changes one thing each of a GGUF that plans, and holds the refusal to its whole message.
func TestGGUFRefused(t *testing.T) {
	const dense, routed, hyper, flint, open = "tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint", "Flint"
	const mismatch = "GGUF metadata does not match the target: "
	const cannot = "GGUF tensors this build cannot load: "
	set := func(key string, value any) func(*fakeGGUF) { return func(g *fakeGGUF) { g.set(key, value) } }
	unset := func(key string) func(*fakeGGUF) { return func(g *fakeGGUF) { g.unset(key) } }
	retype := func(suffix string, kind dequant.Type) func(*fakeGGUF) {
		return func(g *fakeGGUF) { g.retype(suffix, kind) }
	}
	drop := func(names ...string) func(*fakeGGUF) { return func(g *fakeGGUF) { g.drop(names...) } }
	reshape := func(name string, dims ...uint64) func(*fakeGGUF) {
		return func(g *fakeGGUF) { g.tensor(name).dims = dims }
	}
	for _, test := range []struct {
		name, family string
		change       func(*fakeGGUF)
		want         string
	}{
		// What the header says of the model.
		{"no architecture", dense, unset("general.architecture"), "missing or invalid GGUF metadata: general.architecture"},
		{"a number for the architecture", dense, set("general.architecture", uint32(3)),
			"missing or invalid GGUF metadata: general.architecture"},
		{"another architecture", dense, set("general.architecture", "llama"), "unsupported GGUF model architecture: llama"},
		{"a hostile architecture", dense, set("general.architecture", "a\nb"),
			`unsupported GGUF model architecture: "a\nb"`},
		{"no layers stated", dense, unset("qwen35.block_count"), "missing or invalid GGUF metadata: qwen35.block_count"},
		{"no layers", dense, set("qwen35.block_count", uint32(0)), "GGUF metadata must be positive: qwen35.block_count"},
		{"negative layers", dense, set("qwen35.block_count", int32(-1)),
			"GGUF metadata must be positive: qwen35.block_count"},
		{"a float for the width", dense, set("qwen35.embedding_length", float32(256)),
			"missing or invalid GGUF metadata: qwen35.embedding_length"},
		{"a text for the context", dense, set("qwen35.context_length", "4096"),
			"missing or invalid GGUF metadata: qwen35.context_length"},
		{"heads by layer", dense, set("qwen35.attention.head_count", []int32{2, 2, 2, 2}),
			"missing or invalid GGUF metadata: qwen35.attention.head_count"},
		{"a width of 2^63", dense, set("qwen35.embedding_length", uint64(1<<63)),
			"missing or invalid GGUF metadata: qwen35.embedding_length"},
		{"no KV heads", dense, unset("qwen35.attention.head_count_kv"),
			"missing or invalid GGUF metadata: qwen35.attention.head_count_kv"},
		{"no key length", dense, unset("qwen35.attention.key_length"),
			"missing or invalid GGUF metadata: qwen35.attention.key_length"},
		{"no vocabulary", dense, unset("tokenizer.ggml.tokens"), "missing or invalid GGUF metadata: tokenizer.ggml.tokens"},
		{"an empty vocabulary", dense, set("tokenizer.ggml.tokens", []string{}),
			"GGUF metadata must be positive: tokenizer.ggml.tokens"},
		{"a vocabulary of numbers", dense, set("tokenizer.ggml.tokens", make([]uint8, 2048)),
			"missing or invalid GGUF metadata: tokenizer.ggml.tokens"},
		{"every layer predicts", routed, set("qwen35moe.nextn_predict_layers", uint32(4)),
			"invalid GGUF MTP layer count: qwen35moe.nextn_predict_layers 4, of qwen35moe.block_count 4"},
		{"more layers predict than there are", routed, func(g *fakeGGUF) {
			g.set("qwen35moe.block_count", uint32(5))
			g.set("qwen35moe.nextn_predict_layers", uint32(5))
		}, "invalid GGUF MTP layer count: qwen35moe.nextn_predict_layers 5, of qwen35moe.block_count 5"},
		{"less than none predict", dense, set("qwen35.nextn_predict_layers", int32(-1)),
			"invalid GGUF MTP layer count: qwen35.nextn_predict_layers -1, of qwen35.block_count 4"},
		{"a text of predicting layers", dense, set("qwen35.nextn_predict_layers", "1"),
			"invalid GGUF MTP layer count: qwen35.nextn_predict_layers 1, of qwen35.block_count 4"},

		// Identification.
		{"another width", "Qwen3.8-27B", set("qwen35.embedding_length", uint32(4096)),
			"no supported model has this architecture (text config hidden_size: GGUF 4096, Qwen3.8-27B 5120); " + supported},
		{"another depth", "Qwen3.6-35B-A3B", set("qwen35moe.block_count", uint32(41)),
			"no supported model has this architecture (text config num_hidden_layers: GGUF 41, Qwen3.6-35B-A3B 40); " + supported},
		{"another vocabulary", "Qwen3.5-122B-A10B", set("tokenizer.ggml.tokens", make([]string, 7)),
			"no supported model has this architecture (text config vocab_size: GGUF 7, Qwen3.5-122B-A10B 248320); " + supported},
		{"another context", "Qwen3.8-Flash-Next", set("qwen4exp.context_length", uint32(4096)),
			"no supported model has this architecture (text config max_position_embeddings: GGUF 4096, Qwen3.8-Flash-Next 262144); " + supported},
		{"other heads", "Qwen3.5-9B", set("qwen35.attention.head_count", uint32(32)),
			"no supported model has this architecture (text config num_attention_heads: GGUF 32, Qwen3.5-9B 16); " + supported},
		{"other KV heads", "Qwen3.5-4B", set("qwen35.attention.head_count_kv", uint32(8)),
			"no supported model has this architecture (text config num_key_value_heads: GGUF 8, Qwen3.5-4B 4); " + supported},
		{"another head dimension", "Qwen3.5-0.8B", set("qwen35.attention.key_length", uint32(128)),
			"no supported model has this architecture (text config head_dim: GGUF 128, Qwen3.5-0.8B 256); " + supported},
		{"a size of no family", dense, set("qwen35.embedding_length", uint32(264)),
			"no supported model has this architecture (text config hidden_size: GGUF 264, Qwen3.8-27B 5120); " + supported},

		// Metadata.
		{"value length", dense, set("qwen35.attention.value_length", uint32(128)),
			mismatch + "attention.value_length 128 (expected 256)"},
		{"value length missing", dense, unset("qwen35.attention.value_length"),
			mismatch + "attention.value_length missing (expected 256)"},
		{"value length as a float", dense, set("qwen35.attention.value_length", float32(256)),
			mismatch + "attention.value_length missing (expected 256)"},
		{"rotated dimensions", dense, set("qwen35.rope.dimension_count", uint32(128)),
			mismatch + "rope.dimension_count 128 (expected 64)"},
		{"rotary base", dense, set("qwen35.rope.freq_base", float32(1e6)),
			mismatch + "rope.freq_base 1000000 (expected 10000000)"},
		{"rotary base as an integer", dense, set("qwen35.rope.freq_base", uint32(1e7)),
			mismatch + "rope.freq_base missing (expected 10000000)"},
		{"epsilon", dense, set("qwen35.attention.layer_norm_rms_epsilon", float32(1e-5)),
			mismatch + "attention.layer_norm_rms_epsilon 1e-05 (expected 1e-06)"},
		{"scaled rotation", dense, set("qwen35.rope.scaling.type", "yarn"),
			mismatch + "rope.scaling.type yarn (expected none)"},
		{"a number of a scaling", dense, set("qwen35.rope.scaling.type", uint32(2)),
			mismatch + "rope.scaling.type 2 (expected none)"},
		{"interval", dense, set("qwen35.full_attention_interval", uint32(2)),
			mismatch + "full_attention_interval 2 (expected 4)"},
		{"convolution", dense, set("qwen35.ssm.conv_kernel", uint32(3)), mismatch + "ssm.conv_kernel 3 (expected 4)"},
		{"key heads", dense, set("qwen35.ssm.group_count", uint32(4)), mismatch + "ssm.group_count 4 (expected 2)"},
		{"value heads", dense, set("qwen35.ssm.time_step_rank", uint32(2)), mismatch + "ssm.time_step_rank 2 (expected 4)"},
		{"state size", dense, set("qwen35.ssm.state_size", uint32(64)), mismatch + "ssm.state_size 64 (expected 128)"},
		{"inner size", dense, set("qwen35.ssm.inner_size", uint32(256)), mismatch + "ssm.inner_size 256 (expected 512)"},
		{"FFN width", dense, set("qwen35.feed_forward_length", uint32(1024)),
			mismatch + "feed_forward_length 1024 (expected 512)"},
		{"FFN width by layer", dense, set("qwen35.feed_forward_length", []int32{512, 512, 512, 512}),
			mismatch + "feed_forward_length missing (expected 512)"},
		{"sections", dense, set("qwen35.rope.dimension_sections", []int32{16, 24, 24, 0}),
			mismatch + "rope.dimension_sections"},
		{"three sections", dense, set("qwen35.rope.dimension_sections", []int32{11, 11, 10}),
			mismatch + "rope.dimension_sections"},
		{"recurrent layers", dense, set("qwen35.attention.recurrent_layers", []bool{true, true, false, true}),
			mismatch + "attention.recurrent_layers"},
		{"too few recurrent layers", dense, set("qwen35.attention.recurrent_layers", []bool{true, true, true}),
			mismatch + "attention.recurrent_layers"},
		{"experts a token", routed, set("qwen35moe.expert_used_count", uint32(2)),
			mismatch + "expert_used_count 2 (expected 4)"},
		{"expert width", routed, set("qwen35moe.expert_feed_forward_length", uint32(128)),
			mismatch + "expert_feed_forward_length 128 (expected 256)"},
		{"shared width", routed, set("qwen35moe.expert_shared_feed_forward_length", uint32(128)),
			mismatch + "expert_shared_feed_forward_length 128 (expected 256)"},
		{"more experts", routed, set("qwen35moe.expert_count", uint32(24)), mismatch + "expert_count 24 (expected 16)"},
		{"fewer experts than a token takes", routed, set("qwen35moe.expert_count", uint32(3)),
			mismatch + "expert_count 3 (expected 16)"},
		{"half a tile of experts", routed, set("qwen35moe.expert_count", uint32(12)),
			mismatch + "expert_count 12 (expected a multiple of 8 up to 16)"},
		{"100 experts", "Qwen3.6-35B-A3B", set("qwen35moe.expert_count", uint32(100)),
			mismatch + "expert_count 100 (expected a multiple of 8 up to 256)"},
		{"no experts stated", routed, unset("qwen35moe.expert_count"), mismatch + "expert_count missing (expected 16)"},
		{"several at once", routed, func(g *fakeGGUF) {
			g.set("qwen35moe.rope.freq_base", float32(10000))
			g.unset("qwen35moe.ssm.state_size")
			g.set("qwen35moe.expert_used_count", uint32(8))
			g.set("qwen35moe.rope.dimension_sections", []int32{0})
		}, mismatch + "rope.freq_base 10000 (expected 10000000), ssm.state_size missing (expected 128), " +
			"expert_used_count 8 (expected 4), rope.dimension_sections"},
		{"streams", hyper, set("qwen4exp.hyper_connection.count", uint32(2)),
			mismatch + "hyper_connection.count 2 (expected 4)"},
		{"rank", hyper, set("qwen4exp.hyper_connection.low_rank", uint32(320)),
			mismatch + "hyper_connection.low_rank 320 (expected 64)"},
		{"indexer heads", hyper, set("qwen4exp.attention.indexer.head_count", uint32(8)),
			mismatch + "attention.indexer.head_count 8 (expected 4)"},
		{"indexer width", hyper, set("qwen4exp.attention.indexer.key_length", uint32(64)),
			mismatch + "attention.indexer.key_length 64 (expected 128)"},
		{"indexer budget", hyper, set("qwen4exp.attention.indexer.top_k", uint32(2048)),
			mismatch + "attention.indexer.top_k 2048 (expected 16)"},
		{"n-grams", hyper, set("qwen4exp.ple.ngram_size", uint32(2)), mismatch + "ple.ngram_size 2 (expected 3)"},
		{"n-gram heads", hyper, set("qwen4exp.ple.heads_per_ngram", uint32(8)),
			mismatch + "ple.heads_per_ngram 8 (expected 4)"},
		{"n-gram convolution", hyper, set("qwen4exp.ple.conv_kernel", uint32(3)),
			mismatch + "ple.conv_kernel 3 (expected 4)"},
		{"n-gram width", hyper, set("qwen4exp.embedding_length_per_layer_input", uint32(160)),
			mismatch + "embedding_length_per_layer_input 160 (expected 32)"},
		{"compression", hyper, set("qwen4exp.attention.compress_ratios", []int32{0, 0, 0, 8}),
			mismatch + "attention.compress_ratios"},
		{"too few ratios", hyper, set("qwen4exp.attention.compress_ratios", []int32{0, 0, 0}),
			mismatch + "attention.compress_ratios"},
		{"n-grams before another layer", hyper, set("qwen4exp.ple.layers", []int32{2}), mismatch + "ple.layers"},
		{"n-grams before two layers", hyper, set("qwen4exp.ple.layers", []int32{1, 2}), mismatch + "ple.layers"},

		// The hashed n-grams.
		{"no multipliers", hyper, unset("qwen4exp.ple.layer_multipliers"),
			"GGUF PLE metadata is missing: ple.layer_multipliers"},
		{"no offsets", hyper, unset("qwen4exp.ple.head_offsets"), "GGUF PLE metadata is missing: ple.head_offsets"},
		{"no head sizes", hyper, unset("qwen4exp.ple.head_vocab_sizes"),
			"GGUF PLE metadata is missing: ple.head_vocab_sizes"},
		{"two multipliers", hyper, set("qwen4exp.ple.layer_multipliers", []uint64{1, 2}),
			"GGUF PLE metadata holds an invalid value: ple.layer_multipliers has 2 entries, at least 3"},
		{"a multiplier that overflows", hyper, set("qwen4exp.ple.layer_multipliers", []uint64{1, 1 << 53, 2}),
			"GGUF PLE metadata holds an invalid value: ple.layer_multipliers 1 is 9007199254740992, at most 4503599627370495"},
		{"a head of no rows", hyper, set("qwen4exp.ple.head_vocab_sizes", []uint64{503, 509, 521, 0, 541, 547, 557, 563}),
			"GGUF PLE metadata holds an invalid value: ple.head_vocab_sizes 3 is 0"},
		{"a head past the table", hyper, set("qwen4exp.ple.head_vocab_sizes", []uint64{503, 509, 521, 523, 541, 547, 557, 652}),
			"a PLE head's rows lie outside per_layer_token_embd: head 7 has 652 rows (ple.head_vocab_sizes) from 3701 (ple.head_offsets) of 4352"},
		{"an offset of 2^64 - 1", hyper, set("qwen4exp.ple.head_offsets", []uint64{1<<64 - 1, 0, 0, 0, 0, 0, 0, 0}),
			"a PLE head's rows lie outside per_layer_token_embd: head 0 has 503 rows (ple.head_vocab_sizes) from 18446744073709551615 (ple.head_offsets) of 4352"},
		{"no end of text", hyper, unset("qwen4exp.ple.eos_token_id"), "GGUF PLE metadata is missing: ple.eos_token_id"},
		{"another end of text", hyper, set("qwen4exp.ple.eos_token_id", uint32(2002)),
			"GGUF PLE metadata holds an invalid value: ple.eos_token_id 2002, expected 2000"},
		{"another image token", hyper, set("qwen4exp.ple.image_token_id", uint32(1)),
			"GGUF PLE metadata holds an invalid value: ple.image_token_id 1, expected 2012"},

		// Flint, held to its family and to its structure.
		{"window", flint, set("flint.attention.sliding_window", uint32(8)),
			mismatch + "attention.sliding_window 8 (expected 16)"},
		{"dense layers", flint, set("flint.leading_dense_block_count", uint32(2)),
			mismatch + "leading_dense_block_count 2 (expected 1)"},
		{"softmax router", flint, set("flint.expert_gating_func", uint32(1)),
			mismatch + "expert_gating_func 1 (expected 2)"},
		{"weights as they are", flint, set("flint.expert_weights_norm", false),
			mismatch + "expert_weights_norm false (expected true)"},
		{"weights as they are, unsaid", flint, unset("flint.expert_weights_norm"),
			mismatch + "expert_weights_norm missing (expected true)"},
		{"scaled weights", flint, set("flint.expert_weights_scale", float32(2.5)),
			mismatch + "expert_weights_scale 2.5 (expected 1)"},
		{"other windows", flint, set("flint.attention.sliding_window_pattern", []bool{true, true, true, true, true, false}),
			mismatch + "attention.sliding_window_pattern"},
		{"no windows", flint, unset("flint.attention.sliding_window_pattern"),
			mismatch + "attention.sliding_window_pattern"},
		{"other rotations", flint, set("flint.attention.rope_pattern", []int32{1, 1, 1, 1, 1, 1}),
			mismatch + "attention.rope_pattern"},
		{"a rotation of 2", flint, set("flint.attention.rope_pattern", []int32{2, 1, 0, 1, 1, 0}),
			mismatch + "attention.rope_pattern"},
		{"other stop tokens", flint, set("tokenizer.ggml.eog_token_ids", []int32{2000, 2001}),
			"text config eos_token_id mismatch: GGUF [2000 2001], runtime [2000 2002]"},
		{"a selection bias", flint, func(g *fakeGGUF) { g.vector("blk.1.exp_probs_b.bias", 16) },
			"blk.1.exp_probs_b.bias is a selection bias; Flint's router has none"},
		{"one norm of two", flint, drop("blk.2.attn_k_norm.weight"), cannot + "attn_k_norm.weight (missing) in layer 2"},
		{"no sinks", flint, drop("blk.5.attn_sinks.weight"), cannot + "attn_sinks.weight (missing) in layer 5"},
		{"half-width sinks", flint, retype("attn_sinks.weight", dequant.F16),
			cannot + "attn_sinks.weight (F16) in 6 layers"},
		{"a Qwen norm", flint,
			func(g *fakeGGUF) { g.tensor("blk.0.ffn_norm.weight").name = "blk.0.post_attention_norm.weight" },
			cannot + "ffn_norm.weight (missing) in layer 0"},
		{"a token table in F32", open, retype("token_embd.weight", dequant.F32), cannot + "token_embd.weight (F32)"},
		{"a width of no blocks", open, set("flint.embedding_length", uint32(500)),
			mismatch + "embedding_length 500 (expected a multiple of 256)"},
		{"a width beyond reason", open, set("flint.embedding_length", uint32(1<<30)),
			mismatch + "embedding_length 1073741824 (expected a multiple of 256 up to 1048576)"},
		{"odd heads", open, set("flint.attention.head_count", uint32(7)),
			mismatch + "attention.head_count 7 (expected a multiple of 2 KV heads)"},
		{"a head of 96", open, set("flint.attention.key_length", uint32(96)),
			mismatch + "attention.key_length 96 (expected 64, 128 or 256)"},
		{"unequal heads", open, set("flint.attention.value_length", uint32(64)),
			mismatch + "attention.value_length 64 (expected 128)"},
		{"odd rotation", open, set("flint.rope.dimension_count", uint32(33)),
			mismatch + "rope.dimension_count 33 (expected a multiple of 2)"},
		{"wide rotation", open, set("flint.rope.dimension_count", uint32(256)),
			mismatch + "rope.dimension_count 256 (expected at most 128)"},
		{"no rotary base", open, unset("flint.rope.freq_base"),
			mismatch + "rope.freq_base missing (expected a positive number)"},
		{"a large epsilon", open, set("flint.attention.layer_norm_rms_epsilon", float32(0.5)),
			mismatch + "attention.layer_norm_rms_epsilon 0.5 (expected above 0 and at most 0.001)"},
		{"a short pattern", open, set("flint.attention.sliding_window_pattern", []bool{true}),
			mismatch + "attention.sliding_window_pattern an array of 1 (expected 8 bools)"},
		{"a window of none", open, set("flint.attention.sliding_window", uint32(0)),
			mismatch + "attention.sliding_window 0 (expected 1 to 2147483647)"},
		{"too many experts", open, set("flint.expert_count", uint32(1025)),
			mismatch + "expert_count 1025 (expected 1 to 1024)"},
		{"more taken than there are", open, set("flint.expert_used_count", uint32(25)),
			mismatch + "expert_used_count 25 (expected at most 24)"},
		{"an odd expert width", open, set("flint.expert_feed_forward_length", uint32(100)),
			mismatch + "expert_feed_forward_length 100 (expected a multiple of 64)"},
		{"every layer dense", open, set("flint.leading_dense_block_count", uint32(8)),
			mismatch + "leading_dense_block_count 8 (expected 0 to 7)"},
		{"another router", open, set("flint.expert_gating_func", uint32(3)),
			mismatch + "expert_gating_func 3 (expected 1 (softmax) or 2 (sigmoid))"},
		{"a thousand layers and more", open, set("flint.block_count", uint32(4096)),
			mismatch + "block_count 4096 (expected at most 1024)"},
		{"scaled rotation of Flint", open, set("flint.rope.scaling.type", "linear"),
			mismatch + "rope.scaling.type linear (expected none)"},
		{"no stop token", open, func(g *fakeGGUF) {
			tokens := append([]string(nil), g.get("tokenizer.ggml.tokens").([]string)...)
			tokens[150002] = ""
			g.set("tokenizer.ggml.tokens", tokens)
		}, "the GGUF's vocabulary has no token <|observation|>, and its header no tokenizer.ggml.eog_token_ids"},
		{"a stop token of text", open, func(g *fakeGGUF) {
			types := append([]int32(nil), g.get("tokenizer.ggml.token_type").([]int32)...)
			types[150003] = 1
			g.set("tokenizer.ggml.token_type", types)
		}, "the GGUF's stop token <|developer|> is not a control token"},
		{"an end of text apart", open, set("tokenizer.ggml.eos_token_id", uint32(5)),
			"the GGUF's tokenizer.ggml.eos_token_id 5 is none of its stop tokens [150000 150001 150002 150003]"},
		{"a stop token outside", open, set("tokenizer.ggml.eog_token_ids", []int32{151000}),
			"GGUF metadata tokenizer.ggml.eog_token_ids holds 151000, outside the vocabulary of 151000 tokens"},
		{"no stop tokens at all", open, set("tokenizer.ggml.eog_token_ids", []int32{}),
			"missing or invalid GGUF metadata: tokenizer.ggml.eog_token_ids"},

		// Tensors.
		{"a format of no weights", "Qwen3.6-35B-A3B", retype("ffn_gate_exps.weight", dequant.Q8_1),
			cannot + "ffn_gate_exps.weight (Q8_1) in 40 layers"},
		{"three faults", "Qwen3.6-35B-A3B", func(g *fakeGGUF) {
			g.retype("ffn_gate_exps.weight", dequant.Q8_1)
			g.drop("blk.3.attn_q.weight")
			g.retype("token_embd.weight", dequant.F32)
		}, cannot + "ffn_gate_exps.weight (Q8_1) in 40 layers, attn_q.weight (missing) in layer 3, token_embd.weight (F32)"},
		{"two causes of one name", dense, func(g *fakeGGUF) {
			g.drop("blk.0.ffn_up.weight", "blk.2.ffn_up.weight")
			g.tensor("blk.1.ffn_up.weight").kind = dequant.TQ2_0
		}, cannot + "ffn_up.weight (missing) in 2 layers, ffn_up.weight (TQ2_0) in layer 1"},
		{"an F16 router", routed, retype("ffn_gate_inp.weight", dequant.F16),
			cannot + "ffn_gate_inp.weight (F16) in 4 layers"},
		{"no head", dense, drop("output.weight"), cannot + "output.weight (missing)"},
		{"no last norm", dense, drop("output_norm.weight"), cannot + "output_norm.weight (missing)"},
		{"no last mix", hyper, drop("output_hc_up.weight"), cannot + "output_hc_up.weight (missing)"},
		{"no n-gram table", hyper, drop("per_layer_token_embd.weight"), cannot + "per_layer_token_embd.weight (missing)"},
		{"no indexer", hyper, drop("blk.3.indexer.k_proj.weight"), cannot + "indexer.k_proj.weight (missing) in layer 3"},
		{"a Q8_1 fused stack", routed, func(g *fakeGGUF) { fuse(g); g.retype("gate_up_exps.weight", dequant.Q8_1) },
			cannot + "ffn_gate_up_exps.weight (Q8_1) in layer 1"},
		{"a fused stack of one half", routed,
			func(g *fakeGGUF) { fuse(g); g.tensor("blk.1.ffn_gate_up_exps.weight").dims[1] = 256 },
			"unexpected shape for blk.1.ffn_gate_up_exps.weight: [16, 256, 256], expected [16, 512, 256]"},
		{"a wide query", dense, reshape("blk.3.attn_q.weight", 256, 512),
			"unexpected shape for blk.3.attn_q.weight: [512, 256], expected [1024, 256]"},
		{"transposed", dense, reshape("blk.0.ffn_down.weight", 256, 512),
			"unexpected shape for blk.0.ffn_down.weight: [512, 256], expected [256, 512]"},
		{"a norm of another width", dense, reshape("blk.0.attn_norm.weight", 128),
			"unexpected shape for blk.0.attn_norm.weight: [128], expected [256]"},
		{"a router of fewer experts", routed, reshape("blk.2.ffn_gate_inp.weight", 256, 8),
			"unexpected shape for blk.2.ffn_gate_inp.weight: [8, 256], expected [16, 256]"},
		{"experts fewer than stated", routed, reshape("blk.2.ffn_down_exps.weight", 256, 256, 8),
			"unexpected shape for blk.2.ffn_down_exps.weight: [8, 256, 256], expected [16, 256, 256]"},
		{"a table of fewer tokens", dense, reshape("token_embd.weight", 256, 2000),
			"unexpected shape for token_embd.weight: [2000, 256], expected [2048, 256]"},
		{"the stack stays while the count shrinks", routed, set("qwen35moe.expert_count", uint32(8)),
			"unexpected shape for blk.0.ffn_gate_inp.weight: [16, 256], expected [8, 256]"},
		{"NVFP4 where rows are no whole blocks", "Qwen3.8-Flash-Next", retype("blk.0.ffn_down_exps.weight", dequant.NVFP4),
			"blk.0.ffn_down_exps.weight's rows are not whole nvfp4 blocks of 256 elements"},
		{"the scale of a Q4_K", dense, func(g *fakeGGUF) { g.vector("blk.0.ffn_up.scale", 1) },
			"fake.gguf: blk.0.ffn_up.scale scales a Q4_K tensor; only NVFP4 weights take one"},
		{"the activations' scale of a Q4_K", dense, func(g *fakeGGUF) { g.vector("blk.0.ffn_up.input_scale", 1) },
			"fake.gguf: blk.0.ffn_up.input_scale scales a Q4_K tensor; only NVFP4 weights take one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := fakeTarget(family(t, test.family))
			test.change(g)
			refused(t, test.want, func() error { _, err := PlanGGUF(g.header(t)); return err })
		})
	}
}

// refused holds an error to its whole message, of one line.
func refused(t *testing.T, want string, f func() error) {
	t.Helper()
	err := f()
	if err == nil {
		t.Fatalf("accepted, want %q", want)
	}
	if got := err.Error(); got != want {
		t.Errorf("refused with\n\t%s\nwant\n\t%s", got, want)
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("the refusal %q has several lines", err)
	}
}

// rotated is the 27B as Prism ML publishes it (formats.md 6.3): 401 rotated weights of three widths.
func rotated() *fakeGGUF {
	g := fakeQwen(FamilyByName("Qwen3.8-27B").Layout)
	var names []string
	for i := range g.tensors {
		n := &g.tensors[i]
		switch {
		case strings.Contains(n.name, "ssm_alpha") || strings.Contains(n.name, "ssm_beta"):
			n.kind = dequant.BF16
		case n.kind == dequant.Q4_K:
			n.kind = dequant.PQ2_0
			if n.name != "token_embd.weight" {
				names = append(names, n.name)
			}
		}
	}
	signs := make([]int8, 28672)
	for i := range signs {
		signs[i] = int8(1 - 2*(i*i/7%2))
	}
	const p = "prism.hadamard."
	g.set(p+"version", uint32(1))
	g.set(p+"block_size", uint32(1024))
	g.set(p+"transform", "normalized-sylvester-walsh-hadamard")
	g.set(p+"axis", "input-last-dimension")
	g.set(p+"sign_mode", "explicit")
	g.set(p+"gdn_v_grouped", true)
	g.set(p+"weight_names", names)
	g.set(p+"inverse_weight_names", []string{"token_embd.weight"})
	g.set(p+"sign_widths", []int32{5120, 6144, 17408})
	g.set(p+"sign_values", signs)
	return g
}

func TestRotation(t *testing.T) {
	g := rotated()
	p, err := PlanGGUF(g.header(t))
	if err != nil {
		t.Fatal(err)
	}
	values := g.get("prism.hadamard.sign_values").([]int8)
	at := map[int]int{5120: 0, 6144: 5120, 17408: 11264}
	n := 0
	for i := range p.Tensors {
		tensor := &p.Tensors[i]
		if tensor.Signs == nil {
			continue
		}
		n++
		if len(tensor.Signs) != tensor.Cols || tensor.Signs[0] != values[at[tensor.Cols]] || tensor.Signs[7] != values[at[tensor.Cols]+7] {
			t.Errorf("%s has %d signs for %d columns, or another width's", tensor.Name, len(tensor.Signs), tensor.Cols)
		}
		if strings.Contains(tensor.Name, "ssm_out") && tensor.ColOrder != nil {
			t.Errorf("%s: grouped inputs have an order", tensor.Name)
		}
		if strings.Contains(tensor.Name, "attn_gate") && tensor.RowOrder == nil {
			t.Errorf("%s: tiled rows have no order", tensor.Name)
		}
	}
	if n != 402 {
		t.Errorf("%d rotated tensors, want 401 weights and the table", n)
	}
	if p.Tensor("blk.0.ssm_alpha.weight").Signs != nil || p.Tensor("blk.0.attn_norm.weight").Signs != nil {
		t.Error("a float segment or a norm is rotated")
	}

	// Alpha and beta of one quantized type are planes, and so must be named.
	g.retype("ssm_alpha.weight", dequant.PQ2_0)
	g.retype("ssm_beta.weight", dequant.PQ2_0)
	names := g.get("prism.hadamard.weight_names").([]string)
	for i := range 64 {
		if i%4 != 3 {
			names = append(names, fmt.Sprintf("blk.%d.ssm_alpha.weight", i), fmt.Sprintf("blk.%d.ssm_beta.weight", i))
		}
	}
	g.set("prism.hadamard.weight_names", names)
	if p, err = PlanGGUF(g.header(t)); err != nil {
		t.Fatal(err)
	}
	if p.Tensor("blk.0.ssm_alpha.weight").Signs == nil {
		t.Error("quantized alpha is not rotated")
	}
}

func TestRotationRefused(t *testing.T) {
	const key = "prism.hadamard."
	const not = "this rotation is not one the engine runs: "
	const exactly = "the rotation must name every quantized tensor of the target and nothing else: "
	set := func(name string, value any) func(*fakeGGUF) { return func(g *fakeGGUF) { g.set(key+name, value) } }
	unset := func(name string) func(*fakeGGUF) { return func(g *fakeGGUF) { g.unset(key + name) } }
	names := func(change func([]string) []string) func(*fakeGGUF) {
		return func(g *fakeGGUF) {
			g.set(key+"weight_names", change(append([]string(nil), g.get(key+"weight_names").([]string)...)))
		}
	}
	for _, test := range []struct {
		name   string
		change func(*fakeGGUF)
		want   string
	}{
		{"another key", set("scale", float32(1)), not + "unknown key prism.hadamard.scale"},
		{"another version", set("version", uint32(2)), not + "prism.hadamard.version 2 (expected 1)"},
		{"no version", unset("version"), not + "prism.hadamard.version missing (expected 1)"},
		{"another block", set("block_size", uint32(512)), not + "prism.hadamard.block_size 512 (expected 1024)"},
		{"another transform", set("transform", "dct"),
			not + "prism.hadamard.transform dct (expected normalized-sylvester-walsh-hadamard)"},
		{"another axis", set("axis", "rows"), not + "prism.hadamard.axis rows (expected input-last-dimension)"},
		{"another sign mode", set("sign_mode", "none"), not + "prism.hadamard.sign_mode none (expected explicit)"},
		{"a number of a mode", set("sign_mode", uint32(1)), not + "prism.hadamard.sign_mode missing (expected explicit)"},
		{"tiled heads", set("gdn_v_grouped", false),
			"rotated GDN inputs must keep their value heads grouped (prism.hadamard.gdn_v_grouped)"},
		{"heads of no order", unset("gdn_v_grouped"),
			"rotated GDN inputs must keep their value heads grouped (prism.hadamard.gdn_v_grouped)"},
		{"no widths", unset("sign_widths"), not + "prism.hadamard.sign_widths missing (expected integers)"},
		{"a width of 1000", set("sign_widths", []int32{5120, 6144, 1000}),
			not + "prism.hadamard.sign_widths holds 1000 (expected distinct multiples of 1024)"},
		{"a width twice", set("sign_widths", []int32{5120, 5120, 17408}),
			not + "prism.hadamard.sign_widths holds 5120 (expected distinct multiples of 1024)"},
		{"a negative width", set("sign_widths", []int32{-1024}),
			not + "prism.hadamard.sign_widths holds -1024 (expected distinct multiples of 1024)"},
		{"too few signs", set("sign_values", make1(1024)),
			not + "prism.hadamard.sign_values holds 1024 values, its widths need more"},
		{"too many signs", set("sign_values", make1(28673)),
			not + "prism.hadamard.sign_values holds 28673 values, its widths 28672"},
		{"signs of 32 bits", set("sign_values", []int32{1}),
			not + "prism.hadamard.sign_values missing (expected int8 values)"},
		{"a sign of 0", func(g *fakeGGUF) {
			signs := make1(28672)
			signs[9] = 0
			g.set(key+"sign_values", signs)
		}, not + "prism.hadamard.sign_values 9 is 0 (expected 1 or -1)"},
		{"no names", unset("weight_names"), not + "prism.hadamard.weight_names missing (expected names)"},
		{"a name twice", names(func(n []string) []string { return append(n, n[0]) }),
			not + "output.weight of prism.hadamard.weight_names is named twice"},
		{"a name of nothing", names(func(n []string) []string { return append(n, "blk.99.x") }),
			not + "blk.99.x of prism.hadamard.weight_names is missing"},
		{"a vector", names(func(n []string) []string { return append(n, "blk.0.attn_norm.weight") }),
			not + "blk.0.attn_norm.weight of prism.hadamard.weight_names is not a matrix"},
		{"a width without signs", func(g *fakeGGUF) {
			g.set(key+"sign_widths", []int32{5120, 6144})
			g.set(key+"sign_values", make1(11264))
		}, not + "blk.0.ffn_down.weight of prism.hadamard.weight_names has 17408 columns, which have no signs"},
		{"a tensor left out", names(func(n []string) []string { return n[:len(n)-1] }), exactly + "blk.63.ffn_down.weight"},
		{"the table among the weights", names(func(n []string) []string { return append(n, "token_embd.weight") }),
			exactly + "token_embd.weight"},
		{"floats named", names(func(n []string) []string { return append(n, "blk.0.ssm_beta.weight") }),
			exactly + "blk.0.ssm_beta.weight"},
		{"an ignored tensor named", func(g *fakeGGUF) {
			g.add("blk.64.extra.weight", dequant.PQ2_0, 5120, 64)
			names(func(n []string) []string { return append(n, "blk.64.extra.weight") })(g)
		}, exactly + "blk.64.extra.weight"},
		{"no table", set("inverse_weight_names", []string{}),
			"the rotation's one token table must be token_embd.weight in PQ2_0"},
		{"another table", set("inverse_weight_names", []string{"output.weight"}),
			"the rotation's one token table must be token_embd.weight in PQ2_0"},
		{"a table of another type", func(g *fakeGGUF) { g.retype("token_embd.weight", dequant.Q2_0) },
			"the rotation's one token table must be token_embd.weight in PQ2_0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := rotated()
			test.change(g)
			refused(t, test.want, func() error { _, err := PlanGGUF(g.header(t)); return err })
		})
	}
	t.Run("a MoE", func(t *testing.T) {
		g := fakeTarget(family(t, "tiny-qwen35moe"))
		for _, k := range rotated().keys {
			if strings.HasPrefix(k.name, key) {
				g.set(k.name, k.value)
			}
		}
		g.set(key+"weight_names", []string{})
		g.set(key+"inverse_weight_names", []string{})
		refused(t, "rotated weights are supported for dense targets only", func() error { _, err := PlanGGUF(g.header(t)); return err })
	})
}

func make1(n int) []int8 {
	signs := make([]int8, n)
	for i := range signs {
		signs[i] = 1
	}
	return signs
}

func TestRequireQuantized(t *testing.T) {
	g := &fakeGGUF{}
	g.add("a", dequant.BF16, 1024, 1024)
	g.add("b", dequant.Q4_K, 1024, 1024)
	if err := RequireQuantized(g.header(t)); err != nil {
		t.Errorf("as many quantized values as others: %v", err)
	}
	g.add("c", dequant.F32, 32)
	refused(t, "this GGUF holds most of its values unquantized (1.0 M of 2.1 M in BF16, F16 or F32); choose a quantized variant",
		func() error { return RequireQuantized(g.header(t)) })
	g.add("d", dequant.I8, 32) // no format of weights, but no float either
	if err := RequireQuantized(g.header(t)); err != nil {
		t.Errorf("as many other values as floats: %v", err)
	}
	whole := fakeTarget(family(t, "Qwen3.5-9B"))
	for i := range whole.tensors {
		if whole.tensors[i].kind == dequant.Q4_K && whole.tensors[i].name != "token_embd.weight" {
			whole.tensors[i].kind = dequant.BF16
		}
	}
	refused(t, "this GGUF holds most of its values unquantized (7.9 B of 9.0 B in BF16, F16 or F32); choose a quantized variant",
		func() error { return RequireQuantized(whole.header(t)) })
	small := &fakeGGUF{}
	small.add("a", dequant.F16, 512)
	refused(t, "this GGUF holds most of its values unquantized (512 of 512 in BF16, F16 or F32); choose a quantized variant",
		func() error { return RequireQuantized(small.header(t)) })
}

// TestConfigWithHeader plans a header with a configuration that another release derived, or that is another model's.
func TestConfigWithHeader(t *testing.T) {
	g := fakeTarget(family(t, "tiny-qwen35moe"))
	h := g.header(t)
	text := func() jsonObject { return fakeConfig(family(t, "tiny-qwen35moe")) }
	o := text()
	delete(at(o, "text_config"), "num_experts")
	if _, err := PlanGGUFConfig(encodeJSON(o), h); err != nil {
		t.Errorf("a configuration without its experts: %v", err)
	}
	for _, test := range []struct {
		name   string
		change func(o jsonObject)
		want   string
	}{
		{"another architecture", func(o jsonObject) { at(o, "text_config")["model_type"] = "qwen3_5_text" },
			"GGUF architecture is qwen35moe, but the model's target is qwen35"},
		{"other experts", func(o jsonObject) { at(o, "text_config")["num_experts"] = 8 },
			"GGUF metadata does not match the target: expert_count 16 (expected 8)"},
		{"experts of no number", func(o jsonObject) { at(o, "text_config")["num_experts"] = true },
			"text config num_experts must be a positive integer"},
		{"a width of no number", func(o jsonObject) { at(o, "text_config")["hidden_size"] = "256" },
			"text config hidden_size must be a number"},
		{"another width", func(o jsonObject) { at(o, "text_config")["hidden_size"] = 2048 },
			"no supported model has this architecture (text config num_hidden_layers: GGUF 4, Qwen3.6-35B-A3B 40); " + supported},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := text()
			test.change(o)
			refused(t, test.want, func() error { _, err := PlanGGUFConfig(encodeJSON(o), h); return err })
		})
	}
	open := fakeTarget(family(t, "Flint")).header(t)
	config, err := DeriveConfig(open, nil)
	if err != nil {
		t.Fatal(err)
	}
	config = []byte(strings.Replace(string(config), `"hidden_size": 512`, `"hidden_size": 768`, 1))
	refused(t, "text config hidden_size mismatch: config.json 768, GGUF 512", func() error { _, err := PlanGGUFConfig(config, open); return err })
}
