//go:build cgo

package metal

import (
	"fmt"

	"splash/internal/model"
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

// CycleTraffic is the traffic of a decoding pass of a target, of so many lanes with so many rows each, after context tokens. The
// pass is recorded from the plan alone: no weight is read and nothing is run.
func CycleTraffic(p *planner.Plan, lanes, rows, context int) (Traffic, error) {
	images, err := planImages(p)
	if err != nil {
		return Traffic{}, err
	}
	mapped := new(planner.Images)
	for i := range images.Images {
		mapped.Files = append(mapped.Files, &planner.ImageFile{Image: &images.Images[i]})
	}
	b, err := New(dry(), p, mapped, Options{MaxRows: lanes * rows})
	if err != nil {
		return Traffic{}, err
	}
	defer b.Close()
	n, err := model.New(b, p, nil, model.Options{})
	if err != nil {
		return Traffic{}, err
	}
	if context < 0 || context+rows > p.Layout.Context {
		return Traffic{}, fmt.Errorf("metal: %d rows after %d tokens; the model's context is %d", rows, context, p.Layout.Context)
	}
	pass := new(model.Pass)
	for range lanes {
		lane, err := b.NewLane()
		if err != nil {
			return Traffic{}, err
		}
		b.lanes[lane].length = context
		pass.Segments = append(pass.Segments, model.Segment{Lane: lane, Tokens: make([]int32, rows), Outputs: rows})
	}
	if err := n.Forward(pass); err != nil {
		return Traffic{}, err
	}
	t := b.traffic
	t.Dispatches = b.commands.Len()
	t.Loads += t.Total()
	return t, nil
}
