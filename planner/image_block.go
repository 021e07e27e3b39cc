package planner

import (
	"encoding/binary"
	"fmt"
	"math"

	"splash/dequant"
)

// oneF32 is the scale in the blocks of BF16 and F16 rows.
var oneF32 = math.Float32bits(1)

// A blockBuilder reads the rows of a tensor's matrices as the native blocks of its image format (formats.md 5.7): in
// place where the container has them, else built in a buffer of its own.
type blockBuilder struct {
	name   string // of the tensor, for errors
	build  func(b *blockBuilder, m *dequant.Matrix, row, i int) error
	size   int // bytes of a native block
	block  int // its weights
	buffer [516]byte
	values [64]float32
}

// newBlockBuilder returns the reader of matrices like m in the blocks of type t, of so many weights and bytes.
func newBlockBuilder(name string, t dequant.Type, m *dequant.Matrix, block, size int) (*blockBuilder, error) {
	b := &blockBuilder{name: name, block: block, size: size}
	from, apart := m.Format.Type, m.Scales != nil
	switch {
	case apart && t == from && t == dequant.MXFP4:
		b.build = buildMXFP4
	case apart && t == from && t == dequant.NVFP4Rows:
		b.build = buildNVFP4
	case apart && t == from && m.Biases != nil:
		b.build = buildAffine
	case t == from && t == dequant.FP8Rows && m.Global != nil:
		b.build = buildFP8
	case t == from && (t == dequant.BF16 || t == dequant.F16):
		b.build = buildHalves
	case t == from && !apart:
		return b, nil // in place
	case t == dequant.NVFP4Rows && from == dequant.NVFP4:
		b.build = repackNVFP4
	case t == dequant.Q8_0 && (from == dequant.BF16 || from == dequant.F16):
		b.build = buildQ8
	case t == dequant.Affine(4, 64) && from == dequant.BF16:
		b.build = buildAffine4
	default:
		return nil, fmt.Errorf("%s: %s is not loaded as %s", name, m.Format.Name, t)
	}
	return b, nil
}

// read returns native block i of a row, valid until the next call.
func (b *blockBuilder) read(m *dequant.Matrix, row, i int) ([]byte, error) {
	if b.build == nil {
		return m.Data[row*(m.Cols/b.block*b.size)+i*b.size:][:b.size], nil
	}
	if err := b.build(b, m, row, i); err != nil {
		return nil, err
	}
	return b.buffer[:b.size], nil
}

// buildAffine puts MLX's scale and bias before the group's run of the row's bit string.
func buildAffine(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	group := row*(m.Cols/b.block) + i
	copy(b.buffer[0:2], m.Scales[2*group:])
	copy(b.buffer[2:4], m.Biases[2*group:])
	copy(b.buffer[4:b.size], m.Data[group*(b.size-4):])
	return nil
}

// buildMXFP4 puts MLX's codes, element 2i beside element 2i+1, into GGML's order, element i beside element 16+i.
func buildMXFP4(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	group := row*(m.Cols/groupSize) + i
	b.buffer[0] = m.Scales[group]
	codes := m.Data[16*group:][:16]
	for k := range 8 {
		low, high := codes[k], codes[8+k]
		b.buffer[1+2*k] = low&15 | high<<4
		b.buffer[2+2*k] = low>>4 | high&0xf0
	}
	return nil
}

// buildNVFP4 gathers 16 scales, g, and 256 codes.
func buildNVFP4(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	at := row*(m.Cols/256) + i
	copy(b.buffer[0:16], m.Scales[16*at:])
	binary.LittleEndian.PutUint32(b.buffer[16:], math.Float32bits(globalScale(m, row)))
	copy(b.buffer[20:148], m.Data[128*at:])
	return nil
}

