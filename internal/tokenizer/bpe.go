package tokenizer

import "unicode/utf8"

// Byte pair encoding of a piece: start from its bytes' tokens and merge, again and again, the adjacent pair of lowest
// rank, the leftmost of equals, until no pair has a rank. Three ways give the same tokens:
//
//   - mergeShort looks for the lowest rank by looking at all of them;
//   - mergeLong keeps the pairs in a heap, O(n log n) time and 28 bytes of memory for a byte of the piece;
//   - mergeWindows runs mergeLong on windows of a piece and joins the results where that is provably the same.

const (
	maxShort  = 48       // bytes of a piece for mergeShort
	maxWindow = 16 << 10 // bytes of a piece for mergeLong, unless the windows do not join
)

// A workspace is the memory of one encoding at a time.
type workspace struct {
	nodes []node
	heap  []uint64
	ahead []int32
	pair  []int32

	spelling []byte // of a piece

	steps int // moves in the heap, for tests of growth
}

// A node is a token of the piece being merged, in a doubly linked list. Its index is where its text starts.
type node struct {
	id         int32
	prev, next int32 // -1 and the piece's length at the ends
	rank       int32 // of the pair it makes with next; noRank also where the node is merged away
}

// merge appends the tokens of a piece.
func (t *Tokenizer) merge(dst []int32, piece string, w *workspace) []int32 {
	switch {
	case len(piece) <= maxShort:
		return t.mergeShort(dst, piece)
	case len(piece) <= maxWindow:
		return t.mergeLong(dst, piece, w)
	}
	return t.mergeWindows(dst, piece, maxWindow, w)
}

// mergeShort is merge for a piece of at most maxShort bytes.
func (t *Tokenizer) mergeShort(dst []int32, piece string) []int32 {
	var ids, ranks [maxShort]int32 // ranks[i] is that of ids[i] and ids[i+1]
	n := len(piece)
	for i := range n {
		ids[i] = t.base[piece[i]]
	}
	for i := range n - 1 {
		ranks[i] = t.merges.rank(ids[i], ids[i+1])
	}
	for n > 1 {
		best, rank := 0, int32(noRank)
		for i, r := range ranks[:n-1] {
			if r < rank {
				best, rank = i, r
			}
		}
		if rank == noRank {
			break
		}
		ids[best] = t.merges.results[rank]
		n--
		copy(ids[best+1:n], ids[best+2:n+1])
		copy(ranks[best:n-1], ranks[best+1:n])
		if best+1 < n {
			ranks[best] = t.merges.rank(ids[best], ids[best+1])
		}
		if best > 0 {
			ranks[best-1] = t.merges.rank(ids[best-1], ids[best])
		}
	}
	return append(dst, ids[:n]...)
}

// mergeLong is merge for any piece.
func (t *Tokenizer) mergeLong(dst []int32, piece string, w *workspace) []int32 {
	n := int32(len(piece))
	w.start(int(n))
	for i := range n {
		w.nodes[i] = node{id: t.base[piece[i]], prev: i - 1, next: i + 1, rank: noRank}
	}
	for i := range n - 1 {
		if rank := t.merges.rank(w.nodes[i].id, w.nodes[i+1].id); rank != noRank {
			w.nodes[i].rank = rank
			w.heap = append(w.heap, heapKey(rank, i))
		}
	}
	w.heapify()
	for len(w.heap) > 0 {
		rank, i := w.pop()
		at := &w.nodes[i]
		if at.rank != rank {
			continue // the pair is gone
		}
		at.id = t.merges.results[rank]
		w.nodes[at.next].rank = noRank
		at.next = w.nodes[at.next].next
		if at.next < n {
			w.nodes[at.next].prev = i
		}
		t.rerank(w, i, n)
		if at.prev >= 0 {
			t.rerank(w, at.prev, n)
		}
	}
	for i := int32(0); i < n; i = w.nodes[i].next {
		dst = append(dst, w.nodes[i].id)
	}
	return dst
}

// rerank looks up the pair that starts at node i, one of whose tokens is new.
func (t *Tokenizer) rerank(w *workspace, i, n int32) {
	at := &w.nodes[i]
	at.rank = noRank
	if at.next == n {
		return
	}
	if at.rank = t.merges.rank(at.id, w.nodes[at.next].id); at.rank != noRank {
		w.push(heapKey(at.rank, i))
	}
}

