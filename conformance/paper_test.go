package conformance_test

import (
	"math"
	"math/bits"
	"sort"
	"strings"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
)

// A paper is a second computation of the networks, written from the specification alone: plain loops over the tensors of a
// GGUF by their names and in their order, a whole sequence at once, in float64. It shares the decoders of package dequant
// with the engine and nothing else.
type paper struct {
	t      testing.TB
	f      *gguf.File
	prefix string
	eps    float64
	seen   map[string][][]float64

	signs map[int][]float64 // of a rotated model, by width
	named map[string]bool   // its rotated weights
}

func newPaper(t testing.TB, f *gguf.File) *paper {
	arch, _ := f.String("general.architecture")
	p := &paper{t: t, f: f, prefix: arch + ".", seen: map[string][][]float64{}}
	p.eps = 1e-6
	if stated := p.number("attention.layer_norm_rms_epsilon"); float32(p.eps) != float32(stated) {
		t.Fatalf("epsilon %v", stated)
	}
	p.rotation()
	return p
}

func (p *paper) int(key string) int {
	v, ok := p.f.Int(p.prefix + key)
	if !ok {
		p.t.Fatalf("no key %s", key)
	}
	return int(v)
}

func (p *paper) number(key string) float64 {
	v, ok := p.f.Float(p.prefix + key)
	if !ok {
		p.t.Fatalf("no key %s", key)
	}
	return v
}

func (p *paper) flags(key string) []bool {
	v, ok := p.f.Bools(p.prefix + key)
	if !ok {
		p.t.Fatalf("no key %s", key)
	}
	return v
}

// rotation reads the signs of Prism's rotation, and the names of what is rotated.
func (p *paper) rotation() {
	widths, ok := p.f.Ints("prism.hadamard.sign_widths")
	if !ok {
		return
	}
	p.signs, p.named = map[int][]float64{}, map[string]bool{}
	values, _ := p.f.Ints("prism.hadamard.sign_values")
	for _, w := range widths {
		for range w {
			p.signs[int(w)] = append(p.signs[int(w)], float64(values[0]))
			values = values[1:]
		}
	}
	names, _ := p.f.Strings("prism.hadamard.weight_names")
	for _, name := range names {
		p.named[name] = true
	}
}

// matrix is every row of a tensor. Hyper-connection projections in BF16 and F16 are worth what Q8_0 makes of them.
func (p *paper) matrix(name string) [][]float64 {
	if m := p.seen[name]; m != nil {
		return m
	}
	stored, err := p.f.Matrix(name)
	if err != nil {
		p.t.Fatal(err)
	}
	half := stored.Format.Type == dequant.BF16 || stored.Format.Type == dequant.F16
	hyper := false
	for _, stem := range []string{"hc_attn_down", "hc_attn_up", "hc_ffn_down", "hc_ffn_up", "output_hc_down", "output_hc_up"} {
		hyper = hyper || strings.HasSuffix(name, stem+".weight")
	}
	m := make([][]float64, stored.Rows)
	row := make([]float32, stored.Cols)
	for i := range m {
		stored.DecodeRow(row, i)
		if half && hyper {
			q8 := dequant.Lookup(dequant.Q8_0)
			block := make([]byte, q8.RowBytes(len(row)))
			if err := dequant.QuantizeQ8_0(name, block, row); err != nil {
				p.t.Fatal(err)
			}
			q8.Decode(row, block)
		}
		m[i] = make([]float64, len(row))
		for j := range row {
			m[i][j] = float64(row[j])
		}
	}
	p.seen[name] = m
	return m
}

// vector is the values of a tensor one after another.
func (p *paper) vector(name string) []float64 {
	var v []float64
	for _, row := range p.matrix(name) {
		v = append(v, row...)
	}
	return v
}

// times is W x, where W may multiply H (D x) in place of x.
func (p *paper) times(name string, x []float64) []float64 {
	if p.named[name] {
		signed := make([]float64, len(x))
		for i := range x {
			signed[i] = p.signs[len(x)][i] * x[i]
		}
		x = hadamardByDefinition(signed)
	}
	return product(p.matrix(name), x)
}

