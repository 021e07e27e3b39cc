package cpu

import (
	"math"
	"slices"

	"splash/dequant"
)

// A KVFormat is how keys and values are kept.
type KVFormat int

const (
	KVBF16  KVFormat = iota // rounded to BF16
	KVInt8                  // 8 bits and a scale for each token and head (models.md 11.3)
	KVFloat                 // as computed, in float32
)

// pageTokens is the number of tokens of a page, blockTokens that of a block of keys.
const (
	pageTokens  = 64
	blockTokens = 16
)

type pageShape struct{ kvHeads, dim int }

// A page holds the keys and values of pageTokens consecutive tokens, head after head. Of one head it has
//
//	keys   [block][dim/2][token of the block][2], so that a block's scores are made side by side
//	values [token/2][dim][2], so that a token's pair lies beside it
//
// in BF16. KVFloat has the same orders, without the pairs: [block][dim][token] and [token][dim].
type page struct {
	keys, values           []uint16  // KVBF16
	keys8, values8         []int8    // KVInt8, in the order of KVBF16
	keyScales, valueScales []float32 // [head][token]
	keys32, values32       []float32 // KVFloat

	refs int // lanes and checkpoints that hold it
	kept int // checkpoints
}

func (p *page) bytes() int64 {
	return int64(2*(len(p.keys)+len(p.values)) + len(p.keys8) + len(p.values8) +
		4*(len(p.keyScales)+len(p.valueScales)+len(p.keys32)+len(p.values32)))
}

// copyFrom makes p a copy of another page.
func (p *page) copyFrom(o *page) {
	copy(p.keys, o.keys)
	copy(p.values, o.values)
	copy(p.keys8, o.keys8)
	copy(p.values8, o.values8)
	copy(p.keyScales, o.keyScales)
	copy(p.valueScales, o.valueScales)
	copy(p.keys32, o.keys32)
	copy(p.values32, o.values32)
}

// kvState is the keys and values of a lane in an attention layer, its rows those of the pass under way among them.
type kvState struct {
	b     *Backend
	shape pageShape
	pages []*page
	rows  int
}

// begin makes room for rows: the page they begin in is the lane's own, and so are those that follow.
func (s *kvState) begin(rows int) {
	for i := s.rows / pageTokens; i < len(s.pages); i++ {
		if old := s.pages[i]; old.refs > 1 {
			s.pages[i] = s.b.page(s.shape)
			s.pages[i].copyFrom(old)
			old.refs--
		}
	}
	for len(s.pages) < pagesOf(s.rows+rows) {
		s.pages = append(s.pages, s.b.page(s.shape))
	}
	s.rows += rows
}

func pagesOf(rows int) int { return (rows + pageTokens - 1) / pageTokens }

func (s *kvState) back(n int) { s.rows -= n }

func (s *kvState) reset() {
	for _, p := range s.pages {
		if p.refs--; p.refs == 0 {
			s.b.freePage[s.shape] = append(s.b.freePage[s.shape], p)
		}
	}
	s.pages, s.rows = slices.Delete(s.pages, 0, len(s.pages)), 0
}

// page takes a page that was given back, or makes one.
func (b *Backend) page(shape pageShape) *page {
	if free := b.freePage[shape]; len(free) > 0 {
		p := free[len(free)-1]
		b.freePage[shape] = free[:len(free)-1]
		p.refs = 1
		return p
	}
	p, n := &page{refs: 1}, pageTokens*shape.kvHeads*shape.dim
	switch b.kv {
	case KVInt8:
		p.keys8, p.values8 = aligned[int8](n), aligned[int8](n)
		p.keyScales, p.valueScales = floats(pageTokens*shape.kvHeads), floats(pageTokens*shape.kvHeads)
	case KVFloat:
		p.keys32, p.values32 = floats(n), floats(n)
	default:
		p.keys, p.values = aligned[uint16](n), aligned[uint16](n)
	}
	return p
}

// keyAt and valueAt are where element i of a token's key and value lie in a head's part of a page.
func keyAt(token, i, dim int) int {
	return token/blockTokens*blockTokens*dim + i/2*2*blockTokens + token%blockTokens*2 + i%2
}

func valueAt(token, i, dim int) int { return token/2*2*dim + 2*i + token%2 }

// store keeps a token's key and value of one head.
func (s *kvState) store(index, head int, k, v []float32) {
	p, t, dim := s.pages[index/pageTokens], index%pageTokens, s.shape.dim
	from, to := head*pageTokens*dim, (head+1)*pageTokens*dim
	switch s.b.kv {
	case KVInt8:
		at := head*pageTokens + t
		p.keyScales[at] = storeInt8(p.keys8[from:to], k, t, keyAt)
		p.valueScales[at] = storeInt8(p.values8[from:to], v, t, valueAt)
	case KVFloat:
		keys, values := p.keys32[from:to], p.values32[from+t*dim:]
		for i, x := range k {
			keys[t/blockTokens*blockTokens*dim+i*blockTokens+t%blockTokens] = x
		}
		copy(values, v)
	default:
		storeBF16(p.keys[from:], p.values[from:], t, k, v)
	}
}

