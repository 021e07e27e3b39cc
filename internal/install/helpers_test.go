package install

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"splash/dequant"
	"splash/internal/gguf"
	"splash/internal/hub"
	"splash/internal/hub/hubtest"
	"splash/internal/tokenizer"
	"splash/planner"
)

// fakeCheck is a check of models that say themselves what becomes of them: a GGUF by its test.* keys, a configuration by
// its keys of that name.
type fakeCheck struct{}

func fakePlan(family, refuse string) (*planner.Plan, error) {
	if refuse != "" {
		return nil, errors.New(refuse)
	}
	f := planner.FamilyByName(family)
	if f == nil {
		return nil, errors.New("no supported model has this architecture")
	}
	return &planner.Plan{Family: f, Layout: f.Layout, Stop: f.Stop}, nil
}

type fakeConfig struct{ Family, Refuse, Tower, Draft, Processor, Tokenizer string }

func refusal(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

func readConfig(data []byte) (c fakeConfig, err error) {
	err = json.Unmarshal(data, &c)
	return c, err
}

func (fakeCheck) Quantized(h *gguf.Header) error { return planner.RequireQuantized(h) }

func (fakeCheck) GGUF(h *gguf.Header) (*planner.Plan, error) {
	family, _ := h.String("test.family")
	refuse, _ := h.String("test.refuse")
	return fakePlan(family, refuse)
}

func (fakeCheck) Config(config []byte) (*planner.Plan, error) {
	c, err := readConfig(config)
	if err != nil {
		return nil, err
	}
	return fakePlan(c.Family, c.Refuse)
}

func (fakeCheck) Projector(h *gguf.Header, _ *planner.Plan) error {
	refuse, _ := h.String("test.refuse")
	return refusal(refuse)
}

func (fakeCheck) Tower(config []byte, _ *planner.Plan) error {
	c, _ := readConfig(config)
	return refusal(c.Tower)
}

func (fakeCheck) Processor(config []byte) error {
	c, _ := readConfig(config)
	return refusal(c.Processor)
}

func (fakeCheck) Draft(config []byte, target *planner.Plan) (*planner.Draft, error) {
	c, err := readConfig(config)
	if err == nil && c.Draft != target.Family.Name {
		err = fmt.Errorf("it is of %s", c.Draft)
	}
	return &planner.Draft{Layers: 5}, err
}

func (fakeCheck) Vocabulary(h *gguf.Header) error {
	refuse, _ := h.String("test.tokenizer")
	return refusal(refuse)
}

func (fakeCheck) Tokenizer(s *tokenizer.Snapshot) error {
	c, _ := readConfig(s.Config)
	return refusal(c.Tokenizer)
}

// Repositories and families of the tests.
const (
	ggufRepo = "owner/Model-GGUF"
	mlxRepo  = "owner/Model-4bit"
	family   = "Qwen3.8-27B"
	textOnly = "Qwen3.5-4B" // no vision, no draft
	draftOf  = "incoai/Qwen3.8-27B-DFlash2"
)

// noise is content that does not compress.
func noise(seed, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], uint64(seed))
	data := make([]byte, n)
	rand.NewChaCha8(key).Read(data)
	return data
}

// aGGUF is a GGUF with those keys and about n bytes of weights of a type.
func aGGUF(t testing.TB, seed, n int, kind dequant.Type, keys map[string]any) []byte {
	t.Helper()
	w := &gguf.Writer{}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		w.Set(k, keys[k])
	}
	f := dequant.Lookup(kind)
	blocks := n / f.Bytes
	w.AddBytes("weight", kind, []uint64{uint64(f.Block), uint64(blocks)}, noise(seed, blocks*f.Bytes))
	var out bytes.Buffer
	if _, err := w.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func targetGGUF(t testing.TB, seed, n int) []byte {
	return aGGUF(t, seed, n, dequant.Q8_0, map[string]any{"general.architecture": "qwen35", "test.family": family})
}

func projectorGGUF(t testing.TB, seed int, kind dequant.Type) []byte {
	return aGGUF(t, seed, 10_000, kind, map[string]any{"general.architecture": "clip"})
}

// aSafetensors is a checkpoint file of tensors of 64 bytes.
func aSafetensors(seed int, tensors ...string) []byte {
	header := map[string]any{}
	for i, name := range tensors {
		header[name] = map[string]any{"dtype": "U8", "shape": []int{64}, "data_offsets": []int{64 * i, 64 * (i + 1)}}
	}
	text, _ := json.Marshal(header)
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(data, text...), noise(seed, 64*len(tensors))...)
}

