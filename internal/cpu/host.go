package cpu

import (
	"cmp"
	"runtime"
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// Processor names the machine's processor.
func Processor() string { return cmp.Or(cpuid.CPU.BrandName, runtime.GOARCH) }

// Device names the processor and the level of the backend's kernels.
func (b *Backend) Device() (name string, features []string) {
	return Processor(), []string{b.k.level.String()}
}

// A Host is the machine's kernels for what runs beside a backend. Its methods are safe for concurrent use.
type Host struct{ k *kernels }

// NewHost returns the kernels of the best level, or of the one that LevelVariable forces; nil where that is plain Go.
func NewHost() (*Host, error) {
	k, err := kernelsOf("")
	if err != nil || k.level == Generic || !k.readsFloats {
		return nil, err
	}
	return &Host{k}, nil
}

// BF16 writes W x for each row of x to dst, [rows of x][rows of W]. W has BF16 values, rows of cols of them. Columns are
// summed in 16 parts (dot_generic.go).
func (h *Host) BF16(dst []float32, w []uint16, cols int, x []float32) {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 2*len(w))
	rows := len(w) / cols
	h.k.dot(dst, &floatRows{kind: storedBF16, data: data, rows: rows, cols: cols, lanes: rows}, x, cols, len(x)/cols)
}

// Floats is BF16 of float32 values.
func (h *Host) Floats(dst, w []float32, cols int, x []float32) {
	rows := len(w) / cols
	h.k.dot(dst, &floatRows{values: w, rows: rows, cols: cols, lanes: rows}, x, cols, len(x)/cols)
}

// Soften writes exp(x - the largest of x) and returns its sum (attention_generic.go).
func (h *Host) Soften(x []float32) float32 { return h.k.soften(x, h.k.most(x)) }
