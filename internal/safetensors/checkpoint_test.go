package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// shard is a file of one U8 tensor of two bytes.
func shard(name string, a, b byte) []byte {
	s := file(fmt.Sprintf(`{"%s":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, name), 4)
	copy(s[len(s)-4:], []byte{0, a, b, 0})
	return s
}

func TestOpenDir(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.safetensors"), shard("two", 3, 4))
	write(t, filepath.Join(dir, "a.safetensors"), shard("one", 1, 2))
	write(t, filepath.Join(dir, "config.json"), []byte("{}"))
	write(t, filepath.Join(dir, "sub", "c.safetensors"), []byte("ignored"))
	c, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.Tensors) != 2 || c.Tensors[0].Name != "one" || c.Tensors[1].File != 1 {
		t.Errorf("tensors %+v", c.Tensors)
	}
	if diff := cmp.Diff([]byte{3, 4}, c.Data(c.Tensor("two"))); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if c.Tensor("three") != nil {
		t.Error("a tensor that is not there was found")
	}
	if err := c.Changed(); err != nil {
		t.Errorf("nothing changed: %v", err)
	}
	headers, err := Join(c.Files)
	if err != nil {
		t.Fatal(err)
	}
	if headers.Data(headers.Tensor("one")) != nil {
		t.Error("headers alone have data")
	}
}

func TestOpenIndexed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "model.safetensors"), shard("whole", 1, 2))
	write(t, filepath.Join(dir, "mask.safetensors"), shard("mask", 5, 6))
	open := func(want ...string) {
		t.Helper()
		c, err := OpenIndexed(dir, filepath.Join(dir, "mask.safetensors"), filepath.Join(dir, "none.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var names []string
		for i := range c.Tensors {
			names = append(names, c.Tensors[i].Name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("tensors (-want +got):\n%s", diff)
		}
	}
	open("whole", "mask")
	write(t, filepath.Join(dir, "x.safetensors"), shard("one", 1, 2))
	write(t, filepath.Join(dir, "sub", "y.safetensors"), shard("two", 1, 2))
	index := filepath.Join(dir, "model.safetensors.index.json")
	write(t, index, []byte(`{"metadata":{},"weight_map":{"one":"x.safetensors","two":"sub/y.safetensors","more":"x.safetensors"}}`))
	open("two", "one", "mask")
	write(t, index, []byte(`{"weight_map":{"one":"gone.safetensors"}}`))
	if _, err := OpenIndexed(dir); err == nil || !strings.Contains(err.Error(), "checkpoint has missing or unsupported shards") {
		t.Errorf("a missing shard: %v", err)
	}
}

func TestOpenRefused(t *testing.T) {
	dir := t.TempDir()
	a := write(t, filepath.Join(dir, "a.safetensors"), shard("one", 1, 2))
	b := write(t, filepath.Join(dir, "b.safetensors"), shard("one", 1, 2))
	bad := write(t, filepath.Join(dir, "bad"), []byte("short"))
	empty := t.TempDir()
	for _, test := range []struct {
		name string
		open func() (*Checkpoint, error)
		want string
	}{
		{"no files", func() (*Checkpoint, error) { return Open() }, "a checkpoint of 0 safetensors files, from 1 to 1024"},
		{"too many", func() (*Checkpoint, error) { return Open(make([]string, 1025)...) },
			"a checkpoint of 1025 safetensors files, from 1 to 1024"},
		{"a tensor in two files", func() (*Checkpoint, error) { return Open(a, b) },
			b + ": tensor one is in " + a + " too"},
		{"a bad file", func() (*Checkpoint, error) { return Open(a, bad) },
			bad + ": truncated safetensors file: 5 bytes, at least 8"},
		{"a directory", func() (*Checkpoint, error) { return Open(dir) }, dir + ": not a regular file"},
		{"an empty directory", func() (*Checkpoint, error) { return OpenDir(empty) },
			empty + ": model has no safetensors checkpoint"},
		{"no headers", func() (*Checkpoint, error) { return Join(nil) },
			"a checkpoint of 0 safetensors files, from 1 to 1024"},
		{"headers beyond bounds", func() (*Checkpoint, error) {
			return Join([]*Header{{Name: "x", DataStart: MaxCheckpointHeader}, {Name: "y", DataStart: 9}})
		}, "y: the checkpoint's headers exceed 268435456 bytes"},
		{"tensors beyond bounds", func() (*Checkpoint, error) {
			return Join([]*Header{{Name: "x", Tensors: make([]Tensor, MaxTensors)}, {Name: "y", Tensors: make([]Tensor, 1)}})
		}, "x: the checkpoint has 1048577 tensors, at most 1048576"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.open()
			if err == nil || err.Error() != test.want {
				t.Errorf("refused with\n\t%v\nwant\n\t%s", err, test.want)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, path string)
	}{
		{"longer", func(t *testing.T, path string) { write(t, path, append(shard("one", 1, 2), 0)) }},
		{"another time", func(t *testing.T, path string) {
			if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}},
		{"another file", func(t *testing.T, path string) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			other := write(t, path+".new", shard("one", 1, 2))
			if err := os.Chtimes(other, info.ModTime(), info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
		}},
		{"gone", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := write(t, filepath.Join(t.TempDir(), "a.safetensors"), shard("one", 1, 2))
			c, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			test.change(t, path)
			if err := c.Changed(); err == nil || !strings.HasPrefix(err.Error(), path+": the file changed while it was read") {
				t.Errorf("Changed returns %v", err)
			}
		})
	}
}

func TestIndexRefused(t *testing.T) {
	shards := "i: checkpoint has missing or unsupported shards: weight_map gives a the file "
	for _, test := range []struct{ name, index, want string }{
		{"no map", `{"metadata":{}}`, "i: weight_map is missing or empty"},
		{"an empty map", `{"weight_map":{}}`, "i: weight_map is missing or empty"},
		{"a map twice", `{"weight_map":{"a":"x.safetensors"},"weight_map":{}}`, "i: weight_map appears twice"},
		{"a tensor twice", `{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`, "i: weight_map names a twice"},
		{"a number of a file", `{"weight_map":{"a":1}}`, "i: weight_map a: at byte 19 of its JSON: expected a string"},
		{"another extension", `{"weight_map":{"a":"x.bin"}}`, shards + "x.bin"},
		{"an absolute path", `{"weight_map":{"a":"/x.safetensors"}}`, shards + "/x.safetensors"},
		{"a path up", `{"weight_map":{"a":"../x.safetensors"}}`, shards + "../x.safetensors"},
		{"a path up inside", `{"weight_map":{"a":"s/../../x.safetensors"}}`, shards + "s/../../x.safetensors"},
		{"more after it", `{"weight_map":{"a":"x.safetensors"}} 1`,
			"i: at byte 37 of its JSON: not valid JSON: something follows the object"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadIndex(strings.NewReader(test.index), "i")
			if err == nil || err.Error() != test.want {
				t.Errorf("refused with\n\t%v\nwant\n\t%s", err, test.want)
			}
		})
	}
	var b strings.Builder
	b.WriteString(`{"weight_map":{"x":"x.safetensors"`)
	for i := range MaxShards {
		fmt.Fprintf(&b, `,"%d":"%d.safetensors"`, i, i)
	}
	b.WriteString("}}")
	if _, err := ReadIndex(strings.NewReader(b.String()), "i"); err == nil || err.Error() != "i: weight_map names 1025 files, at most 1024" {
		t.Errorf("too many files: %v", err)
	}
}

// TestPebbleDraft opens the checkpoint of the repository that another program wrote.
func TestPebbleDraft(t *testing.T) {
	c, err := OpenIndexed(filepath.Join("..", "..", "fixtures", "pebble", "draft"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := c.Tensor("layers.1.attention_conv.base_kernel")
	if n == nil || n.DType != BF16 || !cmp.Equal(n.Shape, []int64{2, 2, 256}) || len(c.Data(n)) != 2048 {
		t.Errorf("tensor %+v", n)
	}
}