// repackNVFP4 makes one block of 256 of four of GGUF's 64, whose scales ignore bit 7 and read 0 at 0x7f, and whose codes
// pair element i with element 8+i of 16.
func repackNVFP4(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	const bytes = 36
	src := m.Data[(row*(m.Cols/256)+i)*4*bytes:][:4*bytes]
	binary.LittleEndian.PutUint32(b.buffer[16:], math.Float32bits(globalScale(m, row)))
	for q := range 4 {
		block := src[bytes*q:][:bytes]
		for s, d := range block[:4] {
			if d == 0x7f {
				d = 0
			}
			b.buffer[4*q+s] = d & 0x7f
			pairCodes(b.buffer[20+32*q+8*s:][:8], block[4+8*s:][:8])
		}
	}
	return nil
}

// pairCodes puts 16 codes that stand as low nibbles, then high nibbles, in plain order.
func pairCodes(dst, src []byte) {
	v := binary.LittleEndian.Uint64(src)
	binary.LittleEndian.PutUint32(dst, nibbles(v&lowNibbles))
	binary.LittleEndian.PutUint32(dst[4:], nibbles(v>>4&lowNibbles))
}

// buildFP8 puts g before 256 values.
func buildFP8(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	binary.LittleEndian.PutUint32(b.buffer[:], math.Float32bits(globalScale(m, row)))
	copy(b.buffer[4:260], m.Data[row*m.Cols+256*i:])
	return nil
}

// buildHalves puts a scale of 1 before 256 values of 16 bits.
func buildHalves(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	binary.LittleEndian.PutUint32(b.buffer[:], oneF32)
	copy(b.buffer[4:516], m.Data[2*(row*m.Cols+256*i):])
	return nil
}

// buildQ8 quantizes 32 values by GGML's reference rounding.
func buildQ8(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	values := b.values[:32]
	m.Format.Decode(values, m.Data[2*(row*m.Cols+32*i):][:64])
	return dequant.QuantizeQ8_0(b.name, b.buffer[:34], values)
}

// buildAffine4 quantizes 64 values of a draft's projection as MLX rounds them.
func buildAffine4(b *blockBuilder, m *dequant.Matrix, row, i int) error {
	m.Format.Decode(b.values[:], m.Data[2*(row*m.Cols+64*i):][:128])
	return dequant.QuantizeAffine4(b.name, b.buffer[:36], b.values[:])
}

// globalScale is the tensor scale g of a row: 1 where the matrix has none.
func globalScale(m *dequant.Matrix, row int) float32 {
	if len(m.Global) == 0 {
		return 1
	}
	return m.Global[row/(m.Rows/len(m.Global))]
}

// A partRows finds the rows of one of a tensor's parts in its matrices.
type partRows struct {
	tensor   *Tensor
	matrices []dequant.Matrix
	each     int // rows of a matrix
	rows     int // of the part, experts stacked
}

// openPart asks for a part's matrices and holds them to the plan: shape, type, bytes, tensor scales.
func openPart(w Weights, t *Tensor) (*partRows, error) {
	matrices, err := w.Matrices(t)
	if err != nil {
		return nil, err
	}
	p := &partRows{tensor: t, matrices: matrices, rows: t.Rows * max(1, t.Experts)}
	if len(matrices) == 0 || p.rows%len(matrices) != 0 {
		return nil, fmt.Errorf("unexpected shape for %s: %d matrices for %d rows", t.Name, len(matrices), p.rows)
	}
	p.each = p.rows / len(matrices)
	for i := range matrices {
		m := &matrices[i]
		if m.Rows != p.each || m.Cols != t.Cols {
			return nil, fmt.Errorf("unexpected shape for %s: [%d, %d], expected [%d, %d]", t.Name, m.Rows, m.Cols, p.each, t.Cols)
		}
		if m.Format == nil || m.Format.Type != t.Type {
			return nil, fmt.Errorf("%s is %v, its plan says %s", t.Name, m.Format, t.Type)
		}
		if (m.Scales != nil) != (matrices[0].Scales != nil) || (m.Global != nil) != (matrices[0].Global != nil) {
			return nil, fmt.Errorf("the experts of %s are stored in different ways", t.Name)
		}
		if err := m.Check(); err != nil {
			return nil, fmt.Errorf("unexpected size for %s: %w", t.Name, err)
		}
	}
	return p, nil
}

