package server

import (
	"context"
	"time"

	"splash/internal/chat"
	"splash/internal/chat/ojson"
	"splash/internal/engine"
	"splash/internal/media"
	"splash/internal/vision"
)

// A Vision is how a model sees images.
type Vision struct {
	Media   *media.Preparer
	Encoder Encoder
	Token   int32 // which stands in a prompt for each row of an image
}

// An Encoder makes a tower's rows of images (vision.Encoder).
type Encoder interface {
	Encode(ctx context.Context, d vision.Digest, pixels []byte, gridH, gridW int) ([]float32, error)
	Stats() vision.Stats
}

// media is the request's images. They are let go of when the request is answered, as is what the engine made of them.
func (x *exchange) media() *media.Batch {
	if x.batch == nil {
		x.batch = x.s.model.Vision.Media.Batch()
	}
	return x.batch
}

func (x *exchange) release() {
	if x.batch != nil {
		x.batch.Close()
	}
}

// prepareMedia are the options by which a conversation's images and files are read.
func (x *exchange) prepareMedia() chat.PrepareOptions {
	if x.s.model.Vision == nil {
		return chat.PrepareOptions{NoVisionReason: x.s.model.NoVision}
	}
	return chat.PrepareOptions{Vision: true, Image: x.checkImage, File: x.readFile}
}

// checkImage refuses an image before any is decoded.
func (x *exchange) checkImage(url string) error {
	if err := media.CheckURL(url); err != nil {
		return err
	}
	return x.media().Count(1)
}

// readFile makes the pages of a PDF parts of its message.
func (x *exchange) readFile(ctx context.Context, file *ojson.Object) ([]chat.Part, error) {
	for _, name := range []string{"file_id", "file_url"} {
		if file.Value(name) != nil {
			return nil, invalidf("%s is not supported: send the PDF as file_data", name)
		}
	}
	data, ok := file.Value("file_data").(string)
	if !ok || data == "" {
		return nil, invalidf("file_data must be a PDF in base64")
	}
	began := time.Now()
	defer func() { x.s.metrics.stage(stageImages, began) }()
	pages, err := x.media().PDF(ctx, data)
	if err != nil {
		return nil, err
	}
	var parts []chat.Part
	for i, p := range pages {
		parts = append(parts, chat.PDFPage(i+1, p.Text, p.URL)...)
	}
	return parts, nil
}

// images prepares the images of a conversation, in their order.
func (x *exchange) images(messages []chat.Message) ([]*media.Image, error) {
	began := time.Now()
	var all []*media.Image
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Kind != chat.ImagePart {
				continue
			}
			image, err := x.media().Image(x.ctx, p.URL)
			if err != nil {
				return nil, err
			}
			all = append(all, image)
		}
	}
	if len(all) > 0 {
		x.s.metrics.stage(stageImages, began)
	}
	return all, nil
}

// fitImages holds the images of a generation to the context before its text is tokenized.
func (x *exchange) fitImages(g *generation, images []*media.Image) error {
	n, context := 0, x.s.model.Context
	for _, m := range images {
		n += m.Tokens()
	}
	switch {
	case g.counting || n < context:
		return nil
	case x.dialect == anthropic:
		return tooLongf("prompt is too long: %d tokens > %d maximum input tokens (image tokens alone; text not yet counted)", n, context-1)
	}
	return tooLongf("prompt exceeds the context window")
}

// encodeImages makes the tokens of a prompt with images: each pad that the template wrote is as many tokens as its image
// has rows. The same text in a message is text.
func (x *exchange) encodeImages(p chat.Prompt, images []*media.Image) (tokens []int32, seen []engine.Image) {
	began := time.Now()
	v, t := x.s.model.Vision, x.s.model.Tokenizer
	last := 0
	for i, m := range images {
		tokens = t.AppendEncode(tokens, p.Text[last:p.Images[i]], true)
		last = p.Images[i] + len(x.s.model.Format.ImagePad)
		seen = append(seen, engine.Image{
			Start: len(tokens), Rows: m.GridH / 2, Cols: m.GridW / 2, Digest: m.Digest,
			Encode: func(ctx context.Context) ([]float32, error) {
				return v.Encoder.Encode(ctx, m.Digest, m.Pixels, m.GridH, m.GridW)
			},
		})
		for range m.Tokens() {
			tokens = append(tokens, v.Token)
		}
	}
	tokens = t.AppendEncode(tokens, p.Text[last:], true)
	x.s.metrics.stage(stageTokenization, began)
	return tokens, seen
}

// modalities are the kinds of input that the model takes.
func (s *Server) modalities() []string {
	if s.model.Vision == nil {
		return []string{"text"}
	}
	return []string{"text", "image", "pdf"}
}

// visionStatus adds the sections on images.
func (s *Server) visionStatus(o *ojson.Object) {
	o.Set("vision", s.model.Vision != nil)
	list := []any{}
	for _, m := range s.modalities() {
		list = append(list, m)
	}
	o.Set("input_modalities", list)
	if s.model.Vision == nil {
		return
	}
	m, e := s.model.Vision.Media.Stats(), s.model.Vision.Encoder.Stats()
	o.Set("image_cache", ojson.NewObject(
		"entries", m.Entries, "bytes", m.Bytes, "budget_bytes", m.Limit, "request_bytes", m.InFlight, "request_budget_bytes", m.Budget))
	o.Set("images", ojson.NewObject(
		"encodes", e.Encodes, "reuses", e.Reuses, "weight_bytes", e.Weights, "cached_bytes", e.Kept))
}

// collectImages gives the figures of images.
func (s *Server) collectImages(gauge func(name string, v float64, labels ...string), counter func(name string, v int64)) {
	if s.model.Vision == nil {
		return
	}
	e := s.model.Vision.Encoder.Stats()
	counter("image_encodes_total", e.Encodes)
	counter("image_embedding_reuses_total", e.Reuses)
	gauge("image_cached_bytes", float64(e.Kept))
}
