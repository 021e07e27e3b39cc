package cpu

// gdnStepGeneric is a row of the gated delta rule for a strip of values: S is [keys][stripWidth], dst gets it from src,
// which may be dst.
//
//	delta = beta (v - decay S^T k);  S <- decay S + k delta^T;  o = S^T q
func gdnStepGeneric(dst, src, k, q, v, o, delta []float32, beta, decay float32) {
	var read, out [stripWidth]float32
	for i, ki := range k {
		s := (*[stripWidth]float32)(src[i*stripWidth:])
		for j := range read {
			read[j] += ki * s[j]
		}
	}
	for j := range read {
		delta[j] = beta * (v[j] - decay*read[j])
	}
	update := (*[stripWidth]float32)(delta)
	for i, ki := range k {
		s, d := (*[stripWidth]float32)(src[i*stripWidth:]), (*[stripWidth]float32)(dst[i*stripWidth:])
		for j := range out {
			d[j] = ki*update[j] + float32(decay*s[j])
			out[j] += q[i] * d[j]
		}
	}
	copy(o, out[:])
}

// gdnReplayGeneric is the update of gdnStepGeneric, with the same bits.
func gdnReplayGeneric(dst, src, k, delta []float32, decay float32) {
	update := (*[stripWidth]float32)(delta)
	for i, ki := range k {
		s, d := (*[stripWidth]float32)(src[i*stripWidth:]), (*[stripWidth]float32)(dst[i*stripWidth:])
		for j := range d {
			d[j] = ki*update[j] + float32(decay*s[j])
		}
	}
}
