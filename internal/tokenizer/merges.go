package tokenizer

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// noRank is the rank of a pair that does not merge.
const noRank = math.MaxInt32

// A mergeTable gives the rank of a pair of tokens. It is a hash table with linear probing, at most half full; the
// multiplier is drawn at random, so that no file can be made to collide.
type mergeTable struct {
	slots      []mergeSlot
	shift      uint
	multiplier uint64
	results    []int32 // by rank, the token that the pair becomes
}

type mergeSlot struct {
	pair uint64 // left and right token
	rank int32  // -1 in an empty slot
}

func pairOf(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// newMergeTable makes the table. Of a pair that is listed twice it returns the second rank, or -1.
func newMergeTable(rules []mergeRule) (t *mergeTable, repeated int) {
	width := bits.Len(uint(2*len(rules) + 1))
	t = &mergeTable{
		slots:      make([]mergeSlot, 1<<width),
		shift:      uint(64 - width),
		multiplier: rand.Uint64() | 1,
		results:    make([]int32, len(rules)),
	}
	for i := range t.slots {
		t.slots[i].rank = -1
	}
	for rank, rule := range rules {
		pair := pairOf(rule.left, rule.right)
		slot := t.slot(pair)
		if slot.rank >= 0 {
			return nil, rank
		}
		*slot = mergeSlot{pair, int32(rank)}
		t.results[rank] = rule.result
	}
	return t, -1
}

// slot returns the slot of a pair, or the empty one where it would be.
func (t *mergeTable) slot(pair uint64) *mergeSlot {
	mask := uint64(len(t.slots) - 1)
	for i := pair * t.multiplier >> t.shift; ; i++ {
		if slot := &t.slots[i&mask]; slot.rank < 0 || slot.pair == pair {
			return slot
		}
	}
}

// rank is the rank of the pair, or noRank.
func (t *mergeTable) rank(left, right int32) int32 {
	if slot := t.slot(pairOf(left, right)); slot.rank >= 0 {
		return slot.rank
	}
	return noRank
}
