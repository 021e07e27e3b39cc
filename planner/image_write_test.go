package planner

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"splash/dequant"
	"splash/internal/gguf"
)

// TestJobs cuts tensors of several shapes into jobs of several sizes: every byte of every section is written once, and
// the bytes do not depend on the cut.
func TestJobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(19, 20))
	tensors := []Tensor{
		{Name: "norm", Role: Norm, Rows: 1, Cols: 256, Type: dequant.BF16},
		{Name: "q5k", Role: Linear, Rows: 192, Cols: 1024, Type: dequant.Q5_K},
		{Name: "blk.0.ssm_beta.weight", Role: AlphaBeta, Rows: 40, Cols: 256, Type: dequant.Q6_K},
		{Name: "blk.0.ssm_alpha.weight", Role: AlphaBeta, Rows: 40, Cols: 256, Type: dequant.Q6_K},
		{Name: "experts", Role: Experts, Rows: 64, Cols: 256, Experts: 5, Type: dequant.IQ2S},
		{Name: "table", Role: TokenTable, Rows: 77, Cols: 512, Type: dequant.Q4_0},
	}
	w := memoryWeights{}
	for _, n := range tensors {
		w[n.Name] = []dequant.Matrix{randomMatrix(rng, n.Type, n.Rows*max(1, n.Experts), n.Cols)}
	}
	var want []byte
	for _, size := range []int{1, 3000, 20000, 100000, 1 << 20, jobBytes} {
		m, f := oneImage(t, tensors, w, size)
		file := writeImage(t, m, w, size)
		var total, jobs int64
		for _, j := range m.jobs(size) {
			jobs += m.jobSize(j)
		}
		for i := range m.Tensors {
			tensor := &m.Tensors[i]
			for _, s := range []Section{tensor.Descriptor, tensor.Plane0, tensor.Plane1, tensor.Meta} {
				if n := bytes.Count(file.written[s.Offset:s.end()], []byte{1}); int64(n) != s.Size {
					t.Errorf("jobs of %d: %d of the %d bytes of a section of %s are written", size, n, s.Size, tensor.Name)
				}
				total += s.Size
			}
			jobs += tensor.Descriptor.Size
		}
		if n := int64(bytes.Count(file.written, []byte{1})); n != total+imageHeaderSize || file.twice > 0 {
			t.Errorf("jobs of %d: %d bytes written, %d twice; the sections and the header have %d", size, n, file.twice, total+16)
		}
		if jobs != total {
			t.Errorf("jobs of %d count %d bytes of %d", size, jobs, total)
		}
		if want == nil {
			want = f.Data
			checkImage(t, f, w)
			checkGaps(t, f)
		} else if !bytes.Equal(want, f.Data) {
			t.Errorf("jobs of %d give other bytes", size)
		}
	}
}

// A countingFile counts what is written to it, keeps nothing, and watches the heap.
type countingFile struct {
	mu    sync.Mutex
	bytes int64
	calls int
	peak  uint64
}

func (f *countingFile) WriteAt(b []byte, at int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes += int64(len(b))
	if f.calls++; f.calls%32 == 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.peak = max(f.peak, m.HeapInuse)
	}
	return len(b), nil
}

