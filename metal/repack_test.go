//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"splash/dequant"
	"splash/planner"
)

// A repackCase is a container of an image format: what a matrix of it holds beside its data.
type repackCase struct {
	container string
	kind      dequant.Type
	scales    int // weights of a scale of a byte, or of a scale and a bias of two; 0: none apart
	apart     bool
	global    bool
}

// repackCases are every container of every image format.
func repackCases() (all []repackCase) {
	for _, f := range planner.ImageFormats() {
		c := repackCase{container: "GGUF", kind: sourceType(f)}
		switch {
		case f.Type == dequant.NVFP4Rows:
			scaled, rows := c, repackCase{container: "safetensors", kind: f.Type, scales: 16, apart: true}
			scaled.container, scaled.global = "GGUF with scale tensors", true
			compressed := rows
			compressed.container, compressed.global = "safetensors with tensor scales", true
			all = append(all, c, scaled, rows, compressed, repackCase{container: "rows", kind: f.Type})
			continue
		case f.Type == dequant.FP8Rows:
			all = append(all, repackCase{container: "safetensors", kind: f.Type, apart: true, global: true})
			c.container = "rows"
		case affine(f.Type):
			all = append(all, repackCase{container: "MLX", kind: f.Type, scales: f.Block, apart: true})
			c.container = "rows"
		case f.Type == dequant.MXFP4:
			all = append(all, repackCase{container: "safetensors", kind: f.Type, scales: 32, apart: true})
		case f.Type == dequant.BF16 || f.Type == dequant.F16:
			c.container = "GGUF and safetensors"
		}
		all = append(all, c)
	}
	return all
}

func affine(t dequant.Type) bool { return strings.HasPrefix(dequant.Lookup(t).Name, "af") }

// matrix is any bytes in the container; its tensor scales are of its rows in so many shares.
func (c *repackCase) matrix(rng *rand.Rand, rows, cols, shares int) dequant.Matrix {
	m := dequant.Matrix{Format: dequant.Lookup(c.kind), Rows: rows, Cols: cols}
	data := rows * m.Format.RowBytes(cols)
	if c.apart {
		f := planner.LookupImage(c.kind)
		data = rows * cols / f.Block * (f.Bytes - f.Meta)
		if c.kind == dequant.NVFP4Rows {
			data = rows * cols / 2
		}
	}
	fill := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			if b[i] = byte(rng.Uint32()); rng.IntN(16) == 0 {
				b[i] |= 0x7f // where a scale of NVFP4 is no number
			}
		}
		return b
	}
	m.Data = fill(data)
	if c.scales > 0 {
		size := 1
		if affine(c.kind) {
			size = 2
			m.Biases = fill(size * rows * cols / c.scales)
		}
		m.Scales = fill(size * rows * cols / c.scales)
	}
	if c.global {
		m.Global = normals(rng, shares)
	}
	return m
}

// countingPacker counts what a packer packs, and what it leaves.
type countingPacker struct {
	planner.Packer
	packed, left atomic.Int64
}

func (c *countingPacker) Pack(p *planner.Packing) (bool, error) {
	packed, err := c.Packer.Pack(p)
	if packed {
		c.packed.Add(1)
	} else {
		c.left.Add(1)
	}
	return packed, err
}

