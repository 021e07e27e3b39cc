package grammar

import "unicode/utf8"

// A byteSeq is a sequence of byte ranges: the UTF-8 of a range of characters that has no gaps in any byte.
type byteSeq struct {
	n      int
	lo, hi [utf8.UTFMax]byte
}

// appendUTF8 appends the sequences that together match the UTF-8 of a range of characters without surrogates.
func appendUTF8(dst []byteSeq, r Range) []byteSeq {
	for _, top := range [...]rune{0x7F, 0x7FF, 0xFFFF, utf8.MaxRune} {
		if r.Lo > r.Hi {
			break
		}
		if r.Lo <= top {
			dst = appendEven(dst, Range{r.Lo, min(r.Hi, top)})
			r.Lo = top + 1
		}
	}
	return dst
}

// appendEven handles characters of one encoded length. A range whose ends differ in a leading byte is cut so that the
// bytes after it run through all their values.
func appendEven(dst []byteSeq, r Range) []byteSeq {
	n := utf8.RuneLen(r.Lo)
	for i := 1; i < n; i++ {
		m := rune(1)<<(6*i) - 1 // what the last i bytes hold
		if r.Lo&^m == r.Hi&^m {
			continue
		}
		if r.Lo&m != 0 {
			dst = appendEven(dst, Range{r.Lo, r.Lo | m})
			return appendEven(dst, Range{(r.Lo | m) + 1, r.Hi})
		}
		if r.Hi&m != m {
			dst = appendEven(dst, Range{r.Lo, r.Hi&^m - 1})
			return appendEven(dst, Range{r.Hi &^ m, r.Hi})
		}
	}
	s := byteSeq{n: n}
	utf8.EncodeRune(s.lo[:], r.Lo)
	utf8.EncodeRune(s.hi[:], r.Hi)
	return append(dst, s)
}
