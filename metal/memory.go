//go:build cgo

package metal

import (
	"slices"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

var (
	_ model.Sizer    = (*Backend)(nil)
	_ model.Unloader = (*Backend)(nil)
)

// LaneBytes returns the bytes of a lane's states and of its row of the page table, and what a token adds to them.
func (b *Backend) LaneBytes() (lane, token int64) {
	lane = 4 * int64(b.pages.width)
	for i := range b.states {
		if s := &b.states[i]; !s.paged {
			lane += int64(s.bytes[0] + s.bytes[1])
		}
	}
	return lane, (b.pageBytes() + pageTokens - 1) / pageTokens
}

// pageStep is the least number of pages that a pool grows by.
const pageStep = 16

// pageSlack is the part of the pages that there are which a pool may have beyond those that were ever held at once.
const pageSlack = 8

// pageBytes is the bytes of a page in every layer, and of its share of the pool's slack.
func (b *Backend) pageBytes() (bytes int64) {
	for i := range b.states {
		if s := &b.states[i]; s.paged {
			bytes += int64(s.bytes[0] + s.bytes[1])
		}
	}
	return bytes + bytes/pageSlack
}

// Unload forgets the network. Checkpoints keep their pages, and nothing else stays of the states.
func (b *Backend) Unload() {
	b.moved()
	for _, m := range b.images {
		free(m.buffer)
	}
	for _, x := range b.buffers {
		free(x.Buffer)
	}
	for _, x := range b.signs {
		free(x)
	}
	free(b.vectors...)
	free(b.owned...)
	b.release()
	free(b.scratch[:]...)
	free(b.pages.table, b.draft.freq, b.draft.sources, b.embedded.values)
	b.chooser.unload()
	b.lanes, b.capacity, b.pages.table = nil, 0, nil
	b.pages.compact(b)
	for i := range b.states {
		if s := &b.states[i]; !s.paged {
			free(s.buffers[:]...)
			s.buffers = [2]*Buffer{}
		}
	}
	b.past, b.states = b.states, nil
	b.images, b.matrices, b.experts, b.vectors, b.buffers, b.owned = nil, nil, nil, nil, nil, nil
	clear(b.signs)
	b.scratch, b.rotated, b.embedded, b.draft, b.ngram = scratchSet{}, rotation{}, embedding{}, draftSet{}, nil
	b.commands.Reset()
}

// inherit gives a state that is declared the pages that checkpoints have kept of it since the network was unloaded.
func (b *Backend) inherit(s *state) error {
	if n := len(b.states); n < len(b.past) && b.past[n].bytes == s.bytes {
		s.buffers, b.past[n].buffers = b.past[n].buffers, [2]*Buffer{}
		return nil
	}
	if s.paged && b.pages.capacity > 0 {
		return b.grow(s, b.pages.capacity)
	}
	return nil
}

func free(all ...*Buffer) {
	for _, x := range all {
		if x != nil {
			x.Free()
		}
	}
}

// compact moves the pages that are held together, and gives back the room of the others. No pass is under way.
func (p *pagePool) compact(b *Backend) {
	to := make([]uint32, p.capacity)
	n := 0
	for page, holders := range p.holders {
		if holders == 0 {
			continue
		}
		if to[page] = uint32(n); n != page {
			p.move(b, n, page)
		}
		p.holders[n], p.kept[n] = holders, p.kept[page]
		n++
	}
	for slot, l := range b.lanes {
		if l != nil {
			for i, page := range l.pages {
				l.pages[i] = to[page]
				p.place(l, slot, i)
			}
		}
	}
	for _, c := range b.saved {
		if c != nil {
			for i, page := range c.lane.pages {
				c.lane.pages[i] = to[page]
			}
		}
	}
	p.holders, p.kept, p.free, p.capacity = p.holders[:n], p.kept[:n], nil, n
	for i := range b.states {
		if s := &b.states[i]; s.paged {
			b.shrink(s, n)
		}
	}
}

// move copies a page over another, in every layer.
func (p *pagePool) move(b *Backend, to, from int) {
	for i := range b.states {
		s := &b.states[i]
		for k, size := range s.bytes {
			if s.paged && size > 0 && !b.device.isDry() {
				all := s.buffers[k].bytes
				copy(all[to*size:(to+1)*size], all[from*size:])
			}
		}
	}
}

// shrink leaves a state room for n lanes, or pages. Where there is no memory to copy it to, it stays as large as it is.
func (b *Backend) shrink(s *state, n int) {
	if n > 0 {
		_ = b.grow(s, n)
		return
	}
	b.moved()
	free(s.buffers[:]...)
	s.buffers = [2]*Buffer{}
}

// trim gives back the lanes that are past the last open one. No pass is under way.
func (b *Backend) trim() {
	for len(b.lanes) > 0 && b.lanes[len(b.lanes)-1] == nil {
		b.lanes = b.lanes[:len(b.lanes)-1]
	}
	n := len(b.lanes)
	if n == 0 || n >= b.capacity {
		return
	}
	if b.pages.growTable(b, n) != nil {
		return
	}
	b.capacity = n
	for i := range b.states {
		if s := &b.states[i]; !s.paged {
			b.shrink(s, n)
		}
	}
}

// Footprint adds up what a loading takes, from its plans alone: the backend is built on a device that runs nothing, and records its
// largest passes there. Of the weights it reads the few that decide their form.
func (l *Loading) Footprint() (f Footprint, err error) {
	plan, err := l.Target.imagePlan()
	if err != nil {
		return f, err
	}
	name, err := Describe(l.kind())
	if err != nil {
		return f, err
	}
	d := dry()
	b, err := New(d, l.Target.Plan, described(plan), l.options(name))
	if err != nil {
		return f, err
	}
	defer b.Close()
	f.Images = plan.Size()
	c := &dryCycle{backend: b}
	var taps []int
	if l.Draft != nil {
		draft, err := l.Draft.imagePlan()
		if err != nil {
			return f, err
		}
		f.Images += draft.Size()
		if err := b.LoadDraft(described(draft)); err != nil {
			return f, err
		}
		taps = l.Draft.Draft.Taps
	}
	if c.network, err = model.New(b, l.Target.Plan, l.Target.Weights, model.Options{Taps: taps}); err != nil {
		return f, err
	}
	if l.Draft != nil {
		c.draft, err = model.NewDraft(c.network, model.DraftSource{Sizes: l.Draft.Draft, Tensors: l.Draft.Tensors, Weights: l.Draft.Weights})
		if err != nil {
			return f, err
		}
	}
	if err := c.recordAll(l.MaxRows, max(1, l.Lanes)); err != nil {
		return f, err
	}
	f.Lane, f.Token = b.LaneBytes()
	f.Graphs = min(keptGraphBytes, keptGraphs*b.graphs.largest)
	f.Passes = d.Counters().Buffers - int64(b.pages.table.Size())
	return f, nil
}

// described are images of which no byte is there.
func described(p *planner.ImagePlan) *planner.Images {
	mapped := new(planner.Images)
	for i := range p.Images {
		mapped.Files = append(mapped.Files, &planner.ImageFile{Image: &p.Images[i]})
	}
	return mapped
}

// recordAll runs the passes that an engine does: a slice of a prompt, and a cycle of so many lanes, of whose rows all logits are wanted;
// and those of the draft, where there is one.
func (c *dryCycle) recordAll(rows, lanes int) error {
	rows = min(rows, c.backend.layout.Context)
	if err := c.run(1, rows, 1); err != nil {
		return err
	}
	each := min(model.RollbackRows, rows)
	return c.run(min(lanes, rows/each), each, each)
}

func (c *dryCycle) run(lanes, rows, outputs int) error {
	c.pass = model.Pass{}
	if err := c.seat(lanes, rows, 0); err != nil {
		return err
	}
	for i := range c.pass.Choices {
		x := &c.pass.Choices[i]
		x.First, x.Rows, x.Left = i*outputs, outputs, outputs
	}
	c.want(outputs)
	err := c.network.Forward(&c.pass)
	if err == nil && c.draft != nil {
		c.want(0)
		c.pass.Kind, c.pass.Choices = model.ContextPass, nil
		if err = c.draft.Commit(&c.pass); err == nil && rows == model.RollbackRows {
			err = c.propose()
		}
	}
	for _, s := range slices.Backward(c.pass.Segments) {
		c.backend.FreeLane(s.Lane)
	}
	return err
}

// want sets the outputs of every segment.
func (c *dryCycle) want(outputs int) {
	for i := range c.pass.Segments {
		c.pass.Segments[i].Outputs = outputs
	}
}

// propose runs the draft's block of each segment.
func (c *dryCycle) propose() error {
	c.want(oracle.Proposals)
	c.pass.Kind = model.DraftPass
	var lanes []model.DraftLane
	for _, s := range c.pass.Segments {
		lanes = append(lanes, model.DraftLane{Lane: s.Lane, Walk: new(oracle.Walk)})
	}
	return c.draft.Propose(&c.pass, lanes)
}
