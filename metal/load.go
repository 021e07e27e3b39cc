//go:build cgo

package metal

import (
	"context"
	"fmt"

	"splash/dequant"
	"splash/internal/model"
	"splash/planner"
)

// A matrix is a projection: planes, or F32 rows.
type matrix struct {
	planes               planeBuffers
	gather, small, large *Kernel // nil for F32 rows
	params               projectParams
	format               string  // of the planes
	gate                 *Kernel // with another of its format; nil until there is one
	codes                *Kernel // of rotated inputs in codes; nil: there is none
	signs                *Buffer // of a rotated input, or a rotated table's inverse; nil: none
	bytes                int64   // of its rows

	host *hostRows // a table that the CPU gathers from, with nothing on the device; nil: another
}

// An expertMatrix is a projection of every expert, in planes.
type expertMatrix struct {
	planes planeBuffers
	kernel *Kernel
	params expertParams
	bytes  int64 // of one expert's rows
}

// find is where an image holds a tensor: the rows of it that are the tensor's begin at first. It is nil where none does.
func (b *Backend) find(t *planner.Tensor) (m *image, in *planner.ImageTensor, first int) {
	for i := range b.images {
		if in = b.images[i].file.Tensor(t.Name); in == nil {
			continue
		}
		first = 0
		for _, part := range in.Parts {
			if part.Name == t.Name {
				return &b.images[i], in, first
			}
			first += part.Rows
		}
	}
	return nil, nil, 0
}

// LoadMatrix finds a projection or a table in the images, or makes planes of its weights.
func (b *Backend) LoadMatrix(w planner.Weights, t *planner.Tensor) (model.Matrix, error) {
	m := matrix{params: projectParams{cols: cUint(t.Cols), outputs: cUint(t.Rows)}}
	if o := t.ColOrder; o != nil {
		m.params.head, m.params.keyHeads, m.params.perKey = cUint(o.Size), cUint(o.KeyHeads), cUint(o.PerKey)
	}
	err := b.loadMatrix(&m, w, t)
	if err == nil && t.Signs != nil {
		m.signs, err = b.rotation(t)
	}
	if err != nil {
		return 0, err
	}
	b.matrices = append(b.matrices, m)
	return model.Matrix(len(b.matrices) - 1), nil
}

func (b *Backend) loadMatrix(m *matrix, w planner.Weights, t *planner.Tensor) (err error) {
	img, in, first := b.find(t)
	if t.Name == ngramTable {
		m.host, err = newHostRows(w, t, img, in)
		return err
	}
	if in == nil {
		if img, in, err = b.make(w, t); err != nil {
			return err
		}
	}
	if rounded(t, in) {
		return fmt.Errorf("metal: %s is asked for in BF16; its image holds 4 bits", t.Name)
	}
	m.params.first = cUint(first)
	if in.Form == planner.Planes {
		f := planner.LookupImage(in.Type)
		m.format = f.Name
		for name, k := range map[string]**Kernel{"gather_": &m.gather, "project_": &m.small, "project_wide_": &m.large} {
			if *k, err = b.device.Kernel(name + f.Name); err != nil {
				return err
			}
		}
		if in.Type == dequant.PQ2_0 && t.Cols%codeBlock == 0 {
			m.codes = b.kernels.projectInt8
		}
		m.planes, m.bytes = planesOf(img.buffer, in), planeBytes(f, t.Rows, t.Cols)
		return nil
	}
	m.bytes = 4 * int64(t.Rows) * int64(t.Cols)
	if in.Type == dequant.F32 {
		m.planes.plane0 = img.buffer.from(in.Plane0.Offset)
		return nil
	}
	// A router in another type, which its image has as stored.
	m.params.first = 0
	values, err := b.float32s(t.Rows*t.Cols, func(dst []float32) error {
		for i := range t.Rows {
			img.file.DecodeRow(in, dst[i*t.Cols:(i+1)*t.Cols], first+i)
		}
		return nil
	})
	if err == nil {
		m.planes.plane0 = values.from(0)
	}
	return err
}

// float32s is a buffer of n values that fill writes.
func (b *Backend) float32s(n int, fill func(dst []float32) error) (*Buffer, error) {
	buf, err := b.device.NewBuffer(4 * n)
	if err != nil {
		return nil, err
	}
	b.owned = append(b.owned, buf)
	if b.device.isDry() {
		return buf, nil
	}
	return buf, fill(view[float32](buf))
}

// LoadExperts finds a projection of every expert in the images, or makes planes of its weights.
func (b *Backend) LoadExperts(w planner.Weights, t *planner.Tensor) (model.Experts, error) {
	if t.Experts > maxExperts {
		return 0, fmt.Errorf("metal: %s has %d experts; the kernels take up to %d", t.Name, t.Experts, maxExperts)
	}
	img, in, _ := b.find(t)
	if in == nil {
		var err error
		if img, in, err = b.make(w, t); err != nil {
			return 0, err
		}
	}
	if in.Form != planner.Planes {
		return 0, fmt.Errorf("metal: the experts of %s are %s rows, which no kernel reads", t.Name, in.Type)
	}
	f := planner.LookupImage(in.Type)
	k, err := b.device.Kernel("experts_" + f.Name)
	if err != nil {
		return 0, err
	}
	b.experts = append(b.experts, expertMatrix{
		planes: planesOf(img.buffer, in), kernel: k, bytes: planeBytes(f, t.Rows, t.Cols),
		params: expertParams{cols: cUint(t.Cols), outputs: cUint(t.Rows), stride: cUint(in.Rows / t.Experts)},
	})
	return model.Experts(len(b.experts) - 1), nil
}

