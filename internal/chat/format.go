package chat

import "strings"

// A Format is how a family's model frames its reasoning and lays out its tool calls. Its texts name single tokens of
// the vocabulary; a server checks at start that each encodes to one.
type Format struct {
	Name string

	// Stop are the tokens that end an answer.
	Stop []string
	// Boundary is the token after which prompt tokenization reuses a cached prompt's tokens.
	Boundary string

	// ThinkOpen is the token with which the model itself opens its reasoning; empty where the generation prompt does.
	ThinkOpen string
	// ThinkClose is the token that ends reasoning.
	ThinkClose string
	// CallOpen and CallClose are the tokens around a call.
	CallOpen, CallClose string

	// PromptOpensThinking says that the generation prompt decides whether the answer begins inside a think block.
	PromptOpensThinking bool
	// ImagePad is the token that a template writes for an image; empty where the family has no vision tower.
	ImagePad string

	// Tags are the tokens that the parser reads, which decode to their text even where they are control tokens. Where
	// TagTokens is set, only the tokens count, not the same characters written as text: they go to Parser.FeedTag.
	Tags      []string
	TagTokens bool

	syntax func(p *Parser) reader
}

// The two formats.
var (
	// QWEN: the prompt opens the think block, and calls are Qwen3-Coder's XML.
	QWEN = &Format{
		Name:                "qwen",
		Stop:                []string{"<|endoftext|>", "<|im_end|>"},
		Boundary:            "<|im_end|>",
		ThinkClose:          thinkClose,
		CallOpen:            callOpen,
		CallClose:           callClose,
		PromptOpensThinking: true,
		ImagePad:            "<|image_pad|>",
		Tags:                []string{thinkOpen, thinkClose, callOpen, callClose},
		syntax:              func(p *Parser) reader { return newQwenReader(p) },
	}
	// FLINT: the model opens the think block itself, and calls are GLM-4.7's argument tags, each a token.
	FLINT = &Format{
		Name:       "flint",
		Stop:       []string{"<|end_of_text|>", "<|user|>", "<|observation|>", "<|developer|>"},
		Boundary:   "<|assistant|>",
		ThinkOpen:  thinkOpen,
		ThinkClose: thinkClose,
		CallOpen:   callOpen,
		CallClose:  callClose,
		Tags: []string{
			thinkOpen, thinkClose, callOpen, callClose, ArgKeyOpen, ArgKeyClose, ArgValueOpen, ArgValueClose,
		},
		TagTokens: true,
		syntax:    func(p *Parser) reader { return newGLMReader(p) },
	}
)

// startsThinking reports whether an answer to this generation prompt begins inside a think block.
func (f *Format) startsThinking(generation string) bool {
	return f.PromptOpensThinking && strings.LastIndex(generation, thinkOpen) > strings.LastIndex(generation, f.ThinkClose)
}
