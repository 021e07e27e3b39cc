package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// naiveMerge is byte pair encoding as it is defined: the whole list is searched for each merge.
func naiveMerge(v *Vocabulary, ranks map[string]int, piece string) []string {
	var tokens []string
	for i := range len(piece) {
		tokens = append(tokens, string(byteRunes[piece[i]]))
	}
	for {
		best, lowest := -1, len(v.Merges)
		for i := range len(tokens) - 1 {
			if rank, ok := ranks[tokens[i]+" "+tokens[i+1]]; ok && rank < lowest {
				best, lowest = i, rank
			}
		}
		if best < 0 {
			return tokens
		}
		tokens[best] += tokens[best+1]
		tokens = slices.Delete(tokens, best+1, best+2)
	}
}

func (v *Vocabulary) ranks() map[string]int {
	ranks := make(map[string]int, len(v.Merges))
	for rank, merge := range v.Merges {
		ranks[merge] = rank
	}
	return ranks
}

// A pieceDrawer draws pieces that merge a lot: letters of few kinds, random tokens in a row, random bytes, repetitions.
type pieceDrawer struct {
	*rand.Rand
	tok *Tokenizer
}

func (r pieceDrawer) piece(size int) string {
	var b []byte
	few := r.IntN(5) + 1
	period := r.IntN(7) + 1
	kind := r.IntN(4)
	for len(b) < size {
		switch {
		case kind == 0:
			b = append(b, "aeot "[r.IntN(few)])
		case kind == 1:
			b = append(b, r.tok.Bytes(int32(r.IntN(r.tok.Size())))...)
		case kind == 2:
			b = append(b, byte(r.IntN(256)))
		case len(b) < period:
			b = append(b, byte('a'+r.IntN(26)))
		default:
			b = append(b, b[len(b)-period])
		}
	}
	return string(b[:size])
}

// TestMerge holds the three ways of merging to the definition, with the merges of real vocabularies and with random ones.
func TestMerge(t *testing.T) {
	large := must(readLarge())(t)
	tiny := must(readVocabulary(tinyFile))(t)
	vocabularies := map[string]*Vocabulary{"151k": large, "tiny": tiny}
	for seed := range uint64(6) {
		vocabularies["random "+string(rune('0'+seed))] = randomMerges(seed)
	}
	for name, v := range vocabularies {
		t.Run(name, func(t *testing.T) {
			tok, ranks := must(New(v))(t), v.ranks()
			draw := pieceDrawer{rand.New(rand.NewPCG(5, 6)), tok}
			w := new(workspace)
			for range 500 {
				size := 1 + draw.IntN(2*maxShort)
				if draw.IntN(10) == 0 {
					size = 1 + draw.IntN(600)
				}
				piece := draw.piece(size)
				want := naiveMerge(v, ranks, piece)
				check := func(way string, ids []int32) {
					t.Helper()
					got := make([]string, len(ids))
					for i, id := range ids {
						got[i] = v.Tokens[id]
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%s of %q:\n%s", way, piece, diff)
					}
				}
				if len(piece) <= maxShort {
					check("mergeShort", tok.mergeShort(nil, piece))
				}
				check("mergeLong", tok.mergeLong(nil, piece, w))
				for _, window := range []int{2, 8, 24, 64} {
					check("mergeWindows", tok.mergeWindows([]int32{7}, piece, window, w)[1:])
				}
				check("merge", tok.merge(nil, piece, w))
			}
		})
	}
}

// randomMerges has merges of letters in an order that no training gives: a pair may rank before those it is made of.
func randomMerges(seed uint64) *Vocabulary {
	r := rand.New(rand.NewPCG(seed, 2))
	v := bytesVocabulary("qwen35")
	parts := []string{"a", "e", "o", "t"}
	seen := make(map[string]bool)
	for len(v.Merges) < 60 {
		left, right := parts[r.IntN(len(parts))], parts[r.IntN(len(parts))]
		if len(left+right) > 12 || seen[left+" "+right] {
			continue
		}
		seen[left+" "+right] = true
		v.merge(left, right)
		parts = append(parts, left+right)
	}
	r.Shuffle(len(v.Merges), func(i, j int) { v.Merges[i], v.Merges[j] = v.Merges[j], v.Merges[i] })
	return v
}

// TestWindowsJoin holds long pieces, which take several windows, to one mergeLong.
func TestWindowsJoin(t *testing.T) {
	tok := must(newLarge())(t)
	draw := pieceDrawer{rand.New(rand.NewPCG(8, 9)), tok}
	w := new(workspace)
	for _, size := range []int{maxWindow, maxWindow + 1, 3*maxWindow + 77} {
		for range 6 {
			piece := draw.piece(size)
			want := tok.mergeLong(nil, piece, w)
			if got := tok.mergeWindows(nil, piece, maxWindow, w); !slices.Equal(got, want) {
				t.Errorf("%.40q, %d bytes: %d tokens in windows are not the %d of one", piece, size, len(got), len(want))
			}
		}
	}
}

