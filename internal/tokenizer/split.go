package tokenizer

// The scanners below match what the regular expressions of profile.go match, alternative by alternative, where the first
// alternative that matches at a place wins. They look at a character a bounded number of times for each piece it is in,
// so that a split takes linear time whatever the text.

const (
	notPunctQwen35 = space | letter | mark | number // in splitQwen35
	notPunctO200k  = space | letter | number        // in splitO200k, where marks are punctuation too
)

// nextQwen35 returns the end of the match of splitQwen35 at start, which is not the end of text.
func (c *classes) nextQwen35(text string, start int) int {
	first, n := c.at(text, start)
	rest := start + n
	switch {
	case first&(letter|mark) != 0:
		return c.run(text, rest, letter|mark)
	case first&number != 0:
		return rest
	}
	if end := contraction(text, start); end > start {
		return end
	}
	if rest < len(text) && first&newline == 0 {
		second, m := c.at(text, rest)
		if second&(letter|mark) != 0 {
			return c.run(text, rest+m, letter|mark)
		}
		if text[start] == ' ' && second&notPunctQwen35 == 0 {
			rest = c.runNot(text, rest+m, notPunctQwen35)
			return c.run(text, rest, newline)
		}
	}
	if first&space == 0 {
		rest = c.runNot(text, rest, notPunctQwen35)
		return c.run(text, rest, newline)
	}
	return c.whitespace(text, start)
}

// segmentFlint applies the first two splits of flint: it returns the end of the segment at start, which is up to three
// numbers, or a run of Han and kana, or everything up to the next of either.
func (c *classes) segmentFlint(text string, start int) int {
	first, n := c.at(text, start)
	end := start + n
	switch {
	case first&number != 0:
		return c.upTo(text, start, 3, number)
	case first&kana != 0:
		return c.run(text, end, kana)
	}
	return c.runNot(text, end, number|kana)
}

// upTo returns the end of the run of characters of the classes from i on, of at most so many.
func (c *classes) upTo(text string, i, most int, of class) int {
	for ; most > 0 && i < len(text); most-- {
		cl, n := c.at(text, i)
		if cl&of == 0 {
			break
		}
		i += n
	}
	return i
}

// nextO200k returns the end of the match of splitO200k at start, which is not the end of text.
func (c *classes) nextO200k(text string, start int) int {
	first, n := c.at(text, start)
	rest := start + n
	if first&number != 0 {
		return c.upTo(text, start, 3, number)
	}
	if end := c.word(text, start, rest, first); end > start {
		return suffix(text, end)
	}
	punct := start
	if text[start] == ' ' {
		punct = rest
	}
	if end := c.runNot(text, punct, notPunctO200k); end > punct {
		for end < len(text) && (text[end] == '\r' || text[end] == '\n' || text[end] == '/') {
			end++
		}
		return end
	}
	return c.whitespace(text, start)
}

// word returns the end of the letters that the first two alternatives of splitO200k match at start, or start. The
// character there, of class first, ends at rest.
func (c *classes) word(text string, start, rest int, first class) int {
	letters := start
	if first&(letter|newline) == 0 {
		letters = rest // the one character that may stand before a word
	}
	if end := c.cased(text, letters); end > letters {
		return end
	}
	if first&mark != 0 {
		// Taken as the one before the word, the mark found no word: it is one itself.
		return c.cased(text, start)
	}
	if end := c.run(text, letters, upper); end > letters {
		return end // upper case alone: cased would have taken any lower case after it
	}
	return start
}

// cased matches [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at i and returns its end, or i. The two classes
// share Lm, Lo and M: the first gives back from its end until the second has one character.
func (c *classes) cased(text string, i int) int {
	end, shared := i, i
	for end < len(text) {
		cl, n := c.at(text, end)
		if cl&upper == 0 {
			break
		}
		end += n
		if cl&lower != 0 {
			shared = end
		}
	}
	if after := c.run(text, end, lower); after > end {
		return after
	}
	return shared
}

// suffix returns the end of the contraction at i, or i.
func suffix(text string, i int) int {
	if i < len(text) {
		return contraction(text, i)
	}
	return i
}

// contraction matches (?i:'s|'t|'re|'ve|'m|'ll|'d) at i and returns its end, or i. Case is that of Unicode's simple
// folding, by which U+017F is an s; no other character outside ASCII folds to one of these letters.
func contraction(text string, i int) int {
	if text[i] != '\'' || i+1 == len(text) {
		return i
	}
	second := text[i+1]
	switch second | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	}
	if i+2 == len(text) {
		return i
	}
	third := text[i+2]
	switch second | 0x20 {
	case 'r', 'v':
		if third|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if third|0x20 == 'l' {
			return i + 3
		}
	}
	if second == 0xC5 && third == 0xBF { // U+017F
		return i + 3
	}
	return i
}

// whitespace matches \s*[\r\n]+|\s+(?!\S)|\s+ at start, where white space is: up to the last line break of the run; else,
// when something follows the run, all of it but its last character; else all of it.
func (c *classes) whitespace(text string, start int) int {
	end, last, lines := start, start, start
	for end < len(text) {
		cl, n := c.at(text, end)
		if cl&space == 0 {
			break
		}
		last = end
		end += n
		if cl&newline != 0 {
			lines = end
		}
	}
	switch {
	case lines > start:
		return lines
	case end == len(text) || last == start:
		return end
	}
	return last
}
