package cpu

// A gdnUpdate is what a row adds to the state of the gated delta rule: S <- decay S + k delta^T.
type gdnUpdate struct {
	k, delta []float32 // of the keys, and of a strip's values
	decay    float32
}

// A gdnRow is a row of the gated delta rule for a strip of values.
type gdnRow struct {
	k, q, v         []float32
	beta, decay, kq float32   // kq: the product of k and q
	delta, o        []float32 // the results
}

// gdnStepGeneric writes to dst the state src, [keys][stripWidth], as the row before leaves it, and what this row reads of
// it. dst may be src.
//
//	S <- before.decay S + before.k before.delta^T;  delta = beta (v - decay S^T k);  o = decay S^T q + (k q) delta
//
// The last is what S is read as with q once the row has updated it, which the step of the next row does.
func gdnStepGeneric(dst, src []float32, before *gdnUpdate, r *gdnRow) {
	var key, query [stripWidth]float32
	update := (*[stripWidth]float32)(before.delta)
	for i, ki := range r.k {
		s, d := (*[stripWidth]float32)(src[i*stripWidth:]), (*[stripWidth]float32)(dst[i*stripWidth:])
		for j := range d {
			d[j] = before.k[i]*update[j] + float32(before.decay*s[j])
			key[j] += ki * d[j]
			query[j] += r.q[i] * d[j]
		}
	}
	for j := range key {
		r.delta[j] = r.beta * (r.v[j] - r.decay*key[j])
		r.o[j] = r.kq*r.delta[j] + float32(r.decay*query[j])
	}
}

// gdnReplayGeneric makes an update, with the same bits.
func gdnReplayGeneric(dst, src []float32, u *gdnUpdate) {
	update := (*[stripWidth]float32)(u.delta)
	for i, ki := range u.k {
		s, d := (*[stripWidth]float32)(src[i*stripWidth:]), (*[stripWidth]float32)(dst[i*stripWidth:])
		for j := range d {
			d[j] = ki*update[j] + float32(u.decay*s[j])
		}
	}
}
