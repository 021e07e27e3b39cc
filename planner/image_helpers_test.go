package planner

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"splash/dequant"
)

// memoryWeights are matrices by the name of their tensor.
type memoryWeights map[string][]dequant.Matrix

func (w memoryWeights) Matrices(t *Tensor) ([]dequant.Matrix, error) {
	m, ok := w[t.Name]
	if !ok {
		return nil, fmt.Errorf("no weights for %s", t.Name)
	}
	return m, nil
}

// memoryFile is a file in memory that remembers which bytes were written, and that none was written twice.
type memoryFile struct {
	data    []byte
	written []byte
	twice   int
}

func newMemoryFile(size int64) *memoryFile {
	return &memoryFile{data: make([]byte, size), written: make([]byte, size)}
}

func (f *memoryFile) WriteAt(b []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(b)) > int64(len(f.data)) {
		return 0, fmt.Errorf("%d bytes at %d of a file of %d", len(b), at, len(f.data))
	}
	for i := range b {
		if f.written[at+int64(i)] != 0 {
			f.twice++
		}
		f.written[at+int64(i)] = 1
	}
	return copy(f.data[at:], b), nil
}

// writeImage writes an image into memory, with one worker.
func writeImage(t testing.TB, m *Image, w Weights, jobBytes int) *memoryFile {
	t.Helper()
	f := newMemoryFile(m.Size)
	iw, err := newImageWriter(m, w, f)
	if err != nil {
		t.Fatal(err)
	}
	iw.workers = iw.workers[:1]
	if err := iw.frame(); err != nil {
		t.Fatal(err)
	}
	if err := iw.run(context.Background(), m.jobs(jobBytes), func(int64) {}); err != nil {
		t.Fatal(err)
	}
	return f
}

// oneImage is an image of the given tensors, as a layer of GDN type, and the same in memory.
func oneImage(t testing.TB, tensors []Tensor, w Weights, jobBytes int) (*Image, *ImageFile) {
	t.Helper()
	m := &Image{Name: "layer-0.bin"}
	var parts []*Tensor
	for i := range tensors {
		parts = append(parts, &tensors[i])
	}
	if err := placeTensors(m, parts, &forms{wideNorms: true}); err != nil {
		t.Fatal(err)
	}
	f, err := ParseImage(writeImage(t, m, w, jobBytes).data, m)
	if err != nil {
		t.Fatal(err)
	}
	return m, f
}

// randomMatrix is a matrix of a type with finite values, stored as GGUF does.
func randomMatrix(rng *rand.Rand, t dequant.Type, rows, cols int) dequant.Matrix {
	f := dequant.Lookup(t)
	m := dequant.Matrix{Format: f, Rows: rows, Cols: cols, Data: make([]byte, rows*f.RowBytes(cols))}
	switch t {
	case dequant.F32:
		for i := range rows * cols {
			binary.LittleEndian.PutUint32(m.Data[4*i:], math.Float32bits(float32(rng.NormFloat64())))
		}
	case dequant.BF16:
		for i := range rows * cols {
			binary.LittleEndian.PutUint16(m.Data[2*i:], dequant.ToBF16(float32(rng.NormFloat64())))
		}
	case dequant.F16:
		for i := range rows * cols {
			binary.LittleEndian.PutUint16(m.Data[2*i:], dequant.ToF16(float32(rng.NormFloat64())))
		}
	default:
		for i := range m.Data {
			m.Data[i] = byte(rng.Uint32())
		}
	}
	return m
}

// bf16Matrix is an F32 matrix whose values BF16 holds.
func bf16Matrix(rng *rand.Rand, rows, cols int) dequant.Matrix {
	m := dequant.Matrix{Format: dequant.Lookup(dequant.F32), Rows: rows, Cols: cols, Data: make([]byte, 4*rows*cols)}
	for i := range rows * cols {
		bits := uint32(dequant.ToBF16(float32(rng.NormFloat64()))) << 16
		binary.LittleEndian.PutUint32(m.Data[4*i:], bits)
	}
	return m
}

// sourceRow is the network's row of a tensor as its matrices and the plan give it: the test's own reading of RowOrder,
// ColOrder and Conversion.
func sourceRow(t testing.TB, tensor *Tensor, all []dequant.Matrix, row int) []float32 {
	t.Helper()
	expert, r := row/tensor.Rows, row%tensor.Rows
	if o := tensor.RowOrder; o != nil && r >= o.From {
		head, element := (r-o.From)/o.Size, (r-o.From)%o.Size
		key, k := head/o.PerKey, head%o.PerKey
		r = o.From + (k*o.KeyHeads+key)*o.Size + element
	}
	m := &all[0]
	if len(all) > 1 {
		m = &all[expert]
	} else {
		r += expert * tensor.Rows
	}
	values := make([]float32, tensor.Cols)
	m.DecodeRow(values, r)
	if o := tensor.ColOrder; o != nil && tensor.Rows == 1 {
		grouped := make([]float32, len(values))
		for i := range grouped {
			key, k := i/o.PerKey, i%o.PerKey
			grouped[i] = values[k*o.KeyHeads+key]
		}
		values = grouped
	}
	for i, v := range values {
		switch tensor.Conversion {
		case OnePlus:
			values[i] = 1 + v
		case NegativeExp:
			values[i] = float32(-math.Exp(float64(v)))
		}
	}
	return values
}

