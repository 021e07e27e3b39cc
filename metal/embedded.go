//go:build cgo

package metal

import "splash/internal/model"

// An embedding is the rows of a pass that have values of their own in place of the token table's.
type embedding struct {
	values *Buffer // [rows of a pass][hidden]; nil until there are some
	runs   []span
}

// A span is consecutive rows.
type span struct{ first, count int }

// embed gives the pass's next row its values.
func (b *Backend) embed(values []float32) (err error) {
	e, width := &b.embedded, b.layout.Hidden
	if e.values == nil {
		if err := allocate[float32](b, &e.values, b.maxRows*width); err != nil {
			return err
		}
	}
	copy(view[float32](e.values)[b.rows*width:(b.rows+1)*width], values)
	if last := len(e.runs) - 1; last >= 0 && e.runs[last].first+e.runs[last].count == b.rows {
		e.runs[last].count++
		return nil
	}
	e.runs = append(e.runs, span{b.rows, 1})
	return nil
}

// placeEmbedded copies the values over the gathered rows.
func (b *Backend) placeEmbedded(dst model.Buffer) {
	width := b.buffers[dst].width
	for _, r := range b.embedded.runs {
		at := 4 * int64(r.first) * int64(width)
		add(&b.commands, b.kernels.copyRows, copyGrid(r.count, width), copyParams{width: cUint(width)},
			b.embedded.values.from(at), b.everyRow.from(0), b.buffers[dst].from(at))
	}
}
