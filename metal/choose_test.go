//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"slices"
	"testing"

	"splash/internal/model"
	"splash/oracle"
)

// TestChooseInOneCommit runs a pass that also chooses tokens: one commit, and two where masks are made while the pass runs. A mask
// that panics leaves nothing running, and a lane whose masks cannot be made keeps its logits.
func TestChooseInOneCommit(t *testing.T) {
	x := openTiny(t, "tiny-qwen35-Q4_K_M")
	d := open(t, Devices()[0])
	n := x.network(t, x.backend(t, d, Options{MaxRows: 16, WideKV: true}), model.Options{})
	b := n.Backend()
	tokens := readManifest(t).Tokens[:4]
	pass := func(masks func(rows []uint64) bool) (c model.Choice, commits uint64) {
		lane, err := b.NewLane()
		if err != nil {
			t.Fatal(err)
		}
		defer b.FreeLane(lane)
		p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: 1}}}
		p.Choices = []model.Choice{{Rows: 1, Left: 1, Policy: &oracle.Policy{Presence: 1}, Occurred: []model.Occurrence{{Token: 5, Count: 1}}, Masks: masks}}
		before := d.Counters().Commits
		if err := n.Forward(p); err != nil {
			t.Fatal(err)
		}
		return p.Choices[0], d.Counters().Commits - before
	}
	free, commits := pass(nil)
	if !free.Chosen || commits != 1 {
		t.Errorf("chosen %v, in %d commits", free.Chosen, commits)
	}
	logits := slices.Clone(n.Logits(0))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of a mask is lost")
			}
		}()
		pass(func([]uint64) bool { panic("a mask") })
	}()
	c, commits := pass(func([]uint64) bool { return false })
	if c.Chosen || commits != 1 {
		t.Errorf("without masks: chosen %v, in %d commits", c.Chosen, commits)
	}
	read := n.Logits(0)
	if !slices.Equal(logits[:5], read[:5]) || !slices.Equal(logits[6:], read[6:]) || math.Abs(float64(read[5]-logits[5]-1)) > 1e-5 {
		t.Error("the logits of a lane that was not chosen for are other ones than the model's")
	}
	only := (free.Tokens[0] + 1) % 64
	c, commits = pass(func(rows []uint64) bool { rows[0] = 1 << only; return true })
	if !c.Chosen || commits != 2 || len(c.Tokens) != 1 || c.Tokens[0] != only {
		t.Errorf("with a mask of token %d: %v, in %d commits", only, c.Tokens, commits)
	}
}
