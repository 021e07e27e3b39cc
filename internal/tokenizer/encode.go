package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// Encode returns the tokens of text. With parseSpecial, control tokens written in the text are those tokens; without, they
// are text. User-defined tokens are found either way. Nothing is added before or after. Bytes of text that are not UTF-8
// are encoded as they are.
func (t *Tokenizer) Encode(text string, parseSpecial bool) []int32 {
	return t.AppendEncode(make([]int32, 0, len(text)/4+4), text, parseSpecial)
}

// AppendEncode appends what Encode returns to dst.
func (t *Tokenizer) AppendEncode(dst []int32, text string, parseSpecial bool) []int32 {
	w := t.work.Get().(*workspace)
	added := t.text
	if parseSpecial {
		added = t.all
	}
	at := 0
	for {
		start, end, id, found := added.next(text, at)
		if !found {
			break
		}
		dst = append(t.appendStretch(dst, text[at:start], w), id)
		at = end
	}
	dst = t.appendStretch(dst, text[at:], w)
	w.release()
	t.work.Put(w)
	return dst
}

// appendStretch appends the tokens of text without added tokens.
func (t *Tokenizer) appendStretch(dst []int32, text string, w *workspace) []int32 {
	if t.profile.nfc {
		text = toNFC(text)
	}
	return t.appendPieces(dst, text, w)
}

// appendPieces appends the tokens of text that is normalized.
func (t *Tokenizer) appendPieces(dst []int32, text string, w *workspace) []int32 {
	for at := 0; at < len(text); {
		end := len(text)
		if t.profile.segment != nil {
			end = t.profile.segment(t.classes, text, at)
		}
		for segment := text[:end]; at < end; {
			next := t.profile.next(t.classes, segment, at)
			dst = t.appendPiece(dst, segment[at:next], w)
			at = next
		}
	}
	return dst
}

// appendPiece appends the tokens of a piece.
func (t *Tokenizer) appendPiece(dst []int32, piece string, w *workspace) []int32 {
	if len(piece) > maxCached {
		return t.appendUncached(dst, piece, w)
	}
	set := t.pieces.set(piece)
	if e := set.find(piece); e != nil {
		return append(dst, e.ids[:e.tokens]...)
	}
	start := len(dst)
	dst = t.appendUncached(dst, piece, w)
	set.put(piece, dst[start:])
	return dst
}

func (t *Tokenizer) appendUncached(dst []int32, piece string, w *workspace) []int32 {
	if t.ignoreMerges {
		w.spelling = appendSpelling(w.spelling[:0], piece)
		if id, ok := t.ids[string(w.spelling)]; ok && t.kinds[id] == Normal {
			return append(dst, id)
		}
	}
	return t.merge(dst, piece, w)
}

const (
	maxCached    = 30 // bytes of a piece
	cachedTokens = 8  // tokens of a piece
	cacheSets    = 1 << 13
)

// A pieceCache remembers the tokens of short pieces, which come again and again in text: of the pieces that hash to one
// set, the last two that were not there. It takes at most cacheSets * 2 * 64 bytes and as many pointers.
type pieceCache struct {
	seed maphash.Seed
	sets [cacheSets]cacheSet
}

// A cacheSet is written without a lock: at worst a piece is lost.
type cacheSet [2]atomic.Pointer[cachedPiece]

// A cachedPiece never changes once it is in the cache.
type cachedPiece struct {
	text           [maxCached]byte
	length, tokens uint8
	ids            [cachedTokens]int32
}

func (c *pieceCache) set(piece string) *cacheSet {
	return &c.sets[maphash.String(c.seed, piece)%cacheSets]
}

func (s *cacheSet) find(piece string) *cachedPiece {
	for i := range s {
		if e := s[i].Load(); e != nil && string(e.text[:e.length]) == piece {
			return e
		}
	}
	return nil
}

// put remembers a piece unless it has too many tokens.
func (s *cacheSet) put(piece string, ids []int32) {
	if len(ids) > cachedTokens {
		return
	}
	e := &cachedPiece{length: uint8(len(piece)), tokens: uint8(len(ids))}
	copy(e.text[:], piece)
	copy(e.ids[:], ids)
	s[1].Store(s[0].Load())
	s[0].Store(e)
}