// TestWindowsGrow has a text whose first token depends on its last character, so that no cut joins until the window
// holds all of it.
func TestWindowsGrow(t *testing.T) {
	// Each of the characters 0x80, 0x81, ... merges with the next, from the right: the pairs further right rank lower.
	// A character at the end turns all pairs round.
	v := bytesVocabulary("qwen35")
	for b := 0xBE; b >= 0x80; b-- {
		v.merge(string(byteRunes[b]), string(byteRunes[b+1]))
	}
	var text []byte
	for b := 0x80; b <= 0xBF; b++ {
		text = append(text, byte(b))
	}
	tok, w := must(New(v))(t), new(workspace)
	for _, piece := range []string{string(text), string(text[:len(text)-1])} {
		var got []string
		for _, id := range tok.mergeWindows(nil, piece, 8, w) {
			got = append(got, v.Tokens[id])
		}
		if diff := cmp.Diff(naiveMerge(v, v.ranks(), piece), got); diff != "" {
			t.Errorf("%d bytes:\n%s", len(piece), diff)
		}
	}
}

// TestGrowth holds the work of long pieces to n log n, and the memory to that of a window.
func TestGrowth(t *testing.T) {
	tok := must(newLarge())(t)
	for name, part := range map[string]string{"a": "a", "ab": "ab", "=": "=", "the": "the", "Zalgo": "\u0301"} {
		const small, times = 1 << 14, 64
		var steps [2]int
		for i, size := range []int{small, small * times} {
			w := new(workspace)
			tok.merge(nil, strings.Repeat(part, size/len(part)), w)
			steps[i] = w.steps
			if cap(w.nodes) > maxWindow || cap(w.heap) > 4*maxWindow {
				t.Errorf("%s: room for %d nodes and %d pairs in the heap", name, cap(w.nodes), cap(w.heap))
			}
		}
		// Windows of the small size overlap by an eighth, or more where the first cuts do not join.
		if most := steps[0] * times * 3 / 2; steps[1] > most {
			t.Errorf("%s: %d steps for %d bytes, %d for %d times as many", name, steps[0], small, steps[1], times)
		}
	}
}

// TestAdversarialText encodes texts so long that quadratic time would not end within the test.
func TestAdversarialText(t *testing.T) {
	const size = 1 << 19
	repeat := func(s string) string { return strings.Repeat(s, size/len(s)) }
	texts := []string{
		repeat("a"), repeat("A"), repeat(" "), repeat("\n"), repeat("\n "), repeat(" \n\t"), repeat("1"), repeat("!"),
		repeat("'"), repeat("<"), repeat("<|"), repeat("<|im_"), repeat("<|im_end|"), repeat("<|im_end|>"), repeat("\u0301"),
		"a" + repeat("\u0316\u0301"), repeat("\u1112\u1161\u11ab"), repeat("\u02b0A"), "\u02b0" + repeat("A"),
		repeat("\u02b0") + repeat("A"), repeat("!\u0301A"), repeat("\u4f60"), repeat("\u30ab\u30fb"), repeat("\u0e33"),
		repeat("\xff"), repeat("\xf0\x9f"), repeat("\x00"), repeat("\u3000"), repeat("a\u0344"), repeat("/\n"), repeat("aB"),
	}
	for name, tok := range map[string]*Tokenizer{"qwen35": must(newLarge())(t), "flint": must(newLargeFlint())(t)} {
		for _, text := range texts {
			want := text
			if tok.profile.nfc {
				want = toNFC(text)
			}
			ids := tok.Encode(text, true)
			if got := tok.Decode(ids, ids...); got != strings.ToValidUTF8(want, "\ufffd") && tok.concat(ids) != want {
				t.Errorf("%s: %.20q... does not decode to itself", name, text)
			}
		}
	}
}

// concat returns the bytes of tokens.
func (t *Tokenizer) concat(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = append(b, t.Bytes(id)...)
	}
	return string(b)
}

// TestIgnoreMerges takes a piece that is a token whole, where its merges would not give it.
func TestIgnoreMerges(t *testing.T) {
	v := bytesVocabulary("qwen35")
	v.add("abc", Normal)
	v.add("\u0120xyz", Normal)
	v.add("def", Unused)
	v.merge("a", "b")
	abc, ab := v.find("abc"), v.find("ab")
	for _, tt := range []struct {
		ignore bool
		text   string
		want   []int32
	}{
		{false, "abc", []int32{ab, 'c'}},
		{true, "abc", []int32{abc}},
		{true, "abcd", []int32{ab, 'c', 'd'}},
		{true, "abc xyz", []int32{abc, v.find("\u0120xyz")}},
		{true, "def", []int32{'d', 'e', 'f'}},
	} {
		v.IgnoreMerges = tt.ignore
		tok := must(New(v))(t)
		for range 2 { // from the piece cache the second time
			if diff := cmp.Diff(tt.want, tok.Encode(tt.text, true)); diff != "" {
				t.Errorf("%q, ignore_merges %v:\n%s", tt.text, tt.ignore, diff)
			}
		}
	}
}
