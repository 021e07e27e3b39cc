//go:build cgo

package metal

import (
	"fmt"

	"splash/internal/model"
	"splash/oracle"
	"splash/planner"
)

// tokensSeen is the number of tokens whose keys and values the lanes of a pass read in a layer, each once, and write.
func (b *Backend) tokensSeen(a *model.Attention) (tokens int64) {
	for i := range b.segments {
		s := &view[segmentInfo](b.segmentBuffer)[i]
		n := int64(s.index + s.rows)
		if a.Window > 0 {
			n = min(n, int64(a.Window)+int64(s.rows)-1)
		}
		if x := a.Index; x != nil {
			// Rows choose by themselves: at most, no block twice.
			n = min(n, int64(s.rows)*int64((x.Layout.Budget+1)*x.Layout.Block))
		}
		tokens += n + int64(s.rows)
	}
	return tokens
}

// CycleTraffic is the traffic of a decoding pass of a target, of so many lanes with so many rows each, after context tokens, and of
// the choice of the lanes' tokens, which are greedy. The pass is recorded from the plan alone: no weight is read and nothing is run.
func CycleTraffic(p *planner.Plan, lanes, rows, context int) (Traffic, error) {
	c, err := newDryCycle(p, Options{MaxRows: lanes * rows}, lanes, rows, context)
	if err != nil {
		return Traffic{}, err
	}
	defer c.backend.Close()
	if err := c.network.Forward(&c.pass); err != nil {
		return Traffic{}, err
	}
	t := c.backend.passTraffic()
	t.Dispatches = c.backend.commands.Len()
	t.Loads += t.Total()
	return t, nil
}

// A dryCycle is a decoding pass that a device without kernels records.
type dryCycle struct {
	backend *Backend
	network model.Network
	draft   *model.Draft // nil: none
	pass    model.Pass
}

func newDryCycle(p *planner.Plan, o Options, lanes, rows, context int) (*dryCycle, error) {
	if context < 0 || context+rows > p.Layout.Context {
		return nil, fmt.Errorf("metal: %d rows after %d tokens; the model's context is %d", rows, context, p.Layout.Context)
	}
	images, err := planImages(p)
	if err != nil {
		return nil, err
	}
	b, err := New(dry(), p, described(images), o)
	if err != nil {
		return nil, err
	}
	c := &dryCycle{backend: b}
	if c.network, err = model.New(b, p, nil, model.Options{}); err == nil {
		err = c.seat(lanes, rows, context)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return c, nil
}

// seat fills the pass with lanes of context tokens.
func (c *dryCycle) seat(lanes, rows, context int) error {
	for range lanes {
		lane, err := c.backend.NewLane()
		if err != nil {
			return err
		}
		c.backend.lanes[lane].length = context
		c.pass.Choices = append(c.pass.Choices, model.Choice{
			First: rows * len(c.pass.Segments), Rows: rows, Left: rows, Policy: new(oracle.Policy),
			Walk: &oracle.Walk{Tokens: make([]int32, oracle.Proposals)},
		})
		c.pass.Segments = append(c.pass.Segments, model.Segment{Lane: lane, Tokens: make([]int32, rows), Outputs: rows})
	}
	return nil
}
