package conformance_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/planner"
)

// A written is what the second computation gives of a sequence.
type written struct {
	layers [][][]float64 // [layer][token]: the residual, or all streams, after each layer
	logits [][]float64
}

func (p *paper) note(w *written, x [][]float64) {
	var copied [][]float64
	for _, row := range x {
		copied = append(copied, slices.Clone(row))
	}
	w.layers = append(w.layers, copied)
}

// qwen is section 6 of models.md.
func (p *paper) qwen(tokens []int32) (w written) {
	var x [][]float64
	for _, token := range tokens {
		x = append(x, p.embed(token))
	}
	for l := range p.int("block_count") {
		layer := fmt.Sprintf("blk.%d.", l)
		var h [][]float64
		for t := range x {
			h = append(h, p.rms(x[t], p.vector(layer+"attn_norm.weight")))
		}
		var y [][]float64
		if (l+1)%p.int("full_attention_interval") == 0 {
			y = p.gatedAttention(layer, h, nil)
		} else {
			y = p.deltaNet(layer, h, swish)
		}
		for t := range x {
			x[t] = add(x[t], y[t])
			h := p.rms(x[t], p.vector(layer+"post_attention_norm.weight"))
			if p.f.Tensor(layer+"ffn_gate_inp.weight") != nil {
				x[t] = add(x[t], p.moe(layer, h, softmaxed, true))
			} else {
				x[t] = add(x[t], p.swiGLU(layer+"ffn_gate.weight", layer+"ffn_up.weight", layer+"ffn_down.weight", h))
			}
		}
		p.note(&w, x)
	}
	for t := range x {
		h := p.rms(x[t], p.vector("output_norm.weight"))
		if p.f.Tensor("output.weight") != nil {
			w.logits = append(w.logits, p.times("output.weight", h))
		} else {
			w.logits = append(w.logits, p.times("token_embd.weight", h))
		}
	}
	return w
}

// flint is section 8.2 of models.md.
func (p *paper) flint(tokens []int32) (w written) {
	heads, kv, dim := p.int("attention.head_count"), p.int("attention.head_count_kv"), p.int("attention.key_length")
	r, window := p.int("rope.dimension_count"), p.int("attention.sliding_window")
	slides, rotates := p.flags("attention.sliding_window_pattern"), p.flags("attention.rope_pattern")
	if f := p.int("expert_gating_func"); f != 2 {
		p.t.Fatalf("gating function %d", f)
	}
	var x [][]float64
	for _, token := range tokens {
		x = append(x, p.embed(token))
	}
	for l := range p.int("block_count") {
		layer := fmt.Sprintf("blk.%d.", l)
		var keys, values [][]float64
		for t := range x {
			h := p.rms(x[t], p.vector(layer+"attn_norm.weight"))
			q, k := p.times(layer+"attn_q.weight", h), p.times(layer+"attn_k.weight", h)
			heading := func(v []float64, norm string) {
				for at := 0; at < len(v); at += dim {
					copy(v[at:], p.rms(v[at:at+dim], p.vector(layer+norm)))
					if rotates[l] {
						p.rotate(v[at:at+dim], r, t)
					}
				}
			}
			heading(q, "attn_q_norm.weight")
			heading(k, "attn_k_norm.weight")
			keys, values = append(keys, k), append(values, p.times(layer+"attn_v.weight", h))
			see := func(i int) bool { return i <= t && (!slides[l] || t-i < window) }
			o := attend(q, keys, values, heads, kv, dim, see, p.vector(layer+"attn_sinks.weight"))
			x[t] = add(x[t], p.times(layer+"attn_output.weight", o))
			h = p.rms(x[t], p.vector(layer+"ffn_norm.weight"))
			if l < p.int("leading_dense_block_count") {
				x[t] = add(x[t], p.swiGLU(layer+"ffn_gate.weight", layer+"ffn_up.weight", layer+"ffn_down.weight", h))
			} else {
				x[t] = add(x[t], p.moe(layer, h, sigmoids, false))
			}
		}
		p.note(&w, x)
	}
	for t := range x {
		w.logits = append(w.logits, p.times("output.weight", p.rms(x[t], p.vector("output_norm.weight"))))
	}
	return w
}

