package tokenizer

// A profile is what the metadata of a GGUF only names: the normalizer, the split and the roles of tokens.
type profile struct {
	pre string // tokenizer.ggml.pre
	nfc bool   // stretches are normalized to NFC

	// splits are the regular expressions of the Split pre-tokenizers of the release's tokenizer.json, in order.
	splits []string
	// segment returns the end of the part of text, from start on, that the last split sees as a text of its own; nil
	// where there is one split. next returns the end of the piece that starts at start.
	segment, next func(c *classes, text string, start int) (end int)

	stops     []string // the tokens that end a generation
	needStops bool     // a vocabulary must have them
	tags      []string // tokens that decode to their text whatever their kind
}

const (
	splitQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)` +
		`|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+` +
		`|\p{N}` +
		`| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` +
		`|\s*[\r\n]+` +
		`|\s+(?!\S)` +
		`|\s+`

	// The splits of gpt2/flint: digits in threes; Han and kana, in the ranges of DeepSeek-V3's tokenizer.json; and the
	// pattern of o200k_base in OpenAI's tiktoken.
	splitDigits = `\p{N}{1,3}`
	splitKana   = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
	splitO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n/]*` +
		`|\s*[\r\n]+` +
		`|\s+(?!\S)` +
		`|\s+`
)

// profiles returns the profiles there are.
func profiles() []*profile {
	return []*profile{
		{
			pre:    "qwen35",
			nfc:    true,
			splits: []string{splitQwen35},
			next:   (*classes).nextQwen35,
			stops:  []string{"<|endoftext|>", "<|im_end|>"},
			tags:   []string{"<think>", "</think>", "<tool_call>", "</tool_call>"},
		},
		{
			pre:       "flint",
			splits:    []string{splitDigits, splitKana, splitO200k},
			segment:   (*classes).segmentFlint,
			next:      (*classes).nextO200k,
			stops:     []string{"<|end_of_text|>", "<|user|>", "<|observation|>", "<|developer|>"},
			needStops: true,
			tags: []string{"<think>", "</think>", "<tool_call>", "</tool_call>",
				"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
		},
	}
}

// profileOf returns the profile of that name, or nil.
func profileOf(pre string) *profile {
	for _, p := range profiles() {
		if p.pre == pre {
			return p
		}
	}
	return nil
}
