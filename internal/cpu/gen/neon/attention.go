package main

import "fmt"

// attentionKernels are the products of a page (attention_generic.go).
func attentionKernels(f *file) {
	for _, queries := range []int{4, 1} {
		scores(f, queries)
		values(f, queries)
	}
	most(f)
	soften(f)
}

// pageBytes is a row of scores.
const pageBytes = 4 * 64

// split parts pairs of BF16 in dwords: the first of each, and the second. high is 0xffff0000 in every lane.
func (k *kernel) split(first, second, pairs, high vec) {
	k.dwordsLeft(first, pairs, 16)
	k.and(second, pairs, high)
}

// scores takes two dimensions of 16 tokens after another, whose keys lie side by side.
func scores(f *file, queries int) {
	k := f.kernel(fmt.Sprintf("scoresNEONq%d", queries), "(scores, q *float32, keys *uint16, dim, blocks int)",
		fmt.Sprintf("The scores of %d queries for blocks of 16 tokens of a page of 64.", queries))
	const out, q, keys, dim, blocks, left = gp(0), gp(1), gp(2), gp(3), gp(4), gp(5)
	for i, name := range []string{"scores", "q", "keys", "dim", "blocks"} {
		k.arg(name, gp(i))
	}
	query := []gp{8, 9, 10, 11}[:queries]
	k.shift(dim, 2, 6)
	const high = vec(31)
	k.constant(0xffff0000, high)
	loop := k.label()
	k.copy(q, query[0])
	for i := range queries - 1 {
		k.sum(query[i], 6, query[i+1])
	}
	for i := range vec(4 * queries) {
		k.zero(i)
	}
	k.copy(dim, left)
	const pairs, first, second, of = vec(16), vec(20), vec(24), vec(28)
	inner := k.label()
	k.next(keys, pairs, 4)
	for t := range vec(4) {
		k.split(first+t, second+t, pairs+t, high)
	}
	for i, r := range query {
		// Two registers hold the values of queries in turn.
		v := of + vec(i%2)
		k.few(r, v, 2)
		for t := range vec(4) {
			k.mulAddLane(vec(4*i)+t, first+t, v, 0)
		}
		for t := range vec(4) {
			k.mulAddLane(vec(4*i)+t, second+t, v, 1)
		}
	}
	k.again(left, 2, inner)
	for i := range queries {
		for t := range 4 {
			k.store(vec(4*i+t), out, pageBytes*i+16*t)
		}
	}
	k.add(64, out)
	k.again(blocks, 1, loop)
	k.ret()
}

// values takes two tokens after another for some dimensions, whose values lie side by side.
func values(f *file, queries int) {
	k := f.kernel(fmt.Sprintf("valuesNEONq%d", queries), "(folds, weights *float32, values *uint16, dim, tokens int)",
		fmt.Sprintf("Adds the weighted values of tokens of a page of 64 to %d folds.", queries))
	const folds, weights, from, dim, tokens, stride, at, weight, left = gp(0), gp(1), gp(2), gp(3), gp(4), gp(5), gp(6), gp(7), gp(8)
	for i, name := range []string{"folds", "weights", "values", "dim", "tokens"} {
		k.arg(name, gp(i))
	}
	parts := 16 / queries / 4 * 4 // vectors of a query
	if queries == 1 {
		parts = 8
	}
	k.shift(dim, 2, stride) // of two tokens' values
	fold := []gp{folds, 9, 10, 11}[:queries]
	for i := range queries - 1 {
		k.sum(fold[i], stride, fold[i+1])
		k.add(64, fold[i+1])
	}
	const high, pairs, first, second, of = vec(31), vec(28), vec(16), vec(17), vec(20)
	k.constant(0xffff0000, high)
	chunk := k.label()
	for i, r := range fold {
		for p := range parts {
			k.load(r, 16*p, vec(parts*i+p))
		}
	}
	k.copy(from, at)
	k.copy(weights, weight)
	last, end := k.forward(), k.forward()
	k.p("SUBS $2, R%d, R%d", tokens, left)
	k.p("BLT %s", last)
	loop := k.label()
	k.weightsOf(weight, of, queries, 2)
	for p := range parts {
		k.load(at, 16*p, pairs)
		k.split(first, second, pairs, high)
		for i := range queries {
			k.mulAddLane(vec(parts*i+p), first, of+vec(i), 0)
		}
		for i := range queries {
			k.mulAddLane(vec(parts*i+p), second, of+vec(i), 1)
		}
	}
	k.sum(at, stride, at)
	k.p("SUBS $2, R%d, R%d", left, left)
	k.p("BGE %s", loop)
	k.place(last)
	k.p("CMN $1, R%d", left)
	k.p("BNE %s", end)
	k.weightsOf(weight, of, queries, 1)
	for p := range parts {
		k.load(at, 16*p, pairs)
		k.dwordsLeft(first, pairs, 16)
		for i := range queries {
			k.mulAddLane(vec(parts*i+p), first, of+vec(i), 0)
		}
	}
	k.place(end)
	for i, r := range fold {
		for p := range parts {
			k.store(vec(parts*i+p), r, 16*p)
		}
		k.add(16*parts, r)
	}
	k.add(16*parts, from)
	k.again(dim, 4*parts, chunk)
	k.ret()
}

// weightsOf loads the weights of one token, or of two, for all queries, and advances base.
func (k *kernel) weightsOf(base gp, to vec, queries, tokens int) {
	for i := range queries {
		if tokens == 2 {
			k.loadD(base, pageBytes*i, to+vec(i))
		} else {
			k.loadS(base, pageBytes*i, to+vec(i))
		}
	}
	k.add(4*tokens, base)
}

func most(f *file) {
	k := f.kernel("mostNEON", "(x *float32, n int) float32", "The largest of n values, a whole number of 16.")
	k.arg("x", 0)
	k.arg("n", 1)
	for i := range vec(4) {
		k.load(0, 16*int(i), i)
	}
	loop := k.label()
	k.next(0, 4, 4)
	for i := range vec(4) {
		k.fmax(i, i, 4+i)
	}
	k.again(1, 16, loop)
	k.fmax(0, 0, 1)
	k.fmax(2, 2, 3)
	k.fmax(0, 0, 2)
	k.largest(0, 0)
	k.result(0)
	k.ret()
}

func soften(f *file) {
	k := f.kernel("softenNEON", "(x *float32, most float32, n int) float32",
		"Writes e^(x - most) of n values, a whole number of 16, and returns its sum.")
	k.arg("x", 0)
	k.arg("n", 1)
	k.copy(0, 2)
	const most, sums = vec(16), vec(0)
	k.dwords("most", most)
	k.exponential()
	for i := range vec(4) {
		k.zero(sums + i)
	}
	loop := k.label()
	k.next(0, 4, 4)
	for i := range vec(4) {
		k.fsub(4+i, 4+i, most)
		k.exp(4+i, 4+i)
		k.fadd(sums+i, sums+i, 4+i)
	}
	k.put(4, 4, 2)
	k.again(1, 16, loop)
	k.foldAll()
	k.result(0)
	k.ret()
}
