package chat

// A StopScanner looks for stop strings in a text that arrives in pieces. It holds back the text that may begin one, and
// no more: the longest end of what has arrived that is the beginning of a stop string.
type StopScanner struct {
	stops []stop
	held  int // bytes held back
	hit   int // the stop string that was found, -1 without one
}

// A stop is a stop string with the automaton of Knuth, Morris and Pratt.
type stop struct {
	text  string
	fail  []int // by matched bytes: how many of them still match where the next byte does not
	state int   // bytes matched
}

// NewStopScanner returns a scanner for the given strings. Empty ones are never found.
func NewStopScanner(stops []string) *StopScanner {
	s := &StopScanner{hit: -1}
	for _, text := range stops {
		s.stops = append(s.stops, newStop(text))
	}
	return s
}

func newStop(text string) stop {
	fail := make([]int, len(text)+1)
	k := 0
	for i := 1; i < len(text); i++ {
		for k > 0 && text[i] != text[k] {
			k = fail[k]
		}
		if text[i] == text[k] {
			k++
		}
		fail[i+1] = k
	}
	return stop{text: text, fail: fail}
}

// next takes a byte and reports whether it completes the string.
func (s *stop) next(c byte) bool {
	if s.text == "" {
		return false
	}
	k := s.state
	for k > 0 && s.text[k] != c {
		k = s.fail[k]
	}
	if s.text[k] == c {
		k++
	}
	s.state = k
	return k == len(s.text)
}

// Scan takes a piece of text and returns the text that may be passed on: what was held and what arrived, less what is
// held now. When a stop string is complete, that is the text before it, found is true, and nothing more is passed on.
// Of strings that are complete at the same byte, the longest counts.
func (s *StopScanner) Scan(text string) (ready string, found bool) {
	before := s.heldText()
	n := s.advance(text)
	switch {
	case n <= 0:
		return before[:len(before)+n], s.hit >= 0
	case before == "":
		return text[:n], s.hit >= 0
	}
	return before + text[:n], s.hit >= 0
}

// advance takes a piece of text and returns where what may be passed on ends, counted from the start of the piece; it
// is negative where that lies in text that was held before.
func (s *StopScanner) advance(text string) int {
	if s.hit >= 0 {
		return -s.held
	}
	for i := range len(text) {
		longest := 0
		for k := range s.stops {
			if s.stops[k].next(text[i]) && (s.hit < 0 || len(s.stops[k].text) > len(s.stops[s.hit].text)) {
				s.hit = k
			}
			longest = max(longest, s.stops[k].state)
		}
		if s.hit >= 0 {
			s.held = 0
			return i + 1 - len(s.stops[s.hit].text)
		}
		s.held = longest
	}
	return len(text) - s.held
}

// heldText returns the text that is held: the beginning of a stop string.
func (s *StopScanner) heldText() string {
	if s.held == 0 || s.hit >= 0 {
		return ""
	}
	for k := range s.stops {
		if s.stops[k].state == s.held {
			return s.stops[k].text[:s.held]
		}
	}
	return ""
}

// Flush ends the text and returns what was held.
func (s *StopScanner) Flush() string {
	text := s.heldText()
	s.held = 0
	for k := range s.stops {
		s.stops[k].state = 0
	}
	return text
}

// Found returns the stop string that ended the text.
func (s *StopScanner) Found() (string, bool) {
	if s.hit < 0 {
		return "", false
	}
	return s.stops[s.hit].text, true
}
