//go:build cgo

package metal

import (
	"errors"
	"fmt"
	"slices"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// A Chooser chooses tokens on a device, from the logits of a draft and of its target (oracle/selector.go, sampling.go, accept.go,
// budget.go). Its numbers are F32. It is used as its device is, by one goroutine.
type Chooser struct {
	device        *Device
	vocab, rank   int
	before, after binding // codebooks, BF16
	kernels       chooserKernels
	room          [rooms]*Buffer
	err           error // of the room for what is recorded
	commands      Commands
}

type chooserKernels struct{ top, merge, edges, walk, verify, penalize, mask, target, accept *Kernel }

// Rooms are the memory that choosing takes, used again and again.
const (
	roomBefore = iota // copies of codebooks
	roomAfter
	roomParts
	roomCandidates
	roomEdges
	roomAnchors
	roomTemperatures
	roomUniforms
	roomWalks
	roomShares
	roomLimits
	roomVerified
	roomPolicies
	roomTargets
	roomLanes
	roomStops
	roomAccepted
	roomOccurrences
	roomMasks
	rooms
)

// walkCandidates is the number of candidates that a proposal is chosen from.
const walkCandidates = 16

// NewChooser returns a chooser over a vocabulary, which copies a selector's codebooks; without one it does not walk.
func NewChooser(d *Device, vocab int, s *oracle.Selector) (*Chooser, error) {
	c := &Chooser{device: d, vocab: vocab}
	if vocab < 1 || vocab > 1<<24 {
		return nil, fmt.Errorf("metal: a vocabulary of %d tokens; the kernels count up to %d", vocab, 1<<24)
	}
	for name, k := range map[string]**Kernel{
		"top_candidates": &c.kernels.top, "top_merge": &c.kernels.merge, "draft_edges": &c.kernels.edges,
		"draft_select": &c.kernels.walk, "draft_verify_rows": &c.kernels.verify, "penalize": &c.kernels.penalize,
		"mask_rows": &c.kernels.mask, "head_target": &c.kernels.target, "decode_accept": &c.kernels.accept,
	} {
		var err error
		if *k, err = d.Kernel(name); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return c, nil
	}
	var err error
	if c.before, err = c.codebook(roomBefore, s.Predecessor); err == nil {
		c.after, err = c.codebook(roomAfter, s.Successor)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// codebook copies a codebook, which is BF16.
func (c *Chooser) codebook(at int, m oracle.Matrix) (binding, error) {
	rows, cols := m.Dims()
	if err := c.checkCodebook(rows, cols); err != nil {
		return binding{}, err
	}
	values, to := roomFor[uint16](c, at, rows*cols)
	if c.err != nil {
		return binding{}, c.err
	}
	row := make([]float64, cols)
	for i := range rows {
		m.Row(row, i)
		for j, x := range row {
			values[i*cols+j] = dequant.ToBF16(float32(x))
		}
	}
	return to, nil
}

// checkCodebook refuses a codebook of other sizes than the vocabulary's, or than those of the one before it.
func (c *Chooser) checkCodebook(rows, cols int) error {
	if rows != c.vocab || c.rank != 0 && cols != c.rank {
		return fmt.Errorf("metal: a codebook of %d x %d for a vocabulary of %d", rows, cols, c.vocab)
	}
	c.rank = cols
	return nil
}

// Close frees the chooser's memory.
func (c *Chooser) Close() {
	for i, b := range c.room {
		if b != nil {
			b.Free()
		}
		c.room[i] = nil
	}
}

// unload frees the chooser's memory and forgets its codebooks.
func (c *Chooser) unload() {
	c.Close()
	c.before, c.after, c.rank, c.err = binding{}, binding{}, 0, nil
	c.commands.Reset()
}

// roomFor is memory for n values, and where the device finds it. It keeps the error.
func roomFor[T any](c *Chooser, at, n int) ([]T, binding) {
	size := max(1, n) * int(sizeOf[T]())
	b := c.room[at]
	if b == nil || b.Size() < size {
		if b != nil {
			size = max(size, b.Size()+b.Size()/2) // some grow with a lane's output
			b.Free()
			c.room[at] = nil
		}
		var err error
		if b, err = c.device.NewBuffer(size); err != nil {
			c.err = errors.Join(c.err, err)
			return make([]T, n), binding{}
		}
		c.room[at] = b
	}
	return view[T](b)[:n], b.from(0)
}

func (c *Chooser) run() error {
	err := c.device.Run(&c.commands)
	if w := c.device.Wait(); err == nil {
		err = w
	}
	c.commands.Reset()
	return err
}

// Walk chooses the lanes' proposals. logits and state hold, lane after lane, the rows of the positions: [positions][vocabulary] and
// [positions][rank].
func (c *Chooser) Walk(logits, state *Buffer, lanes []model.DraftLane) error {
	if rows := oracle.Proposals * len(lanes); len(lanes) == 0 || logits.Size() < 4*rows*c.vocab || state.Size() < 4*rows*c.rank {
		return fmt.Errorf("metal: %d lanes, %d bytes of logits and %d of state", len(lanes), logits.Size(), state.Size())
	}
	err := c.walk(&c.commands, logits.from(0), state.from(0), lanes)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		return err
	}
	c.walked(lanes)
	return nil
}

// walk records the choice of the lanes' proposals, which walked takes over when it has run.
func (c *Chooser) walk(to *Commands, logits, state binding, lanes []model.DraftLane) error {
	const n, k = oracle.Proposals, walkCandidates
	if c.rank == 0 {
		return errors.New("metal: a walk without codebooks")
	}
	c.err = nil
	shards, rows := topShards(c.vocab), n*len(lanes)
	_, parts := roomFor[candidate](c, roomParts, rows*shards*k)
	_, selected := roomFor[candidate](c, roomCandidates, rows*k)
	_, edges := roomFor[float32](c, roomEdges, rows*k*k)
	anchors, anchorsAt := roomFor[uint32](c, roomAnchors, len(lanes))
	temperatures, temperaturesAt := roomFor[float32](c, roomTemperatures, len(lanes))
	uniforms, uniformsAt := roomFor[float32](c, roomUniforms, len(lanes)*draftDraws)
	_, walks := roomFor[walk](c, roomWalks, len(lanes))
	_, shares := roomFor[float32](c, roomShares, rows*k)
	if c.err != nil {
		return c.err
	}
	for i := range lanes {
		anchors[i], temperatures[i] = uint32(lanes[i].Anchor), float32(lanes[i].Temperature)
		fillUniforms(uniforms[i*draftDraws:(i+1)*draftDraws], lanes[i].Uniforms)
	}
	p := selectParams{positions: n, candidates: k, rank: cUint(c.rank), vocab: cUint(c.vocab)}
	add(to, c.kernels.top, topGrid(shards, rows), topParams{count: k, items: cUint(c.vocab), shard: topShard}, logits, parts)
	add(to, c.kernels.merge, topGrid(rows, 1), topParams{count: k, items: cUint(shards * k), shard: cUint(shards * k)}, parts, selected)
	add(to, c.kernels.edges, edgesGrid(n, len(lanes)), p, selected, state, anchorsAt, c.before, c.after, edges)
	add(to, c.kernels.walk, walkGrid(len(lanes), k), p, selected, edges, temperaturesAt, uniformsAt, walks, shares)
	return nil
}

func fillUniforms(dst []float32, u *[oracle.Draws]float64) {
	clear(dst)
	if u != nil {
		for i, x := range u {
			dst[i] = float32(x)
		}
	}
}

// walked takes the lanes' walks over.
func (c *Chooser) walked(lanes []model.DraftLane) {
	const n = oracle.Proposals * walkCandidates
	walks, candidates, shares := view[walk](c.room[roomWalks]), view[candidate](c.room[roomCandidates]), view[float32](c.room[roomShares])
	for i := range lanes {
		fillWalk(&lanes[i], &walks[i], candidates[i*n:(i+1)*n], shares[i*n:(i+1)*n])
	}
}

func fillWalk(l *model.DraftLane, w *walk, candidates []candidate, shares []float32) {
	out := l.Walk
	*out = oracle.Walk{Choices: out.Choices[:0], Tokens: out.Tokens[:0], Confidence: out.Confidence[:0], Q: out.Q[:0]}
	for j := range oracle.Proposals {
		out.Choices = append(out.Choices, int(w.choices[j]))
		out.Tokens = append(out.Tokens, int32(w.tokens[j]))
		out.Confidence = append(out.Confidence, float64(w.confidence[j]))
	}
	if l.Temperature == 0 {
		out.Q = nil
		return
	}
	for _, q := range shares {
		out.Q = append(out.Q, float64(q))
	}
	if l.Candidates != nil {
		*l.Candidates = (*l.Candidates)[:0]
		for _, c := range candidates {
			*l.Candidates = append(*l.Candidates, int32(c.token))
		}
	}
}

// VerifyRows writes the rows each lane of a cycle verifies to rows, as oracle.Budget chooses them: by the acceptance model, the
// confidences of the lanes' proposals, their limits, and the cost of a cycle.
func (c *Chooser) VerifyRows(rows []int, confidence [][]float64, limits []int, m *oracle.AcceptanceModel, base, row float64) error {
	if n := len(rows); n < 1 || n > 32 || len(confidence) != n || len(limits) != n {
		return fmt.Errorf("metal: rows of %d lanes; up to 32 are possible", n)
	}
	c.err = nil
	walks, walksAt := roomFor[walk](c, roomWalks, len(rows))
	most, mostAt := roomFor[uint32](c, roomLimits, len(rows))
	out, outAt := roomFor[verifyRows](c, roomVerified, len(rows))
	if c.err != nil {
		return c.err
	}
	p := verifyParams{lanes: cUint(len(rows)), base: cFloat(base), row: cFloat(row), slope: cFloat(m.Slope)}
	for j, x := range m.Intercept {
		p.intercept[j] = cFloat(x)
	}
	for i := range rows {
		most[i] = uint32(limits[i])
		for j := range walks[i].confidence {
			walks[i].confidence[j] = cFloat(confidence[i][j])
		}
	}
	add(&c.commands, c.kernels.verify, grid{x: 1, y: 1, threads: 32}, p, walksAt, mostAt, outAt)
	if err := c.run(); err != nil {
		return err
	}
	for i := range rows {
		rows[i] = int(out[i].rows)
	}
	return nil
}

// Accept chooses the lanes' tokens. logits are the rows of the lanes, which penalties and masks change.
func (c *Chooser) Accept(logits *Buffer, choices []model.Choice) error {
	if rows := outputRows(choices); rows == 0 || logits.Size() < 4*rows*c.vocab {
		return fmt.Errorf("metal: %d rows, %d bytes of logits of %d tokens", rows, logits.Size(), c.vocab)
	}
	c.mask(choices)
	err := c.accept(&c.commands, logits.from(0), choices)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		return err
	}
	c.accepted(choices)
	return nil
}

// outputRows is the number of output rows up to the last of the choices'.
func outputRows(choices []model.Choice) (rows int) {
	for i := range choices {
		rows = max(rows, choices[i].First+choices[i].Rows)
	}
	return rows
}

// maskWords is the number of words of a row's mask, which is whole words of 64 bits.
func (c *Chooser) maskWords() int { return 2 * ((c.vocab + 63) / 64) }

// mask has the choices' masks written to where the device reads them, and says of each choice whether it can be made.
func (c *Chooser) mask(choices []model.Choice) {
	c.err = nil
	words, rows := c.maskWords()/2, 0
	for i := range choices {
		choices[i].Chosen = true
		if choices[i].Masks != nil {
			rows += choices[i].Rows
		}
	}
	if rows == 0 {
		return
	}
	all, _ := roomFor[uint64](c, roomMasks, rows*words)
	for i := range choices {
		if l := &choices[i]; l.Masks != nil {
			mine := all[:l.Rows*words]
			clear(mine)
			l.Chosen = l.Masks(mine)
			all = all[len(mine):]
		}
	}
}

// accept records the choices that can be made, whose masks are written; accepted takes them over when they have run.
func (c *Chooser) accept(to *Commands, logits binding, choices []model.Choice) error {
	const n, k = oracle.Proposals, walkCandidates
	rows, lanes, stops := outputRows(choices), len(choices), 0
	for i := range choices {
		stops += len(choices[i].Stops)
	}
	policies, policiesAt := roomFor[policy](c, roomPolicies, rows)
	_, targets := roomFor[rowTarget](c, roomTargets, rows)
	list, lanesAt := roomFor[acceptLane](c, roomLanes, lanes)
	walks, walksAt := roomFor[walk](c, roomWalks, lanes)
	candidates, candidatesAt := roomFor[candidate](c, roomCandidates, lanes*n*k)
	shares, sharesAt := roomFor[float32](c, roomShares, lanes*n*k)
	uniforms, uniformsAt := roomFor[float32](c, roomUniforms, lanes*draftDraws)
	ends, endsAt := roomFor[uint32](c, roomStops, stops)
	_, out := roomFor[accepted](c, roomAccepted, lanes)
	if c.err != nil {
		return c.err
	}
	clear(policies)
	lanes, stops = 0, 0
	for i := range choices {
		l := &choices[i]
		if !l.Chosen {
			continue
		}
		list[lanes] = acceptLane{
			first: cUint(l.First), verify: cUint(l.Rows), left: cUint(l.Left), temperature: cFloat(l.Policy.Temperature),
			stop: cUint(stops), stops: cUint(len(l.Stops)),
		}
		for row := range l.Rows {
			policies[l.First+row] = kernelPolicy(l.Policy)
		}
		for _, s := range l.Stops {
			ends[stops] = uint32(s)
			stops++
		}
		fillUniforms(uniforms[lanes*draftDraws:(lanes+1)*draftDraws], l.Uniforms)
		fillDraft(l, &walks[lanes], candidates[lanes*n*k:(lanes+1)*n*k], shares[lanes*n*k:(lanes+1)*n*k])
		lanes++
	}
	if lanes == 0 {
		return nil
	}
	if err := c.penalties(to, logits, policiesAt, choices); err != nil {
		return err
	}
	c.masks(to, logits, choices)
	add(to, c.kernels.target, targetGrid(rows), headParams{vocab: cUint(c.vocab)}, logits, policiesAt, targets)
	add(to, c.kernels.accept, targetGrid(lanes), acceptParams{vocab: cUint(c.vocab), candidates: k},
		logits, targets, lanesAt, walksAt, candidatesAt, sharesAt, uniformsAt, endsAt, out)
	return nil
}

// accepted takes over what became of the choices.
func (c *Chooser) accepted(choices []model.Choice) {
	at := 0
	for i := range choices {
		l := &choices[i]
		l.Tokens = l.Tokens[:0]
		if !l.Chosen {
			continue
		}
		out := &view[accepted](c.room[roomAccepted])[at]
		at++
		l.Accepted, l.Retained = int(out.accepted), int(out.retained)
		for _, t := range out.tokens[:l.Accepted+1] {
			l.Tokens = append(l.Tokens, int32(t))
		}
	}
}

func kernelPolicy(p *oracle.Policy) policy {
	out := policy{
		temperature: cFloat(p.Temperature), minP: cFloat(p.MinP), topP: cFloat(p.TopP), topK: cUint(max(0, p.TopK)),
		repetition: cFloat(p.Repetition), presence: cFloat(p.Presence), frequency: cFloat(p.Frequency),
	}
	if p.Repetition == 0 {
		out.repetition = 1
	}
	return out
}

// fillDraft writes what a lane was drafted.
func fillDraft(l *model.Choice, w *walk, candidates []candidate, shares []float32) {
	if l.Rows == 1 {
		return // no proposal is looked at
	}
	for j, t := range l.Walk.Tokens {
		w.tokens[j] = cUint(uint32(t))
	}
	if l.Policy.Temperature == 0 {
		return
	}
	for i, q := range l.Walk.Q {
		candidates[i].token, shares[i] = cUint(uint32(l.Candidates[i])), float32(q)
	}
}

// penalties records those of all rows: a row counts the proposals before it as put out.
func (c *Chooser) penalties(to *Commands, logits, policies binding, choices []model.Choice) error {
	most := 0
	for i := range choices {
		if l := &choices[i]; l.Chosen && l.Penalized() {
			most += l.Rows * (len(l.Occurred) + l.Rows)
		}
	}
	if most == 0 {
		return nil
	}
	list, at := roomFor[occurrence](c, roomOccurrences, most)
	if c.err != nil {
		return c.err
	}
	n := 0
	for i := range choices {
		l := &choices[i]
		if !l.Chosen || !l.Penalized() {
			continue
		}
		for _, o := range l.Occurred {
			if uint64(uint32(o.Token)) >= uint64(c.vocab) {
				return fmt.Errorf("metal: token %d occurred, of a vocabulary of %d", o.Token, c.vocab)
			}
		}
		for row := range l.Rows {
			n += occurrences(list[n:], l, row)
		}
	}
	if n > 0 {
		add(to, c.kernels.penalize, grid{x: (n + 255) / 256, y: 1, threads: 256},
			penaltyParams{occurrences: cUint(n), vocab: cUint(c.vocab)}, logits, at, policies)
	}
	return nil
}

// occurrences writes the tokens that occurred before a row of a lane, and says how many they are.
func occurrences(list []occurrence, l *model.Choice, row int) (n int) {
	for _, o := range l.Occurred {
		list[n] = occurrence{row: cUint(l.First + row), token: cUint(o.Token), count: cUint(o.Count)}
		n++
	}
	for i := range row {
		token := l.Walk.Tokens[i]
		if token < 0 {
			continue // NoToken, which no target says
		}
		at := slices.IndexFunc(list[:n], func(o occurrence) bool { return o.token == cUint(token) })
		if at < 0 {
			at = n
			list[at] = occurrence{row: cUint(l.First + row), token: cUint(token)}
			n++
		}
		list[at].count++
	}
	return n
}

// masks records the masks, in the order that they were written.
func (c *Chooser) masks(to *Commands, logits binding, choices []model.Choice) {
	words, at := c.maskWords(), 0
	for i := range choices {
		l := &choices[i]
		if l.Masks == nil {
			continue
		}
		if l.Chosen {
			rows := binding{logits.buffer, logits.offset + 4*int64(l.First)*int64(c.vocab)}
			add(to, c.kernels.mask, copyGrid(l.Rows, c.vocab), headParams{vocab: cUint(c.vocab), words: cUint(words)}, rows,
				c.room[roomMasks].from(4*int64(at)*int64(words)))
		}
		at += l.Rows
	}
}

// Float32s is a buffer's memory as F32 values.
func (b *Buffer) Float32s() []float32 { return view[float32](b) }

// LoadSelector finds the codebooks of a draft's selector in its images, or copies them.
func (b *Backend) LoadSelector(w planner.Weights, before, after *planner.Tensor) error {
	c := b.chooser
	c.rank, c.err = 0, nil
	for _, m := range []struct {
		tensor *planner.Tensor
		room   int
		to     *binding
	}{{before, roomBefore, &c.before}, {after, roomAfter, &c.after}} {
		if m.tensor == nil {
			return errors.New("metal: a selector without a codebook")
		}
		if img, in, first := b.find(m.tensor); in != nil && in.Form == planner.Bare && in.Type == dequant.BF16 && first == 0 {
			if err := c.checkCodebook(in.Rows, in.Cols); err != nil {
				return err
			}
			*m.to = img.buffer.from(in.Plane0.Offset)
			continue
		}
		stored, err := w.Matrices(m.tensor)
		if err != nil {
			return err
		}
		if *m.to, err = c.codebook(m.room, storedMatrix{stored[0], make([]float32, stored[0].Cols)}); err != nil {
			return err
		}
	}
	return nil
}

// A storedMatrix is a stored matrix as package oracle reads one.
type storedMatrix struct {
	dequant.Matrix
	row []float32
}

func (m storedMatrix) Dims() (rows, cols int) { return m.Rows, m.Cols }

func (m storedMatrix) Row(dst []float64, i int) {
	m.DecodeRow(m.row, i)
	for j, x := range m.row {
		dst[j] = float64(x)
	}
}

// Propose runs a draft's pass and the choice of its proposals, in one.
func (b *Backend) Propose(logits, state model.Buffer, lanes []model.DraftLane) error {
	c := b.chooser
	b.endOperators()
	if b.err == nil {
		b.err = b.checkChosen(logits, oracle.Proposals*len(lanes))
	}
	if b.err == nil {
		b.err = c.walk(&b.commands, b.at(logits), b.at(state), lanes)
	}
	if err := b.End(); err != nil {
		return err
	}
	c.walked(lanes)
	return nil
}

// Choose runs a target's pass and the choice of its tokens, in one where no masks are to be made meanwhile.
func (b *Backend) Choose(logits model.Buffer, choices []model.Choice) error {
	c := b.chooser
	b.endOperators()
	if b.err == nil {
		b.err = b.checkChosen(logits, outputRows(choices))
	}
	if b.err != nil {
		return b.err
	}
	if masked(choices) {
		defer b.device.Wait() // also where a mask cannot be made
		err := b.start()
		if err == nil {
			err = b.device.commit()
		}
		if err != nil {
			return err
		}
	}
	c.mask(choices)
	before := b.commands.Len()
	b.err = c.accept(&b.commands, b.at(logits), choices)
	b.traffic.Choosing = b.commands.Len() - before
	if err := b.End(); err != nil {
		return err
	}
	c.accepted(choices)
	return nil
}

// masked reports whether a choice has masks.
func masked(choices []model.Choice) bool {
	for i := range choices {
		if choices[i].Masks != nil {
			return true
		}
	}
	return false
}

// checkChosen refuses to choose from other logits than a pass has.
func (b *Backend) checkChosen(logits model.Buffer, rows int) error {
	if x := &b.buffers[logits]; x.width != b.chooser.vocab || rows == 0 || rows > b.outputs {
		return fmt.Errorf("metal: tokens are chosen from %d rows of %d logits; the pass has %d rows of them, of a vocabulary of %d",
			rows, x.width, b.outputs, b.chooser.vocab)
	}
	return nil
}

var _ model.Chooser = (*Backend)(nil)
