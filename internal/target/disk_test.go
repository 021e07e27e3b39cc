package target

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/internal/engine"
)

// TestDisk keeps prompts of every architecture on a disk while memory holds hardly one, and takes them back when the model
// is opened again: what is said after them is what was said at first, to the last token.
func TestDisk(t *testing.T) {
	root := t.TempDir()
	text := strings.Repeat("The fox asked every animal of the forest the way to the sea. ", 6)
	for _, c := range []struct{ name, path, kv string }{
		{"demonstration", "", "int8"}, {"demonstration", "", "bf16"}, {"flint", tiny(t, "tiny-flint"), "int8"}, {"hyper", tiny(t, "tiny-qwen4exp"), "int8"},
	} {
		t.Run(c.name+" "+c.kv, func(t *testing.T) {
			o := Options{
				Path: c.path, Backend: "cpu", KV: c.kv, Disk: Disk{Quota: 1 << 30, Root: root},
				Engine: engine.Options{Context: 512, Cache: 1}, // a byte: everything goes to the disk
			}
			var want [3][]int32
			for round := range 2 {
				m, err := Open(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				e := engine.New(m.Network, m.Engine)
				for i := range want {
					prompt := m.Tokenizer.Encode(text[7*i:], true)[:100+30*i]
					got, cached := say(t, e, prompt)
					if round == 0 {
						want[i] = got
						continue
					}
					if d := cmp.Diff(want[i], got); d != "" || cached != (len(prompt)-1)/32*32 {
						t.Errorf("round %d: %d of %d tokens are cached: %s", round, cached, len(prompt), d)
					}
				}
				if s := e.Stats(); round > 0 && (s.Cache.DiskHits != 3 || s.Disk.TakenBack < 3 || s.Disk.Corrupt != 0) {
					t.Errorf("round %d: %+v %+v", round, s.Cache, s.Disk)
				}
				e.Close()
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 4 {
		t.Errorf("%d directories of models, %v", len(entries), err)
	}
	// Another file under the same name is another model.
	path := tiny(t, "tiny-qwen35")
	vision := ""
	name := func() string {
		s, err := openSource(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.files.Close()
		n, err := namespace("cpu", Options{Path: path, KV: "int8", Vision: vision}, 1, 2, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := name()
	if name() != first {
		t.Error("the name of a model's directory is another each time")
	}
	vision = t.TempDir() // as is the same model with another tower
	if err := os.WriteFile(filepath.Join(vision, "tower"), []byte("rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if name() == first {
		t.Error("another tower has the same directory")
	}
	vision = ""
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if name() == first || filepath.Base(first) != first {
		t.Error("another file has the same directory")
	}
}
