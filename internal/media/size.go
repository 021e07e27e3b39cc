package media

import "math"

// targetSize is the size that an image is scaled to (serving.md 6.17): sides of whole tokens, the image's aspect as nearly
// as they allow, at most the given pixels and, where that can be, at least MinPixels.
//
// Source: the smart resize of Qwen2-VL's image processor, with a limit that the result never exceeds.
func targetSize(width, height, most int) (w, h int, err error) {
	if long, short := max(width, height), min(width, height); short < 1 || long > MaxAspect*short {
		return 0, 0, errorf("absolute aspect ratio must be smaller than %d: the image is %d x %d", MaxAspect, width, height)
	}
	area := float64(width) * float64(height)
	w, h = nearest(width), nearest(height)
	switch {
	case w*h > most:
		beta := math.Sqrt(area / float64(most))
		w, h = scaledDown(width, beta), scaledDown(height, beta)
	case w*h < MinPixels:
		beta := math.Sqrt(MinPixels / area)
		w, h = scaledUp(width, beta), scaledUp(height, beta)
	}
	for w*h > most {
		if h >= w && h > factor {
			h -= factor
		} else {
			w -= factor
		}
	}
	return w, h, nil
}

// nearest rounds a side to whole tokens, halves to even.
func nearest(side int) int { return int(math.RoundToEven(float64(side)/factor)) * factor }

func scaledDown(side int, beta float64) int {
	return max(factor, int(math.Floor(float64(side)/beta/factor))*factor)
}

func scaledUp(side int, beta float64) int { return int(math.Ceil(float64(side)*beta/factor)) * factor }
