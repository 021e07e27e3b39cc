package conformance_test

import (
	"math"
	"testing"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// TestProjectAtEdges: kernels once computed something else where a tile, a panel of rows or a vector is not full. Every
// format is multiplied by one row to nine and by 17, 63 and 65, with as odd numbers of outputs, over one block of columns
// and over several.
func TestProjectAtEdges(t *testing.T) {
	inputs := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 63, 65}
	outputs := []int{3, 17, 63, 65}
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		worst := 0.0
		for i, f := range b.productFormats() {
			block := max(f.Block, 32) // rows are of 32 columns at least
			for j := range 2 {
				// Over the formats, every count comes up.
				n, rows := inputs[(2*i+j)%len(inputs)], outputs[(i+j)%len(outputs)]
				cols := block * [...]int{1, 5}[(i+j)%2]
				p := newPair(t, b, n, planner.Layout{})
				m := p.blocks(f, rows, cols)
				x := p.normals(n * cols)
				in := p.input(x, cols)
				w, out := p.matrix(planner.Tensor{Name: f.Name}, m), p.buffer(rows)
				p.pass([]int{n}, func(b model.Backend) {
					in.set(b)
					b.Project(out, in.buffer, w, model.Store)
				})
				d, wide := decode(m), widened(x)
				p.compare(out, f.Name, func(row, i int) float64 { return b.productBound(&d, i, wide[row*cols:][:cols]) })
				worst = math.Max(worst, p.worst)
			}
		}
		t.Logf("worst error %.3f of its bound", worst)
	})
}

// A longState is 512 steps of the delta rule of one head of 128 by 128, with decay 0.999, write strength 0.5 and unit keys
// and queries: a state that is stored in fewer bits than float32 falls apart over so many.
type longState struct {
	qkv  []float32
	d    int
	rows int
}

const longDecay, longBeta = 0.999, 0.5

func newLongState(p *pair) *longState {
	s := &longState{d: 128, rows: p.rows}
	s.qkv = p.normals(s.rows * 3 * s.d)
	for row := range s.rows {
		for part := range 2 { // query and key
			v := s.qkv[(3*row+part)*s.d:][:s.d]
			sum := 0.0
			for _, x := range v {
				sum += float64(x) * float64(x)
			}
			for i := range v {
				v[i] = float32(float64(v[i]) / math.Sqrt(sum))
			}
		}
	}
	return s
}

// parts are the query, key and value of a row.
func (s *longState) parts(row int) (q, k, v []float64) {
	in := widened(s.qkv[3*row*s.d:][:3*s.d])
	return in[:s.d], in[s.d : 2*s.d], in[2*s.d:]
}

// outputs steps through, with round applied to the state after each step.
func (s *longState) outputs(round func(float64) float64) [][]float64 {
	state, delta := make([]float64, s.d*s.d), make([]float64, s.d)
	query, key := make([]float64, s.d), make([]float64, s.d)
	var all [][]float64
	for row := range s.rows {
		q, k, v := s.parts(row)
		oracle.L2Norm(query, q, 1e-6)
		oracle.L2Norm(key, k, 1e-6)
		for i := range query {
			query[i] /= math.Sqrt(float64(s.d))
		}
		o := make([]float64, s.d)
		oracle.GDNStep(o, delta, state, query, key, v, longBeta, longDecay)
		for i := range state {
			state[i] = round(state[i])
		}
		all = append(all, o)
	}
	return all
}

// TestDeltaRuleKeepsItsState: a kernel once stored the state in the type of the activations, and text fell apart after some
// dozens of tokens. Every backend keeps within the bound of float32, which a state in bf16 exceeds more than tenfold.
func TestDeltaRuleKeepsItsState(t *testing.T) {
	const d, rows = 128, 512
	eachOperatorBackend(t, func(t *testing.T, b operatorBackend) {
		l := planner.GDNLayout{KeyHeads: 1, ValueHeads: 1, HeadDim: d, Kernel: 4}
		p := newPair(t, b, rows, planner.Layout{GDN: l})
		s := newLongState(p)
		zeros := make([]float32, rows)
		x, beta, alpha := p.input(s.qkv, 3*d), p.input(zeros, 1), p.input(zeros, 1) // sigmoid(0) is 0.5
		out := p.buffer(d)
		decay := float32(math.Log(longDecay) / oracle.Softplus(0))
		g := &model.GDN{Layout: &l, Decay: p.vector([]float32{decay}), Bias: p.vector([]float32{0})}
		p.each(func(b model.Backend) { g.State = b.GDNState(1, d, d) })
		p.pass([]int{rows}, func(b model.Backend) {
			x.set(b)
			beta.set(b)
			alpha.set(b)
			b.GDN(out, x.buffer, beta.buffer, alpha.buffer, g)
		})
		bound := newDeltaBound(d)
		var bounds [][]float64
		for row := range rows {
			q, k, v := s.parts(row)
			bounds = append(bounds, bound.step(q, k, v, longBeta, oracle.GDNDecay(0, 0, float64(decay))))
		}
		p.compare(out, "delta rule", func(row, i int) float64 { return bounds[row][i] })
		t.Logf("worst error %.3f of its bound", p.worst)

		exact := s.outputs(func(v float64) float64 { return v })
		rounded := s.outputs(func(v float64) float64 { return float64(dequant.FromBF16(dequant.ToBF16(float32(v)))) })
		worst := 0.0
		for row := range rows {
			for i := range d {
				worst = math.Max(worst, math.Abs(rounded[row][i]-exact[row][i])/bounds[row][i])
			}
		}
		if worst < 10 {
			t.Errorf("a state in bf16 errs by %.3g bounds only", worst)
		}
		t.Logf("in bf16 %.3g of it", worst)
	})
}