// hyper is section 7 of models.md. x[t] holds the streams of token t one after another.
func (p *paper) hyper(tokens []int32) (w written) {
	n, hidden := p.int("hyper_connection.count"), p.int("embedding_length")
	ngrams, _ := p.f.Ints(p.prefix + "ple.layers")
	var x [][]float64
	for _, token := range tokens {
		var streams []float64
		for range n {
			streams = append(streams, p.embed(token)...)
		}
		x = append(x, streams)
	}
	write := func(streams, inject, y []float64) {
		for s := range n {
			for i := range hidden {
				streams[s*hidden+i] += inject[s] * y[i]
			}
		}
	}
	for l := range p.int("block_count") {
		layer := fmt.Sprintf("blk.%d.", l)
		if slices.Contains(ngrams, int64(l)) {
			p.addNGrams(layer, x, tokens)
		}
		var h, inject [][]float64
		for t := range x {
			mixed, weights := p.readStreams(layer+"hc_attn_", x[t], n)
			h, inject = append(h, mixed), append(inject, weights)
		}
		var y [][]float64
		if (l+1)%p.int("full_attention_interval") == 0 {
			y = p.gatedAttention(layer, h, func(t int) func(int) bool { return p.sparse(layer, h, t) })
		} else {
			y = p.deltaNet(layer, h, sigma)
		}
		for t := range x {
			write(x[t], inject[t], y[t])
			mixed, weights := p.readStreams(layer+"hc_ffn_", x[t], n)
			write(x[t], weights, p.moe(layer, mixed, softmaxed, true))
		}
		p.note(&w, x)
	}
	for t := range x {
		h, _ := p.readStreams("output_hc_", x[t], n)
		w.logits = append(w.logits, p.times("output.weight", h))
	}
	return w
}

// readStreams is section 7.2: the input that the streams are mixed to, and what each takes of the output.
func (p *paper) readStreams(stem string, x []float64, n int) (h, inject []float64) {
	hidden := len(x) / n
	normed := p.groupedRMS(x, p.vector(stem+"norm.weight"), hidden)
	low := p.times(stem+"down.weight", normed)
	for i := range low {
		low[i] = swish(low[i] / float64(n))
	}
	gate := p.times(stem+"up.weight", low)
	h = make([]float64, hidden)
	for s := range n {
		for i := range hidden {
			h[i] += sigma(gate[s*hidden+i]) * normed[s*hidden+i] / float64(n)
		}
	}
	if p.f.Tensor(stem+"inject.weight") == nil {
		return h, nil
	}
	inject = p.times(stem+"inject.weight", normed)
	for s := range inject {
		inject[s] = 2 * sigma(inject[s]/float64(n))
	}
	return h, inject
}

// sparse is section 7.3: what the row at index t sees.
func (p *paper) sparse(layer string, h [][]float64, t int) func(i int) bool {
	const block = 4
	heads, dim := p.int("attention.indexer.head_count"), p.int("attention.indexer.key_length")
	r := p.int("rope.dimension_count")
	budget := p.int("attention.indexer.top_k") / block
	complete := (t + 1) / block
	if complete <= budget {
		return func(i int) bool { return i <= t }
	}
	q := p.times(layer+"indexer.q_proj.weight", h[t])
	scores := make([]float64, complete)
	for b := range complete {
		key := make([]float64, dim)
		for i := range block {
			for d, v := range p.times(layer+"indexer.k_proj.weight", h[block*b+i]) {
				key[d] += v / block
			}
		}
		key = p.rms(key, p.vector(layer+"indexer.k_norm.weight"))
		p.rotate(key, r, block*b)
		for j := range heads {
			query := p.rms(q[j*dim:(j+1)*dim], p.vector(layer+"indexer.q_norm.weight"))
			p.rotate(query, r, t)
			var dot float64
			for d := range dim {
				dot += query[d] * key[d]
			}
			scores[b] += math.Max(dot, 0) / math.Sqrt(128)
		}
	}
	chosen := top(scores, budget)
	return func(i int) bool { return i <= t && (i >= block*complete || slices.Contains(chosen, i/block)) }
}

