// Package scan looks through a row of logits, some hundred thousand of which are read for every token that is chosen, as
// fast as the processor reads memory.
package scan

// Next is the first place from start on whose logit is above least, or len(x). Nothing is above a NaN, and a NaN above
// nothing.
func Next(x []float32, start int, least float32) int {
	return next(notAbove, x, start, least)
}

// Argmax is the first place of the largest logit, as oracle.Argmax has it: NaNs are passed over, and where all are NaN it
// is 0.
func Argmax(x []float32) int { return argmax(notAbove, x) }

// block is the number of values that a level compares at once.
const block = 64

// A kernel returns the number of values before the first block of n that has one above least, n where none has. n is whole
// blocks.
type kernel func(x *float32, n int, least float32) int

// next is Next with a level's kernel, or plainly without one.
func next(k kernel, x []float32, start int, least float32) int {
	if n := (len(x) - start) &^ (block - 1); k != nil && n > 0 {
		start += k(&x[start], n, least)
	}
	for i, v := range x[start:] {
		if v > least {
			return start + i
		}
	}
	return len(x)
}

func argmax(k kernel, x []float32) int {
	best := 0
	for best < len(x) && x[best] != x[best] {
		best++
	}
	if best == len(x) {
		return 0
	}
	for {
		i := next(k, x, best+1, x[best])
		if i == len(x) {
			return best
		}
		best = i
	}
}