// planeBytes are those of rows in planes.
func planeBytes(f *planner.ImageFormat, rows, cols int) int64 {
	return int64(rows) * int64(cols/f.Block) * int64(f.Groups()*(f.Plane0+f.Plane1)+f.Meta)
}

// LoadVector copies a small tensor as F32 values.
func (b *Backend) LoadVector(w planner.Weights, t *planner.Tensor) (model.Vector, error) {
	buf, err := b.device.NewBuffer(4 * t.Rows * t.Cols)
	if err != nil {
		return 0, err
	}
	b.vectors = append(b.vectors, buf)
	if b.device.isDry() {
		return model.Vector(len(b.vectors) - 1), nil
	}
	if img, in, first := b.find(t); in != nil {
		for i := range t.Rows {
			img.file.DecodeRow(in, view[float32](buf)[i*t.Cols:(i+1)*t.Cols], first+i)
		}
	} else if err := decodeVector(view[float32](buf), w, t); err != nil {
		return 0, err
	}
	return model.Vector(len(b.vectors) - 1), nil
}

// decodeVector writes the values of a tensor in the network's order, as they are loaded.
func decodeVector(dst []float32, w planner.Weights, t *planner.Tensor) error {
	stored, err := w.Matrices(t)
	if err != nil {
		return err
	}
	for i := range stored {
		row := make([]float32, stored[i].Cols)
		for r := range stored[i].Rows {
			if len(dst) < len(row) {
				return fmt.Errorf("metal: %s is longer than %d x %d", t.Name, t.Rows, t.Cols)
			}
			stored[i].DecodeRow(row, t.RowOrder.Source(r))
			for c := range row {
				dst[c] = t.Conversion.Of(row[t.ColOrder.Source(c)])
			}
			dst = dst[len(row):]
		}
	}
	if len(dst) > 0 {
		return fmt.Errorf("metal: %s is shorter than %d x %d", t.Name, t.Rows, t.Cols)
	}
	return nil
}

// make puts the weights of a tensor in planes, or F32 rows where their type or shape has none, in memory of the backend's.
func (b *Backend) make(w planner.Weights, t *planner.Tensor) (*image, *planner.ImageTensor, error) {
	stored, err := w.Matrices(t)
	if err != nil {
		return nil, nil, err
	}
	tensor, matrices := padded(t, stored)
	if f := planner.LookupImage(tensor.Type); f == nil || t.Cols%f.Columns() != 0 {
		tensor.Role = planner.Indexer // described rows of F32
	}
	p := &planner.Plan{Tensors: []planner.Tensor{tensor}}
	plan, err := planner.PlanImages(p)
	if err != nil {
		return nil, nil, err
	}
	images, err := planner.BuildImages(context.Background(), plan, givenWeights(matrices))
	if err != nil {
		return nil, nil, err
	}
	file := images.Files[0]
	buf, err := b.device.Wrap(file.Data)
	if err != nil {
		return nil, nil, err
	}
	b.owned = append(b.owned, buf)
	return &image{file, buf}, &file.Tensors[0], nil
}

// givenWeights are the matrices of one tensor.
type givenWeights []dequant.Matrix

func (g givenWeights) Matrices(*planner.Tensor) ([]dequant.Matrix, error) { return g, nil }

// padded is a tensor whose matrices have the network's order of rows and whole tiles of them. The rows beyond are zero bytes,
// which nothing reads.
func padded(t *planner.Tensor, stored []dequant.Matrix) (planner.Tensor, []dequant.Matrix) {
	const tile = 64
	out := *t
	out.Layer, out.Role, out.RowOrder, out.ColOrder, out.Signs = -1, planner.Linear, nil, nil, nil
	if len(stored) > 0 {
		out.Type = stored[0].Format.Type
	}
	out.Rows = (t.Rows + tile - 1) / tile * tile
	if out.Rows == t.Rows && t.RowOrder == nil {
		return out, stored
	}
	all := make([]dequant.Matrix, len(stored))
	for i, m := range stored {
		all[i] = m
		all[i].Rows = out.Rows
		all[i].Data = reordered(m.Data, m.Rows, out.Rows, t.RowOrder)
		all[i].Scales = reordered(m.Scales, m.Rows, out.Rows, t.RowOrder)
		all[i].Biases = reordered(m.Biases, m.Rows, out.Rows, t.RowOrder)
		if len(m.Global) > 1 {
			all[i].Global = make([]float32, out.Rows)
			for r := range m.Rows {
				all[i].Global[r] = m.Global[t.RowOrder.Source(r)*len(m.Global)/m.Rows]
			}
		}
	}
	return out, all
}

// reordered is rows of bytes in the network's order, with zeros up to more rows.
func reordered(data []byte, rows, more int, order *planner.HeadOrder) []byte {
	if data == nil || rows == 0 {
		return data
	}
	size := len(data) / rows
	out := make([]byte, more*size)
	for r := range rows {
		copy(out[r*size:(r+1)*size], data[order.Source(r)*size:])
	}
	return out
}
