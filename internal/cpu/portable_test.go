package cpu_test

import (
	"slices"
	"testing"

	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/model"
	"splash/planner"
)

// TestPortableRefusals: bytes that are no checkpoint of the network are refused. That a checkpoint goes on elsewhere as where
// it was made is the test of targets.
func TestPortableRefusals(t *testing.T) {
	prompt := demoPrompts(t)[0].IDs
	for len(prompt) < 100 {
		prompt = append(prompt, prompt...)
	}
	for _, kv := range []cpu.KVFormat{cpu.KVBF16, cpu.KVInt8, cpu.KVFloat} {
		var backends [2]*cpu.Backend
		var nets [2]model.Network
		for i := range backends {
			d := loadDemoOn(t, fixtures.Pebble, func(p *planner.Plan) (model.Backend, error) {
				b, err := cpu.New(p, 128, cpu.Options{KV: kv})
				backends[i] = b
				return b, err
			})
			nets[i] = d.net
		}
		from, to := backends[0], backends[1]
		lane := newLane(t, nets[0])
		forward(t, nets[0], lane, prompt[:96])
		saved, _, err := from.Save(lane)
		if err != nil {
			t.Fatal(err)
		}
		pageBytes, stateBytes := from.PortableShape()
		page, state := make([]byte, pageBytes), make([]byte, stateBytes)
		c, bytes, err := to.Import(96)
		if err != nil || bytes == 0 {
			t.Fatal(bytes, err)
		}
		for i := range 3 {
			if err := from.ExportPage(page, saved, i); err != nil {
				t.Fatal(err)
			}
			if err := to.ImportPage(c, i, page); err != nil {
				t.Fatal(err)
			}
		}
		n, err := from.ExportState(state, saved)
		if err != nil {
			t.Fatal(err)
		}
		// The draft keeps rows of its own, of which this lane has none: an import has them, and refuses.
		if err := to.ImportState(c, state[:n]); err == nil {
			t.Error("states without a draft's rows are taken for some with them")
		}
		for name, err := range map[string]error{
			"short state":  to.ImportState(c, state[:n-1]),
			"empty state":  to.ImportState(c, nil),
			"short page":   to.ImportPage(c, 0, page[:pageBytes-1]),
			"long page":    to.ImportPage(c, 0, append(slices.Clone(page), 0)),
			"no page":      to.ImportPage(c, 3, page),
			"page -1":      to.ImportPage(c, -1, page),
			"nothing":      to.ImportState(99, state),
			"small room":   exportError(from, state[:10], saved),
			"small page":   from.ExportPage(page[:10], saved, 0),
			"half a page":  importError(to, 40),
			"no tokens":    importError(to, 0),
			"less than no": importError(to, -32),
		} {
			if err == nil {
				t.Errorf("%s is accepted", name)
			}
		}
		to.Drop(c)
		from.Drop(saved)
	}
}

func exportError(b *cpu.Backend, dst []byte, c model.Checkpoint) error {
	_, err := b.ExportState(dst, c)
	return err
}

func importError(b *cpu.Backend, tokens int) error {
	_, _, err := b.Import(tokens)
	return err
}
