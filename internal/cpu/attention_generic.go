package cpu

import (
	"math"

	"splash/dequant"
)

// scoresGeneric writes q . k of the first tokens of a page, [queries][pageTokens], a dimension after another.
func scoresGeneric(scores, q []float32, queries int, keys []uint16, dim, tokens int) {
	for i := range queries {
		query, row := q[i*dim:(i+1)*dim], scores[i*pageTokens:i*pageTokens+tokens]
		for t := range row {
			var sum float32
			for d := 0; d < dim; d += 2 {
				at := keyAt(t, d, dim)
				sum += query[d] * dequant.FromBF16(keys[at])
				sum += query[d+1] * dequant.FromBF16(keys[at+1])
			}
			row[t] = sum
		}
	}
}

// valuesGeneric adds the weighted values of the first tokens of a page to folds, a token after another.
func valuesGeneric(folds, weights []float32, queries int, values []uint16, dim, tokens int) {
	for i := range queries {
		out := folds[i*foldWidth(dim) : i*foldWidth(dim)+dim]
		for t, w := range weights[i*pageTokens : i*pageTokens+tokens] {
			row := values[valueAt(t, 0, dim):]
			for d := range out {
				out[d] += w * dequant.FromBF16(row[2*d])
			}
		}
	}
}

// scoresFloat and valuesFloat are the same on pages of float32.
func scoresFloat(scores, q []float32, queries int, keys []float32, dim, tokens int) {
	for i := range queries {
		query, row := q[i*dim:(i+1)*dim], scores[i*pageTokens:i*pageTokens+tokens]
		for t := range row {
			var sum float32
			at := t/blockTokens*blockTokens*dim + t%blockTokens
			for d, v := range query {
				sum += v * keys[at+d*blockTokens]
			}
			row[t] = sum
		}
	}
}

func valuesFloat(folds, weights []float32, queries int, values []float32, dim, tokens int) {
	for i := range queries {
		out := folds[i*foldWidth(dim) : i*foldWidth(dim)+dim]
		for t, w := range weights[i*pageTokens : i*pageTokens+tokens] {
			for d, v := range values[t*dim : (t+1)*dim] {
				out[d] += w * v
			}
		}
	}
}

func mostGeneric(x []float32) float32 {
	most := -infinity
	for _, v := range x {
		most = max(most, v)
	}
	return most
}

// softenGeneric writes exp(x - most) and returns its sum.
func softenGeneric(x []float32, most float32) float32 {
	var sum float32
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v - most)))
		sum += x[i]
	}
	return sum
}