func product(w [][]float64, x []float64) []float64 {
	y := make([]float64, len(w))
	for i := range w {
		for j := range x {
			y[i] += w[i][j] * x[j]
		}
	}
	return y
}

// hadamardByDefinition is H x for H[i][k] = (-1)^popcount(i and k) / 32 in blocks of 1024.
func hadamardByDefinition(x []float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		for k := range 1024 {
			v := x[i/1024*1024+k] / 32
			if bits.OnesCount(uint(i%1024&k))%2 == 1 {
				v = -v
			}
			y[i] += v
		}
	}
	return y
}

// embed is the token's row of the table; a rotated row r stands for D (H r).
func (p *paper) embed(token int32) []float64 {
	x := append([]float64(nil), p.matrix("token_embd.weight")[token]...)
	if p.signs == nil {
		return x
	}
	x = hadamardByDefinition(x)
	for i := range x {
		x[i] *= p.signs[len(x)][i]
	}
	return x
}

func sigma(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func swish(x float64) float64 { return x * sigma(x) }

func (p *paper) rms(x, w []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i := range x {
		y[i] = x[i] / math.Sqrt(sum/float64(len(x))+p.eps) * w[i]
	}
	return y
}

// groupedRMS normalizes groups of size values.
func (p *paper) groupedRMS(x, w []float64, size int) []float64 {
	var y []float64
	for at := 0; at < len(x); at += size {
		y = append(y, p.rms(x[at:at+size], w[at:at+size])...)
	}
	return y
}

// rotate turns the first r values of a head at a text position.
func (p *paper) rotate(head []float64, r, position int) {
	base := p.number("rope.freq_base")
	for i := range r / 2 {
		f := float32(math.Pow(base, -2*float64(i)/float64(r)))
		angle := float64(float32(position) * f)
		a, b := head[i], head[i+r/2]
		head[i] = a*math.Cos(angle) - b*math.Sin(angle)
		head[i+r/2] = b*math.Cos(angle) + a*math.Sin(angle)
	}
}

func add(x, y []float64) []float64 {
	z := make([]float64, len(x))
	for i := range x {
		z[i] = x[i] + y[i]
	}
	return z
}

// attend is softmax attention of every query head of one row over the indices that see allows. sinks may be nil.
func attend(q []float64, keys, values [][]float64, heads, kvHeads, dim int, see func(i int) bool, sinks []float64) []float64 {
	out := make([]float64, heads*dim)
	for h := range heads {
		g := h / (heads / kvHeads)
		scores := map[int]float64{}
		largest := math.Inf(-1)
		for i := range keys {
			if !see(i) {
				continue
			}
			var s float64
			for d := range dim {
				s += q[h*dim+d] * keys[i][g*dim+d]
			}
			scores[i] = s / math.Sqrt(float64(dim))
			largest = math.Max(largest, scores[i])
		}
		var sum float64
		if sinks != nil {
			largest = math.Max(largest, sinks[h])
			sum = math.Exp(sinks[h] - largest)
		}
		for i := range keys {
			if s, ok := scores[i]; ok {
				sum += math.Exp(s - largest)
			}
		}
		for i := range keys {
			if s, ok := scores[i]; ok {
				for d := range dim {
					out[h*dim+d] += math.Exp(s-largest) / sum * values[i][g*dim+d]
				}
			}
		}
	}
	return out
}

// gatedAttention is section 3 of models.md over a sequence of normalized inputs. sparse says which indices a row sees;
// nil: all before it.
func (p *paper) gatedAttention(layer string, h [][]float64, sparse func(row int) func(i int) bool) [][]float64 {
	heads, kv, dim := p.int("attention.head_count"), p.int("attention.head_count_kv"), p.int("attention.key_length")
	r := p.int("rope.dimension_count")
	qw, kw := p.vector(layer+"attn_q_norm.weight"), p.vector(layer+"attn_k_norm.weight")
	var keys, values, out [][]float64
	for t := range h {
		k := p.times(layer+"attn_k.weight", h[t])
		for g := range kv {
			copy(k[g*dim:], p.rms(k[g*dim:(g+1)*dim], kw))
			p.rotate(k[g*dim:(g+1)*dim], r, t)
		}
		keys, values = append(keys, k), append(values, p.times(layer+"attn_v.weight", h[t]))
		u := p.times(layer+"attn_q.weight", h[t])
		var q, gate []float64
		for j := range heads {
			query := p.rms(u[2*dim*j:2*dim*j+dim], qw)
			p.rotate(query, r, t)
			q, gate = append(q, query...), append(gate, u[2*dim*j+dim:2*dim*(j+1)]...)
		}
		see := func(i int) bool { return i <= t }
		if sparse != nil {
			see = sparse(t)
		}
		o := attend(q, keys, values, heads, kv, dim, see, nil)
		for i := range o {
			o[i] *= sigma(gate[i])
		}
		out = append(out, p.times(layer+"attn_output.weight", o))
	}
	return out
}

// deltaNet is section 4 of models.md over a sequence, in a GGUF's tiled order of value heads: value head j has key head
// j mod Kh. gate is what z becomes before it multiplies.
func (p *paper) deltaNet(layer string, h [][]float64, gate func(float64) float64) [][]float64 {
	kh, vh, d := p.int("ssm.group_count"), p.int("ssm.time_step_rank"), p.int("ssm.state_size")
	taps := p.int("ssm.conv_kernel")
	conv, decay, bias := p.matrix(layer+"ssm_conv1d.weight"), p.vector(layer+"ssm_a"), p.vector(layer+"ssm_dt.bias")
	norm := p.vector(layer + "ssm_norm.weight")
	channels := (2*kh + vh) * d
	states := make([][][]float64, vh) // [head][key][value]
	for j := range states {
		states[j] = make([][]float64, d)
		for i := range states[j] {
			states[j][i] = make([]float64, d)
		}
	}
	var mixed, out [][]float64
	for t := range h {
		mixed = append(mixed, p.times(layer+"attn_qkv.weight", h[t]))
		z := p.times(layer+"attn_gate.weight", h[t])
		a, b := p.times(layer+"ssm_alpha.weight", h[t]), p.times(layer+"ssm_beta.weight", h[t])
		c := make([]float64, channels)
		for i := range c {
			for j := range taps {
				if at := t - (taps - 1) + j; at >= 0 {
					c[i] += conv[i][j] * mixed[at][i]
				}
			}
			c[i] = swish(c[i])
		}
		var o []float64
		for j := range vh {
			key := j % kh
			q, k := unit(c[key*d:(key+1)*d]), unit(c[(kh+key)*d:(kh+key+1)*d])
			v := c[(2*kh+j)*d : (2*kh+j+1)*d]
			softplus := math.Max(a[j]+bias[j], 0) + math.Log1p(math.Exp(-math.Abs(a[j]+bias[j])))
			read := deltaStep(states[j], q, k, v, sigma(b[j]), math.Exp(decay[j]*softplus))
			y := p.rms(read, norm)
			for i := range y {
				y[i] *= gate(z[j*d+i])
			}
			o = append(o, y...)
		}
		if p.named[layer+"ssm_out.weight"] {
			o = ungrouped(o, kh, vh, d)
		}
		out = append(out, p.times(layer+"ssm_out.weight", o))
	}
	return out
}

// ungrouped puts tiled heads in grouped order, in which a rotated file keeps the inputs of ssm_out.
func ungrouped(o []float64, kh, vh, d int) []float64 {
	r := vh / kh
	var y []float64
	for j := range vh {
		tiled := j%r*kh + j/r
		y = append(y, o[tiled*d:(tiled+1)*d]...)
	}
	return y
}

// unit is x / max(|x|, 1e-6).
func unit(x []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i := range x {
		y[i] = x[i] / math.Max(math.Sqrt(sum), 1e-6)
	}
	return y
}

// deltaStep is the recurrence for one head; q is divided by sqrt(d) here.
func deltaStep(s [][]float64, q, k, v []float64, beta, g float64) []float64 {
	d := len(k)
	delta, o := make([]float64, d), make([]float64, d)
	for i := range d {
		for j := range d {
			s[i][j] *= g
		}
	}
	for j := range d {
		var read float64
		for i := range d {
			read += s[i][j] * k[i]
		}
		delta[j] = beta * (v[j] - read)
	}
	for i := range d {
		for j := range d {
			s[i][j] += k[i] * delta[j]
		}
	}
	for j := range d {
		for i := range d {
			o[j] += s[i][j] * q[i] / math.Sqrt(float64(d))
		}
	}
	return o
}

func (p *paper) swiGLU(gate, up, down string, x []float64) []float64 {
	g, u := p.times(gate, x), p.times(up, x)
	for i := range g {
		g[i] = swish(g[i]) * u[i]
	}
	return p.times(down, g)
}

// expert is one expert of the stacked tensors, which may hold gate and up rows in one.
func (p *paper) expert(layer string, e int, x []float64) []float64 {
	width := p.int("expert_feed_forward_length")
	var gate, up [][]float64
	if p.f.Tensor(layer+"ffn_gate_up_exps.weight") != nil {
		both := p.matrix(layer + "ffn_gate_up_exps.weight")[2*e*width : 2*(e+1)*width]
		gate, up = both[:width], both[width:]
	} else {
		gate = p.matrix(layer + "ffn_gate_exps.weight")[e*width : (e+1)*width]
		up = p.matrix(layer + "ffn_up_exps.weight")[e*width : (e+1)*width]
	}
	g, u := product(gate, x), product(up, x)
	for i := range g {
		g[i] = swish(g[i]) * u[i]
	}
	return product(p.matrix(layer + "ffn_down_exps.weight")[e*len(x):(e+1)*len(x)], g)
}

// top are the indices of the k largest, equal ones by index.
func top(scores []float64, k int) []int {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return scores[order[a]] > scores[order[b]] })
	return order[:k]
}

