package planner

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"splash/dequant"
	"splash/internal/filemap"
	"splash/internal/gguf"
	"splash/internal/safetensors"
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
	data, err := filemap.Map(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer filemap.Unmap(data)
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
	data, err := filemap.Map(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer filemap.Unmap(data)
	if err := f.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	tensor := Tensor{Name: "blk.0.ffn_up.weight", Role: Linear, Rows: rows, Cols: cols, Type: dequant.F16}
	m := dequant.Matrix{Format: dequant.Lookup(dequant.F16), Rows: rows, Cols: cols, Data: data}
	checkWriteError(t, tensor, m, "blk.0.ffn_up.weight cannot be read: its file has become shorter")
}

// TestFixtureImages makes the images of the repository's models, which llama.cpp wrote, and holds their rows to the file's.
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
			weights := OpenGGUF(f, p)
			const inexact = " is not bf16-exact; it needs an F32 path"
			err = MakeImages(t.Context(), t.TempDir(), planImages(t, p), weights, []ImageSource{source}, nil)
			if err == nil || !strings.Contains(err.Error(), inexact) {
				t.Errorf("error %v; the fixtures' convolutions are random, not BF16", err)
			}
			makeAll(t, p, weights, source)
		})
	}
}

// makeAll makes the images of a plan, with F32 convolutions where they need it, and checks them as they are read back.
func makeAll(t *testing.T, p *Plan, weights Weights, sources ...ImageSource) {
	t.Helper()
	wide, err := InexactBF16(p, weights)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := PlanImages(p, wide...)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := MakeImages(t.Context(), dir, plan, weights, sources, nil); err != nil {
		t.Fatal(err)
	}
	images, err := OpenImages(t.Context(), dir, plan, sources)
	if err != nil {
		t.Fatal(err)
	}
	defer images.Close()
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
}

// randomData is the data of a tensor: finite BF16 or F32 values where an element has 2 or 4 bytes of its own, else any
// bytes.
func randomData(rng *rand.Rand, size int64, width int) []byte {
	b := make([]byte, size)
	switch width {
	case 2:
		for i := range size / 2 {
			binary.LittleEndian.PutUint16(b[2*i:], dequant.ToBF16(float32(rng.NormFloat64())))
		}
	case 4:
		for i := range size / 4 {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.NormFloat64())))
		}
	default:
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}

// TestCheckpointImages makes the images of MLX, Model Optimizer and compressed-tensors checkpoints of random weights.
func TestCheckpointImages(t *testing.T) {
	for _, test := range []struct {
		name, family string
		fake         func(Layout) *fakeCheckpoint
		config       func(*Family) jsonObject
	}{
		{"mlx", "tiny-qwen35moe", fakeMLX, fakeConfig},
		{"modelopt", "tiny-qwen35moe", fakeModelOpt, modelOptConfig},
		{"compressed-tensors", "tiny-qwen35", fakeCompressed, compressedConfig},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := family(t, test.family)
			rng := rand.New(rand.NewPCG(31, 32))
			fake := test.fake(f.Layout)
			file, size := fake.bytes()
			file = append(file, make([]byte, size-int64(len(file)))...)
			c, err := safetensors.FromBytes("model.safetensors", file)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.Tensors {
				tensor := &c.Tensors[i]
				width := map[safetensors.DType]int{safetensors.BF16: 2, safetensors.F32: 4}[tensor.DType]
				copy(c.Data(tensor), randomData(rng, tensor.Bytes(), width))
			}
			p, err := PlanSafetensors(encodeJSON(test.config(f)), c)
			if err != nil {
				t.Fatal(err)
			}
			makeAll(t, p, OpenSafetensors(c, p))
		})
	}
}

// TestGGUFImages makes the images of the architectures that load from a GGUF alone, of random weights.
func TestGGUFImages(t *testing.T) {
	for _, name := range []string{"tiny-qwen4exp", "tiny-flint"} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(33, 34))
			fake := fakeTarget(family(t, name))
			for _, suffix := range []string{"hc_ffn_down.weight", "hc_ffn_up.weight"} {
				if name == "tiny-qwen4exp" {
					fake.retype(suffix, dequant.BF16)
				}
			}
			file, size := fake.bytes()
			file = append(file, make([]byte, size-int64(len(file)))...)
			f, err := gguf.FromBytes(name+".gguf", file)
			if err != nil {
				t.Fatal(err)
			}
			for i := range f.Tensors {
				tensor := &f.Tensors[i]
				width := map[dequant.Type]int{dequant.BF16: 2, dequant.F32: 4}[tensor.Type]
				copy(f.Data(tensor), randomData(rng, tensor.Bytes, width))
			}
			p, err := PlanGGUF(f.Header)
			if err != nil {
				t.Fatal(err)
			}
			makeAll(t, p, OpenGGUF(f, p))
		})
	}
}

