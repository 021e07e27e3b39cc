package cpu

import "time"

// readTask reads memory and computes next to nothing on it.
type readTask struct {
	k *kernels
	x []float32
}

// readPart is the number of values of a part: 64 KiB.
const readPart = 16 << 10

func (t *readTask) run(_, first, last int) {
	t.k.most(t.x[first*readPart : min(last*readPart, len(t.x))])
}

// ReadMemory has the workers read x together, once, and returns how long that took: what a pass that only read its weights
// would take. It must not run beside a pass.
func (b *Backend) ReadMemory(x []float32) time.Duration {
	began := time.Now()
	b.pool.run(&readTask{b.k, x}, (len(x)+readPart-1)/readPart, 1)
	return time.Since(began)
}
