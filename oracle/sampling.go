package oracle

import (
	"math"
	"slices"
)

// A Policy is how a request chooses its next token from the target's logits. The zero value is greedy, without penalties
// (a Repetition of 0 means 1).
type Policy struct {
	Temperature float64 // 0: the largest logit
	MinP        float64 // drop tokens below MinP times the likeliest; 0: none
	TopK        int     // keep the TopK likeliest of the rest; 0: all
	TopP        float64 // keep the fewest of those whose sum reaches past TopP; 1 or 0: all
	Repetition  float64 // divides a positive logit and multiplies a negative one of every token that occurred
	Presence    float64 // subtracted from the logit of every token put out
	Frequency   float64 // subtracted from it as often as it was put out
}

// Penalize changes the logits of the tokens that occurred: first repetition, for every distinct token of the prompt or
// the output, then presence + frequency * count for those of the output (serving.md 6.5).
func (p Policy) Penalize(logits []float64, prompt, output []int32) {
	count := make(map[int32]int)
	for _, t := range output {
		count[t]++
	}
	seen := make(map[int32]bool)
	for _, t := range slices.Concat(prompt, output) {
		if seen[t] {
			continue
		}
		seen[t] = true
		if p.Repetition != 0 && p.Repetition != 1 {
			if logits[t] > 0 {
				logits[t] /= p.Repetition
			} else {
				logits[t] *= p.Repetition
			}
		}
		if n := count[t]; n > 0 {
			logits[t] -= p.Presence + p.Frequency*float64(n)
		}
	}
}

// Argmax is the index of the largest value, the first of equals; a NaN never wins, and without any number it is 0.
func Argmax[F float32 | float64](logits []F) int {
	best := 0
	for i, v := range logits {
		if v > logits[best] || logits[best] != logits[best] && v == v {
			best = i
		}
	}
	return best
}

// A Weighted token carries its share of a distribution that is not normalized.
type Weighted struct {
	Token  int32
	Weight float64
}

// Target is the distribution a sampled request draws from: the tokens kept of the penalized logits, likeliest first
// (equal ones by id), with weight exp((x - max) / T). Tokens of -Inf and NaN are never kept. min-p keeps whole ties;
// top-p keeps up to and including the first token whose cumulative weight exceeds TopP of the weight that min-p and
// top-k kept (draft.md 7.1).
func (p Policy) Target(logits []float64) []Weighted {
	top := math.Inf(-1)
	for _, x := range logits {
		if x > top {
			top = x
		}
	}
	floor := math.Inf(-1)
	if p.MinP > 0 {
		floor = math.Min(top+p.Temperature*math.Log(p.MinP), top)
	}
	var kept []Weighted
	for t, x := range logits {
		if x >= floor && !math.IsInf(x, -1) {
			kept = append(kept, Weighted{int32(t), math.Exp((x - top) / p.Temperature)})
		}
	}
	slices.SortFunc(kept, func(a, b Weighted) int {
		x, y := logits[a.Token], logits[b.Token]
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a.Token - b.Token)
	})
	if p.TopK > 0 && p.TopK < len(kept) {
		kept = kept[:p.TopK]
	}
	if p.TopP > 0 && p.TopP < 1 {
		limit := p.TopP * mass(kept)
		var sum float64
		for i, w := range kept {
			if sum += w.Weight; sum > limit {
				return kept[:i+1]
			}
		}
	}
	return kept
}

func mass(tokens []Weighted) (sum float64) {
	for _, w := range tokens {
		sum += w.Weight
	}
	return sum
}

// Draw takes, in ascending token id, the first token of positive weight whose cumulative weight exceeds u times the sum;
// where rounding leaves that unreached, the last one of positive weight. It sorts tokens by id. Without any positive
// weight it returns -1.
func Draw(tokens []Weighted, u float64) int32 {
	slices.SortFunc(tokens, func(a, b Weighted) int { return int(a.Token - b.Token) })
	target := u * mass(tokens)
	last := int32(-1)
	var sum float64
	for _, w := range tokens {
		if w.Weight <= 0 {
			continue
		}
		last = w.Token
		if sum += w.Weight; sum > target {
			break
		}
	}
	return last
}

// Uniform is draw k (from 1) of the request with that seed: the upper 24 bits of splitmix64's output k, in [0, 1)
// (draft.md 6; Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014).
func Uniform(seed, k uint64) float64 {
	v := seed + k*0x9E3779B97F4A7C15
	v = (v ^ v>>30) * 0xBF58476D1CE4E5B9
	v = (v ^ v>>27) * 0x94D049BB133111EB
	v ^= v >> 31
	return float64(v>>40) / (1 << 24)
}