// pebbleDraft plans pebble's draft from its checkpoint.
func pebbleDraft(t testing.TB) (*Draft, []Tensor, Weights) {
	t.Helper()
	f, err := gguf.Open("../fixtures/pebble/pebble-Q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	target, err := PlanGGUF(f.Header)
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("../fixtures/pebble/draft/config.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := PlanDraft(config, target)
	if err != nil {
		t.Fatal(err)
	}
	c, err := OpenDraft("../fixtures/pebble/draft")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	tensors, err := PlanDraftTensors(d, c)
	if err != nil {
		t.Fatal(err)
	}
	return d, tensors, OpenSafetensors(c, nil)
}

// masked adds a mask embedding to the weights of a draft.
type masked struct {
	Weights
	mask dequant.Matrix
}

func (w masked) Matrices(t *Tensor) ([]dequant.Matrix, error) {
	if t.Name == "mask_embedding" {
		return []dequant.Matrix{w.mask}, nil
	}
	return w.Weights.Matrices(t)
}

// TestDraftImages makes the images of pebble's draft: projections as dequant's quantizer rounds them, the rest as stored.
func TestDraftImages(t *testing.T) {
	d, tensors, weights := pebbleDraft(t)
	rng := rand.New(rand.NewPCG(23, 24))
	w := masked{weights, randomMatrix(rng, dequant.BF16, 1, 256)}
	mask := Tensor{Name: "mask_embedding", Rows: 1, Cols: 256, Type: dequant.BF16}
	plan, err := PlanDraftImages(d.Layers, append(tensors[:len(tensors):len(tensors)], mask))
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
	if plan, err = PlanDraftImages(d.Layers, tensors); err != nil || plan.Images[2].Tensor("mask_embedding") != nil {
		t.Errorf("without a mask embedding: %v", err)
	}
}

// checkDraft compares every row of a draft's image with its source.
func checkDraft(t *testing.T, f *ImageFile, w Weights) {
	t.Helper()
	affine := dequant.Lookup(dequant.Affine(4, 64))
	for i := range f.Tensors {
		tensor := &f.Tensors[i]
		got, want := make([]float32, tensor.Cols), make([]float32, tensor.Cols)
		row := 0
		for _, part := range tensor.Parts {
			all, err := w.Matrices(part)
			if err != nil {
				t.Fatal(err)
			}
			for n := range part.Rows {
				all[0].DecodeRow(want, n)
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

// TestDraftPadding pads a projection of an odd number of tiles with zero rows.
func TestDraftPadding(t *testing.T) {
	m := &Image{Name: "layer-0.bin"}
	kernel := Tensor{Name: "layers.0.x", Rows: 80, Cols: 256, Type: dequant.BF16}
	sections := []draftSection{{names: []string{"x"}, planes: true}}
	if err := placeDraft(m, "layers.0.", sections, map[string]*Tensor{kernel.Name: &kernel}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(35, 36))
	w := memoryWeights{kernel.Name: {randomMatrix(rng, dequant.BF16, 80, 256)}}
	f, err := ParseImage(writeImage(t, m, w, jobBytes).data, m)
	if err != nil {
		t.Fatal(err)
	}
	checkDraft(t, f, w)
	for row := 80; row < 128; row++ {
		checkZeroRow(t, f, &m.Tensors[0], row)
	}
}

// TestDraftRefusals names what keeps a draft from being laid out.
func TestDraftRefusals(t *testing.T) {
	const name = "layers.1.self_attn.k_proj.weight"
	for _, test := range []struct {
		change func(*Tensor)
		want   string
	}{
		{func(t *Tensor) { t.Name = "other" }, "draft tensor " + name + " is missing"},
		{func(t *Tensor) { t.Type = dequant.F16 }, "draft tensor " + name + " is F16, want BF16"},
		{func(t *Tensor) { t.Cols = 2000 }, name + " has rows of 2000 values, not a multiple of 64"},
		{func(t *Tensor) { t.Cols = 512 }, "unexpected shape for " + name},
	} {
		d, tensors, _ := pebbleDraft(t)
		for i := range tensors {
			if tensors[i].Name == name {
				test.change(&tensors[i])
			}
		}
		if _, err := PlanDraftImages(d.Layers, tensors); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
	}
}
