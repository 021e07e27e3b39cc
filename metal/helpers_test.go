//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"splash/dequant"
	"splash/planner"
)

// u is the unit roundoff of F32.
const u = 0x1p-24

// open opens a device for a test.
func open(t testing.TB, kind string) *Device {
	t.Helper()
	d, err := Open(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// A bench is a device, commands on it and its kernels, for the tests of one operator. What it dispatches is counted.
type bench struct {
	t testing.TB
	*Device
	commands Commands
}

// checkKind is the device that operators are tested on: with every access checked where there is one.
func checkKind() string {
	kinds := Devices()
	return kinds[len(kinds)-1]
}

func newBench(t testing.TB) *bench { return &bench{t: t, Device: open(t, checkKind())} }

// newFastBench is on the preferred device, for cases of many rows.
func newFastBench(t testing.TB) *bench { return &bench{t: t, Device: open(t, Devices()[0])} }

var (
	dispatchedMu sync.Mutex
	dispatched   = make(map[string]int)
)

func (b *bench) kernel(name string) *Kernel {
	b.t.Helper()
	k, err := b.Kernel(name)
	if err != nil {
		b.t.Fatal(err)
	}
	dispatchedMu.Lock()
	dispatched[name]++
	dispatchedMu.Unlock()
	return k
}

// run runs what was recorded, once.
func (b *bench) run() {
	b.t.Helper()
	if err := b.try(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) try() error {
	err := b.Run(&b.commands)
	if w := b.Wait(); err == nil {
		err = w
	}
	b.commands.Reset()
	return err
}

// empty is a buffer of n values of a type, which hold anything.
func empty[T any](b *bench, n int) *Buffer {
	b.t.Helper()
	buf, err := b.NewBuffer(n * int(sizeOf[T]()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(buf.Free)
	return buf
}

// filled is a buffer of values.
func filled[T any](b *bench, values []T) *Buffer {
	b.t.Helper()
	buf := empty[T](b, max(1, len(values)))
	copy(view[T](buf), values)
	return buf
}

func normals(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// A ratio keeps the worst error over its bound, and reports it.
type ratio struct {
	worst float64
	cases int
	first string
}

func (r *ratio) check(got float32, want, bound float64, format string, args ...any) {
	q := math.Abs(float64(got)-want) / bound
	if q != q {
		q = math.Inf(1) // no number is worse than any
	}
	if !(q <= 1) && r.first == "" {
		r.first = fmt.Sprintf(format, args...) + fmt.Sprintf(": %v, want %v within %.3g", got, want, bound)
	}
	r.worst = max(r.worst, q)
	r.cases++
}

func (r *ratio) report(t testing.TB, name string) {
	t.Helper()
	t.Logf("%-20s %7d values, worst error / bound %.3f", name, r.cases, r.worst)
	if !(r.worst <= 1) {
		t.Errorf("%s: %s", name, r.first)
	}
}

// memoryWeights are matrices by the name of their tensor.
type memoryWeights map[string][]dequant.Matrix

func (w memoryWeights) Matrices(t *planner.Tensor) ([]dequant.Matrix, error) {
	m, ok := w[t.Name]
	if !ok {
		return nil, fmt.Errorf("no weights for %s", t.Name)
	}
	return m, nil
}

// randomMatrix has blocks of random bytes whose values are finite and of moderate size, the largest between 2^-6 and 16.
func randomMatrix(rng *rand.Rand, kind dequant.Type, rows, cols int) dequant.Matrix {
	f := dequant.Lookup(kind)
	m := dequant.Matrix{Format: f, Rows: rows, Cols: cols, Data: make([]byte, rows*f.RowBytes(cols))}
	if kind == dequant.FP8Rows {
		m.Data, m.Global = make([]byte, rows*cols), []float32{0.01}
		for i := range m.Data {
			m.Data[i] = byte(rng.Uint32())
		}
		return m
	}
	values := make([]float32, f.Block)
	for at := 0; at < len(m.Data); at += f.Bytes {
		block := m.Data[at:][:f.Bytes]
		for {
			for i := range block {
				block[i] = byte(rng.Uint32())
			}
			f.Decode(values, block)
			largest := 0.0
			for _, v := range values {
				if a := math.Abs(float64(v)); !(a <= largest) {
					largest = a
				}
			}
			if largest >= 0x1p-6 && largest <= 16 {
				break
			}
		}
	}
	return m
}

// sourceType is the type that a GGUF or checkpoint stores an image format's values in.
func sourceType(f *planner.ImageFormat) dequant.Type {
	if f.Type == dequant.NVFP4Rows {
		return dequant.NVFP4
	}
	return f.Type
}

// planes writes matrices, by name, into one image by the planner's writer and maps it.
func planes(t testing.TB, all map[string]dequant.Matrix) *planner.ImageFile {
	t.Helper()
	p := new(planner.Plan)
	w := make(memoryWeights)
	for name, m := range all {
		p.Tensors = append(p.Tensors, planner.Tensor{
			Name: name, Layer: -1, Role: planner.Linear, Rows: m.Rows, Cols: m.Cols, Type: m.Format.Type,
		})
		w[name] = []dequant.Matrix{m}
	}
	plan, err := planner.PlanImages(p)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(t.TempDir(), "images")
	if err != nil {
		t.Fatal(err)
	}
	if err := planner.MakeImages(context.Background(), dir, plan, w, nil, nil); err != nil {
		t.Fatal(err)
	}
	images, err := planner.OpenImages(context.Background(), dir, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { images.Close() })
	return images.Image("head.bin")
}

func (b *bench) wrap(memory []byte) *Buffer {
	b.t.Helper()
	buf, err := b.Wrap(memory)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(buf.Free)
	return buf
}
