package media

import (
	"image"
	"math"
)

// precision is the number of binary places of the filter's coefficients: 8 bits of a 32-bit sum are the channel's, and two
// keep the sums of a filter that is negative in places from overflowing.
const precision = 32 - 8 - 2

// A filter is the coefficients of one output pixel over the input pixels from first on.
type filter struct {
	first        int
	coefficients []int32
}

// cubic is the bicubic convolution kernel with a = -0.5, whose support is 2.
//
// Source: Keys, Cubic convolution interpolation for digital image processing, 1981.
func cubic(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

// filters returns the filter of every output pixel. Where the image shrinks the kernel is widened by the scale, so that
// every input pixel counts. The arithmetic is Pillow's (libImaging/Resample.c): centers at (i + 0.5) scale, bounds
// truncated after adding one half, coefficients normalized in float64 and rounded, halves away from zero, to fixed point.
func filters(in, out int) []filter {
	const radius = 2
	scale := float64(in) / float64(out)
	wide := max(scale, 1)
	support, narrow := radius*wide, 1/wide
	all := make([]filter, out)
	weights := make([]float64, 0, int(math.Ceil(support))*2+1)
	for i := range all {
		center := (float64(i) + 0.5) * scale
		first := max(0, int(center-support+0.5))
		last := min(in, int(center+support+0.5))
		weights = weights[:0]
		var sum float64
		for j := first; j < last; j++ {
			w := cubic((float64(j) - center + 0.5) * narrow)
			weights = append(weights, w)
			sum += w
		}
		c := make([]int32, len(weights))
		for j, w := range weights {
			k := w / sum * (1 << precision)
			c[j] = int32(k + math.Copysign(0.5, k))
		}
		all[i] = filter{first, c}
	}
	return all
}

// clip rounds a fixed-point sum to a channel; the half was added before.
func clip(sum int32) uint8 {
	return uint8(min(max(sum>>precision, 0), 255))
}

// resize scales a canvas, which is opaque, to RGB pixels of the size: horizontally first, then vertically, each pass
// rounded to 8 bits. A pass that would change nothing is left out, as Pillow leaves it out.
func resize(m *canvas, width, height int) []byte {
	w, h := m.size()
	src, step, stride := m.Pix, 4, m.Stride
	if w != width {
		src, step, stride = resizeRows(src, step, stride, filters(w, width), h), 3, 3*width
	}
	if h != height {
		src, step, stride = resizeColumns(src, step, stride, width, filters(h, height)), 3, 3*width
	}
	if step == 3 {
		return src
	}
	pixels := make([]byte, 0, 3*width*height)
	for y := range height {
		row := src[y*stride:]
		for x := range width {
			pixels = append(pixels, row[4*x], row[4*x+1], row[4*x+2])
		}
	}
	return pixels
}

const half = 1 << (precision - 1)

func resizeRows(src []byte, step, stride int, fs []filter, height int) []byte {
	dst := make([]byte, 3*len(fs)*height)
	for y := range height {
		row, to := src[y*stride:], dst[3*len(fs)*y:]
		for x := range fs {
			f := &fs[x]
			r, g, b := int32(half), int32(half), int32(half)
			from := row[step*f.first:]
			for _, c := range f.coefficients {
				r += int32(from[0]) * c
				g += int32(from[1]) * c
				b += int32(from[2]) * c
				from = from[step:]
			}
			to[3*x], to[3*x+1], to[3*x+2] = clip(r), clip(g), clip(b)
		}
	}
	return dst
}

func resizeColumns(src []byte, step, stride, width int, fs []filter) []byte {
	dst := make([]byte, 3*width*len(fs))
	sums := make([]int32, 3*width)
	for y := range fs {
		f := &fs[y]
		for i := range sums {
			sums[i] = half
		}
		for j, c := range f.coefficients {
			row := src[(f.first+j)*stride:]
			for x := range width {
				s, p := sums[3*x:3*x+3], row[step*x:step*x+3]
				s[0] += int32(p[0]) * c
				s[1] += int32(p[1]) * c
				s[2] += int32(p[2]) * c
			}
		}
		to := dst[3*width*y:]
		for i, s := range sums {
			to[i] = clip(s)
		}
	}
	return dst
}

// A canvas is an image on white.
type canvas struct{ *image.RGBA }

func (m *canvas) size() (width, height int) { return m.Rect.Dx(), m.Rect.Dy() }