// moe is the routed experts beside the shared one: weigh gives the weights of the chosen from all logits.
func (p *paper) moe(layer string, x []float64, weigh func(logits []float64, chosen []int) []float64, gated bool) []float64 {
	logits := p.times(layer+"ffn_gate_inp.weight", x)
	chosen := top(logits, p.int("expert_used_count"))
	weights := weigh(logits, chosen)
	y := make([]float64, len(x))
	for i, e := range chosen {
		for j, v := range p.expert(layer, e, x) {
			y[j] += weights[i] * v
		}
	}
	share := 1.0
	if gated {
		var dot float64
		for i, v := range p.vector(layer + "ffn_gate_inp_shexp.weight") {
			dot += v * x[i]
		}
		share = sigma(dot)
	}
	for j, v := range p.swiGLU(layer+"ffn_gate_shexp.weight", layer+"ffn_up_shexp.weight", layer+"ffn_down_shexp.weight", x) {
		y[j] += share * v
	}
	return y
}

// softmaxed are the probabilities of all experts, those of the chosen divided by their sum.
func softmaxed(logits []float64, chosen []int) []float64 {
	var all, sum float64
	for _, l := range logits {
		all += math.Exp(l)
	}
	weights := make([]float64, len(chosen))
	for i, e := range chosen {
		weights[i] = math.Exp(logits[e]) / all
		sum += weights[i]
	}
	for i := range weights {
		weights[i] /= sum
	}
	return weights
}

// sigmoids are the sigmoids of the chosen, divided by their sum where normalized.
func sigmoids(logits []float64, chosen []int) []float64 {
	weights := make([]float64, len(chosen))
	var sum float64
	for i, e := range chosen {
		weights[i] = sigma(logits[e])
		sum += weights[i]
	}
	for i := range weights {
		weights[i] /= math.Max(sum, 6.1035e-5)
	}
	return weights
}
