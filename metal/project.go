//go:build cgo

package metal

import "splash/planner"

// A planeBuffers is where the planes of a tensor are.
type planeBuffers struct{ plane0, plane1, meta binding }

// planesOf finds a tensor's planes in the buffer of its image. A format without a second plane reads nothing there.
func planesOf(image *Buffer, t *planner.ImageTensor) planeBuffers {
	p := planeBuffers{image.from(t.Plane0.Offset), image.from(t.Plane0.Offset), image.from(t.Meta.Offset)}
	if t.Plane1.Size > 0 {
		p.plane1 = image.from(t.Plane1.Offset)
	}
	return p
}

// wideRows is the number of rows from which the wide tile of the projections is taken.
const wideRows = 9

// projectGrid is the grid of a projection of so many rows and outputs, and whether its tile is the wide one of 64 rows.
func projectGrid(rows, outputs int) (g grid, wide bool) {
	tile, cols := 8, 128
	if wide = rows >= wideRows; wide {
		tile, cols = 64, 64
	}
	return grid{x: (outputs + 63) / 64, y: (rows + tile - 1) / tile, threads: 256, shared: 4 * cols * tile}, wide
}

// splitBelow is the number of threadgroups from which on a projection fills a GPU without splitting its sums.
const splitBelow = 256

// columnParts is the number of parts that the sums of so many columns are made of.
func columnParts(cols int) int { return (cols + partCols - 1) / partCols }

func sumGrid(outputs, rows int) grid { return grid{x: (outputs + 255) / 256, y: rows, threads: 256} }

// gatherGrid is that of a gather of rows.
func gatherGrid(rows, cols int) grid { return grid{x: (cols + 255) / 256, y: rows, threads: 256} }
