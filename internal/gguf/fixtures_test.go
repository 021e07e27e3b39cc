package gguf

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const fixtures = "../../fixtures/"

func mustOpen(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// denseShapes are the tensors of the dense hybrid from the sizes that the fixtures' READMEs state: name without
// blk.N., dimensions as a GGUF stores them.
func denseShapes(layers, vocabulary uint64) map[string][]uint64 {
	const hidden, heads, headDim, keyHeads, valueHeads, gdn, kernel, ffn = 256, 2, 256, 2, 4, 128, 4, 512
	shapes := map[string][]uint64{
		"token_embd.weight": {hidden, vocabulary}, "output.weight": {hidden, vocabulary}, "output_norm.weight": {hidden},
	}
	for layer := range layers {
		add := func(name string, dims ...uint64) { shapes[fmt.Sprintf("blk.%d.%s", layer, name)] = dims }
		add("attn_norm.weight", hidden)
		add("post_attention_norm.weight", hidden)
		add("ffn_gate.weight", hidden, ffn)
		add("ffn_up.weight", hidden, ffn)
		add("ffn_down.weight", ffn, hidden)
		if layer%4 == 3 {
			add("attn_q.weight", hidden, 2*heads*headDim)
			add("attn_k.weight", hidden, headDim)
			add("attn_v.weight", hidden, headDim)
			add("attn_output.weight", heads*headDim, hidden)
			add("attn_q_norm.weight", headDim)
			add("attn_k_norm.weight", headDim)
			continue
		}
		channels := uint64((2*keyHeads + valueHeads) * gdn)
		add("attn_qkv.weight", hidden, channels)
		add("attn_gate.weight", hidden, valueHeads*gdn)
		add("ssm_conv1d.weight", kernel, channels)
		add("ssm_a", valueHeads)
		add("ssm_dt.bias", valueHeads)
		add("ssm_alpha.weight", hidden, valueHeads)
		add("ssm_beta.weight", hidden, valueHeads)
		add("ssm_norm.weight", gdn)
		add("ssm_out.weight", valueHeads*gdn, hidden)
	}
	return shapes
}

// moeShapes are those of the MoE: 16 experts of FFN 256 and a shared one instead of the dense FFN.
func moeShapes() map[string][]uint64 {
	const hidden, experts, ffn = 256, 16, 256
	shapes := denseShapes(4, 2048)
	for layer := range 4 {
		prefix := fmt.Sprintf("blk.%d.ffn_", layer)
		maps.DeleteFunc(shapes, func(name string, _ []uint64) bool { return strings.HasPrefix(name, prefix) })
		for name, dims := range map[string][]uint64{
			"gate_exps": {hidden, ffn, experts}, "up_exps": {hidden, ffn, experts}, "down_exps": {ffn, hidden, experts},
			"gate_shexp": {hidden, ffn}, "up_shexp": {hidden, ffn}, "down_shexp": {ffn, hidden},
			"gate_inp": {hidden, experts}, "gate_inp_shexp": {hidden},
		} {
			shapes[prefix+name+".weight"] = dims
		}
	}
	return shapes
}

// stays says which tensors a quantized file keeps in F32.
func stays(name string) bool {
	for _, part := range []string{"_norm.", "ssm_a", "ssm_dt.bias", "ssm_conv1d", "ffn_gate_inp"} {
		if strings.Contains(name, part) && !strings.Contains(name, "ssm_alpha") {
			return true
		}
	}
	return strings.HasSuffix(name, "scale")
}

// mixTypes is the list of types of tiny-qwen35-MIX in its README.
var mixTypes = map[string]string{
	"token_embd.weight": "IQ3_XXS", "output.weight": "MXFP4",
	"blk.0.attn_qkv.weight": "IQ3_S", "blk.0.attn_gate.weight": "Q5_0", "blk.0.ssm_out.weight": "Q3_K",
	"blk.0.ssm_alpha.weight": "F16", "blk.0.ssm_beta.weight": "BF16", "blk.0.ffn_gate.weight": "Q5_1",
	"blk.0.ffn_up.weight": "NVFP4", "blk.0.ffn_down.weight": "NVFP4",
	"blk.1.attn_qkv.weight": "Q2_K", "blk.1.attn_gate.weight": "IQ2_XXS", "blk.1.ssm_out.weight": "IQ1_M",
	"blk.1.ssm_alpha.weight": "Q8_0", "blk.1.ssm_beta.weight": "Q8_0", "blk.1.ffn_gate.weight": "Q4_1",
	"blk.1.ffn_up.weight": "IQ4_NL", "blk.1.ffn_down.weight": "Q5_K",
	"blk.2.attn_qkv.weight": "Q6_K", "blk.2.attn_gate.weight": "Q4_0", "blk.2.ssm_out.weight": "Q2_0",
	"blk.2.ssm_alpha.weight": "Q4_K", "blk.2.ssm_beta.weight": "Q6_K", "blk.2.ffn_gate.weight": "IQ1_S",
	"blk.2.ffn_up.weight": "IQ2_XS", "blk.2.ffn_down.weight": "BF16",
	"blk.3.attn_q.weight": "IQ2_S", "blk.3.attn_k.weight": "IQ4_XS", "blk.3.attn_v.weight": "F16",
	"blk.3.attn_output.weight": "Q4_K", "blk.3.ffn_gate.weight": "MXFP4", "blk.3.ffn_up.weight": "Q8_0",
	"blk.3.ffn_down.weight": "NVFP4",
}

func TestFixtureTensors(t *testing.T) {
	mix := denseShapes(4, 2048)
	for _, name := range []string{"blk.0.ffn_up.scale", "blk.0.ffn_down.scale", "blk.0.ffn_down.input_scale"} {
		mix[name] = []uint64{1}
	}
	for _, test := range []struct {
		path   string
		size   int64
		shapes map[string][]uint64
		types  []string // what the quantized tensors may be
	}{
		{"tiny/tiny-qwen35-BF16", 9573152, denseShapes(4, 2048), []string{"BF16"}},
		{"tiny/tiny-qwen35-Q8_0", 5143712, denseShapes(4, 2048), []string{"Q8_0"}},
		{"tiny/tiny-qwen35-Q4_K_M", 3068576, denseShapes(4, 2048), []string{"Q4_K", "Q6_K"}},
		{"tiny/tiny-qwen35-IQ4_XS", 2785248, denseShapes(4, 2048), []string{"IQ4_XS", "Q6_K"}},
		{"tiny/tiny-qwen35-MIX", 2767648, mix, slices.Sorted(maps.Values(mixTypes))},
		{"tiny/tiny-qwen35moe-Q4_K_M", 10282272, moeShapes(), []string{"Q4_K", "Q6_K"}},
		{"pebble/pebble-BF16", 19154368, denseShapes(8, 4096), []string{"BF16"}},
		{"pebble/pebble-Q8_0", 10295488, denseShapes(8, 4096), []string{"Q8_0"}},
		{"pebble/pebble-Q4_K_M", 6145216, denseShapes(8, 4096), []string{"Q4_K", "Q6_K"}},
		{"tokenizer/vocab-qwen35-151k", 5923136, map[string][]uint64{}, nil},
	} {
		t.Run(test.path, func(t *testing.T) {
			f := mustOpen(t, fixtures+test.path+".gguf")
			if f.Size != test.size || f.Version != 3 || f.Alignment != 32 {
				t.Errorf("size %d, version %d, alignment %d", f.Size, f.Version, f.Alignment)
			}
			shapes, end := make(map[string][]uint64), f.DataStart
			for i := range f.Tensors {
				tensor := &f.Tensors[i]
				shapes[tensor.Name] = tensor.Dims
				switch typ := tensor.Type.String(); {
				case stays(tensor.Name):
					if typ != "F32" {
						t.Errorf("%s is %s", tensor.Name, typ)
					}
				case !slices.Contains(test.types, typ):
					t.Errorf("%s is %s, want one of %s", tensor.Name, typ, test.types)
				case strings.HasSuffix(test.path, "MIX") && typ != mixTypes[tensor.Name]:
					t.Errorf("%s is %s, want %s", tensor.Name, typ, mixTypes[tensor.Name])
				}
				// llama.cpp packs tensors back to back.
				if _, from, to := f.place(tensor); from != end {
					t.Errorf("%s begins at %d, want %d", tensor.Name, from, end)
				} else {
					end = to + padding(to, 32)
				}
			}
			if len(f.Tensors) > 0 && end != f.Size {
				t.Errorf("tensors end at %d of %d", end, f.Size)
			}
			if diff := cmp.Diff(test.shapes, shapes); diff != "" {
				t.Errorf("shapes: (-want +got)\n%s", diff)
			}
		})
	}
}

func TestFixtureMetadata(t *testing.T) {
	for _, test := range []struct {
		path   string
		ints   map[string]uint64
		floats map[string]float64
		texts  map[string]string
		arrays map[string]int
		tokens map[int]string
	}{
		{
			path: "tiny/tiny-qwen35moe-Q4_K_M",
			ints: map[string]uint64{
				"qwen35moe.block_count": 4, "qwen35moe.embedding_length": 256, "qwen35moe.attention.head_count": 2,
				"qwen35moe.attention.head_count_kv": 1, "qwen35moe.attention.key_length": 256, "qwen35moe.rope.dimension_count": 64,
				"qwen35moe.ssm.group_count": 2, "qwen35moe.ssm.time_step_rank": 4, "qwen35moe.ssm.state_size": 128,
				"qwen35moe.ssm.conv_kernel": 4, "qwen35moe.full_attention_interval": 4, "qwen35moe.expert_count": 16,
				"qwen35moe.expert_used_count": 4, "qwen35moe.expert_feed_forward_length": 256,
				"qwen35moe.expert_shared_feed_forward_length": 256, "tokenizer.ggml.eos_token_id": 2002,
			},
			floats: map[string]float64{"qwen35moe.rope.freq_base": 1e7, "qwen35moe.attention.layer_norm_rms_epsilon": float64(float32(1e-6))},
			texts:  map[string]string{"general.architecture": "qwen35moe", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen35"},
			arrays: map[string]int{"tokenizer.ggml.tokens": 2048, "tokenizer.ggml.token_type": 2048, "qwen35moe.rope.dimension_sections": 4},
			tokens: map[int]string{2000: "<|endoftext|>", 2001: "<|im_start|>", 2002: "<|im_end|>", 2024: "<think>", 2025: "</think>"},
		},
		{
			path: "pebble/pebble-Q4_K_M",
			ints: map[string]uint64{
				"qwen35.block_count": 8, "qwen35.embedding_length": 256, "qwen35.feed_forward_length": 512, "qwen35.context_length": 4096,
			},
			floats: map[string]float64{"qwen35.rope.freq_base": 1e7},
			texts:  map[string]string{"general.architecture": "qwen35"},
			arrays: map[string]int{"tokenizer.ggml.tokens": 4096, "tokenizer.ggml.merges": 3813},
			tokens: map[int]string{4095: "<|mask|>"},
		},
		{
			path:   "tokenizer/vocab-qwen35-151k",
			texts:  map[string]string{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen35"},
			arrays: map[string]int{"tokenizer.ggml.tokens": 151643 + 26, "tokenizer.ggml.token_type": 151669, "tokenizer.ggml.merges": 151387},
			tokens: map[int]string{0: "!", 93: "~", 94: "\u00a1", 256: "\u0120\u0120", 151643: "<|endoftext|>", 151645: "<|im_end|>"},
		},
	} {
		f := mustOpen(t, fixtures+test.path+".gguf")
		for key, want := range test.ints {
			if got, ok := f.Uint(key); got != want || !ok {
				t.Errorf("%s: %s is %d, %v; want %d", test.path, key, got, ok, want)
			}
		}
		for key, want := range test.floats {
			if got, ok := f.Float(key); got != want || !ok {
				t.Errorf("%s: %s is %v, %v; want %v", test.path, key, got, ok, want)
			}
		}
		for key, want := range test.texts {
			if got, ok := f.String(key); got != want || !ok {
				t.Errorf("%s: %s is %q, %v; want %q", test.path, key, got, ok, want)
			}
		}
		for key, want := range test.arrays {
			if got, ok := f.ArrayLen(key); got != want || !ok {
				t.Errorf("%s: %s has %d, %v; want %d", test.path, key, got, ok, want)
			}
		}
		tokens, _ := f.Strings("tokenizer.ggml.tokens")
		for id, want := range test.tokens {
			if id >= len(tokens) || tokens[id] != want {
				t.Errorf("%s: token %d is not %q", test.path, id, want)
			}
		}
	}
}

// In the vocabulary fixture token 256 + r is the result of merge r: the two arrays check each other, string by string.
func TestMergesMakeTokens(t *testing.T) {
	f := mustOpen(t, fixtures+"tokenizer/vocab-qwen35-151k.gguf")
	tokens, _ := f.Strings("tokenizer.ggml.tokens")
	merges, _ := f.Strings("tokenizer.ggml.merges")
	for r, merge := range merges {
		if a, b, ok := strings.Cut(merge, " "); !ok || tokens[256+r] != a+b {
			t.Fatalf("merge %d is %q, token %d is %q", r, merge, 256+r, tokens[256+r])
		}
	}
	types, _ := f.Ints("tokenizer.ggml.token_type")
	for id, typ := range types {
		if special := id >= 151643; special != (typ != 1) {
			t.Errorf("token %d is of type %d", id, typ)
		}
	}
}

// The manifest's digests say that the fixtures are the files that llama.cpp evaluated.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile(fixtures + "tiny/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Files map[string]struct {
			Bytes  int64  `json:"gguf_bytes"`
			SHA256 string `json:"gguf_sha256"`
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Files) != 6 {
		t.Errorf("%d files", len(manifest.Files))
	}
	for name, want := range manifest.Files {
		data, err := os.ReadFile(fixtures + "tiny/" + name + ".gguf")
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if int64(len(data)) != want.Bytes || hex.EncodeToString(sum[:]) != want.SHA256 {
			t.Errorf("%s is not the file of the manifest", name)
		}
	}
}

// The weights of the BF16 model can be remade from their tensors' names, up to a factor a tensor, as the README says. So
// this holds every byte that Data gives, and which tensor it is given for, to something that no reader wrote.
func TestDataIsTheTensors(t *testing.T) {
	f := mustOpen(t, fixtures+"tiny/tiny-qwen35-BF16.gguf")
	checked := 0
	for i := range f.Tensors {
		tensor := &f.Tensors[i]
		if tensor.Type.String() != "BF16" {
			continue
		}
		checked++
		data := f.Data(tensor)
		values, made := make([]float64, tensor.Elements()), make([]float64, tensor.Elements())
		var xz, zz float64
		for i := range values {
			bits := uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16
			values[i], made[i] = float64(math.Float32frombits(bits)), normal(tensor.Name, 1, i)
			xz += values[i] * made[i]
			zz += made[i] * made[i]
		}
		deviation := xz / zz
		for i, x := range values {
			if want := deviation * made[i]; math.Abs(x-want) > math.Abs(want)/200 {
				t.Errorf("%s: element %d is %v, want about %v", tensor.Name, i, x, want)
				break
			}
		}
	}
	if checked != 2+3*8+7 {
		t.Errorf("%d tensors checked", checked)
	}
}

// normal is element i of a weight, of mean 0 and deviation 1.
func normal(name string, seed uint64, i int) float64 {
	const step = 0x9E3779B97F4A7C15
	z := uint64(0xcbf29ce484222325)
	for _, b := range []byte(name) {
		z = (z ^ uint64(b)) * 0x100000001b3
	}
	z = (z ^ seed*step) + uint64(i+1)*step
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	z ^= z >> 31
	sum := z&0xffff + z>>16&0xffff + z>>32&0xffff + z>>48
	return (float64(sum) - 131070) / 37837.2
}

// A file that llama.cpp wrote, read and written again, has the same bytes.
func TestRewriteIsIdentical(t *testing.T) {
	paths, err := filepath.Glob(fixtures + "*/*.gguf")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d fixtures, %v", len(paths), err)
	}
	for _, path := range paths {
		f := mustOpen(t, path)
		got := encode(t, func(w *Writer) { copyFile(w, f) })
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors) == 0 {
			want = want[:f.End] // padded, though nothing follows
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the file differs when it is written again", path)
		}
	}
}

