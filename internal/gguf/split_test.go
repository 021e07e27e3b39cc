package gguf

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// threeTensors fills w with metadata and tensors a, b, c.
func threeTensors(w *Writer) {
	w.Set("general.architecture", "qwen35")
	w.Set("general.name", "M")
	for i, name := range []string{"a", "b", "c"} {
		w.AddBytes(name, dequant.F32, []uint64{8, 5}, ramp(160, byte(i)))
	}
}

// writeSplit writes the three tensors as three parts, the first without tensors, into dir.
func writeSplit(t *testing.T, dir, name string) []string {
	t.Helper()
	var w Writer
	threeTensors(&w)
	paths, err := w.WriteSplit(filepath.Join(dir, name), 0, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestPartNames(t *testing.T) {
	for file, want := range map[string]struct {
		name        string
		part, parts int
		ok          bool
	}{
		"M-00001-of-00003.gguf":                {"M", 1, 3, true},
		"M-Q4_K_M-00003-of-00003.gguf":         {"M-Q4_K_M", 3, 3, true},
		"M-00001-of-00002-00012-of-99999.gguf": {"M-00001-of-00002", 12, 99999, true},
		"M-00004-of-00003.gguf":                {"M", 4, 3, false},
		"M-00000-of-00003.gguf":                {"M", 0, 3, false},
		"M-00000-of-00000.gguf":                {"M", 0, 0, false},
		"M-00001-of-00003.GGUF":                {},
		"M-0001-of-0003.gguf":                  {},
		"M-000001-of-000003.gguf":              {},
		"M.gguf":                               {},
		"M-00001-of-00003.gguf.part":           {},
		"M-0000\u0661-of-0000\u0663.gguf":      {},
	} {
		name, part, parts, ok := ParsePartName(file)
		if name != want.name || part != want.part || parts != want.parts || ok != want.ok {
			t.Errorf("%s: %q, %d, %d, %v; want %+v", file, name, part, parts, ok, want)
		}
		if ok && PartName(name, part, parts) != file {
			t.Errorf("%s is written %s", file, PartName(name, part, parts))
		}
	}
}

func TestOpenSplit(t *testing.T) {
	dir := t.TempDir()
	paths := writeSplit(t, dir, "M")
	// Strays: parts of another count, and files that are none.
	for _, name := range []string{"M-00002-of-00004.gguf", "mmproj-M.gguf", "M-00001-of-00003.GGUF", "README.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("stray"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var want Writer
	threeTensors(&want)
	for _, path := range append([]string{dir}, paths...) {
		found, err := FindTarget(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if diff := cmp.Diff(paths, found); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", path, diff)
		}
		f := mustOpen(t, path)
		if len(f.Tensors) != 3 || len(f.Parts) != 3 || f.Name != paths[0] {
			t.Fatalf("%s: %d tensors, %d parts, name %s", path, len(f.Tensors), len(f.Parts), f.Name)
		}
		if name, _ := f.String("general.name"); name != "M" {
			t.Errorf("%s: metadata of %q", path, name)
		}
		for i, part := range []int{1, 1, 2} {
			tensor := f.Tensor(string(rune('a' + i)))
			if tensor.Part != part || !bytes.Equal(f.Data(tensor), ramp(160, byte(i))) {
				t.Errorf("%s: tensor %s of part %d: %v", path, tensor.Name, tensor.Part, f.Data(tensor))
			}
		}
		var size int64
		for _, part := range f.Parts {
			size += part.Size
		}
		if f.Size != size {
			t.Errorf("%s: size %d, want %d", path, f.Size, size)
		}
	}
}

// Join of headers alone gives what Open gives.
func TestJoinHeaders(t *testing.T) {
	paths := writeSplit(t, t.TempDir(), "M")
	var parts []*Header
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h, err := Parse(bytes.NewReader(data), int64(len(data)), path)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, h)
	}
	h, err := Join(parts)
	if err != nil {
		t.Fatal(err)
	}
	f := mustOpen(t, paths[1])
	if diff := cmp.Diff(f.Tensors, h.Tensors); diff != "" {
		t.Errorf("(-open +join)\n%s", diff)
	}
	if h.Tensor("c") == nil || h.Part(2) != parts[2] || parts[2].Tensors[0].Part != 0 {
		t.Error("joined header is not of its parts")
	}
}

func TestPartsAreAlignedByThemselves(t *testing.T) {
	dir := t.TempDir()
	var first, second Writer
	first.Set("general.alignment", uint32(4096))
	first.AddBytes("a", dequant.F32, []uint64{1}, ramp(4, 1))
	second.AddBytes("b", dequant.F32, []uint64{1}, ramp(4, 2))
	second.AddBytes("c", dequant.F32, []uint64{1}, ramp(4, 3))
	for i, w := range []*Writer{&first, &second} {
		w.Set("split.no", uint16(i))
		w.Set("split.count", uint16(2))
		w.Set("split.tensors.count", int32(3))
		writeAnyway(t, w, filepath.Join(dir, PartName("M", i+1, 2)))
	}
	f := mustOpen(t, dir)
	if a, b := f.Parts[0], f.Parts[1]; a.Alignment != 4096 || b.Alignment != 32 || b.DataStart >= 4096 {
		t.Errorf("aligned to %d and %d, data at %d and %d", a.Alignment, b.Alignment, a.DataStart, b.DataStart)
	}
	for i, name := range []string{"a", "b", "c"} {
		if got := f.Data(f.Tensor(name)); !bytes.Equal(got, ramp(4, byte(i+1))) {
			t.Errorf("%s holds %v", name, got)
		}
	}
}

// writeAnyway writes a file that WriteFile may refuse.
func writeAnyway(t *testing.T, w *Writer, path string) {
	t.Helper()
	if err := os.WriteFile(path, encodeWriter(t, w), 0o644); err != nil {
		t.Fatal(err)
	}
}

func encodeWriter(t *testing.T, w *Writer) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A split of two parts, whose keys a case changes, and what Join says of it.
func TestJoinRefuses(t *testing.T) {
	type keys map[string]any
	good := func(no int) keys {
		return keys{"split.no": uint16(no), "split.count": uint16(2), "split.tensors.count": int32(2)}
	}
	with := func(k keys, key string, value any) keys {
		if k[key] = value; value == nil {
			delete(k, key)
		}
		return k
	}
	for name, test := range map[string]struct {
		first, second keys
		tensors       [2]string
		want          string
	}{
		"good":             {good(0), good(1), [2]string{"a", "b"}, ""},
		"no as uint32":     {with(good(0), "split.no", uint32(0)), with(good(1), "split.no", uint32(1)), [2]string{"a", "b"}, ""},
		"later count left": {good(0), keys{"split.no": uint16(1)}, [2]string{"a", "b"}, ""},
		"first no left":    {with(good(0), "split.no", nil), good(1), [2]string{"a", "b"}, ""},
		"count":            {with(good(0), "split.count", uint16(3)), good(1), [2]string{"a", "b"}, `1.gguf: key "split.count" is 3; the split has 2 parts`},
		"later count":      {good(0), with(good(1), "split.count", uint16(3)), [2]string{"a", "b"}, `2.gguf: key "split.count" is 3; the split has 2 parts`},
		"count missing":    {with(good(0), "split.count", nil), good(1), [2]string{"a", "b"}, `1.gguf: key "split.count" is missing or no integer; the split has 2 parts`},
		"count text":       {with(good(0), "split.count", "2"), good(1), [2]string{"a", "b"}, `1.gguf: key "split.count" is missing or no integer; the split has 2 parts`},
		"later count text": {good(0), with(good(1), "split.count", "2"), [2]string{"a", "b"}, `2.gguf: key "split.count" is missing or no integer; the split has 2 parts`},
		"no":               {good(0), good(0), [2]string{"a", "b"}, `2.gguf: key "split.no" is 0; this is part 2 of 2, so 1 is accepted`},
		"first no":         {good(1), good(1), [2]string{"a", "b"}, `1.gguf: key "split.no" is 1; this is part 1 of 2, so 0 is accepted`},
		"no missing":       {good(0), with(good(1), "split.no", nil), [2]string{"a", "b"}, `2.gguf: key "split.no" is missing; part 2 of 2 states 1`},
		"no type":          {good(0), with(good(1), "split.no", int32(1)), [2]string{"a", "b"}, `2.gguf: key "split.no" is of type int32; uint16 and uint32 are accepted`},
		"tensors":          {with(good(0), "split.tensors.count", int32(3)), good(1), [2]string{"a", "b"}, `1.gguf: key "split.tensors.count" is 3; the 2 parts hold 2 tensors`},
		"tensors negative": {with(good(0), "split.tensors.count", int32(-1)), good(1), [2]string{"a", "b"}, `1.gguf: key "split.tensors.count" is 18446744073709551615; the 2 parts hold 2 tensors`},
		"tensors missing":  {with(good(0), "split.tensors.count", nil), good(1), [2]string{"a", "b"}, `1.gguf: key "split.tensors.count" is missing or no integer; the 2 parts hold 2 tensors`},
		"tensor twice":     {good(0), good(1), [2]string{"a", "a"}, `2.gguf: tensor "a" is in 1.gguf too`},
	} {
		var parts []*Header
		for i, k := range []keys{test.first, test.second} {
			data := encode(t, func(w *Writer) {
				for key, value := range k {
					w.Set(key, value)
				}
				w.AddBytes(test.tensors[i], dequant.F32, []uint64{1}, ramp(4, 0))
			})
			h, err := Parse(bytes.NewReader(data), int64(len(data)), fmt.Sprintf("%d.gguf", i+1))
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, h)
		}
		if _, err := Join(parts); message(err) != test.want {
			t.Errorf("%s: got %q, want %q", name, message(err), test.want)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestJoinOfOne(t *testing.T) {
	for count, want := range map[uint16]string{
		0: "", 1: "",
		2: `m.gguf: an incomplete split: key "split.count" is 2, found this file alone`,
	} {
		h := mustParse(t, Options{}, encode(t, func(w *Writer) { w.Set("split.count", count) }))
		if _, err := Join([]*Header{h}); message(err) != want {
			t.Errorf("split.count %d: got %q, want %q", count, message(err), want)
		}
	}
	if _, err := Join(nil); err == nil {
		t.Error("no parts were joined")
	}
}

// The bound on tensors holds for all parts together.
func TestJoinTensorBound(t *testing.T) {
	var parts []*Header
	for i := range 2 {
		parts = append(parts, mustParse(t, Options{}, encode(t, func(w *Writer) {
			w.Set("split.no", uint16(i))
			w.Set("split.count", uint16(2))
			w.Set("split.tensors.count", int32(maxTensors+2))
			for j := range maxTensors/2 + 1 {
				w.AddBytes(fmt.Sprintf("%d.%d", i, j), dequant.I8, []uint64{1}, []byte{1})
			}
		})))
	}
	want := "m.gguf: the 2 parts hold 16386 tensors; at most 16384 are accepted"
	if _, err := Join(parts); message(err) != want {
		t.Errorf("got %q, want %q", message(err), want)
	}
}

func TestFindTarget(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		path  string // in the folder
		want  []string
		err   string
	}{
		"file":              {[]string{"M.gguf", "L.gguf"}, "M.gguf", []string{"M.gguf"}, ""},
		"folder of one":     {[]string{"M.gguf", "mmproj-BF16.gguf", "M-MMPROJ-F16.gguf", "config.json"}, "", []string{"M.gguf"}, ""},
		"merge of a split":  {[]string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf", "M.gguf"}, "", []string{"M.gguf"}, ""},
		"part beside merge": {[]string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf", "M.gguf"}, "M-00002-of-00002.gguf", []string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf"}, ""},
		"part of one":       {[]string{"M-00001-of-00001.gguf"}, "", []string{"M-00001-of-00001.gguf"}, ""},
		"part among names":  {[]string{"M-00001-of-00001.gguf", "L-00001-of-00001.gguf"}, "M-00001-of-00001.gguf", []string{"M-00001-of-00001.gguf"}, ""},
		"strays":            {[]string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf", "M-00002-of-00004.gguf"}, "", []string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf"}, ""},
		"strays first":      {[]string{"M-00001-of-00002.gguf", "M-00001-of-00003.gguf", "M-00002-of-00003.gguf", "M-00003-of-00003.gguf"}, "", []string{"M-00001-of-00003.gguf", "M-00002-of-00003.gguf", "M-00003-of-00003.gguf"}, ""},

		"missing part":        {[]string{"M-00001-of-00003.gguf", "M-00003-of-00003.gguf", "M-00002-of-00004.gguf"}, "M-00003-of-00003.gguf", nil, `DIR/M-00002-of-00003.gguf: part 2 of 3 of the split "M" is missing`},
		"missing in folder":   {[]string{"M-00001-of-00003.gguf", "M-00003-of-00003.gguf"}, "", nil, `DIR/M-00002-of-00003.gguf: part 2 of 3 of the split "M" is missing`},
		"many parts missing":  {[]string{"M-00001-of-99999.gguf"}, "", nil, `DIR/M-00002-of-99999.gguf: part 2 of 99999 of the split "M" is missing`},
		"named part missing":  {[]string{"M-00001-of-00002.gguf"}, "M-00002-of-00002.gguf", nil, `DIR/M-00002-of-00002.gguf: part 2 of 2 of the split "M" is missing`},
		"two complete splits": {[]string{"M-00001-of-00001.gguf", "M-00001-of-00002.gguf", "M-00002-of-00002.gguf"}, "", nil, `DIR: complete splits of "M" into 1 and into 2 parts; name a part of one`},
		"two names":           {[]string{"M.gguf", "L.gguf"}, "", nil, "DIR: GGUF targets of 2 names, L, M; a folder of one is accepted, or name a file"},
		"parts of two names":  {[]string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf", "L-00001-of-00001.gguf"}, "", nil, "DIR: GGUF targets of 2 names, L, M; a folder of one is accepted, or name a file"},
		"many names":          {[]string{"a.gguf", "b.gguf", "c.gguf", "d.gguf", "e.gguf", "f.gguf", "g.gguf", "h.gguf", "i.gguf"}, "", nil, "DIR: GGUF targets of 9 names, a, b, c, d, e, f, g, h, ...; a folder of one is accepted, or name a file"},
		"no part":             {[]string{"M-00001-of-00002.gguf", "M-00002-of-00002.gguf", "M-00003-of-00002.gguf"}, "", nil, "DIR: GGUF targets of 2 names, M, M-00003-of-00002; a folder of one is accepted, or name a file"},
		"empty folder":        {nil, "", nil, "DIR: no GGUF target here; files that end in .gguf, in lower case, are targets"},
		"projector alone":     {[]string{"mmproj.gguf", "M.GGUF"}, "", nil, "DIR: no GGUF target here; files that end in .gguf, in lower case, are targets"},
		"projector":           {[]string{"mmproj-F16.gguf"}, "mmproj-F16.gguf", nil, "DIR/mmproj-F16.gguf: a vision projector (its name has mmproj), not a target"},
		"upper case":          {[]string{"M.GGUF"}, "M.GGUF", nil, "DIR/M.GGUF: not the name of a GGUF; a target ends in .gguf, in lower case"},
		"missing file":        {nil, "M.gguf", nil, "stat DIR/M.gguf: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, file := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, "folder.gguf"), 0o755); err != nil {
				t.Fatal(err)
			}
			got, err := FindTarget(filepath.Join(dir, test.path))
			if got := strings.ReplaceAll(message(err), dir, "DIR"); got != test.err {
				t.Errorf("got %q, want %q", got, test.err)
			}
			for i := range got {
				got[i], _ = filepath.Rel(dir, got[i])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Parts that are links to files elsewhere, as a download cache keeps them.
func TestLinkedParts(t *testing.T) {
	blobs, dir := t.TempDir(), t.TempDir()
	for i, path := range writeSplit(t, blobs, "M") {
		blob := filepath.Join(blobs, fmt.Sprint(i))
		if err := os.Rename(path, blob); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(blob, filepath.Join(dir, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	if f := mustOpen(t, dir); len(f.Tensors) != 3 {
		t.Errorf("%d tensors", len(f.Tensors))
	}
}

func TestWriteSplitRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, counts := range [][]int{{}, {1}, {1, 1}, {4}, {2, 2}, {-1, 4}} {
		var w Writer
		threeTensors(&w)
		if _, err := w.WriteSplit(filepath.Join(dir, "M"), counts...); err == nil {
			t.Errorf("three tensors were split as %d", counts)
		}
	}
	var w Writer
	threeTensors(&w)
	w.Add("d", dequant.F32, []uint64{8}, io.LimitReader(zeros{}, 31))
	_, err := w.WriteSplit(filepath.Join(dir, "M"), 2, 2)
	if want := `tensor "d": its data ends after 31 of 32 bytes`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("%s was left behind", files)
	}
}