// checkImage compares the rows of an image with its source, of large tensors every fifth; rows beyond a tensor's parts are
// zeros.
func checkImage(t testing.TB, f *ImageFile, w Weights) {
	t.Helper()
	for i := range f.Tensors {
		tensor := &f.Tensors[i]
		got := make([]float32, tensor.Cols)
		row := 0
		for _, part := range tensor.Parts {
			all, err := w.Matrices(part)
			if err != nil {
				t.Fatal(err)
			}
			rows, step := part.Rows*max(1, part.Experts), 1
			if rows > 512 {
				step = 5
			}
			for n := 0; n < rows; n += step {
				f.DecodeRow(tensor, got, row+n)
				want := sourceRow(t, part, all, n)
				if part.Conversion == ToQ8_0 {
					want = throughQ8(t, want)
				}
				checkValues(t, fmt.Sprintf("%s %s row %d", f.Name, part.Name, n), got, want)
			}
			row += rows
		}
		for ; row < tensor.Rows; row++ {
			checkZeroRow(t, f, tensor, row)
		}
	}
}

// throughQ8 quantizes a row to Q8_0 and back.
func throughQ8(t testing.TB, row []float32) []float32 {
	t.Helper()
	f := dequant.Lookup(dequant.Q8_0)
	blocks := make([]byte, f.RowBytes(len(row)))
	if err := dequant.QuantizeQ8_0("test", blocks, row); err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(row))
	f.Decode(out, blocks)
	return out
}

// checkZeroRow holds a row of padding to zero bytes in every plane.
func checkZeroRow(t testing.TB, f *ImageFile, tensor *ImageTensor, row int) {
	t.Helper()
	format := LookupImage(tensor.Type)
	zero := func(s Section, units, size int) {
		for b := range units {
			at := tileIndex(row, b, units) * int64(size)
			if size > 0 && !bytes.Equal(f.Bytes(s)[at:at+int64(size)], make([]byte, size)) {
				t.Fatalf("%s: row %d of padding is not zero", tensor.Name, row)
			}
		}
	}
	zero(tensor.Plane0, tensor.Cols/groupSize, format.Plane0)
	zero(tensor.Plane1, tensor.Cols/groupSize, format.Plane1)
	zero(tensor.Meta, tensor.Cols/format.Block, format.Meta)
}

// checkGaps holds every byte outside the sections to zero.
func checkGaps(t testing.TB, f *ImageFile) {
	t.Helper()
	end := int64(imageHeaderSize)
	gap := func(to int64) {
		for i := end; i < to; i++ {
			if f.Data[i] != 0 {
				t.Fatalf("%s: byte %d between sections is %#x", f.Name, i, f.Data[i])
			}
		}
	}
	for i := range f.Tensors {
		tensor := &f.Tensors[i]
		for _, s := range []Section{tensor.Descriptor, tensor.Plane0, tensor.Plane1, tensor.Meta} {
			if s.Size > 0 {
				gap(s.Offset)
				end = s.end()
			}
		}
	}
	gap(f.Size)
}

// A golden section of fixtures/dequant: blocks, and the values that llama.cpp makes of them.
type goldenBlocks struct {
	format *dequant.Format
	blocks []byte
	values []float32
}

// readGoldens reads the blocks of every type of fixtures/dequant that has planes; its README describes the container.
func readGoldens(t testing.TB) []goldenBlocks {
	t.Helper()
	paths, err := filepath.Glob("../fixtures/dequant/*.bin")
	if err != nil {
		t.Fatal(err)
	}
	var all []goldenBlocks
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(b[:8]) != "SPLDQG01" {
			continue // the values that were quantized
		}
		g := goldenBlocks{format: dequant.Lookup(dequant.Type(binary.LittleEndian.Uint32(b[12:])))}
		if LookupImage(g.format.Type) == nil {
			continue
		}
		sections := binary.LittleEndian.Uint32(b[24:])
		r := bytes.NewReader(b[48:])
		for range sections {
			var h struct {
				Kind, Rows, Cols, Zero uint32
				Size                   uint64
			}
			if err := binary.Read(r, binary.LittleEndian, &h); err != nil {
				t.Fatal(err)
			}
			blocks, values := make([]byte, h.Size), make([]float32, h.Rows*h.Cols)
			if _, err := io.ReadFull(r, blocks); err != nil {
				t.Fatal(err)
			}
			if err := binary.Read(r, binary.LittleEndian, values); err != nil {
				t.Fatal(err)
			}
			g.blocks, g.values = append(g.blocks, blocks...), append(g.values, values...)
		}
		all = append(all, g)
	}
	if len(all) < 20 {
		t.Fatalf("%d types of golden blocks", len(all))
	}
	return all
}
