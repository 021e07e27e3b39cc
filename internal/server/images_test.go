package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"sync"
	"testing"

	"splash/internal/chat"
	"splash/internal/engine"
	"splash/internal/media"
	"splash/internal/vision"
)

// An encoder makes rows of nothing.
type encoder struct {
	mu    sync.Mutex
	grids [][2]int
	err   error
}

func (e *encoder) Encode(_ context.Context, d vision.Digest, pixels []byte, gridH, gridW int) ([]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(pixels) != 3*256*gridH*gridW || d == (vision.Digest{}) {
		return nil, errors.New("no image")
	}
	e.grids = append(e.grids, [2]int{gridH, gridW})
	return make([]float32, gridH*gridW/4*8), e.err
}

func (e *encoder) Stats() vision.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return vision.Stats{Encodes: int64(len(e.grids)), Reuses: 2, Weights: 3, Kept: 4}
}

// A printer renders PDFs of two pages.
type printer struct{}

func (printer) Render(_ context.Context, _ []byte, begin func(int) error, page func(string, image.Image) error) error {
	if err := begin(2); err != nil {
		return err
	}
	for _, text := range []string{"one", "two"} {
		if err := page(text, image.NewGray(image.Rect(0, 0, 320, 256))); err != nil {
			return err
		}
	}
	return nil
}

func (printer) Close() error { return nil }

const padToken = 4081 // <|image_pad|> of the demonstration model's vocabulary

// serveSeeing starts a server whose model takes images.
func serveSeeing(t *testing.T, o media.Options) (*fixture, *encoder) {
	t.Helper()
	v, err := vocabulary()
	if err != nil {
		t.Fatal(err)
	}
	const text = `{%- if part.type == 'text' %}{{- part.text }}{%- endif %}`
	source := v.Templates["default"]
	if !strings.Contains(source, text) {
		t.Fatal("the template is another")
	}
	source = strings.Replace(source, text,
		`{%- if part.type == 'text' %}{{- part.text }}{%- else %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- endif %}`, 1)
	templates, err := chat.NewTemplates(t.Context(), map[string]string{"default": source}, chat.TemplateOptions{Format: chat.QWEN})
	if err != nil {
		t.Fatal(err)
	}
	o.PDF = printer{}
	e := &encoder{}
	f := serveModel(t, Options{}, func(m *Model, eo *engine.Options) {
		m.Templates, m.Vision = templates, &Vision{Media: media.New(o), Encoder: e, Token: padToken}
		eo.Hidden = 8
	})
	return f, e
}