// TestWriterMemory writes a tensor of 1 GiB that is a hole in a file, and one whose single row of tiles is far beyond a
// job, and stays within 64 MiB.
func TestWriterMemory(t *testing.T) {
	const rows, cols = 1 << 15, 17408
	format := dequant.Lookup(dequant.BF16)
	size := int64(rows) * int64(cols) * 2
	path := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	data, unmap, err := mapFile(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap()
	tall := Tensor{Name: "tall", Role: Linear, Rows: rows, Cols: cols, Type: dequant.BF16}
	wide := Tensor{Name: "wide", Role: Linear, Rows: 64, Cols: 1 << 21, Type: dequant.BF16}
	w := memoryWeights{
		"tall": {{Format: format, Rows: rows, Cols: cols, Data: data}},
		"wide": {{Format: format, Rows: 64, Cols: 1 << 21, Data: data[:64<<22]}},
	}
	m := &Image{Name: "layer-0.bin"}
	if err := placeTensors(m, []*Tensor{&tall, &wide}, &forms{wideNorms: true}); err != nil {
		t.Fatal(err)
	}
	out := new(countingFile)
	iw, err := newImageWriter(m, w, out)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	// Every 32nd job: each takes its own memory, and the whole tensor would only take longer.
	var jobs []job
	for i, j := range m.jobs(jobBytes) {
		if m.jobSize(j) > jobBytes+tileRows*516 {
			t.Fatalf("a job of %d bytes", m.jobSize(j))
		}
		if i%32 == 0 {
			jobs = append(jobs, j)
		}
	}
	if err := iw.run(t.Context(), jobs, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB written in %d jobs, at most %d KiB of heap beyond the %d before", out.bytes>>20, len(jobs),
		(int64(out.peak)-int64(before.HeapInuse))>>10, before.HeapInuse>>10)
	if grown := int64(out.peak) - int64(before.HeapInuse); grown > 64<<20 {
		t.Errorf("the writer took %d MiB", grown>>20)
	}
	if worst := int64(maxWorkers) * (2*jobBytes + 2*maxRow); worst > 64<<20 {
		t.Errorf("%d workers may take %d MiB", maxWorkers, worst>>20)
	}
}

// A failingFile fails its writes from the nth on.
type failingFile struct{ left atomic.Int64 }

var errFull = errors.New("no space left on device")

func (f *failingFile) WriteAt(b []byte, at int64) (int, error) {
	if f.left.Add(-1) < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWriterStops ends all workers on an error or a cancelled context, and returns it.
func TestWriterStops(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	tensor := Tensor{Name: "x", Role: Linear, Rows: 4096, Cols: 256, Type: dequant.Q4_K}
	w := memoryWeights{"x": {randomMatrix(rng, dequant.Q4_K, 4096, 256)}}
	m := &Image{Name: "layer-0.bin"}
	if err := placeTensors(m, []*Tensor{&tensor}, &forms{wideNorms: true}); err != nil {
		t.Fatal(err)
	}
	out := new(failingFile)
	out.left.Store(5)
	iw, err := newImageWriter(m, w, out)
	if err != nil {
		t.Fatal(err)
	}
	if err := iw.run(t.Context(), m.jobs(10000), func(int64) {}); !errors.Is(err, errFull) {
		t.Errorf("error %v, want that of the file", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	out.left.Store(1 << 40)
	if err := iw.run(ctx, m.jobs(10000), func(int64) { cancel(stopped) }); !errors.Is(err, stopped) {
		t.Errorf("error %v, want the context's cause", err)
	}
}

// TestShrunkenSource maps a file that becomes shorter: reading it is an error, not the end of the process.
func TestShrunkenSource(t *testing.T) {
	const rows, cols = 4096, 1024
	f, err := os.Create(filepath.Join(t.TempDir(), "source"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(rows * cols * 2)
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	data, unmap, err := mapFile(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer unmap()
	if err := f.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	tensor := Tensor{Name: "blk.0.ffn_up.weight", Role: Linear, Rows: rows, Cols: cols, Type: dequant.F16}
	m := dequant.Matrix{Format: dequant.Lookup(dequant.F16), Rows: rows, Cols: cols, Data: data}
	checkWriteError(t, tensor, m, "blk.0.ffn_up.weight cannot be read: its file has become shorter")
}

// TestFixtureImages makes the images of the repository's models, which llama.cpp wrote, and holds every row of every
// tensor to the file's.
func TestFixtureImages(t *testing.T) {
	for _, name := range []string{
		"tiny/tiny-qwen35-BF16.gguf", "tiny/tiny-qwen35-Q8_0.gguf", "tiny/tiny-qwen35-Q4_K_M.gguf",
		"tiny/tiny-qwen35-IQ4_XS.gguf", "tiny/tiny-qwen35-MIX.gguf", "tiny/tiny-qwen35moe-Q4_K_M.gguf",
		"pebble/pebble-Q4_K_M.gguf",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "fixtures", filepath.FromSlash(name))
			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			p, err := PlanGGUF(f.Header)
			if err != nil {
				t.Fatal(err)
			}
			source, err := IdentifyImageSource(path, f.DataStart)
			if err != nil {
				t.Fatal(err)
			}
			plan, weights, dir := planImages(t, p), OpenGGUF(f, p), t.TempDir()
			const inexact = " is not bf16-exact; it needs an F32 path"
			err = MakeImages(t.Context(), dir, plan, weights, []ImageSource{source}, nil)
			if err == nil || !strings.Contains(err.Error(), inexact) {
				t.Errorf("error %v; the fixtures' convolutions are random, not BF16", err)
			}
			wide, err := InexactBF16(p, weights)
			if err != nil {
				t.Fatal(err)
			}
			if plan, err = PlanImages(p, wide...); err != nil {
				t.Fatal(err)
			}
			if err := MakeImages(t.Context(), dir, plan, weights, []ImageSource{source}, nil); err != nil {
				t.Fatal(err)
			}
			images, err := OpenImages(t.Context(), dir, plan, []ImageSource{source})
			if err != nil {
				t.Fatal(err)
			}
			tensors := 0
			for _, image := range images.Files {
				checkImage(t, image, weights)
				checkGaps(t, image)
				for i := range image.Tensors {
					tensors += len(image.Tensors[i].Parts)
				}
			}
			if tensors != len(p.Tensors) {
				t.Errorf("%d tensors in the images, %d in the plan", tensors, len(p.Tensors))
			}
			if err := images.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// readDraft reads the tensors of a safetensors file of BF16 tensors.
func readDraft(t testing.TB, path string) ([]Tensor, memoryWeights) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		Dtype   string
		Shape   []int
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	var tensors []Tensor
	w := memoryWeights{}
	for name, h := range header {
		if name == "__metadata__" {
			continue
		}
		if h.Dtype != "BF16" {
			t.Fatalf("%s is %s", name, h.Dtype)
		}
		rows, cols := 1, h.Shape[len(h.Shape)-1]
		for _, d := range h.Shape[:len(h.Shape)-1] {
			rows *= d
		}
		tensors = append(tensors, Tensor{Name: name, Rows: rows, Cols: cols, Type: dequant.BF16})
		data := b[8+n:][h.Offsets[0]:h.Offsets[1]]
		w[name] = []dequant.Matrix{{Format: dequant.Lookup(dequant.BF16), Rows: rows, Cols: cols, Data: data}}
	}
	return tensors, w
}

// TestDraftImages makes the images of pebble's draft: projections as dequant's quantizer rounds them, the rest as stored.
func TestDraftImages(t *testing.T) {
	tensors, w := readDraft(t, "../fixtures/pebble/draft/model.safetensors")
	mask := Tensor{Name: "mask_embedding", Rows: 1, Cols: 256, Type: dequant.BF16}
	rng := rand.New(rand.NewPCG(23, 24))
	w[mask.Name] = []dequant.Matrix{randomMatrix(rng, dequant.BF16, 1, 256)}
	plan, err := PlanDraftImages(2, append(tensors, mask))
	if err != nil {
		t.Fatal(err)
	}
	const layer = "bare input_layernorm BF16; bare attention_conv.base_kernel BF16; planes attention_conv.kernel_projection; " +
		"planes self_attn.qkv_proj; bare self_attn.q_norm BF16; bare self_attn.k_norm BF16; planes self_attn.o_proj; " +
		"bare post_attention_layernorm BF16; bare mlp_conv.base_kernel BF16; planes mlp_conv.kernel_projection; " +
		"planes mlp.gate_proj; planes mlp.up_proj; planes mlp.down_proj"
	want := []string{layer, layer, "planes fc; bare hidden_norm BF16; bare norm BF16; " +
		"planes candidate_selector.hidden_projection; bare candidate_selector.predecessor_codebook BF16; " +
		"bare candidate_selector.successor_codebook BF16; bare mask_embedding BF16"}
	for i := range plan.Images {
		m := &plan.Images[i]
		got := strings.ReplaceAll(outline(m), fmt.Sprintf("layers.%d.", i), "")
		if got != want[i] {
			t.Errorf("%s holds\n%s, want\n%s", m.Name, got, want[i])
		}
		if kind := uint32(i / 2); m.Layer != uint32(i) || m.Type != kind {
			t.Errorf("%s is layer %d of type %d", m.Name, m.Layer, m.Type)
		}
		f, err := ParseImage(writeImage(t, m, w, jobBytes).data, m)
		if err != nil {
			t.Fatal(err)
		}
		checkDraft(t, f, w)
	}
	if plan, err = PlanDraftImages(2, tensors); err != nil || plan.Images[2].Tensor("mask_embedding") != nil {
		t.Errorf("without a mask embedding: %v", err)
	}
}

// checkDraft compares every row of a draft's image with its source.
func checkDraft(t *testing.T, f *ImageFile, w memoryWeights) {
	t.Helper()
	affine := dequant.Lookup(dequant.Affine(4, 64))
	for i := range f.Tensors {
		tensor := &f.Tensors[i]
		got, want := make([]float32, tensor.Cols), make([]float32, tensor.Cols)
		row := 0
		for _, part := range tensor.Parts {
			for n := range part.Rows {
				w[part.Name][0].DecodeRow(want, n)
				if tensor.Form == Planes {
					blocks := make([]byte, affine.RowBytes(tensor.Cols))
					if err := dequant.QuantizeAffine4(part.Name, blocks, want); err != nil {
						t.Fatal(err)
					}
					affine.Decode(want, blocks)
				}
				f.DecodeRow(tensor, got, row)
				checkValues(t, fmt.Sprintf("%s row %d", part.Name, n), got, want)
				row++
			}
		}
	}
}

// TestDraftRefusals names what keeps a draft from being laid out.
func TestDraftRefusals(t *testing.T) {
	for _, test := range []struct {
		change func(*Tensor)
		want   string
	}{
		{func(t *Tensor) { t.Name = "other" }, "draft tensor layers.1.self_attn.k_proj.weight is missing"},
		{func(t *Tensor) { t.Type = dequant.F16 }, "draft tensor layers.1.self_attn.k_proj.weight is F16, want BF16"},
		{func(t *Tensor) { t.Cols = 2000 }, "layers.1.self_attn.k_proj.weight has rows of 2000 values, not a multiple of 64"},
		{func(t *Tensor) { t.Cols = 512 }, "unexpected shape for layers.1.self_attn.k_proj.weight"},
	} {
		tensors, _ := readDraft(t, "../fixtures/pebble/draft/model.safetensors")
		for i := range tensors {
			if tensors[i].Name == "layers.1.self_attn.k_proj.weight" {
				test.change(&tensors[i])
			}
		}
		if _, err := PlanDraftImages(2, tensors); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
	}
}
