// Package grammar constrains what a model writes: it says, token by token, which tokens may come next.
//
// A grammar is a set of rules over the bytes of the text and over special tokens, which are terminals of their own
// (Rules, Expr). Compile makes an automaton of it for one Vocabulary, and a Matcher walks that automaton along one
// output: Allowed and Rows write bit masks over the vocabulary, Accept takes the token that was chosen.
//
// The automaton is a pushdown automaton over bytes: each rule is a finite automaton whose edges consume a byte or a
// special token or call a rule. A matcher's state is the set of all stacks the automaton may be in, kept as a tree of
// frames that merges stacks with a common top, so that ambiguity costs no more than the frames that differ. States are
// built when they are first reached, and kept: a grammar becomes a deterministic automaton over the states its outputs
// really visit. Masks are made by walking a trie of the vocabulary's bytes along with the automaton. What the top
// frames decide alone is computed once, whatever lies below them on the stack; only tokens that reach beyond the top
// frame's rule are walked again for the stack at hand. See the comment of mask.go.
//
// Grammars are free of look-ahead, and left recursion is refused.
package grammar