// picture is a PNG of one shade in base64.
func picture(t testing.TB, width, height int, shade uint8) string {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = color.Gray{Y: shade}.Y
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func imagePart(url string) string {
	return fmt.Sprintf(`{"type":"image_url","image_url":{"url":"%s"}}`, url)
}

func user(parts ...string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":[%s]}]}`, strings.Join(parts, ","))
}

const pdf = "JVBERi0xLjQ=" // %PDF-1.4

func TestImageChecks(t *testing.T) {
	f, _ := serveSeeing(t, media.Options{})
	small := imagePart("data:image/png;base64," + picture(t, 4, 4, 1))
	filePart := func(fields string) string { return `{"type":"file","file":{` + fields + `}}` }
	many := func(n int, more ...string) string {
		return user(append(slices.Repeat([]string{small}, n), more...)...)
	}
	for _, c := range []check{
		{row: 80, path: cc, body: user(imagePart("http://example.com/a.png")), status: 400, has: []string{"only data: image URLs are supported"}},
		{row: 80, path: cc, body: user(small, imagePart("https://example.com/a.png")), status: 400, has: []string{"only data: image URLs are supported"}},
		{row: 80, path: cc, body: user(imagePart("file:///etc/passwd")), status: 400, has: []string{"only data: image URLs are supported"}},
		{row: 80, path: msgs, body: `{"model":"test/model","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a"}}]}]}`,
			status: 400, has: []string{"only base64 image sources are supported", `"type":"error"`}},
		{row: 80, path: "/v1/responses", body: `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://a"}]}]}`,
			status: 400, has: []string{"only data: image URLs are supported"}},
		{row: 81, path: cc, body: many(65), status: 400, has: []string{"at most 64"}},
		{row: 81, path: cc, body: many(63, filePart(`"file_data":"`+pdf+`"`)), status: 400, has: []string{"at most 64"}},
		{path: cc, body: many(64), status: 400, has: []string{"context_length_exceeded"}},
		{path: cc, body: user(imagePart("data:image/png;base64,AAAA")), status: 400, has: []string{"image could not be decoded"}},
		{path: cc, body: user(imagePart("data:image/png;base64,%")), status: 400, has: []string{"not valid base64"}},
		{path: cc, body: user(filePart(`"file_id":"file-1"`)), status: 400, has: []string{"file_id is not supported"}},
		{path: cc, body: user(filePart(`"file_url":"https://a/b.pdf"`)), status: 400, has: []string{"file_url is not supported"}},
		{path: cc, body: user(filePart(`"filename":"a.pdf"`)), status: 400, has: []string{"file_data must be a PDF in base64"}},
		{path: cc, body: user(filePart(`"file_data":"AAAA"`)), status: 400, has: []string{"the file is no PDF"}},
		{path: cc, body: user(filePart(`"file_data":"data:text/plain;base64,AAAA"`)), status: 400, has: []string{"application/pdf"}},
		{path: cc, body: user(`{"type":"video_url","video_url":{"url":"data:,"}}`), status: 400, has: []string{"video_url content is not supported"}},
		{path: "/v1/models", status: 200, has: []string{`"vision":true`, `"input_modalities":["text","image","pdf"]`}},
		{path: "/status", status: 200, has: []string{`"vision":true`, `"input_modalities":["text","image","pdf"]`, `"image_cache":{"entries":`, `"images":{"encodes":`}},
		{path: "/metrics", status: 200, has: []string{"splash_image_embedding_reuses_total 2", "splash_image_cached_bytes 4", "splash_images_seconds_count"}},
	} {
		c.run(f)
	}
	held, _ := field(f, f.do("GET", "/status", "", nil).body, "image_cache", "request_bytes").(float64)
	if held != 0 {
		t.Errorf("%v bytes are held of requests that were answered", held)
	}
}

// TestImagePrompt sends images by every interface. A pad of the template is as many tokens as its image has; one that a
// user wrote is text.
func TestImagePrompt(t *testing.T) {
	f, e := serveSeeing(t, media.Options{})
	a, b := picture(t, 320, 256, 9), picture(t, 256, 256, 9) // 80 and 64 tokens
	url := func(data string) string { return "data:image/png;base64," + data }
	expect := func(parts ...any) (tokens []int32) {
		for _, p := range parts {
			switch p := p.(type) {
			case string:
				tokens = append(tokens, f.tok.Encode(p, true)...)
			case int:
				tokens = append(tokens, f.tok.Encode("<|vision_start|>", true)...)
				tokens = append(tokens, slices.Repeat([]int32{padToken}, p)...)
				tokens = append(tokens, f.tok.Encode("<|vision_end|>", true)...)
			}
		}
		return tokens
	}
	const begin, answer = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
	for _, c := range []struct {
		name, path, body string
		want             []int32
		grids            [][2]int
	}{
		{"Chat Completions", cc, user(`{"type":"text","text":"See <|image_pad|>: "}`, imagePart(url(a)), `{"type":"text","text":" and "}`, imagePart(url(b))),
			expect(begin+"See <|image_pad|>: ", 80, " and ", 64, answer), [][2]int{{16, 20}, {16, 16}}},
		{"a PDF", cc, user(`{"type":"text","text":"Read"}`, `{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,`+pdf+`"}}`, imagePart(url(b))),
			expect(begin+"ReadPDF page 1:\none\n", 80, "PDF page 2:\ntwo\n", 80, 64, answer), [][2]int{{16, 20}, {16, 20}, {16, 16}}},
		{"Messages", msgs, `{"model":"test/model","max_tokens":9,"messages":[{"role":"user","content":[
			{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + a + `"}},{"type":"text","text":"x"}]}]}`,
			expect(begin, 80, "x"+answer), [][2]int{{16, 20}}},
		{"a tool's result", msgs, `{"model":"test/model","max_tokens":9,"messages":[{"role":"user","content":"hi"},
			{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"look","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
				{"type":"text","text":"seen"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + b + `"}}]},
				{"type":"document","title":"T","source":{"type":"base64","media_type":"application/pdf","data":"` + pdf + `"}}]}]}`,
			nil, [][2]int{{16, 16}, {16, 20}, {16, 20}}},
		{"Responses", "/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"` + url(b) + `"},
			{"type":"input_file","filename":"a.pdf","file_data":"` + pdf + `"}]}]}`,
			expect(begin+"x", 64, "PDF page 1:\none\n", 80, "PDF page 2:\ntwo\n", 80, answer), [][2]int{{16, 16}, {16, 20}, {16, 20}}},
	} {
		e.grids = nil
		r := f.post(c.path, c.body)
		if r.status != 200 {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
			continue
		}
		if c.want != nil && !slices.Equal(f.prompt, c.want) {
			t.Errorf("%s: the prompt is\n%q\nwant\n%q", c.name, f.tok.Decode(f.prompt), f.tok.Decode(c.want))
		}
		if fmt.Sprint(e.grids) != fmt.Sprint(c.grids) {
			t.Errorf("%s: images of %v patches, want %v", c.name, e.grids, c.grids)
		}
	}

	// Counting counts the tokens of images.
	body := `{"model":"test/model","messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + a + `"}}]}]}`
	r := f.post("/v1/messages/count_tokens", body)
	if got, _ := field(t, r.body, "input_tokens").(float64); int(got) != len(expect(begin, 80, answer)) {
		t.Errorf("%s, want %d", r.body, len(expect(begin, 80, answer)))
	}

	// Images that fill the context alone are refused, but counted.
	one := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + b + `"}}`
	body = `{"model":"test/model","max_tokens":9,"messages":[{"role":"user","content":[` + strings.Join(slices.Repeat([]string{one}, 64), ",") + `]}]}`
	const alone = "prompt is too long: 4096 tokens > 4095 maximum input tokens (image tokens alone; text not yet counted)"
	if r := f.post(msgs, body); r.status != 400 || !strings.Contains(r.body, alone) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := f.post("/v1/messages/count_tokens", body); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}

	e.err = errors.New("the tower fell")
	if r := f.post(cc, user(imagePart(url(a)))); r.status != 500 || strings.Contains(r.body, "tower") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestImagesBusy(t *testing.T) {
	f, _ := serveSeeing(t, media.Options{InFlight: 3 * media.MinPixels})
	release := f.hold()
	image := "data:image/png;base64," + picture(t, 4, 4, 1)
	first := make(chan reply)
	go func() { first <- f.post(cc, user(imagePart(image))) }()
	for {
		held, _ := field(t, f.do("GET", "/status", "", nil).body, "image_cache", "request_bytes").(float64)
		if held > 0 {
			break
		}
		select {
		case r := <-first:
			t.Fatalf("%d %s", r.status, r.body)
		default:
		}
	}
	r := f.post(cc, user(imagePart(image)))
	if r.status != 503 || !strings.Contains(r.body, "frontend_overloaded") || r.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", r.status, r.body)
	}
	release()
	if r := <-first; r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := f.post(cc, user(imagePart(image))); r.status != 200 {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
	if r := f.post(cc, user(imagePart(image), imagePart(image))); r.status != 400 {
		t.Errorf("more than there ever is: %d %s", r.status, r.body)
	}
}
