package main

// peakKernels multiply in registers, twelve chains a round.
func peakKernels(f *file) {
	for _, integers := range []bool{false, true} {
		name, doc := "peakFloatsNEON", "Multiplies and adds float32 in twelve chains."
		if integers {
			name, doc = "peakIntsNEON", "Multiplies and adds bytes in twelve chains."
		}
		k := f.kernel(name, "(rounds int)", doc)
		k.arg("rounds", 0)
		for v := range vec(14) {
			k.zero(v)
		}
		loop := k.label()
		for v := range vec(12) {
			if integers {
				k.dot(v, 12, 13)
			} else {
				k.mulAdd(v, 12, 13)
			}
		}
		k.again(0, 1, loop)
		k.ret()
	}
}
