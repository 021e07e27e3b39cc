package main

// gdnKernels are the gated delta rule for a strip of 16 values (gdn_generic.go).
func gdnKernels(f *file) {
	gdnStep(f)
	gdnReplay(f)
}

// gdnStep makes the update of the row before, key after key, and reads the keys as they are made with k and with q, each in
// two chains.
func gdnStep(f *file) {
	k := f.kernel("gdnStepNEON", "(dst, src, beforeK, beforeDelta, k, q, v, delta, o *float32, "+
		"beforeDecay, beta, decay, kq float32, keys int, ahead *float32)",
		"A row of the gated delta rule for a strip of 16 values and a whole number of 4 keys, as long a strip fetched ahead.")
	const dst, src, beforeK, key, query, v, delta, o, keys, next = gp(0), gp(1), gp(2), gp(4), gp(5), gp(6), gp(7), gp(8), gp(9), gp(10)
	for i, name := range []string{"dst", "src", "beforeK", "beforeDelta", "k", "q", "v", "delta", "o", "keys", "ahead"} {
		k.arg(name, gp(i))
	}
	const update, byKey, byQuery, fade = vec(0), vec(4), vec(12), vec(27)
	k.next(3, update, 4)
	k.dwords("beforeDecay", fade)
	for i := range vec(16) {
		k.zero(byKey + i)
	}
	const state, before, keyed, asked = vec(20), vec(24), vec(25), vec(26)
	loop := k.label()
	k.next(beforeK, before, 1)
	k.next(key, keyed, 1)
	k.next(query, asked, 1)
	for i := range 4 {
		k.p("PRFM %d(R%d), PLDL1KEEP", 64*i, next)
		k.next(src, state, 4)
		for p := range vec(4) {
			k.fmul(state+p, state+p, fade)
		}
		for p := range vec(4) {
			k.mulAddLane(state+p, update+p, before, i)
		}
		chain := 4 * vec(i%2)
		for p := range vec(4) {
			k.mulAddLane(byKey+chain+p, state+p, keyed, i)
			k.mulAddLane(byQuery+chain+p, state+p, asked, i)
		}
		k.put(state, 4, dst)
	}
	k.add(256, next)
	k.again(keys, 4, loop)
	const beta, decay, kq = vec(24), vec(25), vec(26)
	k.dwords("beta", beta)
	k.dwords("decay", decay)
	k.dwords("kq", kq)
	k.next(v, state, 4)
	for p := range vec(4) {
		k.fadd(byKey+p, byKey+p, byKey+4+p)
		k.fadd(byQuery+p, byQuery+p, byQuery+4+p)
		k.mulSub(state+p, byKey+p, decay)
		k.fmul(state+p, state+p, beta)
		k.fmul(byQuery+p, byQuery+p, decay)
		k.mulAdd(byQuery+p, state+p, kq)
	}
	k.put(state, 4, delta)
	k.put(byQuery, 4, o)
	k.ret()
}

// gdnReplay makes an update as gdnStep does, operation for operation.
func gdnReplay(f *file) {
	k := f.kernel("gdnReplayNEON", "(dst, src, k, delta *float32, decay float32, keys int)",
		"The update of a row of the gated delta rule, with the same bits.")
	const dst, src, key, keys = gp(0), gp(1), gp(2), gp(4)
	for i, name := range []string{"dst", "src", "k", "delta", "keys"} {
		k.arg(name, gp(i))
	}
	const update, state, keyed, decay = vec(0), vec(20), vec(24), vec(27)
	k.next(3, update, 4)
	k.dwords("decay", decay)
	loop := k.label()
	k.next(key, keyed, 1)
	for i := range 4 {
		k.next(src, state, 4)
		for p := range vec(4) {
			k.fmul(state+p, state+p, decay)
			k.mulAddLane(state+p, update+p, keyed, i)
		}
		k.put(state, 4, dst)
	}
	k.again(keys, 4, loop)
	k.ret()
}
