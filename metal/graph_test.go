//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"slices"
	"testing"

	"splash/dequant"
	"splash/fixtures"
	"splash/internal/model"
	"splash/oracle"
)

// A life is what happens to the lanes of a network, and every logit of it.
type life struct {
	t      testing.TB
	n      model.Network
	b      *Backend
	draft  *pairNetwork // nil: there is none
	logits [][]float32
	tokens [][]int32 // that were chosen and proposed
	passes int
}

func (l *life) keep(rows int, of func(i int) []float32) {
	for i := range rows {
		l.logits = append(l.logits, slices.Clone(of(i)))
	}
}

// pass runs rows of lanes, the next of the text, all of whose logits are kept, and drafts a block of each. Tokens are chosen of
// two passes in three, in one of them under masks.
func (l *life) pass(rows int, lanes ...model.Lane) {
	l.t.Helper()
	p, context := new(model.Pass), &model.Pass{Kind: model.ContextPass}
	for _, lane := range lanes {
		s := model.Segment{Lane: lane, Outputs: min(rows, 8)}
		for i := range rows {
			s.Tokens = append(s.Tokens, int32(7+(31*(l.b.lanes[lane].length+i)+int(lane))%200))
		}
		p.Segments = append(p.Segments, s)
		if l.passes%3 > 0 {
			p.Choices = append(p.Choices, l.choice(len(p.Choices)*s.Outputs, s.Outputs))
		}
		context.Segments = append(context.Segments, model.Segment{Lane: lane, Tokens: s.Tokens})
	}
	l.passes++
	err := l.n.Forward(p)
	for i := range p.Choices {
		l.tokens = append(l.tokens, p.Choices[i].Tokens)
	}
	if err == nil {
		l.keep(len(lanes)*min(rows, 8), l.n.Logits)
	}
	if err == nil && l.draft != nil {
		if err = l.draft.draft.Commit(context); err == nil {
			err = l.propose(lanes)
		}
		if err == nil {
			l.keep(len(lanes)*oracle.Proposals, l.draft.draft.Logits)
		}
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// choice chooses greedily, after proposals that are one token.
func (l *life) choice(first, rows int) model.Choice {
	c := model.Choice{
		First: first, Rows: rows, Left: 8, Policy: new(oracle.Policy), Walk: &oracle.Walk{Tokens: slices.Repeat([]int32{5}, oracle.Proposals)},
	}
	if l.passes%3 == 2 {
		c.Masks = func(rows []uint64) bool {
			for i := range rows {
				rows[i] = 0xf0f0f0f0f0f0f0f0
			}
			return true
		}
	}
	return c
}

func (l *life) propose(lanes []model.Lane) error {
	p := l.draft.block(lanes, 5)
	if !l.draft.draft.Chooses() || l.passes%2 == 0 {
		return l.draft.draft.Block(p)
	}
	var all []model.DraftLane
	for _, lane := range lanes {
		all = append(all, model.DraftLane{Lane: lane, Anchor: 5, Walk: new(oracle.Walk)})
	}
	err := l.draft.draft.Propose(p, all)
	for _, x := range all {
		l.tokens = append(l.tokens, slices.Clone(x.Walk.Tokens))
	}
	return err
}

func (l *life) back(lane model.Lane, rows int) {
	l.t.Helper()
	if err := l.b.Rollback(lane, rows); err != nil {
		l.t.Fatal(err)
	}
}

// run is lanes that come and go, rows that are taken back, a state that is saved and resumed, and more lanes and pages than there
// was room for, with cycles of few shapes in between.
func (l *life) run() {
	first := newLane(l.t, l.n)
	l.pass(22, first)
	for range 3 {
		l.pass(2, first)
		l.back(first, 1)
	}
	l.pass(1, first)
	second := newLane(l.t, l.n)
	l.pass(5, second)
	for range 3 { // the first one's second page begins
		l.pass(2, second, first)
	}
	saved, _, err := l.b.Save(first)
	if err != nil {
		l.t.Fatal(err)
	}
	l.b.FreeLane(first)
	third, fourth := newLane(l.t, l.n), newLane(l.t, l.n)
	if err := l.b.Resume(third, saved); err != nil {
		l.t.Fatal(err)
	}
	l.pass(2, third, second)
	l.pass(5, fourth)
	l.pass(1, third)
	l.back(third, 1)
	l.pass(2, third, fourth)
	l.pass(2, fourth)
	l.b.Drop(saved)
}

// TestReplayedText runs lives of every architecture with passes that are replayed, and with all of them recorded anew: the bits are
// the same.
func TestReplayedText(t *testing.T) {
	d := open(t, Devices()[0])
	for _, c := range []struct {
		recipe fixtures.Recipe
		o      Options
		draft  bool
	}{
		{recipe: fixtures.Recipe{Family: "tiny-qwen35", Formats: fixtures.Uniform(dequant.Q4_0)}, draft: true, o: Options{ChunkedGDN: true}},
		{recipe: fixtures.Recipe{Family: "tiny-qwen35moe", Formats: fixtures.Uniform(dequant.Q8_0)}, o: Options{Int8KV: true}},
		{recipe: fixtures.Recipe{Family: "tiny-flint", Formats: fixtures.Uniform(dequant.Q8_0)}},
		{recipe: fixtures.Recipe{Family: "tiny-qwen4exp", Formats: fixtures.Uniform(dequant.Q8_0)}},
		{recipe: fixtures.Recipe{Family: "tiny-rotated", Formats: fixtures.Uniform(dequant.PQ2_0), Rotated: true}, o: Options{Int8Activations: true}},
	} {
		t.Run(c.recipe.Family, func(t *testing.T) {
			x := openRecipe(t, c.recipe)
			var lives [2]life
			for i := range lives {
				o := c.o
				o.MaxRows, o.RecordAlways = 24, i == 1
				l := &lives[i]
				*l = life{t: t}
				if c.draft {
					p := tinyDraft(t, x, fixtures.Draft{Family: c.recipe.Family, Layers: 1})
					l.b = p.backend(t, d, o)
					n := p.on(t, l.b)
					l.n, l.draft = n, &n
				} else {
					l.b = x.backend(t, d, o)
					l.n = x.network(t, l.b, model.Options{})
				}
				l.run()
			}
			if !slices.EqualFunc(lives[0].logits, lives[1].logits, slices.Equal) {
				t.Error("the logits differ")
			}
			if !slices.EqualFunc(lives[0].tokens, lives[1].tokens, slices.Equal) || len(lives[0].tokens) < 8 {
				t.Errorf("chosen tokens %v and %v", lives[0].tokens, lives[1].tokens)
			}
			replays, none := lives[0].b.Replays(), lives[1].b.Replays()
			t.Logf("%+v", replays)
			if replays.Replayed < 3 || replays.Moved == 0 || none.Replayed != 0 || none.Recorded != replays.Recorded+replays.Replayed {
				t.Errorf("%+v, and without replays %+v", replays, none)
			}
		})
	}
}

// TestReplayedCycles counts: a cycle's shape is recorded once, whatever its lanes; one whose buffers have moved is recorded again;
// a program of its own is recorded by itself.
func TestReplayedCycles(t *testing.T) {
	x := openRecipe(t, fixtures.Recipe{Family: "tiny-qwen35", Formats: fixtures.Uniform(dequant.Q8_0)})
	d := open(t, Devices()[0])
	b := x.backend(t, d, Options{MaxRows: 8})
	n, other := x.network(t, b, model.Options{}), x.network(t, b, model.Options{})
	forward(t, n, newLane(t, n), []int32{1, 2, 3}) // scratch has its room
	l := life{t: t, n: n, b: b}
	first, second := newLane(t, n), model.Lane(0)
	check := func(what string, recorded, replayed uint64, f func()) {
		t.Helper()
		before := b.Replays()
		f()
		after := b.Replays()
		if got := [2]uint64{after.Recorded - before.Recorded, after.Replayed - before.Replayed}; got != [2]uint64{recorded, replayed} {
			t.Errorf("%s: %d recorded and %d replayed, want %d and %d", what, got[0], got[1], recorded, replayed)
		}
		if g := d.Counters().Graphs; g <= 0 || g > after.Bytes || after.Kept != len(b.graphs.kept) {
			t.Errorf("%s: %d bytes of %d, %d graphs of %d", what, g, after.Bytes, after.Kept, len(b.graphs.kept))
		}
	}
	check("a lane's cycles", 1, 3, func() {
		for range 4 {
			l.pass(2, first)
			l.back(first, 1)
		}
	})
	check("of another lane", 0, 1, func() { l.pass(2, second) })
	check("of both", 1, 1, func() {
		l.pass(1, first, second)
		l.pass(1, second, first)
	})
	check("after more lanes than there was room for", 1, 1, func() {
		newLane(t, n)
		l.pass(2, first)
		l.pass(2, first)
	})
	check("of another network", 1, 0, func() { forward(t, other, second, []int32{4, 5}) })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if c := d.Counters(); c.Graphs != 0 || c.Buffers != 0 {
		t.Errorf("%+v are left", c)
	}
}

// TestReplayedAllocates: neither a pass that is replayed nor its commands allocate anything.
func TestReplayedAllocates(t *testing.T) {
	x := openRecipe(t, fixtures.Recipe{Family: "tiny-qwen4exp", Formats: fixtures.Uniform(dequant.Q8_0)})
	b := x.backend(t, open(t, Devices()[0]), Options{MaxRows: 30})
	n := x.network(t, b, model.Options{})
	lane := newLane(t, n)
	forward(t, n, lane, make([]int32, 30))
	pass := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: []int32{5, 6}, Outputs: 1}}}
	cycle := func() {
		if err := n.Forward(pass); err != nil {
			t.Fatal(err)
		}
		if err := b.Rollback(lane, 2); err != nil {
			t.Fatal(err)
		}
	}
	cycle() // makes room
	cycle() // is kept
	before := b.Replays()
	if got := testing.AllocsPerRun(3, cycle); got != 0 {
		t.Errorf("%v allocations a cycle", got)
	}
	if after := b.Replays(); after.Replayed-before.Replayed != 4 || after.Recorded != before.Recorded {
		t.Errorf("from %+v to %+v", before, after)
	}
}