// mergeWindows is mergeLong in the memory of a window, and in linear time.
//
// Tokens t1 ... tk are the encoding of their text if and only if each adjacent pair is the encoding of its own text. (For
// the first merge across a boundary, in the encoding of the whole, is the lowest and leftmost of all pairs, so also of
// those inside the two tokens beside that boundary. What happened there before it happens in the encoding of these two
// alone, which would then merge across the boundary as well. The other way round, an encoding that never merges across
// its boundaries does inside two tokens what the encoding of these two does.) So the encodings of two overlapping windows
// may be joined at a boundary of the first where the tokens on either side are the encoding of their text.
//
// A cut that does not join is tried again further left; if none does, the piece is encoded anew with windows of twice the
// size, in the end with one.
func (t *Tokenizer) mergeWindows(dst []int32, piece string, window int, w *workspace) []int32 {
	for start := len(dst); ; window *= 2 {
		joined, ok := t.joinWindows(dst, piece, window, w)
		if ok {
			return joined
		}
		dst = joined[:start]
	}
}

func (t *Tokenizer) joinWindows(dst []int32, piece string, window int, w *workspace) (joined []int32, ok bool) {
	begin := 0 // where the window in dst starts
	first := len(dst)
	dst = t.mergeLong(dst, piece[:min(window, len(piece))], w)
	for begin+window < len(piece) {
		cut, kept, ok := t.cut(dst[first:], piece, begin, window, w)
		if !ok {
			return dst, false
		}
		begin, first = cut, first+kept
		dst = append(dst[:first], w.ahead...)
	}
	return dst, true
}

// cut finds where the window of piece at begin, whose tokens are given, joins another that starts inside it. It returns
// the place, the number of tokens before it, and leaves the other's tokens in w.ahead.
func (t *Tokenizer) cut(tokens []int32, piece string, begin, window int, w *workspace) (place, kept int, ok bool) {
	kept, place = len(tokens), begin+window
	for eighth := 7; eighth > 0; eighth -= 2 {
		for kept > 0 && place > begin+window*eighth/8 {
			kept--
			place -= t.width(tokens[kept])
		}
		if kept == 0 {
			break
		}
		w.ahead = t.mergeLong(w.ahead[:0], piece[place:min(place+window, len(piece))], w)
		left, right := tokens[kept-1], w.ahead[0]
		w.pair = t.mergeLong(w.pair[:0], piece[place-t.width(left):place+t.width(right)], w)
		if len(w.pair) == 2 && w.pair[0] == left && w.pair[1] == right {
			return place, kept, true
		}
	}
	return 0, 0, false
}

// width is the number of bytes that a token made by merges stands for.
func (t *Tokenizer) width(id int32) int {
	if t.kinds[id].added() {
		return utf8.RuneCount(t.Bytes(id)) // also a merge's result; its spelling has a character for each byte
	}
	return len(t.Bytes(id))
}

// start makes room for a piece of n bytes.
func (w *workspace) start(n int) {
	if cap(w.nodes) < n {
		w.nodes = make([]node, n)
	}
	w.nodes = w.nodes[:n]
	w.heap = w.heap[:0]
}

// release gives up memory beyond what a window takes.
func (w *workspace) release() {
	if cap(w.nodes) > maxWindow {
		w.nodes = nil
	}
	if cap(w.heap) > 2*maxWindow {
		w.heap = nil
	}
}

// A heapKey orders pairs by rank, then by place.
func heapKey(rank, place int32) uint64 { return uint64(rank)<<32 | uint64(place) }

func (w *workspace) heapify() {
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.down(i)
	}
}

func (w *workspace) push(key uint64) {
	w.heap = append(w.heap, key)
	i := len(w.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if w.heap[parent] <= key {
			break
		}
		w.heap[i] = w.heap[parent]
		i = parent
		w.steps++
	}
	w.heap[i] = key
}

func (w *workspace) pop() (rank, place int32) {
	top := w.heap[0]
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	if last > 0 {
		w.down(0)
	}
	return int32(top >> 32), int32(uint32(top))
}

func (w *workspace) down(i int) {
	heap, key := w.heap, w.heap[i]
	for {
		child := 2*i + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if key <= heap[child] {
			break
		}
		heap[i] = heap[child]
		i = child
		w.steps++
	}
	heap[i] = key
}
