package tokenizer

import "unicode/utf8"

// The byte alphabet of GPT-2 (openai/gpt-2, encoder.py, bytes_to_unicode): a token is spelled with one printable
// character for each byte. Bytes 33-126, 161-172 and 174-255 are the characters of the same value; the other 68, in
// increasing order, are U+0100 onwards.
var byteRunes = func() (runes [256]rune) {
	next := rune(0x100)
	for b := range runes {
		if printable(b) {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes, and -1 for a character that is not of the alphabet.
var runeBytes = func() (bytes [0x144]int16) {
	for r := range bytes {
		bytes[r] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

func printable(b int) bool { return 33 <= b && b <= 126 || 161 <= b && b <= 172 || 174 <= b }

// appendBytes appends the bytes that a spelling stands for. A spelling with a character outside the alphabet stands for
// its own UTF-8 text, as in the ByteLevel decoder of the tokenizers library.
func appendBytes(dst []byte, spelling string) []byte {
	start := len(dst)
	for _, r := range spelling {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return append(dst[:start], spelling...)
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst
}

// appendSpelling appends the spelling of text's bytes.
func appendSpelling(dst []byte, text string) []byte {
	for i := range len(text) {
		dst = utf8.AppendRune(dst, byteRunes[text[i]])
	}
	return dst
}
