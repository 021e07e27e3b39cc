package planner

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/dequant"
)

// cachePlan is a target of several images of about 2 MiB in all, with its weights.
func cachePlan(t testing.TB) (*ImagePlan, memoryWeights) {
	p := familyPlan(t, "tiny-qwen35moe", dequant.Q4_0)
	p.Layout.Layers = 2
	p.Tensors = slices.DeleteFunc(p.Tensors, func(n Tensor) bool {
		return n.Layer > 1 || strings.Contains(n.Name, "_exps") && n.Layer > 0
	})
	rng := rand.New(rand.NewPCG(25, 26))
	w := memoryWeights{}
	for _, n := range p.Tensors {
		rows := n.Rows * max(1, n.Experts)
		m := randomMatrix(rng, n.Type, rows, n.Cols)
		if n.Role == Convolution || n.Role == TimeBias {
			m = bf16Matrix(rng, rows, n.Cols)
		}
		w[n.Name] = []dequant.Matrix{m}
	}
	return planImages(t, p), w
}

// sourceFile writes a file that stands for the one weights come from.
func sourceFile(t testing.TB, content string) (string, ImageSource) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	return path, identified(t, path)
}

func identified(t testing.TB, path string) ImageSource {
	t.Helper()
	s, err := IdentifyImageSource(path, 4)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkDir holds a directory to the whole images of a plan, and nothing else but the manifest and the lock.
func checkDir(t testing.TB, dir string, plan *ImagePlan, w Weights, sources []ImageSource) {
	t.Helper()
	images, err := OpenImages(t.Context(), dir, plan, sources)
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
	want := []string{lockName, manifestName}
	for _, f := range images.Files {
		checkImage(t, f, w)
		checkGaps(t, f)
		want = append(want, f.Name)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// written counts the images that a run reports bytes of before they are whole.
type written map[string]int

func (n written) progress(p ImageProgress) {
	if p.Image != "" {
		n[p.Image]++
	}
}

// made is the images that were written and not found.
func (n written) made() []string {
	var names []string
	for name, calls := range n {
		if calls > 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestMakeImages makes images once, reuses them, and makes anew what is missing, damaged, or of another source or plan.
func TestMakeImages(t *testing.T) {
	plan, w := cachePlan(t)
	path, source := sourceFile(t, "GGUF and the rest")
	sources := []ImageSource{source}
	dir := filepath.Join(t.TempDir(), "a", "b")
	all := []string{"embedding.bin", "head.bin", "layer-0.bin", "layer-1.bin"}
	step := func(name string, plan *ImagePlan, want []string) {
		t.Helper()
		n := written{}
		if err := MakeImages(t.Context(), dir, plan, w, sources, n.progress); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkDir(t, dir, plan, w, sources)
		if diff := cmp.Diff(want, n.made()); diff != "" {
			t.Errorf("%s makes: %s", name, diff)
		}
	}
	step("the first run", plan, all)
	for _, name := range []string{"layer-0.bin.partial", "layer-0.bin.journal"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("left"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	step("the second run", plan, nil)

	if err := os.Remove(filepath.Join(dir, "layer-1.bin")); err != nil {
		t.Fatal(err)
	}
	step("a missing image", plan, []string{"layer-1.bin"})
	if err := os.Truncate(filepath.Join(dir, "head.bin"), 1<<14); err != nil {
		t.Fatal(err)
	}
	step("a short image", plan, []string{"head.bin"})
	overwrite(t, filepath.Join(dir, "layer-0.bin"), 8, []byte{9})
	step("an image of another layer", plan, []string{"layer-0.bin"})

	if err := os.Remove(filepath.Join(dir, "layer-0.bin")); err != nil {
		t.Fatal(err)
	}
	junk := bytes.Repeat([]byte{0xff}, int(plan.Images[0].Size))
	if err := os.WriteFile(filepath.Join(dir, "layer-0.bin"+partialSuffix), junk, 0o666); err != nil {
		t.Fatal(err)
	}
	step("a partial image of unknown state", plan, []string{"layer-0.bin"})
	sources[0].Path = "elsewhere"
	if _, err := OpenImages(t.Context(), dir, plan, sources); err != nil {
		t.Errorf("a source found under another name: %v", err)
	}

	if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 5)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenImages(t.Context(), dir, plan, []ImageSource{identified(t, path)}); err == nil {
		t.Error("images of the source as it was are opened for the source as it is")
	}
	sources[0] = identified(t, path)
	step("a source with another time", plan, all)
	if err := os.WriteFile(path, []byte("GGUG and the rest"), 0o666); err != nil {
		t.Fatal(err)
	}
	sources[0] = identified(t, path)
	step("a source with another header", plan, all)
	overwrite(t, filepath.Join(dir, manifestName), 0, []byte("#"))
	step("a damaged manifest", plan, all)

	other, err := PlanImages(familyPlan(t, "tiny-qwen35moe", dequant.Q4_0), "blk.0.ssm_dt.bias")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenImages(t.Context(), dir, other, sources); err == nil || !strings.Contains(err.Error(), "of other weights") {
		t.Errorf("images of another plan are opened: %v", err)
	}
}

func overwrite(t testing.TB, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// TestProgress counts every byte once, up to the total.
func TestProgress(t *testing.T) {
	plan, w := cachePlan(t)
	_, source := sourceFile(t, "GGUF")
	var last ImageProgress
	for range 2 {
		last = ImageProgress{}
		err := MakeImages(t.Context(), filepath.Join(t.TempDir(), "x"), plan, w, []ImageSource{source}, func(p ImageProgress) {
			if p.Done < last.Done || p.Done > p.Total || p.Total != plan.Size() {
				t.Errorf("progress %+v after %+v", p, last)
			}
			last = p
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if last.Done != plan.Size() {
		t.Errorf("%d bytes of %d in the end", last.Done, plan.Size())
	}
}

// testDir is an image directory whose jobs and batches are small.
func testDir(dir string, plan *ImagePlan, sources []ImageSource) *imageDir {
	d := newImageDir(dir, plan, sources)
	d.jobBytes, d.batch = 16000, 8
	return d
}

// TestCancel stops at a cancelled context; the next run goes on from the journal and writes the rest alone.
func TestCancel(t *testing.T) {
	plan, w := cachePlan(t)
	_, source := sourceFile(t, "GGUF")
	sources, dir := []ImageSource{source}, t.TempDir()
	stopped := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	d := testDir(dir, plan, sources)
	calls := 0
	d.progress = func(p ImageProgress) {
		if calls++; calls == 30 {
			cancel(stopped)
		}
	}
	if err := d.make(ctx, w); !errors.Is(err, stopped) {
		t.Fatalf("error %v, want the context's cause", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "layer-0.bin")); err == nil {
		t.Error("an unfinished image has its name")
	}
	// What the journal says is done is not written again: spoil it to see.
	partial := filepath.Join(dir, "layer-0.bin"+partialSuffix)
	spoilt := plan.Images[0].Tensors[0].Plane0.Offset
	overwrite(t, partial, spoilt, []byte{0xa5})
	d = testDir(dir, plan, sources)
	if err := d.make(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "layer-0.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if b[spoilt] != 0xa5 {
		t.Error("what was written and made to last is written again")
	}
	overwrite(t, filepath.Join(dir, "layer-0.bin"), spoilt, w["blk.0.attn_norm.weight"][0].Data[:1])
	checkDir(t, dir, plan, w, sources)
}

// TestChangedSource gives up when the source changes while it is read, and publishes nothing of it.
func TestChangedSource(t *testing.T) {
	plan, w := cachePlan(t)
	path, source := sourceFile(t, "GGUF")
	dir := t.TempDir()
	err := MakeImages(t.Context(), dir, plan, w, []ImageSource{source}, func(ImageProgress) {
		if err := os.WriteFile(path, []byte("GGUF, changed"), 0o666); err != nil {
			t.Error(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), path+" changed while its weights were read") {
		t.Errorf("error %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*.bin")); len(names) > 0 {
		t.Errorf("published %v", names)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := MakeImages(t.Context(), dir, plan, w, []ImageSource{source}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want that of a missing source", err)
	}
	_, err = IdentifyImageSource(filepath.Join(dir, manifestName), 1<<30)
	if err == nil || !strings.Contains(err.Error(), "truncated") {
		t.Errorf("error %v, want a header beyond the file refused", err)
	}
}

// TestForeignFiles leaves files of other names in the directory alone.
func TestForeignFiles(t *testing.T) {
	plan, w := cachePlan(t)
	_, source := sourceFile(t, "GGUF")
	dir := t.TempDir()
	for _, name := range []string{
		"pytorch_model.bin", "layer-0.bin", "layer-99.bin.partial", "head.bin.journal.new", "layer-x.bin",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := MakeImages(t.Context(), dir, plan, w, []ImageSource{source}, nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"pytorch_model.bin": true, "layer-x.bin": true, "layer-99.bin.partial": false, "head.bin.journal.new": false,
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", name, err == nil, want)
		}
	}
}

// childDir and childSource make TestImageChild the process that TestKilled and TestTwoProcesses start.
const (
	childDir    = "SPLASH_TEST_IMAGE_DIR"
	childSource = "SPLASH_TEST_IMAGE_SOURCE"
)

// TestImageChild makes the images of cachePlan slowly where the environment says so, and else has nothing to do.
func TestImageChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		return
	}
	plan, w := cachePlan(t)
	d := testDir(dir, plan, []ImageSource{identified(t, os.Getenv(childSource))})
	d.progress = func(ImageProgress) { time.Sleep(200 * time.Microsecond) }
	if err := d.make(context.Background(), w); err != nil {
		t.Fatal(err)
	}
}

func child(t testing.TB, dir, source string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestImageChild$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childSource+"="+source)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestKilled kills processes that make images at random moments until one is through. The images are those of a run that
// nobody disturbed, and work of the killed ones was kept.
func TestKilled(t *testing.T) {
	plan, w := cachePlan(t)
	path, source := sourceFile(t, "GGUF")
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 27))
	kills, kept := 0, 0
	for wait := 100 * time.Millisecond; ; wait += wait / 4 {
		cmd := child(t, dir, path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			checkDir(t, dir, plan, w, []ImageSource{source})
			t.Logf("%d processes killed, %d left work behind", kills, kept)
			return
		case <-time.After(time.Duration(rng.Int64N(int64(wait)))):
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			<-done
			kills++
			names, _ := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
			kept += len(names)
		}
	}
}

// TestTwoProcesses makes images in one directory from three processes at once.
func TestTwoProcesses(t *testing.T) {
	plan, w := cachePlan(t)
	path, source := sourceFile(t, "GGUF")
	dir := t.TempDir()
	var all []*exec.Cmd
	for range 3 {
		cmd := child(t, dir, path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	checkDir(t, dir, plan, w, []ImageSource{source})
}

// TestWaiting reports that it waits for another process, and stops waiting with its context.
func TestWaiting(t *testing.T) {
	plan, w := cachePlan(t)
	_, source := sourceFile(t, "GGUF")
	dir := t.TempDir()
	lock, err := lockFile(t.Context(), filepath.Join(dir, lockName), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancel(t.Context())
	waited := false
	err = MakeImages(ctx, dir, plan, w, []ImageSource{source}, func(p ImageProgress) {
		waited = p.Waiting
		cancel()
	})
	if !errors.Is(err, context.Canceled) || !waited {
		t.Errorf("waited %t, error %v", waited, err)
	}
}

// TestCheckImage refuses an image whose header or descriptors are not those of its plan, and says which field.
func TestCheckImage(t *testing.T) {
	plan, w := cachePlan(t)
	m := &plan.Images[0]
	data := writeImage(t, m, w, jobBytes).data
	qkv := m.Tensor("blk.0.attn_qkv.weight").Descriptor.Offset
	for _, test := range []struct {
		at   int64
		b    byte
		want string
	}{
		{0, 'X', `layer-0.bin: not a weight image: it starts with "XDGG0001", not MDGG0001`},
		{8, 1, "layer-0.bin: layer 1 of type 0, expected layer 0 of type 0"},
		{12, 2, "layer 0 of type 2"},
		{qkv, 3, "blk.0.attn_qkv.weight: the descriptor's type is 3, expected 2"},
		{qkv + 5, 9, "descriptor's rows is"},
		{qkv + 8, 9, "descriptor's columns is 265, expected 256"},
		{qkv + 12, 8, "descriptor's plane 0 unit is 8, expected 16"},
		{qkv + 16, 4, "descriptor's plane 1 unit is 4, expected 0"},
		{qkv + 20, 1, "descriptor's meta unit is 1, expected 2"},
		{qkv + 24, 2, "descriptor's groups is 2, expected 1"},
		{qkv + 28, 1, "descriptor's reserved field is 1, expected 0"},
		{qkv + 39, 1, "descriptor's plane 0 bytes is"},
		{qkv + 40, 1, "descriptor's plane 1 bytes is 1, expected 0"},
		{qkv + 55, 1, "descriptor's meta bytes is"},
	} {
		bad := bytes.Clone(data)
		bad[test.at] = test.b
		if _, err := ParseImage(bad, m); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("byte %d: error %v, want one with %q", test.at, err, test.want)
		}
	}
	if _, err := ParseImage(data[:len(data)-1], m); err == nil || !strings.Contains(err.Error(), "bytes, expected") {
		t.Errorf("a short image: %v", err)
	}
	past := *m
	past.Tensors = slices.Clone(m.Tensors)
	past.Tensors[1].Meta.Offset = m.Size - 8
	if _, err := ParseImage(data, &past); err == nil || !strings.Contains(err.Error(), "is past the image's") {
		t.Errorf("a section past the image: %v", err)
	}
	if _, err := OpenImage(filepath.Join(t.TempDir(), "none"), m); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing image: %v", err)
	}
}

// TestMappedImage maps an image at the start of a page and gives it back once.
func TestMappedImage(t *testing.T) {
	plan, w := cachePlan(t)
	m := &plan.Images[1]
	path := filepath.Join(t.TempDir(), m.Name)
	if err := os.WriteFile(path, writeImage(t, m, w, jobBytes).data, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := OpenImage(path, m)
	if err != nil {
		t.Fatal(err)
	}
	checkImage(t, f, w)
	if err := errors.Join(f.Close(), f.Close()); err != nil || f.Data != nil {
		t.Errorf("closed: %v", err)
	}
}

// FuzzParseImage patches an image anywhere and cuts it: no panic, and what passes has the plan's header and descriptors
// and decodes.
func FuzzParseImage(f *testing.F) {
	rng := rand.New(rand.NewPCG(29, 30))
	linear := Tensor{Name: "blk.0.ffn_up.weight", Role: Linear, Rows: 64, Cols: 256, Type: dequant.IQ3S}
	norm := Tensor{Name: "blk.0.attn_norm.weight", Role: Norm, Rows: 1, Cols: 256, Type: dequant.F32}
	w := memoryWeights{
		linear.Name: {randomMatrix(rng, dequant.IQ3S, 64, 256)}, norm.Name: {randomMatrix(rng, dequant.F32, 1, 256)},
	}
	m, good := oneImage(f, []Tensor{norm, linear}, w, jobBytes)
	size, descriptor := uint32(m.Size), uint32(m.Tensors[1].Descriptor.Offset)
	f.Add(uint32(0), []byte{}, size)
	f.Add(uint32(0), []byte("MDGG0001"), uint32(100))
	f.Add(uint32(0), []byte{}, uint32(0))
	f.Add(uint32(8), []byte{9, 0, 0, 0, 2}, size)
	f.Add(descriptor, []byte{12}, size)
	f.Add(descriptor+32, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, size)
	f.Add(uint32(m.Tensors[1].Plane0.Offset), []byte{0xff, 0xff, 0xff, 0xff}, size)
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		data := bytes.Clone(good.Data)
		copy(data[min(int(at), len(data)):], patch)
		data = data[:min(int(cut), len(data))]
		image, err := ParseImage(data, m)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		header, descriptor := m.header(), m.Tensors[1].descriptor()
		if !bytes.Equal(data[:16], header[:]) || !bytes.Equal(image.Bytes(m.Tensors[1].Descriptor), descriptor[:]) {
			t.Error("accepted with another header or descriptor")
		}
		row := make([]float32, 256)
		image.DecodeRow(&m.Tensors[0], row, 0)
		image.DecodeRow(&m.Tensors[1], row, 63)
	})
}

// FuzzManifest reads any bytes as a manifest and as a journal: no panic, and a journal never counts more than its jobs.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":"MDGG0001","plan_sha256":"ab","sources":[{"path":"x","device":1,"inode":2,"size":3}]}`))
	f.Add([]byte(`{"key":"k","jobs":10,"done":4}`))
	f.Add([]byte(`{"key":"k","jobs":10,"done":-4}`))
	f.Add([]byte(`{"key":"k","jobs":10,"done":11}`))
	f.Add([]byte(`{"key":"k","jobs":10,"done":1e3}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseManifest(b); err == nil && !m.same(m) {
			t.Error("a manifest differs from itself")
		}
		if done := parseJournal(b, "k", 10); done < 0 || done > 10 {
			t.Errorf("%d of 10 jobs are done", done)
		}
	})
}

// TestJournal accepts the journal of the same jobs alone.
func TestJournal(t *testing.T) {
	for text, want := range map[string]int{
		`{"key":"k","jobs":10,"done":4}`:  4,
		`{"key":"k","jobs":10,"done":10}`: 10,
		`{"key":"l","jobs":10,"done":4}`:  0,
		`{"key":"k","jobs":11,"done":4}`:  0,
		`{"key":"k","jobs":10,"done":11}`: 0,
		`{"key":"k","jobs":10,"done":-1}`: 0,
		`{"key":"k","jobs":10,"done":4`:   0,
		``:                                0,
		strings.Repeat(" ", maxJournal) + `{"key":"k","jobs":10,"done":4}`: 0,
	} {
		if got := parseJournal([]byte(text), "k", 10); got != want {
			t.Errorf("%.40s: %d jobs, want %d", text, got, want)
		}
	}
	if _, err := parseManifest(make([]byte, maxManifest+1)); err == nil {
		t.Error("a manifest without bound is read")
	}
}