// addNGrams is section 7.4, over a sequence.
func (p *paper) addNGrams(layer string, x [][]float64, tokens []int32) {
	n, hidden := p.int("hyper_connection.count"), p.int("embedding_length")
	eos, perSize := int32(p.int("ple.eos_token_id")), p.int("ple.heads_per_ngram")
	multipliers, _ := p.f.Uints(p.prefix + "ple.layer_multipliers")
	offsets, _ := p.f.Uints(p.prefix + "ple.head_offsets")
	sizes, _ := p.f.Uints(p.prefix + "ple.head_vocab_sizes")
	conv := p.matrix(layer + "ple_conv1d.weight")
	var z [][]float64
	for t := range x {
		u := []int32{tokens[t], eos, eos}
		for back := 1; back <= 2 && t-back >= 0 && tokens[t-back] != eos; back++ {
			u[back] = tokens[t-back]
		}
		var e []float64
		for g := 2; g <= 3; g++ {
			mix := uint64(0)
			for i := range g {
				mix ^= uint64(u[i]) * multipliers[i]
			}
			for j := (g - 2) * perSize; j < (g-1)*perSize; j++ {
				e = append(e, p.matrix("per_layer_token_embd.weight")[mix%sizes[j]+offsets[j]]...)
			}
		}
		k := p.groupedRMS(p.times(layer+"ple_key.weight", e), p.vector(layer+"ple_norm_key.weight"), hidden)
		q := p.groupedRMS(x[t], p.vector(layer+"ple_norm_query.weight"), hidden)
		value := p.times(layer+"ple_value.weight", e)
		y := make([]float64, n*hidden)
		for s := range n {
			var dot float64
			for i := range hidden {
				dot += k[s*hidden+i] * q[s*hidden+i]
			}
			dot /= math.Sqrt(float64(hidden))
			root := math.Sqrt(math.Max(math.Abs(dot), 1e-6))
			if dot < 0 {
				root = -root
			} else if dot == 0 {
				root = 0
			}
			for i := range hidden {
				y[s*hidden+i] = sigma(root) * value[i]
			}
		}
		z = append(z, p.groupedRMS(y, p.vector(layer+"ple_norm_conv.weight"), hidden))
		for c := range y {
			var sum float64
			for j := range 4 {
				if at := t - 3*(3-j); at >= 0 {
					sum += conv[c][j] * z[at][c]
				}
			}
			x[t][c] += y[c] + swish(sum)
		}
	}
}

// A recorder is the oracle backend, whose rows it keeps unrounded: every row that is read, and the streams of a
// hyper-connected network where their mean is taken.
type recorder struct {
	*reference.Backend
	rows    int
	row     []float64     // the last that was read
	streams [][][]float64 // [tap][row]
}

func (r *recorder) Read(h model.Buffer, i int) []float32 {
	r.row = r.ReadFloat64(h, i)
	return r.Backend.Read(h, i)
}

func (r *recorder) StreamMean(dst, streams model.Buffer) {
	var rows [][]float64
	for i := range r.rows {
		rows = append(rows, r.ReadFloat64(streams, i))
	}
	r.streams = append(r.streams, rows)
	r.Backend.StreamMean(dst, streams)
}

// secondTolerance is what two orders of summation in float64 leave between the computations, relative to the largest value
// of a row.
const secondTolerance = 1e-12

// strays is the largest difference of two rows over the largest value.
func strays(a, b []float64) float64 {
	var worst, largest float64
	for i := range a {
		largest = math.Max(largest, math.Abs(b[i]))
		if d := math.Abs(a[i] - b[i]); !(d <= worst) {
			worst = d
		}
	}
	return worst / largest
}

