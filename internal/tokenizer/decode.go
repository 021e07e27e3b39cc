package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// Decode returns the text of tokens, as a Decoder gives it.
func (t *Tokenizer) Decode(ids []int32, visible ...int32) string {
	d := t.NewDecoder(visible...)
	var text []byte
	for _, id := range ids {
		text = d.Append(text, id)
	}
	return string(d.Flush(text))
}

// A Decoder turns tokens into text, one at a time. What it appends is always whole characters; all of it together is the
// tokens' bytes with each ill-formed sequence replaced by U+FFFD, one for a maximal subpart (The Unicode Standard,
// section 3.9, "U+FFFD Substitution of Maximal Subparts").
type Decoder struct {
	t       *Tokenizer
	visible []int32
	tail    [utf8.UTFMax]byte // the start of a character
	n       int               // bytes of tail
}

// NewDecoder returns a decoder at the start of a text. Control tokens decode to nothing, but for those that are tags the
// chat format reads, like <tool_call>, and those that visible lists.
func (t *Tokenizer) NewDecoder(visible ...int32) *Decoder {
	return &Decoder{t: t, visible: slices.Clone(visible)}
}

// Append appends the text that is known to be whole after token id. An ID beyond the vocabulary is nothing.
func (d *Decoder) Append(dst []byte, id int32) []byte {
	if uint(id) >= uint(len(d.t.shown)) || !d.t.shown[id] && !slices.Contains(d.visible, id) {
		return dst
	}
	return d.appendBytes(dst, d.t.Bytes(id))
}

// Flush ends the text: a character that is still open becomes U+FFFD. The decoder is then at the start of another.
func (d *Decoder) Flush(dst []byte) []byte {
	if d.n > 0 {
		d.n = 0
		dst = utf8.AppendRune(dst, utf8.RuneError)
	}
	return dst
}

func (d *Decoder) appendBytes(dst, text []byte) []byte {
	for d.n > 0 && len(text) > 0 {
		if !continues(d.tail[:d.n], text[0]) {
			d.n = 0
			dst = utf8.AppendRune(dst, utf8.RuneError)
			break
		}
		d.tail[d.n] = text[0]
		d.n++
		text = text[1:]
		if d.n == sequence(d.tail[0]) {
			dst = append(dst, d.tail[:d.n]...)
			d.n = 0
		}
	}
	for len(text) > 0 {
		valid := validPrefix(text)
		dst = append(dst, text[:valid]...)
		text = text[valid:]
		if len(text) == 0 {
			break
		}
		n := subpart(text)
		if n == len(text) && n < sequence(text[0]) {
			d.n = copy(d.tail[:], text)
			break
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		text = text[n:]
	}
	return dst
}

// validPrefix returns the length of the whole characters that text starts with.
func validPrefix(text []byte) int {
	i := 0
	for i < len(text) {
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}

// subpart returns the length of the maximal subpart that text, which does not start with a whole character, starts with:
// as many bytes as some character starts with, and at least one.
func subpart(text []byte) int {
	n := 1
	for n < len(text) && n < sequence(text[0]) && continues(text[:n], text[n]) {
		n++
	}
	return n
}

// sequence is the length of the characters that start with byte b: 0 if there is none (table 3-7).
func sequence(b byte) int {
	switch {
	case b < 0x80:
		return 1
	case b < 0xC2:
		return 0
	case b < 0xE0:
		return 2
	case b < 0xF0:
		return 3
	case b < 0xF5:
		return 4
	}
	return 0
}

// continues reports whether some character goes on with b after start, the first bytes of one (table 3-7).
func continues(start []byte, b byte) bool {
	lo, hi := byte(0x80), byte(0xBF)
	if len(start) == 1 {
		switch start[0] {
		case 0xE0:
			lo = 0xA0
		case 0xED:
			hi = 0x9F
		case 0xF0:
			lo = 0x90
		case 0xF4:
			hi = 0x8F
		}
	}
	return lo <= b && b <= hi
}