func index(of map[string]string) []byte {
	data, _ := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": of})
	return data
}

func jsonOf(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}

// draftRepo is a repository of the family's draft.
func draftRepo(seed int) map[string][]byte {
	return map[string][]byte{
		"README.md":         []byte("a draft"),
		"config.json":       jsonOf(fakeConfig{Draft: family}),
		"model.safetensors": aSafetensors(seed, "layers.0.weight"),
	}
}

// mlx is a repository of a safetensors target in two shards, the second with the tower.
func mlx(seed int) map[string][]byte {
	return map[string][]byte{
		"config.json":              jsonOf(fakeConfig{Family: family}),
		"tokenizer.json":           []byte(`{"version":"1.0"}`),
		"tokenizer_config.json":    []byte(`{}`),
		"chat_template.jinja":      []byte(`{{ messages }}`),
		"preprocessor_config.json": []byte(`{}`),
		indexFile: index(map[string]string{
			"language_model.model.a": "model-00001-of-00002.safetensors",
			"language_model.model.b": "model-00002-of-00002.safetensors",
			"vision_tower.c":         "model-00002-of-00002.safetensors",
		}),
		"model-00001-of-00002.safetensors": aSafetensors(seed, "language_model.model.a"),
		"model-00002-of-00002.safetensors": aSafetensors(seed+1, "language_model.model.b", "vision_tower.c"),
	}
}

// world is a Hub, a cache and a models directory.
type world struct {
	t     testing.TB
	hub   *hubtest.Server
	cache string
	dir   string
	asked int // listings that the test itself asked for
}

func newWorld(t testing.TB) *world {
	dir := t.TempDir()
	return &world{t, hubtest.New(t), filepath.Join(dir, "cache"), filepath.Join(dir, "models"), 0}
}

// an installer of the world, with the lines it logs.
func (w *world) installer(offline bool) (*Installer, *lines) {
	w.t.Helper()
	c, err := hub.New(hub.Config{Endpoint: w.hub.URL(), Cache: hub.Cache{Dir: w.cache}, Offline: offline})
	if err != nil {
		w.t.Fatal(err)
	}
	log := &lines{}
	c.Log = log.add
	c.Sleep = func(int, time.Duration) time.Duration { return 0 }
	return &Installer{Hub: c, Models: w.dir, Check: fakeCheck{}, Log: log.add}, log
}

// gguf publishes the GGUF repository and the draft.
func (w *world) gguf(seed int) {
	w.hub.Commit(ggufRepo, "main", map[string][]byte{
		"Model-Q4_K_M.gguf": targetGGUF(w.t, seed, 300_000),
		"Model-Q8_0.gguf":   targetGGUF(w.t, seed+1, 500_000),
		"mmproj-BF16.gguf":  projectorGGUF(w.t, seed+2, dequant.BF16),
		"mmproj-F32.gguf":   projectorGGUF(w.t, seed+3, dequant.F32),
	})
}

func (w *world) install(sel Selection, offline bool) (*Installed, string, error) {
	w.t.Helper()
	in, log := w.installer(offline)
	installed, err := in.Install(context.Background(), sel)
	if installed != nil {
		w.t.Cleanup(func() { installed.Close() })
	}
	return installed, log.text(), err
}

// mustInstall installs and returns the lines that it logged.
func (w *world) mustInstall(sel Selection) (*Installed, string) {
	w.t.Helper()
	installed, log, err := w.install(sel, false)
	if err != nil {
		w.t.Fatal(err)
	}
	return installed, log
}

func sel(t testing.TB, model string) Selection {
	m, err := ParseModel(model)
	if err != nil {
		t.Fatal(err)
	}
	return Selection{Model: m}
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// holds checks the content of an assembly's files.
func holds(t testing.TB, dir string, want map[string][]byte) {
	t.Helper()
	for name, data := range want {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(data))
		}
	}
}

// listing lists a folder's files, links and their targets below root shown from it.
func listing(t testing.TB, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(root, path)
		all = append(all, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// intact checks the models directory: every selection verifies, and every assembly that is there.
func intact(t testing.TB, models string) {
	t.Helper()
	s := &store{models}
	links, err := s.links()
	if err != nil {
		t.Fatal(err)
	}
	for rel := range links {
		if _, err := verify(s.link(rel)); err != nil {
			t.Errorf("%s: %v", rel, err)
		}
	}
	names, err := listDir(s.resolved())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, loading) {
			continue
		}
		if _, err := verify(filepath.Join(s.resolved(), name)); err != nil {
			t.Errorf("assembly %s: %v", name, err)
		}
	}
}