func newRepacker(t testing.TB, d *Device) *countingPacker {
	t.Helper()
	r, err := NewRepacker(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &countingPacker{Packer: r}
}

// oddPlan is a plan of tensors that fill no tile, of two matrices that share one, with rows in another order; of experts in one
// matrix each; and of a plain one, and their weights.
func oddPlan(rng *rand.Rand, c *repackCase, cols int) (*planner.ImagePlan, memoryWeights, error) {
	order := &planner.HeadOrder{Size: 4, KeyHeads: 2, PerKey: 3}
	p, w := new(planner.Plan), make(memoryWeights)
	add := func(name string, role planner.Role, rows, experts int, order *planner.HeadOrder) {
		p.Tensors = append(p.Tensors, planner.Tensor{
			Name: name, Layer: -1, Role: role, Rows: rows, Cols: cols, Experts: experts, Type: c.kind, RowOrder: order,
		})
		for range max(1, experts) {
			w[name] = append(w[name], c.matrix(rng, rows, cols, 1+rows%3%2))
		}
	}
	if f := planner.LookupImage(c.kind); f.Type != dequant.BF16 && f.Type != dequant.F16 { // whose gates are F32
		add("blk.0.ssm_beta.weight", planner.AlphaBeta, 24, 0, order)
		add("blk.0.ssm_alpha.weight", planner.AlphaBeta, 24, 0, order)
	}
	add("blk.0.ffn_down_exps.weight", planner.Experts, 64, 3, nil)
	add("blk.0.attn_qkv.weight", planner.Linear, 128, 0, nil)
	plan, err := planner.PlanImages(p)
	return plan, w, err
}

// TestRepack holds images whose planes the device makes, of every format and container, to those of the planner's writer, byte for
// byte.
func TestRepack(t *testing.T) {
	b := newBench(t)
	b.kernel("repack") // by the repacker
	r := newRepacker(t, b.Device)
	rng := rand.New(rand.NewPCG(43, 1))
	done := make(map[string][]string)
	var names []string
	for _, c := range repackCases() {
		f := planner.LookupImage(c.kind)
		plan, w, err := oddPlan(rng, &c, 3*f.Columns())
		if err != nil {
			t.Fatal(err)
		}
		r.packed.Store(0)
		r.left.Store(0)
		same, err := sameImages(plan, w, r)
		if err != nil || !same || r.packed.Load() == 0 || r.left.Load() != 0 {
			t.Errorf("%s of %s: the writer's bytes: %v, packed %d, left %d: %v", f.Name, c.container, same, r.packed.Load(), r.left.Load(), err)
		}
		if done[f.Name] == nil {
			names = append(names, f.Name)
		}
		done[f.Name] = append(done[f.Name], c.container)
	}
	for _, name := range names {
		t.Logf("%-8s repacked on the device from %s", name, strings.Join(done[name], ", "))
	}
	if len(names) != len(planner.ImageFormats()) {
		t.Errorf("%d formats of %d", len(names), len(planner.ImageFormats()))
	}
}

// sameImages reports whether a packer's images have the bytes of the writer's.
func sameImages(plan *planner.ImagePlan, w planner.Weights, r planner.Packer) (bool, error) {
	want, err := planner.BuildImages(context.Background(), plan, w)
	if err != nil {
		return false, err
	}
	got, err := (&planner.ImageMaker{Packer: r}).Build(context.Background(), plan, w)
	if err != nil {
		return false, err
	}
	return slices.EqualFunc(got.Files, want.Files, func(a, b *planner.ImageFile) bool { return bytes.Equal(a.Data, b.Data) }), nil
}

// TestRepackColumns repacks rows so long that the writer takes their columns in runs.
func TestRepackColumns(t *testing.T) {
	r := newRepacker(t, newFastBench(t).Device)
	rng := rand.New(rand.NewPCG(43, 2))
	for _, c := range []repackCase{{kind: dequant.BF16}, {kind: dequant.NVFP4, global: true}} {
		plan, w, err := oddPlan(rng, &c, 66*256*int(1+c.kind%2))
		if err != nil {
			t.Fatal(err)
		}
		if same, err := sameImages(plan, w, r); err != nil || !same || r.left.Load() != 0 {
			t.Errorf("%s: the writer's bytes: %v, left %d: %v", c.kind, same, r.left.Load(), err)
		}
	}
}

// TestRepackLeaves leaves to the writer what is rounded on the way.
func TestRepackLeaves(t *testing.T) {
	r := newRepacker(t, newBench(t).Device)
	rng := rand.New(rand.NewPCG(43, 3))
	p := &planner.Plan{Tensors: []planner.Tensor{{
		Name: "a", Layer: -1, Role: planner.Linear, Rows: 64, Cols: 256, Type: dequant.F16, Conversion: planner.ToQ8_0,
	}}}
	m := dequant.Matrix{Format: dequant.Lookup(dequant.F16), Rows: 64, Cols: 256, Data: make([]byte, 2*64*256)}
	for i := 1; i < len(m.Data); i += 2 {
		m.Data[i] = byte(rng.IntN(0x40))
	}
	plan, err := planner.PlanImages(p)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := sameImages(plan, memoryWeights{"a": {m}}, r); err != nil || !same || r.packed.Load() != 0 || r.left.Load() == 0 {
		t.Errorf("rounded weights: the writer's bytes: %v, packed %d, left %d: %v", same, r.packed.Load(), r.left.Load(), err)
	}
}

// TestRepackedFiles makes image files with the repacker, in one go and after a stop: they are the writer's, and so is the progress.
func TestRepackedFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 4))
	plan, w, err := oddPlan(rng, &repackCase{kind: dequant.Q6_K}, 512)
	if err != nil {
		t.Fatal(err)
	}
	r := newRepacker(t, newFastBench(t).Device)
	make := func(packer planner.Packer, stop bool) (dir string, last int64) {
		dir = t.TempDir()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		k := &planner.ImageMaker{Packer: packer, Progress: func(p planner.ImageProgress) {
			if last = p.Done; stop {
				cancel()
			}
		}}
		err := k.Make(ctx, dir, plan, w, nil)
		if stop {
			if err == nil {
				t.Fatal("images were made after they were not wanted any more")
			}
			stop = false
			err = k.Make(context.Background(), dir, plan, w, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir, last
	}
	want, all := make(nil, false)
	for _, stop := range []bool{false, true} {
		got, last := make(r, stop)
		if last != all || last != plan.Size() {
			t.Errorf("progress ends at %d, want %d", last, all)
		}
		for i := range plan.Images {
			name := plan.Images[i].Name
			a, err := os.ReadFile(filepath.Join(got, name))
			b, err2 := os.ReadFile(filepath.Join(want, name))
			if err != nil || err2 != nil || !bytes.Equal(a, b) {
				t.Errorf("stopped %v: %s differs: %v, %v", stop, name, err, err2)
			}
		}
	}
	if r.packed.Load() == 0 {
		t.Error("nothing was repacked")
	}
}

// TestRepackLoading makes the images of a target and a draft with the repacker and without, in memory as in files: the bytes and
// what is said of the progress are the same.
func TestRepackLoading(t *testing.T) {
	p := demoPair(t)
	r := newRepacker(t, newFastBench(t).Device)
	images := func(packer planner.Packer, files []planner.ImageSource) (all [][]byte, done int64) {
		l := &Loading{
			Target: Source{Plan: p.plan, Weights: p.target.weights, Files: files}, Images: t.TempDir(),
			Draft:    &Source{Draft: p.sizes, Tensors: p.tensors, Weights: p.weights},
			Progress: func(n, _ int64) { done = n },
		}
		opened, err := l.images(context.Background(), packer)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(opened) })
		for _, o := range opened {
			for _, f := range o.Files {
				all = append(all, f.Data)
			}
		}
		return all, done
	}
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, []byte("header"), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := planner.IdentifyImageSource(path, 6)
	if err != nil {
		t.Fatal(err)
	}
	want, told := images(nil, nil)
	for _, files := range [][]planner.ImageSource{nil, {file}} {
		r.packed.Store(0)
		got, done := images(r, files)
		if !slices.EqualFunc(got, want, bytes.Equal) || r.packed.Load() == 0 {
			t.Errorf("of %d files: images of other bytes, or none of %d packings repacked", len(files), r.left.Load())
		}
		if _, writer := images(nil, files); done != writer {
			t.Errorf("of %d files: progress ends at %d, the writer's at %d (%d in memory)", len(files), done, writer, told)
		}
	}
}

// TestRepackFaults sees that a device whose planes are not the writer's repacks nothing.
func TestRepackFaults(t *testing.T) {
	d := open(t, Devices()[0])
	r, err := NewRepacker(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	m := randomMatrix(rand.New(rand.NewPCG(43, 5)), dequant.Q4_0, 64, 64)
	c, _ := containerOf(planner.LookupImage(dequant.Q4_0), &m)
	p, err := newProbe(c)
	if err != nil {
		t.Fatal(err)
	}
	entries := p.find()
	entries[bitsEntry-1] ^= 1
	wrong := &repackTable{parts: c.parts}
	if wrong.bits, err = r.upload(entries); err != nil {
		t.Fatal(err)
	}
	defer wrong.bits.Free()
	if err := r.check(p, wrong); err == nil || !strings.Contains(err.Error(), "Q4_0") {
		t.Errorf("planes of another table: %v", err)
	}
}
