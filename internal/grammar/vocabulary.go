package grammar

import (
	"bytes"
	"fmt"
	"slices"
	"unicode/utf8"

	"splash/internal/tokenizer"
)

// Tokens is what a grammar needs to know of a tokenizer. A *tokenizer.Tokenizer is one.
type Tokens interface {
	Size() int
	Bytes(id int32) []byte
	Kind(id int32) tokenizer.Kind
}

// maxPlain is the most characters of a token that masks take as a whole in free text.
const maxPlain = 32

// A Vocabulary is a model's tokens, arranged for masks. It is safe for concurrent use.
//
// Normal and user-defined tokens are text, but for tags, which only a grammar's Token matches. Tokens that end an output
// are allowed where the grammar may end. Others, control tokens above all, are never allowed.
type Vocabulary struct {
	rows   int
	tokens Tokens
	uses   []use // by token
	stop   []int32

	// The tries of the texts: first that of tokens made of plain characters alone, then that of all others. Nodes are in
	// the order of a walk that visits a node before its children.
	nodes  []node
	middle int     // where the second begins
	sorted []int32 // tokens by their text

	// plain holds, at n, the tokens of the first trie with at most n characters.
	plain [maxPlain + 1][]uint64
	// longest is the most bytes of a token.
	longest int
}

// A use is what a token is to grammars.
type use uint8

const (
	unused use = iota
	textToken
	tagToken
	stopToken
)

// A node is a place in a trie: the text on the way to it, and the tokens of that very text.
type node struct {
	size  uint32 // nodes from here to the end of the subtree
	first uint32 // the tokens in Vocabulary.sorted
	own   uint16
	depth uint16 // bytes of the text
	b     byte   // the last of them
	chars uint8  // in the first trie: the most characters of a token in the subtree
	whole bool   // in the first trie: the text is whole characters
}

// NewVocabulary arranges the tokens of a model whose logits have so many rows. Tags are the tokens that structure
// output, like <tool_call>; stop the tokens that end it.
func NewVocabulary(t Tokens, rows int, tags, stop []int32) (*Vocabulary, error) {
	if t.Size() > rows {
		return nil, fmt.Errorf("grammar: the tokenizer has %d tokens and the model %d", t.Size(), rows)
	}
	v := &Vocabulary{rows: rows, tokens: t, uses: make([]use, rows), stop: slices.Clone(stop)}
	var plain, other []int32
	for id := range int32(t.Size()) {
		text := t.Bytes(id)
		kind := t.Kind(id)
		if kind != tokenizer.Normal && kind != tokenizer.UserDefined || len(text) == 0 {
			continue
		}
		if len(text) > 1<<16-1 {
			return nil, fmt.Errorf("grammar: token %d has %d bytes; expected fewer than 65536", id, len(text))
		}
		v.uses[id] = textToken
	}
	for _, list := range []struct {
		ids []int32
		use use
		of  string
	}{{tags, tagToken, "tag"}, {stop, stopToken, "stop"}} {
		for _, id := range list.ids {
			if id < 0 || int(id) >= rows || v.uses[id] > textToken {
				return nil, fmt.Errorf("grammar: %s token %d; expected one of %d tokens, given once", list.of, id, rows)
			}
			v.uses[id] = list.use
		}
	}
	for id := range int32(t.Size()) {
		if v.uses[id] != textToken {
			continue
		}
		if _, ok := plainChars(t.Bytes(id)); ok {
			plain = append(plain, id)
		} else {
			other = append(other, id)
		}
		v.longest = max(v.longest, len(t.Bytes(id)))
	}
	v.addTrie(plain)
	v.middle = len(v.nodes)
	v.addTrie(other)
	v.nodes = append(v.nodes, node{first: uint32(len(v.sorted))}) // so that every node has one after it
	v.countPlain(plain)
	return v, nil
}

// Rows is the number of tokens of a mask.
func (v *Vocabulary) Rows() int { return v.rows }

// Words is the length of a mask.
func (v *Vocabulary) Words() int { return (v.rows + 63) / 64 }

// plainChars returns the number of characters of a text of few characters that are all plain.
func plainChars(text []byte) (int, bool) {
	n := 0
	for ; len(text) > 0; n++ {
		r, size := utf8.DecodeRune(text)
		if n == maxPlain || r == utf8.RuneError && size == 1 || size == 1 && !plain(text[0]) {
			return 0, false
		}
		text = text[size:]
	}
	return n, true
}

// addTrie adds the trie of some tokens.
func (v *Vocabulary) addTrie(ids []int32) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b int32) int {
		if c := bytes.Compare(v.tokens.Bytes(a), v.tokens.Bytes(b)); c != 0 {
			return c
		}
		return int(a - b)
	})
	var path []int // the nodes on the way to the last token
	var text []byte
	for _, id := range ids {
		next := v.tokens.Bytes(id)
		common := 0
		for common < len(path) && common < len(next) && text[common] == next[common] {
			common++
		}
		v.closeNodes(path[common:])
		path, text = path[:common], next
		for d := common; d < len(next); d++ {
			path = append(path, len(v.nodes))
			v.nodes = append(v.nodes, node{first: uint32(len(v.sorted)), depth: uint16(d + 1), b: next[d]})
		}
		v.nodes[path[len(path)-1]].own++
		v.sorted = append(v.sorted, id)
		if chars, ok := plainChars(next); ok {
			for d, n := range path {
				v.nodes[n].chars = max(v.nodes[n].chars, uint8(chars))
				v.nodes[n].whole = d+1 == len(next) || utf8.RuneStart(next[d+1])
			}
		}
	}
	v.closeNodes(path)
}

func (v *Vocabulary) closeNodes(path []int) {
	for _, n := range path {
		v.nodes[n].size = uint32(len(v.nodes) - n)
	}
}

func (v *Vocabulary) countPlain(ids []int32) {
	for n := range v.plain {
		v.plain[n] = make([]uint64, v.Words())
	}
	for _, id := range ids {
		chars, _ := plainChars(v.tokens.Bytes(id))
		for n := chars; n <= maxPlain; n++ {
			setBit(v.plain[n], id)
		}
	}
}

func setBit(row []uint64, id int32) { row[id>>6] |= 1 << (id & 63) }
