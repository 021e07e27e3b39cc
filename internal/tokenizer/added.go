package tokenizer

import (
	"slices"
	"strings"
)

// A scanner finds added tokens in raw text: the leftmost, and at each place the longest.
type scanner struct {
	texts []string // sorted
	ids   []int32
	from  [257]int32 // the texts that start with byte b are [from[b], from[b+1])
	only  int        // the one byte that all of them start with, or -1
}

// newScanner makes the scanner of the tokens that want takes.
func newScanner(v *Vocabulary, want func(Kind) bool) *scanner {
	s := &scanner{only: -1}
	for id, kind := range v.Types {
		if want(kind) {
			s.ids = append(s.ids, int32(id))
		}
	}
	slices.SortFunc(s.ids, func(a, b int32) int { return strings.Compare(v.Tokens[a], v.Tokens[b]) })
	for _, id := range s.ids {
		text := v.Tokens[id]
		s.texts = append(s.texts, text)
		s.from[int(text[0])+1]++
	}
	for b := range 256 {
		if n := s.from[b+1]; n > 0 && int(n) == len(s.texts) {
			s.only = b
		}
		s.from[b+1] += s.from[b]
	}
	return s
}

// next returns the place and ID of the first added token in text[i:]; found is false if there is none.
func (s *scanner) next(text string, i int) (start, end int, id int32, found bool) {
	if len(s.texts) == 0 {
		return 0, 0, 0, false
	}
	for ; i < len(text); i++ {
		if s.only >= 0 {
			skip := strings.IndexByte(text[i:], byte(s.only))
			if skip < 0 {
				break
			}
			i += skip
		}
		if n, id := s.longest(text[i:]); n > 0 {
			return i, i + n, id, true
		}
	}
	return 0, 0, 0, false
}

// longest returns the length and ID of the longest added token that text, which is not empty, starts with.
func (s *scanner) longest(text string) (length int, id int32) {
	lo, hi := s.from[text[0]], s.from[int(text[0])+1]
	for depth := 1; lo < hi; depth++ {
		if len(s.texts[lo]) == depth {
			length, id = depth, s.ids[lo]
			lo++
		}
		if depth == len(text) {
			break
		}
		lo, hi = s.narrow(lo, hi, depth, text[depth])
	}
	return length, id
}

// narrow returns the texts of [lo, hi), all longer than depth and equal up to it, that go on with b.
func (s *scanner) narrow(lo, hi int32, depth int, b byte) (int32, int32) {
	first := s.search(lo, hi, depth, int(b))
	return first, s.search(first, hi, depth, int(b)+1)
}

// search returns the first text of [lo, hi) whose byte at depth is at least b.
func (s *scanner) search(lo, hi int32, depth, b int) int32 {
	for lo < hi {
		mid := (lo + hi) / 2
		if int(s.texts[mid][depth]) < b {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