// row finds the network's row n of the part: its matrix, and its row there.
func (p *partRows) row(n int) (*dequant.Matrix, int) {
	if o := p.tensor.RowOrder; o != nil && p.tensor.Rows > 1 {
		n = n/p.tensor.Rows*p.tensor.Rows + o.Source(n%p.tensor.Rows)
	}
	return &p.matrices[n/p.each], n % p.each
}

// A rowWriter writes the rows of a tensor that is not planes.
type rowWriter struct {
	part    *partRows
	to      dequant.Type
	builder *blockBuilder // of native rows that the container does not have
	copies  bool          // the container's rows are the image's
	values  []float32
}

// newRowWriter returns the writer of a part's rows as type to.
func newRowWriter(p *partRows, to dequant.Type) (*rowWriter, error) {
	t, m := p.tensor, &p.matrices[0]
	w := &rowWriter{part: p, to: to}
	inPlace := m.Format.Type == to && m.Scales == nil && m.Global == nil
	permuted := t.ColOrder != nil || t.Rows == 1 && t.RowOrder != nil
	switch f := dequant.Lookup(to); {
	case inPlace && t.Conversion == AsStored && !permuted:
		w.copies = true
	case to == dequant.F32 || to == dequant.BF16:
		w.values = make([]float32, 2*t.Cols)
	default:
		b, err := newBlockBuilder(t.Name, to, m, f.Block, f.Bytes)
		if err != nil {
			return nil, err
		}
		w.builder = b
	}
	return w, nil
}

// write writes the network's row n of the part.
func (w *rowWriter) write(dst []byte, n int) error {
	m, row := w.part.row(n)
	switch {
	case w.copies:
		copy(dst, m.Data[row*len(dst):][:len(dst)])
		return nil
	case w.builder != nil:
		for i := 0; len(dst) > 0; i++ {
			block, err := w.builder.read(m, row, i)
			if err != nil {
				return err
			}
			dst = dst[copy(dst, block):]
		}
		return nil
	}
	values := w.convert(m, row)
	if w.to == dequant.BF16 {
		return exactBF16(w.part.tensor.Name, dst, values)
	}
	for i, v := range values {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
	return nil
}

// convert gives the F32 values of a row in the network's order, converted as the plan says.
func (w *rowWriter) convert(m *dequant.Matrix, row int) []float32 {
	t := w.part.tensor
	values, order := w.values[:t.Cols], t.ColOrder
	if t.Rows == 1 && order == nil {
		order = t.RowOrder // of a vector the rows are its elements
	}
	m.DecodeRow(values, row)
	if order != nil {
		permuted := w.values[t.Cols:]
		for i := range permuted {
			permuted[i] = values[order.Source(i)]
		}
		values = permuted
	}
	switch t.Conversion {
	case OnePlus:
		for i, v := range values {
			values[i] = 1 + v
		}
	case NegativeExp:
		for i, v := range values {
			values[i] = float32(-math.Exp(float64(v)))
		}
	}
	return values
}

// exactBF16 writes values that BF16 holds exactly, and refuses any other (formats.md 8.1): loading never rounds a weight.
func exactBF16(name string, dst []byte, values []float32) error {
	for i, v := range values {
		b := math.Float32bits(v)
		switch {
		case v-v != 0:
			return fmt.Errorf("%s holds a value that is not finite: element %d is %v", name, i, v)
		case b&0xffff != 0:
			return fmt.Errorf("%s is not bf16-exact; it needs an F32 path", name)
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(b>>16))
	}
	return nil
}