// secondRecipes store every architecture so that each role of the loader has its formats (formats.md 8.3).
func secondRecipes() map[string]fixtures.Recipe {
	small := map[planner.Role]dequant.Type{
		planner.Router: dequant.Q5_K, planner.SharedGate: dequant.Q8_0, planner.Norm: dequant.F16,
		planner.Injection: dequant.BF16, planner.Indexer: dequant.Q6_K,
	}
	names := map[string]dequant.Type{
		"blk.0.ffn_gate_inp.weight": dequant.BF16, "blk.1.ffn_gate_inp.weight": dequant.F32,
		"blk.2.ffn_gate_inp.weight":       dequant.NVFP4,
		"blk.0.ffn_gate_inp_shexp.weight": dequant.BF16, "blk.1.ffn_gate_inp_shexp.weight": dequant.F32,
		"blk.0.attn_norm.weight": dequant.BF16, "output_norm.weight": dequant.F32, "output_hc_norm.weight": dequant.F32,
		"blk.0.hc_attn_inject.weight": dequant.Q8_0, "blk.1.hc_attn_inject.weight": dequant.F16,
		"blk.2.hc_attn_inject.weight": dequant.F32,
		"blk.0.ssm_alpha.weight":      dequant.BF16, "blk.0.ssm_beta.weight": dequant.Q8_0, "blk.1.ssm_alpha.weight": dequant.Q4_K,
		"blk.1.ssm_beta.weight": dequant.Q4_K, "blk.2.ssm_alpha.weight": dequant.F32, "blk.2.ssm_beta.weight": dequant.F16,
		"blk.0.hc_attn_down.weight": dequant.BF16, "blk.0.hc_attn_up.weight": dequant.F16, "blk.1.hc_ffn_down.weight": dequant.F16,
		"blk.1.hc_ffn_up.weight": dequant.BF16, "blk.3.indexer.q_proj.weight": dequant.F32,
	}
	all := map[string]fixtures.Recipe{}
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp", "tiny-flint"} {
		mix := fixtures.Mixed(fixtures.LinearTypes()...).Except(small).Named(names)
		all[family] = fixtures.Recipe{Family: family, Seed: 11, Formats: mix, Scaled: true}
	}
	all["tied"] = fixtures.Recipe{Family: "tiny-qwen35moe-tied", Seed: 12, Formats: fixtures.Uniform(dequant.Q8_0), Fused: true}
	all["reduced"] = fixtures.Recipe{Family: "tiny-qwen35moe", Seed: 12, Formats: fixtures.Uniform(dequant.Q4_K), Experts: 8}
	all["rotated"] = fixtures.Recipe{
		Family: "tiny-rotated", Seed: 13, Rotated: true,
		Formats: fixtures.Uniform(dequant.PQ2_0).Named(map[string]dequant.Type{
			"blk.0.ssm_alpha.weight": dequant.BF16, "blk.0.ssm_beta.weight": dequant.BF16,
		}),
	}
	return all
}

// secondTokens have ends of text and an image token among them, which the hashes of n-grams treat apart.
func secondTokens(t testing.TB, n int) []int32 {
	tokens := slices.Clone(readManifest(t).Tokens[:n])
	for i, token := range map[int]int32{3: 2000, 9: 2012, 10: 2000, 11: 2000, 30: 2000} {
		if i < n {
			tokens[i] = token
		}
	}
	return tokens
}

// TestSecondComputation holds the oracle backend, row by row and layer by layer, to the networks as they stand on paper.
func TestSecondComputation(t *testing.T) {
	for name, recipe := range secondRecipes() {
		t.Run(name, func(t *testing.T) {
			tokens := secondTokens(t, 48)
			switch name {
			case "rotated":
				tokens = tokens[:4]
			case "tied", "reduced":
				tokens = tokens[:12]
			}
			g, err := recipe.GGUF()
			if err != nil {
				t.Fatal(err)
			}
			f, err := g.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			plan, err := planner.PlanGGUF(f.Header)
			if err != nil {
				t.Fatal(err)
			}
			p := newPaper(t, f)
			var want written
			switch plan.Layout.Arch {
			case planner.HyperMoE:
				want = p.hyper(tokens)
			case planner.FlintMoE:
				want = p.flint(tokens)
			default:
				want = p.qwen(tokens)
			}
			compareSecond(t, plan, planner.OpenGGUF(f, plan), want, tokens)
		})
	}
}

func compareSecond(t *testing.T, plan *planner.Plan, w planner.Weights, want written, tokens []int32) {
	taps := make([]int, plan.Layout.Layers)
	for i := range taps {
		taps[i] = i
	}
	r := &recorder{Backend: reference.New(plan, len(tokens)), rows: len(tokens)}
	n, err := model.New(r, plan, w, model.Options{Taps: taps})
	if err != nil {
		t.Fatal(err)
	}
	forward(t, n, newLane(t, n), tokens)
	layers, logits := 0.0, 0.0
	for i := range tokens {
		for _, l := range taps {
			n.Tap(l, i)
			got := r.row
			if r.streams != nil {
				got = r.streams[l][i]
			}
			layers = math.Max(layers, strays(got, want.layers[l][i]))
		}
		n.Logits(i)
		logits = math.Max(logits, strays(r.row, want.logits[i]))
	}
	t.Logf("%d tokens: layers within %.2g, logits within %.2g", len(tokens), layers, logits)
	if !(layers <= secondTolerance) || !(logits <= secondTolerance) {
		t.Errorf("layers stray %.3g, logits %.3g; %g is allowed", layers, logits, secondTolerance)
	}
}
