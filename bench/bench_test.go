package bench_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/bench"
	"splash/internal/engine"
	"splash/internal/model"
)

func TestReadPrompts(t *testing.T) {
	for name, c := range map[string]struct {
		text, fault string
		want        []bench.Prompt
	}{
		"object":     {text: `{"prompts": [{"prompt": "a", "question": "q"}, {"text": "b"}]}`, want: []bench.Prompt{{"q", "a"}, {"prompt 2", "b"}}},
		"lines":      {text: "{\"prompt\": \"a\"}\n\n{\"text\": \"b\"}\n", want: []bench.Prompt{{"prompt 1", "a"}, {"prompt 3", "b"}}},
		"paragraphs": {text: "one\ntwo\r\n\r\n\n\nthree", want: []bench.Prompt{{"paragraph 1", "one\ntwo"}, {"paragraph 2", "three"}}},
		"empty":      {text: " \n", fault: `no prompts; a JSON object with "prompts", JSON lines with "prompt", or paragraphs of text are read`},
		"no text":    {text: `{"prompts": [{"question": "q"}]}`, fault: `prompt 1 has neither "prompt" nor "text"`},
		"bad line":   {text: "{\"prompt\": \"a\"}\n{\"prompt\": 3}", fault: "line 2: json: cannot unmarshal number into Go struct field record.Prompt of type string"},
	} {
		got, err := bench.ReadPrompts(strings.NewReader(c.text))
		if c.fault != "" {
			if err == nil || err.Error() != c.fault {
				t.Errorf("%s: %v, want %s", name, err, c.fault)
			}
			continue
		}
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}

func FuzzReadPrompts(f *testing.F) {
	f.Add(`{"prompts": [{"prompt": "a"}]}`)
	f.Add("{\"prompt\": \"a\"}\n{\"text\": \"b\"}")
	f.Add("one\n\ntwo")
	f.Fuzz(func(t *testing.T, text string) {
		prompts, err := bench.ReadPrompts(strings.NewReader(text))
		if (err == nil) != (len(prompts) > 0) {
			t.Errorf("%d prompts and %v", len(prompts), err)
		}
	})
}

// table is a network whose logits after a token are a row of a table, whatever came before.
type table struct {
	rows   [][]float32
	logits [][]float32
	lanes  int
}

func (n *table) Backend() model.Backend { return backend{n: n} }

// backend has what is called of a backend.
type backend struct {
	model.Backend
	n *table
}

func (b backend) NewLane() (model.Lane, error)                       { b.n.lanes++; return 0, nil }
func (b backend) FreeLane(model.Lane)                                { b.n.lanes-- }
func (b backend) Rollback(model.Lane, int) error                     { return nil }
func (n *table) Tap(tap, row int) []float32                          { return nil }
func (n *table) Ends() (tab, head model.Matrix, taps []model.Buffer) { return 0, 0, nil }
func (n *table) Logits(i int) []float32                              { return n.logits[i] }
func (b backend) Save(model.Lane) (model.Checkpoint, int64, error)   { return 0, 0, errors.New("none") }

func (n *table) Forward(p *model.Pass) error {
	n.logits = n.logits[:0]
	for _, s := range p.Segments {
		for _, token := range s.Tokens[len(s.Tokens)-s.Outputs:] {
			n.logits = append(n.logits, n.rows[token])
		}
	}
	return nil
}

func TestKL(t *testing.T) {
	log := func(p ...float64) (row []float32) {
		for _, x := range p {
			row = append(row, float32(math.Log(x)+3)) // a constant does not matter
		}
		return row
	}
	reference := &table{rows: [][]float32{log(.5, .25, .25), log(.1, .8, .1), log(.49, .51, 1e-30)}}
	other := &table{rows: [][]float32{log(.25, .5, .25), log(.1, .8, .1), log(.51, .49, 1e-30)}}
	rows := 0
	r, err := bench.KL(context.Background(), reference, other, []int32{0, 1, 2, 0, 1}, bench.KLOptions{
		Window: 2, Rows: 1, NearTie: 0.05, Progress: func(n int) { rows += n },
	})
	if err != nil {
		t.Fatal(err)
	}
	// Positions: 0, 1, 2, 0. KL by hand: .5 ln 2 - .25 ln 2 = .25 ln 2 at 0, 0 at 1, .02 ln(51/49) at 2.
	a, c := 0.25*math.Ln2, 0.02*math.Log(51./49)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("mean", r.Mean, (2*a+c)/4)
	near("median", r.Median, (a+c)/2)
	near("max", r.Max, a)
	near("top-1", r.Top1, 0.25)
	near("top-1 where it is clear", r.Clear, 1./3)
	near("perplexity", r.Perplexity, math.Exp(-(math.Log(.5)+math.Log(.1)+math.Log(.51)+math.Log(.5))/4))
	near("reference perplexity", r.ReferencePerplexity, math.Exp(-(math.Log(.25)+math.Log(.1)+math.Log(.49)+math.Log(.25))/4))
	if r.Positions != 4 || r.NearTies != 1 || r.Flips != 3 || r.TieFlips != 1 || rows != 4 || r.Interrupted {
		t.Errorf("%+v after %d rows", r, rows)
	}
	if reference.lanes != 0 || other.lanes != 0 {
		t.Error("lanes are left")
	}
	if _, err := bench.KL(context.Background(), reference, &table{rows: [][]float32{{1}}}, []int32{0, 0}, bench.KLOptions{Window: 2, Rows: 1}); err == nil {
		t.Error("different vocabularies were compared")
	}
	if _, err := bench.KL(context.Background(), reference, other, []int32{0}, bench.KLOptions{Window: 2, Rows: 1}); err == nil {
		t.Error("one token was compared")
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err = bench.KL(ctx, reference, other, []int32{0, 1, 2, 0, 1}, bench.KLOptions{Window: 1, Rows: 1, Progress: func(int) { cancel() }})
	if err != nil || !r.Interrupted || r.Positions != 1 {
		t.Errorf("interrupted: %+v, %v", r, err)
	}
}

// counting answers with the number after the last.
func counting(n int) *table {
	t := &table{}
	for i := range n {
		row := make([]float32, n)
		row[(i+1)%n] = 1
		t.rows = append(t.rows, row)
	}
	return t
}

func TestTokensAndSpeed(t *testing.T) {
	e := engine.New(counting(50), engine.Options{Context: 1000, Cache: -1})
	defer e.Close()
	prompts := []bench.TokenPrompt{{"a", []int32{1, 2, 3}}, {"b", []int32{9}}, {"a", []int32{40}}}
	done := 0
	r, err := bench.Tokens(context.Background(), e, prompts, bench.TokensOptions{
		MaxTokens: 8, Stop: []int32{12}, Lanes: 2, Progress: func(n, of int) { done = n },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []bench.Answer{
		{"a", []int32{4, 5, 6, 7, 8, 9, 10, 11}, "length"}, {"b", []int32{10, 11, 12}, "stop"}, {"a", []int32{41, 42, 43, 44, 45, 46, 47, 48}, "length"},
	}
	if d := cmp.Diff(want, r.Answers); d != "" || done != 3 || r.TokensPerCycle != 1 || r.Tokens != 16 {
		t.Errorf("%s: %+v", d, r)
	}
	if d := bench.DifferentAnswers(r, r); len(d) != 0 {
		t.Errorf("different from itself: %v", d)
	}
	other := *r
	other.Answers = append([]bench.Answer(nil), r.Answers...)
	other.Answers[1].Tokens = []int32{1}
	if d := cmp.Diff([]string{"b"}, bench.DifferentAnswers(r, &other)); d != "" {
		t.Error(d)
	}
	s, err := bench.Speed(context.Background(), e, bench.SpeedOptions{Prompt: 20, Tokens: 5, Lanes: []int{1, 3}, Runs: 2, Vocab: 50})
	if err != nil || len(s.Rows) != 2 || s.Rows[1].Lanes != 3 || s.Rows[1].DecodePerSec <= 0 || s.Rows[1].PrefillPerSec <= 0 {
		t.Errorf("speed %+v: %v", s, err)
	}
	dir := t.TempDir()
	for name, err := range map[string]error{
		"acceptance.svg": bench.PlotAcceptance(filepath.Join(dir, "acceptance.svg"), r),
		"speed.png":      bench.PlotSpeed(filepath.Join(dir, "speed.png"), s),
		"kl.pdf":         bench.PlotKL(filepath.Join(dir, "kl.pdf"), []string{"x"}, []*bench.KLResult{{Values: []float64{0, 1e-3, 2}}}),
	} {
		info, statErr := os.Stat(filepath.Join(dir, name))
		if err != nil || statErr != nil || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, err, statErr)
		}
	}
	if err := bench.CheckPlotPath("a.gif"); err == nil {
		t.Error("a.gif is accepted")
	}
}