// storeBF16 keeps a token's key and value in a head's part of a page.
func storeBF16(keys, values []uint16, token int, k, v []float32) {
	keys, values = keys[keyAt(token, 0, len(k)):], values[valueAt(token, 0, len(k)):]
	for i := 0; i < len(k); i += 2 {
		keys[i*blockTokens], keys[i*blockTokens+1] = dequant.ToBF16(k[i]), dequant.ToBF16(k[i+1])
		values[2*i], values[2*i+2] = dequant.ToBF16(v[i]), dequant.ToBF16(v[i+1])
	}
}

// storeInt8 rounds x as models.md 11.3 has it and returns its scale.
func storeInt8(to []int8, x []float32, token int, at func(token, i, dim int) int) float32 {
	var most float32
	for _, v := range x {
		if a := float32(math.Abs(float64(roundBF16(v)))); !(a <= most) {
			most = a
		}
	}
	for i, v := range x {
		var code float64
		if most > 0 {
			code = math.RoundToEven(float64(roundBF16(v) * 127 / most))
		}
		to[at(token, i, len(x))] = int8(max(-127, min(code, 127)))
	}
	return most / 127
}

func roundBF16(x float32) float32 { return dequant.FromBF16(dequant.ToBF16(x)) }

// A headPage is one head's part of a page, in BF16 or in float32. Keys and values of 8 bits are BF16 codes, with scales.
type headPage struct {
	keys, values           []uint16
	keyScales, valueScales []float32
	keys32, values32       []float32
}

// head is the part of a page of one head. s has room for it where it is not stored so.
func (s *kvState) head(page, head int, a *attendScratch) (h headPage) {
	p, n := s.pages[page], pageTokens*s.shape.dim
	from, to := head*n, (head+1)*n
	switch s.b.kv {
	case KVInt8:
		a.keys, a.values = grown(a.keys, n), grown(a.values, n)
		widen(a.keys, p.keys8[from:to])
		widen(a.values, p.values8[from:to])
		h.keys, h.values = a.keys, a.values
		h.keyScales = p.keyScales[head*pageTokens : (head+1)*pageTokens]
		h.valueScales = p.valueScales[head*pageTokens : (head+1)*pageTokens]
	case KVFloat:
		h.keys32, h.values32 = p.keys32[from:to], p.values32[from:to]
	default:
		h.keys, h.values = p.keys[from:to], p.values[from:to]
	}
	return h
}

// widen writes codes as BF16, which holds them exactly.
func widen(dst []uint16, codes []int8) {
	for i, c := range codes {
		dst[i] = bf16Codes[uint8(c)]
	}
}

var bf16Codes = func() (t [256]uint16) {
	for i := range t {
		t[i] = dequant.ToBF16(float32(int8(i)))
	}
	return t
}()

// gather makes a page of one head of tokens from anywhere.
func (s *kvState) gather(a *attendScratch, head int, tokens []int32) (h headPage) {
	n := pageTokens * s.shape.dim
	switch s.b.kv {
	case KVFloat:
		a.keys32, a.values32 = grown(a.keys32, n), grown(a.values32, n)
		h.keys32, h.values32 = a.keys32, a.values32
	default:
		a.keys, a.values = grown(a.keys, n), grown(a.values, n)
		h.keys, h.values = a.keys, a.values
	}
	if s.b.kv == KVInt8 {
		a.keyScales, a.valueScales = grown(a.keyScales, pageTokens), grown(a.valueScales, pageTokens)
		h.keyScales, h.valueScales = a.keyScales, a.valueScales
	}
	for t, index := range tokens {
		s.copyToken(&h, t, head, int(index))
	}
	return h
}

// copyToken copies one token of a head to place t of a page.
func (s *kvState) copyToken(h *headPage, t, head, index int) {
	p, from, dim := s.pages[index/pageTokens], index%pageTokens, s.shape.dim
	at := head * pageTokens * dim
	for i := range dim {
		switch s.b.kv {
		case KVInt8:
			h.keys[keyAt(t, i, dim)] = bf16Codes[uint8(p.keys8[at+keyAt(from, i, dim)])]
			h.values[valueAt(t, i, dim)] = bf16Codes[uint8(p.values8[at+valueAt(from, i, dim)])]
		case KVFloat:
			h.keys32[t/blockTokens*blockTokens*dim+i*blockTokens+t%blockTokens] =
				p.keys32[at+from/blockTokens*blockTokens*dim+i*blockTokens+from%blockTokens]
			h.values32[t*dim+i] = p.values32[at+from*dim+i]
		default:
			h.keys[keyAt(t, i, dim)] = p.keys[at+keyAt(from, i, dim)]
			h.values[valueAt(t, i, dim)] = p.values[at+valueAt(from, i, dim)]
		}
	}
	if s.b.kv == KVInt8 {
		h.keyScales[t] = p.keyScales[head*pageTokens+from]
		h.valueScales[t] = p.valueScales[head*pageTokens+from]
	}
}
