//go:build cgo

package metal

import (
	"errors"
	"fmt"
	"slices"

	"splash/dequant"
	"splash/internal/model"
	"splash/oracle"
)

// A Chooser chooses tokens on a device, from the logits of a draft and of its target (oracle/selector.go, sampling.go, accept.go,
// budget.go). Its numbers are F32. It is used as its device is, by one goroutine.
type Chooser struct {
	device        *Device
	vocab, rank   int
	before, after binding // codebooks, BF16
	kernels       chooserKernels
	room          map[string]*Buffer
	commands      Commands
}

type chooserKernels struct{ top, merge, edges, walk, verify, penalize, mask, target, accept *Kernel }

// walkCandidates is the number of candidates that a proposal is chosen from.
const walkCandidates = 16

// NewChooser returns a chooser over a vocabulary, which copies a selector's codebooks; without one it does not walk.
func NewChooser(d *Device, vocab int, s *oracle.Selector) (*Chooser, error) {
	c := &Chooser{device: d, vocab: vocab, room: make(map[string]*Buffer)}
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
	if c.before, err = c.codebook("before", s.Predecessor); err == nil {
		c.after, err = c.codebook("after", s.Successor)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// codebook copies a codebook, which is BF16.
func (c *Chooser) codebook(name string, m oracle.Matrix) (binding, error) {
	rows, cols := m.Dims()
	if rows != c.vocab || c.rank != 0 && cols != c.rank {
		return binding{}, fmt.Errorf("metal: a codebook of %d x %d for a vocabulary of %d", rows, cols, c.vocab)
	}
	c.rank = cols
	b, err := room[uint16](c, name, rows*cols)
	if err != nil {
		return binding{}, err
	}
	row := make([]float64, cols)
	for i := range rows {
		m.Row(row, i)
		for j, x := range row {
			view[uint16](b)[i*cols+j] = dequant.ToBF16(float32(x))
		}
	}
	return b.from(0), nil
}

// Close frees the chooser's memory.
func (c *Chooser) Close() {
	for _, b := range c.room {
		b.Free()
	}
	clear(c.room)
}

// room is a buffer of at least n values, which keeps its memory from call to call.
func room[T any](c *Chooser, name string, n int) (*Buffer, error) {
	size := max(1, n) * int(sizeOf[T]())
	if b := c.room[name]; b != nil {
		if b.Size() >= size {
			return b, nil
		}
		b.Free()
		delete(c.room, name)
	}
	b, err := c.device.NewBuffer(size)
	if err == nil {
		c.room[name] = b
	}
	return b, err
}

// A roomy asks for memory for one call and keeps the errors.
type roomy struct {
	*Chooser
	err error
}

func roomFor[T any](r *roomy, name string, n int) ([]T, binding) {
	b, err := room[T](r.Chooser, name, n)
	if err != nil {
		r.err = errors.Join(r.err, err)
		return make([]T, n), binding{}
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

// A WalkLane is a lane that proposals are chosen for.
type WalkLane struct {
	Anchor      int32
	Temperature float64                // 0: the greedy walk
	Uniforms    *[oracle.Draws]float64 // of the cycle; nil at temperature 0

	Walk       *oracle.Walk // receives the proposals
	Candidates *[]int32     // receives the candidates of a sampled walk, position after position
}

// Walk chooses the lanes' proposals. logits and state hold, lane after lane, the rows of the positions: [positions][vocabulary] and
// [positions][rank].
func (c *Chooser) Walk(logits, state *Buffer, lanes []WalkLane) error {
	const n, k = oracle.Proposals, walkCandidates
	if c.rank == 0 {
		return errors.New("metal: a walk without codebooks")
	}
	shards, rows := topShards(c.vocab), n*len(lanes)
	if len(lanes) == 0 || logits.Size() < 4*rows*c.vocab || state.Size() < 4*rows*c.rank {
		return fmt.Errorf("metal: %d lanes, %d bytes of logits and %d of state", len(lanes), logits.Size(), state.Size())
	}
	r := &roomy{Chooser: c}
	_, parts := roomFor[candidate](r, "parts", rows*shards*k)
	candidates, selected := roomFor[candidate](r, "candidates", rows*k)
	_, edges := roomFor[float32](r, "edges", rows*k*k)
	anchors, anchorsAt := roomFor[uint32](r, "anchors", len(lanes))
	temperatures, temperaturesAt := roomFor[float32](r, "temperatures", len(lanes))
	uniforms, uniformsAt := roomFor[float32](r, "uniforms", len(lanes)*draftDraws)
	walks, walksAt := roomFor[walk](r, "walks", len(lanes))
	shares, sharesAt := roomFor[float32](r, "shares", rows*k)
	if r.err != nil {
		return r.err
	}
	for i := range lanes {
		anchors[i], temperatures[i] = uint32(lanes[i].Anchor), float32(lanes[i].Temperature)
		fillUniforms(uniforms[i*draftDraws:(i+1)*draftDraws], lanes[i].Uniforms)
	}
	p := selectParams{positions: n, candidates: k, rank: cUint(c.rank), vocab: cUint(c.vocab)}
	add(&c.commands, c.kernels.top, topGrid(shards, rows), topParams{count: k, items: cUint(c.vocab), shard: topShard},
		logits.from(0), parts)
	add(&c.commands, c.kernels.merge, topGrid(rows, 1), topParams{count: k, items: cUint(shards * k), shard: cUint(shards * k)},
		parts, selected)
	add(&c.commands, c.kernels.edges, edgesGrid(n, len(lanes)), p, selected, state.from(0), anchorsAt, c.before, c.after, edges)
	add(&c.commands, c.kernels.walk, walkGrid(len(lanes), k), p, selected, edges, temperaturesAt, uniformsAt, walksAt, sharesAt)
	if err := c.run(); err != nil {
		return err
	}
	for i := range lanes {
		lanes[i].fill(&walks[i], candidates[i*n*k:(i+1)*n*k], shares[i*n*k:(i+1)*n*k])
	}
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

// fill takes a lane's walk over.
func (l *WalkLane) fill(w *walk, candidates []candidate, shares []float32) {
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
	r := &roomy{Chooser: c}
	walks, walksAt := roomFor[walk](r, "walks", len(rows))
	most, mostAt := roomFor[uint32](r, "limits", len(rows))
	out, outAt := roomFor[verifyRows](r, "verified", len(rows))
	if r.err != nil {
		return r.err
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

// An Occurred is a token that occurred, and how often it was put out.
type Occurred struct{ Token, Count int32 }

// A TargetLane is a lane of a cycle whose rows the target has run: consecutive rows of logits, one that is verified after another.
type TargetLane struct {
	Rows     int // that are verified
	Left     int // tokens that may still be put out, at least 1
	Policy   oracle.Policy
	Occurred []Occurred             // before its first row; none twice
	Masks    [][]uint32             // of each row, a bit a token that is admitted; nil: all are
	Uniforms *[oracle.Draws]float64 // nil at temperature 0

	Walk       *oracle.Walk // the proposals; nil for one row
	Candidates []int32      // that a sampled walk drew from

	Tokens   []int32 // receives the accepted proposals and the target's own token; NoToken where its logits are no numbers
	Accepted int     // receives the number of proposals accepted
	Retained int     // receives how many of Tokens are kept
}

// Accept chooses the lanes' tokens. logits are the rows of the lanes, which penalties and masks change. stops end what a lane
// retains.
func (c *Chooser) Accept(logits *Buffer, lanes []TargetLane, stops []int32) error {
	const n, k = oracle.Proposals, walkCandidates
	rows := 0
	for i := range lanes {
		rows += lanes[i].Rows
	}
	if rows == 0 || logits.Size() < 4*rows*c.vocab {
		return fmt.Errorf("metal: %d rows, %d bytes of logits of %d tokens", rows, logits.Size(), c.vocab)
	}
	r := &roomy{Chooser: c}
	policies, policiesAt := roomFor[policy](r, "policies", rows)
	_, targets := roomFor[rowTarget](r, "targets", rows)
	list, lanesAt := roomFor[acceptLane](r, "lanes", len(lanes))
	walks, walksAt := roomFor[walk](r, "walks", len(lanes))
	candidates, candidatesAt := roomFor[candidate](r, "candidates", len(lanes)*n*k)
	shares, sharesAt := roomFor[float32](r, "shares", len(lanes)*n*k)
	uniforms, uniformsAt := roomFor[float32](r, "uniforms", len(lanes)*draftDraws)
	ends, endsAt := roomFor[uint32](r, "stops", len(stops))
	out, outAt := roomFor[accepted](r, "accepted", len(lanes))
	if r.err != nil {
		return r.err
	}
	for i, s := range stops {
		ends[i] = uint32(s)
	}
	first := 0
	for i := range lanes {
		l := &lanes[i]
		list[i] = acceptLane{first: cUint(first), verify: cUint(l.Rows), left: cUint(l.Left), temperature: cFloat(l.Policy.Temperature)}
		for range l.Rows {
			policies[first] = kernelPolicy(&l.Policy)
			first++
		}
		fillUniforms(uniforms[i*draftDraws:(i+1)*draftDraws], l.Uniforms)
		l.draft(&walks[i], candidates[i*n*k:(i+1)*n*k], shares[i*n*k:(i+1)*n*k])
	}
	if err := errors.Join(c.penalties(r, logits, policiesAt, lanes), c.masks(r, logits, lanes, rows)); err != nil {
		return err
	}
	add(&c.commands, c.kernels.target, targetGrid(rows), headParams{vocab: cUint(c.vocab)}, logits.from(0), policiesAt, targets)
	add(&c.commands, c.kernels.accept, targetGrid(len(lanes)), acceptParams{vocab: cUint(c.vocab), candidates: k, stops: cUint(len(stops))},
		logits.from(0), targets, lanesAt, walksAt, candidatesAt, sharesAt, uniformsAt, endsAt, outAt)
	if err := c.run(); err != nil {
		return err
	}
	for i := range lanes {
		l := &lanes[i]
		l.Accepted, l.Retained, l.Tokens = int(out[i].accepted), int(out[i].retained), l.Tokens[:0]
		for _, t := range out[i].tokens[:l.Accepted+1] {
			l.Tokens = append(l.Tokens, int32(t))
		}
	}
	return nil
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

// draft writes what a lane was drafted.
func (l *TargetLane) draft(w *walk, candidates []candidate, shares []float32) {
	clear(shares)
	for i := range candidates {
		candidates[i].token = 1<<32 - 1
	}
	for j := range w.tokens {
		w.tokens[j] = 1<<32 - 1
	}
	if l.Walk == nil {
		return
	}
	for j, t := range l.Walk.Tokens {
		w.tokens[j] = cUint(uint32(t))
	}
	for i, q := range l.Walk.Q {
		candidates[i].token, shares[i] = cUint(uint32(l.Candidates[i])), float32(q)
	}
}

// penalties records those of all rows: a row counts the proposals before it as put out.
func (c *Chooser) penalties(r *roomy, logits *Buffer, policies binding, lanes []TargetLane) error {
	var all []occurrence
	first := 0
	for i := range lanes {
		l := &lanes[i]
		p := &l.Policy
		if p.Repetition != 0 && p.Repetition != 1 || p.Presence != 0 || p.Frequency != 0 {
			seen := slices.Clone(l.Occurred)
			for row := range l.Rows {
				for _, o := range seen {
					all = append(all, occurrence{row: cUint(first + row), token: cUint(o.Token), count: cUint(o.Count)})
				}
				if row < l.Rows-1 {
					seen = occur(seen, l.Walk.Tokens[row])
				}
			}
		}
		first += l.Rows
	}
	if len(all) == 0 {
		return nil
	}
	list, at := roomFor[occurrence](r, "occurrences", len(all))
	if r.err != nil {
		return r.err
	}
	for i, o := range all {
		if int(o.token) >= c.vocab {
			return fmt.Errorf("metal: token %d occurred, of a vocabulary of %d", int32(o.token), c.vocab)
		}
		list[i] = o
	}
	add(&c.commands, c.kernels.penalize, grid{x: (len(all) + 255) / 256, y: 1, threads: 256},
		penaltyParams{occurrences: cUint(len(all)), vocab: cUint(c.vocab)}, logits.from(0), at, policies)
	return nil
}

// occur counts a token once more. NoToken, which no target says, is not counted.
func occur(seen []Occurred, token int32) []Occurred {
	if token < 0 {
		return seen
	}
	if i := slices.IndexFunc(seen, func(o Occurred) bool { return o.Token == token }); i >= 0 {
		seen[i].Count++
		return seen
	}
	return append(seen, Occurred{token, 1})
}

// masks records those of all rows, where any has one.
func (c *Chooser) masks(r *roomy, logits *Buffer, lanes []TargetLane, rows int) error {
	if !slices.ContainsFunc(lanes, func(l TargetLane) bool { return l.Masks != nil }) {
		return nil
	}
	words := (c.vocab + 31) / 32
	all, at := roomFor[uint32](r, "masks", rows*words)
	if r.err != nil {
		return r.err
	}
	for i := range all {
		all[i] = 1<<32 - 1
	}
	first := 0
	for i := range lanes {
		for row, m := range lanes[i].Masks {
			if m != nil {
				copy(all[(first+row)*words:(first+row+1)*words], m)
			}
		}
		first += lanes[i].Rows
	}
	add(&c.commands, c.kernels.mask, copyGrid(rows, c.vocab), headParams{vocab: cUint(c.vocab), words: cUint(words)}, logits.from(0), at)
	return nil
}

// Float32s is a buffer's memory as F32 values.
func (b *Buffer) Float32s() []float32 { return view[float32](b) }

// Memory is where a buffer of a backend is until the next Begin, for a Chooser.
func (b *Backend) Memory(h model.Buffer) *Buffer { return b.buffers[h].Buffer }
