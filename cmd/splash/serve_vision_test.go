package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"splash/dequant"
	"splash/fixtures"
)

// tinySeeing writes a tiny model, whose template writes images, and its projector.
func tinySeeing(t *testing.T) (model, projector string) {
	t.Helper()
	dir := t.TempDir()
	g, err := (&fixtures.Recipe{Family: "tiny-qwen35", Seed: 1, Formats: fixtures.Uniform(dequant.Q8_0)}).GGUF()
	if err != nil {
		t.Fatal(err)
	}
	g.Set("tokenizer.chat_template", imageTemplate)
	p, err := (&fixtures.Tower{Family: "tiny-qwen35", Seed: 1, Type: dequant.BF16}).Projector()
	if err != nil {
		t.Fatal(err)
	}
	model, projector = filepath.Join(dir, "tiny.gguf"), filepath.Join(dir, "mmproj-tiny.gguf")
	if err := g.WriteFile(model); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteFile(projector); err != nil {
		t.Fatal(err)
	}
	return model, projector
}

// tinyTower writes a tiny checkpoint with its tower.
func tinyTower(t *testing.T) string {
	t.Helper()
	c, err := (&fixtures.Recipe{Family: "tiny-qwen35", Seed: 1, Formats: fixtures.Projections(dequant.Affine(4, 64))}).Checkpoint(fixtures.MLX)
	if err == nil {
		err = (&fixtures.Tower{Family: "tiny-qwen35", Seed: 1}).AddTo(c, false)
	}
	dir := t.TempDir()
	if err == nil {
		c.Files["chat_template.jinja"] = []byte(imageTemplate)
		err = c.WriteDir(dir, 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// imageTemplate is a chat template that writes images.
const imageTemplate = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- if m.content is string %}{{- m.content }}` +
	`{%- else %}{%- for p in m.content %}{%- if p.type == 'text' %}{{- p.text }}{%- else %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}` +
	`{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}` +
	`{%- if enable_thinking is defined and enable_thinking is false %}{{- '\n</think>\n\n' }}{%- endif %}{%- endif %}`

func TestServeVision(t *testing.T) {
	path := build(t)
	t.Run("tower", func(t *testing.T) { serveTower(t, path) })
	t.Run("images", func(t *testing.T) { serveImages(t, path) })
}

// serveTower serves a checkpoint with its own tower, and without it.
func serveTower(t *testing.T, path string) {
	dir := tinyTower(t)
	t.Setenv("SPLASH_DATA_DIR", t.TempDir())
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, 200, `"prompt_tokens":`},
		{[]string{"--language-only"}, 400, "image input is not supported: this model is serving without vision (started with --language-only)"},
	} {
		p := start(t, path, append([]string{"serve", "--port", freePort(t), "--model", "test/tiny", "--model-dir", dir, "--backend", "cpu", "--no-draft"}, c.args...)...)
		r, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(
			`{"max_tokens":2,"reasoning_effort":"none","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/gif;base64,`+
				base64.StdEncoding.EncodeToString([]byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"))+`"}}]}]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != c.status || !bytes.Contains(body, []byte(c.says)) {
			t.Errorf("%v: %d %s, %v", c.args, r.StatusCode, body, err)
		}
		p.stop(t, syscall.SIGTERM)
	}
}

// serveImages serves a model with its projector: an image is read, and what was read of it is there the second time.
func serveImages(t *testing.T, path string) {
	model, projector := tinySeeing(t)
	t.Setenv("SPLASH_DATA_DIR", t.TempDir())
	p := start(t, path, "serve", "--port", freePort(t), "--model", "test/tiny", "--model-dir", model, "--mmproj", projector, "--backend", "oracle",
		"--max-image-pixels", "65536", "--no-draft")
	picture := func(shade uint8) string {
		m := image.NewGray(image.Rect(0, 0, 600, 400))
		for i := range m.Pix {
			m.Pix[i] = shade + uint8(i%7)
		}
		var b bytes.Buffer
		if err := png.Encode(&b, m); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	type answer struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	ask := func(shade uint8) (a answer) {
		t.Helper()
		body := fmt.Sprintf(`{"temperature":0,"max_tokens":5,"reasoning_effort":"none","messages":[{"role":"user","content":[`+
			`{"type":"text","text":"What is this? "},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, picture(shade))
		r, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(data, &a)
		}
		if err != nil || r.StatusCode != 200 || len(a.Choices) != 1 {
			t.Fatalf("%d %v %s", r.StatusCode, err, data)
		}
		return a
	}
	first, again, other := ask(1), ask(1), ask(100)
	// 600 x 400 is scaled to 288 x 192 pixels, which are 54 tokens.
	if n := first.Usage.Prompt; n < 54+10 || n > 54+40 || again.Usage.Prompt != n || other.Usage.Prompt != n {
		t.Errorf("prompts of %d, %d and %d tokens", n, again.Usage.Prompt, other.Usage.Prompt)
	}
	if a, b, c := first.Usage.Details.Cached, again.Usage.Details.Cached, other.Usage.Details.Cached; a != 0 || b < 32 || b%32 != 0 || c != 0 {
		t.Errorf("%d, %d and %d tokens are reused", a, b, c)
	}
	if first.Choices[0].Message.Content != again.Choices[0].Message.Content {
		t.Errorf("%q, then %q", first.Choices[0].Message.Content, again.Choices[0].Message.Content)
	}
	r, err := http.Get(p.url + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var status struct {
		Vision bool
		Images struct{ Encodes, Reuses int }
		Cache  struct {
			Entries int
			Request int64 `json:"request_bytes"`
		} `json:"image_cache"`
	}
	if err := json.NewDecoder(r.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if !status.Vision || status.Images.Encodes != 2 || status.Cache.Entries != 2 || status.Cache.Request != 0 {
		t.Errorf("%+v", status)
	}
}