// copyFile gives w the keys and tensors of f.
func copyFile(w *Writer, f *File) {
	for i := range f.Keys {
		w.Set(f.Keys[i].Key, f.Keys[i].Value())
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		w.AddBytes(t.Name, t.Type, t.Dims, f.Data(t))
	}
}

// An extra prediction layer, here block 4 of a model of 4, is no matter of the container.
func TestAppendedLayer(t *testing.T) {
	f := mustOpen(t, fixtures+"tiny/tiny-qwen35moe-Q4_K_M.gguf")
	path := filepath.Join(t.TempDir(), "mtp.gguf")
	var w Writer
	copyFile(&w, f)
	w.Set("qwen35moe.block_count", uint32(5))
	w.Set("qwen35moe.nextn_predict_layers", uint32(1))
	w.Add("blk.4.nextn.eh_proj.weight", 12, []uint64{512, 256}, nil)
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	g := mustOpen(t, path)
	if n, _ := g.Uint("qwen35moe.block_count"); n != 5 || len(g.Tensors) != len(f.Tensors)+1 {
		t.Errorf("%d blocks, %d tensors", n, len(g.Tensors))
	}
	for i := range f.Tensors {
		if a, b := &f.Tensors[i], &g.Tensors[i]; a.Name != b.Name || !bytes.Equal(f.Data(a), g.Data(b)) {
			t.Errorf("%s differs from %s", a.Name, b.Name)
		}
	}
	if data := g.Data(g.Tensor("blk.4.nextn.eh_proj.weight")); !bytes.Equal(data, make([]byte, len(data))) {
		t.Error("a tensor without data is not zero")
	}
}
