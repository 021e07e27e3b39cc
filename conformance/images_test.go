package conformance_test

import (
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/model"
	"splash/internal/reference"
	"splash/internal/vision"
	"splash/oracle"
	"splash/planner"
)

// imageRows are the rows that the family's tower makes of an image of so many patches.
func imageRows(t testing.TB, family string, seed uint64, gridH, gridW int) [][]float32 {
	t.Helper()
	g, err := (&fixtures.Tower{Family: family, Seed: 1, Type: dequant.BF16}).Projector()
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	p, err := planner.PlanProjector(f.Header, planner.FamilyByName(family).Vision)
	if err != nil {
		t.Fatal(err)
	}
	tower, err := vision.Load(p, vision.FromGGUF(f))
	if err != nil {
		t.Fatal(err)
	}
	pixels := make([]byte, 3*256*gridH*gridW)
	for i := range pixels {
		pixels[i] = byte(seed*7 + uint64(i)*uint64(i/5))
	}
	rows, err := tower.Encode(t.Context(), pixels, gridH, gridW)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(rows, tower.Width()))
}

// imagePrompt is a segment of text, an image of 2 x 5 tokens, and text, whose logits are all wanted; and the positions'
// distance from the indices after it.
func imagePrompt(t testing.TB, f *planner.Family, seed uint64) (s model.Segment, delta int) {
	t.Helper()
	text := readManifest(t).Tokens
	rows := imageRows(t, f.Name, seed, 4, 10)
	s.Tokens = append(s.Tokens, text[:5]...)
	for i := range s.Tokens {
		s.Positions = append(s.Positions, oracle.TextPosition(i))
	}
	s.Embedded = make([][]float32, 5)
	var next int32
	s.Positions, next = oracle.ImagePositions(s.Positions, 5, 2, 5)
	for _, r := range rows {
		s.Tokens, s.Embedded = append(s.Tokens, f.Image), append(s.Embedded, r)
	}
	for i := range 4 {
		s.Tokens, s.Embedded = append(s.Tokens, text[5+i]), append(s.Embedded, nil)
		s.Positions = append(s.Positions, oracle.TextPosition(int(next)+i))
	}
	s.Outputs = len(s.Tokens)
	return s, int(next) - 15
}

// TestImageRows runs every architecture with a tower on prompts with an image, whole, in pieces and with text after it:
// logits are near the oracle's, whose pieces have the bits of the whole, and another image has others.
func TestImageRows(t *testing.T) {
	for _, family := range []string{"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen4exp"} {
		t.Run(family, func(t *testing.T) {
			m := inGGUF(fixtures.Recipe{Family: family, Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)})
			p, w := m.open(t)
			whole, delta := imagePrompt(t, p.Family, 1)
			other, _ := imagePrompt(t, p.Family, 2)
			run := func(b model.Backend, whole *model.Segment, cuts ...int) (logits [][]float32) {
				n, err := model.New(b, p, w, model.Options{})
				if err != nil {
					t.Fatal(err)
				}
				lane := newLane(t, n)
				from := 0
				for _, to := range append(cuts, len(whole.Tokens)) {
					s := model.Segment{
						Lane: lane, Tokens: whole.Tokens[from:to], Positions: whole.Positions[from:to], Embedded: whole.Embedded[from:to],
						Outputs: to - from,
					}
					logits = append(logits, pass(t, n, s)...)
					from = to
				}
				return append(logits, pass(t, n, model.Segment{
					Lane: lane, Tokens: whole.Tokens[:2], RopeDelta: delta, Outputs: 2,
				})...)
			}
			want := run(reference.New(p, 32), &whole)
			for i, row := range run(reference.New(p, 32), &whole, 3, 9, 16) {
				if !slices.Equal(row, want[i]) {
					t.Fatalf("the oracle in pieces: row %d has other bits", i)
				}
			}
			for i, row := range run(reference.New(p, 32), &other) {
				if slices.Equal(row, want[i]) != (i < 5) {
					t.Errorf("another image: row %d equal %v", i, i >= 5)
				}
			}
			for _, backend := range modelBackends() {
				stray := strayOf(run(backend.open(t, p, 32), &whole, 7), want)
				t.Logf("%s: logits stray %.2g of their root mean square, %.2g is allowed", backend.name, stray, modelTolerance)
				if !(stray <= modelTolerance) {
					t.Errorf("%s: logits stray %g", backend.name, stray)
				}
			}
		})
	}
}

// pass runs a segment and returns its logits.
func pass(t testing.TB, n model.Network, s model.Segment) (logits [][]float32) {
	t.Helper()
	if err := n.Forward(&model.Pass{Segments: []model.Segment{s}}); err != nil {
		t.Fatal(err)
	}
	for i := range s.Outputs {
		logits = append(logits, slices.Clone(n.Logits(i)))
	}
	return logits
}

// TestEmbeddedRows gives every row the values that the table has for it, which changes nothing, and refuses others.
func TestEmbeddedRows(t *testing.T) {
	m := inGGUF(fixtures.Recipe{Family: "tiny-qwen35", Seed: 1})
	p, w := m.open(t)
	tokens := readManifest(t).Tokens[:9]
	table, err := w.Matrices(p.Tensor("token_embd.weight"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, len(tokens))
	for i := 0; i < len(tokens); i += 2 {
		rows[i] = make([]float32, p.Layout.Hidden)
		table[0].DecodeRow(rows[i], int(tokens[i]))
	}
	backends := append(modelBackends(), modelBackend{
		name: "oracle", open: func(_ testing.TB, p *planner.Plan, maxRows int) model.Backend { return reference.New(p, maxRows) },
	})
	for _, backend := range backends {
		t.Run(backend.name, func(t *testing.T) {
			n, err := model.New(backend.open(t, p, 16), p, w, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := pass(t, n, model.Segment{Lane: newLane(t, n), Tokens: tokens, Outputs: 9})
			got := pass(t, n, model.Segment{Lane: newLane(t, n), Tokens: tokens, Outputs: 9, Embedded: rows})
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("row %d has other bits", i)
				}
			}
			for what, s := range map[string]model.Segment{
				"too few rows":       {Tokens: tokens, Embedded: rows[:8]},
				"a row of others":    {Tokens: tokens[:1], Embedded: [][]float32{make([]float32, 3)}},
				"too many positions": {Tokens: tokens[:1], Positions: make([]oracle.Position, 2)},
			} {
				s.Lane = newLane(t, n)
				if err := n.Forward(&model.Pass{Segments: []model.Segment{s}}); err == nil {
					t.Errorf("%s are taken", what)
				}
			}
		})
	}
}