// TestKeptGraphs runs more shapes than are kept: those that were used last stay, and their number is bounded.
func TestKeptGraphs(t *testing.T) {
	p := openRecipe(t, fixtures.Recipe{Family: "tiny-qwen35", Formats: fixtures.Uniform(dequant.Q8_0)}).plan
	const most = keptGraphs + 8
	c, err := newDryCycle(p, Options{MaxRows: most}, 1, most, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.backend.Close()
	c.pass.Choices = nil
	s := &c.pass.Segments[0]
	all := s.Tokens
	run := func(rows int) {
		s.Tokens, s.Outputs = all[:rows], 1
		if err := c.network.Forward(&c.pass); err != nil {
			t.Fatal(err)
		}
		c.backend.lanes[s.Lane].length = 0
	}
	run(most)
	run(1)
	for rows := 2; rows < most; rows++ {
		run(rows)
		run(1) // a cycle between
	}
	r := c.backend.Replays()
	if r.Kept != keptGraphs || r.Kept != len(c.backend.graphs.kept) || r.Replayed != most-2 || r.Dropped != most-keptGraphs {
		t.Errorf("%+v", r)
	}
	if r.Bytes <= 0 || r.Bytes > keptGraphBytes {
		t.Errorf("%d bytes", r.Bytes)
	}
	// A graph that takes all the room stands alone.
	g := graphSet{}
	for i := range 3 {
		g.keep(shape{rows: 1 + i}, &recorded{graph: &Graph{device: dry(), count: keptGraphBytes / int(dispatchBytes)}})
	}
	if g.counters.Kept != 1 || g.counters.Dropped != 2 {
		t.Errorf("%+v", g.counters)
	}
}

// TestReplayedTraffic: the traffic of a pass that is replayed is that of one that was recorded, where its lanes are now.
func TestReplayedTraffic(t *testing.T) {
	p := openRecipe(t, fixtures.Recipe{Family: "tiny-qwen4exp", Formats: fixtures.Uniform(dequant.Q8_0)}).plan
	c, err := newDryCycle(p, Options{MaxRows: 4}, 2, 2, 40)
	if err != nil {
		t.Fatal(err)
	}
	defer c.backend.Close()
	for context := 40; context < 60; context += 5 {
		want, err := CycleTraffic(p, 2, 2, context)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.pass.Segments {
			c.backend.lanes[c.pass.Segments[i].Lane].length = context
		}
		for range 2 {
			c.record(t)
			got := c.backend.passTraffic()
			got.Loads, got.Dispatches = got.Loads+got.Total(), want.Dispatches
			if got != want {
				t.Errorf("%d tokens: %+v, want %+v", context, got, want)
			}
		}
	}
	if r := c.backend.Replays(); r.Replayed < 4 {
		t.Errorf("%+v", r)
	}
}

// BenchmarkGraph is what a device takes to check and keep the dispatches of a cycle, which a replay does not.
func BenchmarkGraph(b *testing.B) {
	t := newFastBench(b)
	x, list := filled(t, make([]float32, 32)), filled(t, []uint32{0, 1})
	k := t.kernel("copy_rows")
	for range 1108 {
		add(&t.commands, k, copyGrid(2, 16), copyParams{width: 16}, x.from(0), list.from(0), x.from(64))
	}
	b.ReportAllocs()
	for b.Loop() {
		g, err := t.Keep(&t.commands, t.commands.Len())
		if err != nil {
			b.Fatal(err)
		}
		g.Free()
	}
	b.ReportMetric(float64(t.commands.Len()), "dispatches")
}
