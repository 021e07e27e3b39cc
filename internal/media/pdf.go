package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"image"
	"image/png"
	"math"
	"strings"
)

// Limits of documents.
const (
	MaxPages       = MaxImages
	documentBytes  = 64 << 20  // of a request: its PDFs and the images of their pages
	renderedBytes  = 32 << 20  // of a document's pages as images
	pagePixels     = 1_048_576 // of a page's image
	pageScale      = 2         // pixels a point, where a page's pixels allow
	textCharacters = 1_000_000 // of a document
	documentsKept  = 16
	documentsBytes = 64 << 20
)

// A Page is a page of a document.
type Page struct {
	Text string
	URL  string // the page's image, a data URL
}

// A Renderer renders documents, one at a time.
type Renderer interface {
	// Render calls page with the text and the image of each page of a PDF, in order. begin is told before how many there
	// are. An error of either ends the rendering. Errors of the document are *Error.
	Render(ctx context.Context, pdf []byte, begin func(pages int) error, page func(text string, m image.Image) error) error
	Close() error
}

// errPassword says that a document cannot be opened.
var errPassword = errorf("the PDF needs a password to be opened; remove it and send the PDF again")

// PDF renders the pages of a document in base64, which may be a data URL. Errors are *Error, ErrBusy, and the context's.
func (b *Batch) PDF(ctx context.Context, data string) ([]Page, error) {
	if rest, ok := strings.CutPrefix(data, "data:"); ok {
		kind, encoded, _ := strings.Cut(rest, ",")
		if !strings.EqualFold(kind, "application/pdf;base64") {
			return nil, errorf("only data:application/pdf;base64 URLs of files are supported")
		}
		data = encoded
	}
	file, err := decodeBase64("PDF", data, documentBytes)
	if err != nil {
		return nil, err
	}
	if err := b.share(len(file)); err != nil {
		return nil, err
	}
	key := sha256.Sum256(file)
	pages, ok := b.p.documents.get(key)
	if !ok {
		if pages, err = b.render(ctx, file); err != nil {
			return nil, err
		}
		b.p.documents.put(key, pages, int64(sizeOf(pages)))
	}
	if err := b.Count(len(pages)); err != nil {
		return nil, err
	}
	return pages, b.share(sizeOf(pages))
}

// share charges the request for bytes of documents.
func (b *Batch) share(n int) error {
	if b.documents += int64(n); b.documents > documentBytes {
		return errorf("the PDFs of the request and their pages exceed the limit of %d MiB", documentBytes>>20)
	}
	return nil
}

func sizeOf(pages []Page) int {
	n := 0
	for i := range pages {
		n += len(pages[i].Text) + len(pages[i].URL)
	}
	return n
}

// render makes the pages of a document.
func (b *Batch) render(ctx context.Context, file []byte) ([]Page, error) {
	if !bytes.Contains(file[:min(1024, len(file))], []byte("%PDF-")) {
		return nil, errorf("the file is no PDF")
	}
	var pages []Page
	text, rendered := 0, 0
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	var out bytes.Buffer
	err := b.p.o.PDF.Render(ctx, file, func(n int) error {
		switch {
		case n < 1:
			return errorf("the PDF has no pages")
		case n > MaxPages:
			return errorf("the PDF has %d pages; at most %d are read", n, MaxPages)
		}
		if b.count+n > MaxImages {
			return errTooMany
		}
		return nil
	}, func(words string, m image.Image) error {
		words = clean(words)
		if text += len([]rune(words)); text > textCharacters {
			return errorf("the text of the PDF exceeds %d characters", textCharacters)
		}
		out.Reset()
		if err := encoder.Encode(&out, m); err != nil {
			return err
		}
		if rendered += out.Len(); rendered > renderedBytes {
			return errorf("the pages of the PDF exceed %d MiB as images", renderedBytes>>20)
		}
		pages = append(pages, Page{words, "data:image/png;base64," + base64.StdEncoding.EncodeToString(out.Bytes())})
		return nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if fault := (*Error)(nil); err != nil && !errors.As(err, &fault) {
		return nil, errorf("the PDF could not be read: %v", err)
	}
	return pages, err
}

// clean makes text of what a page holds: lines end in \n, and no control characters but tabs.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n'
		case r < ' ' && r != '\n' && r != '\t', r == 0x7f, r == 0xfffe, r == 0xffff:
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
}

// pageSize is the size of a page's image: two pixels a point, or as many as there may be.
func pageSize(width, height float64) (w, h int, err error) {
	area := width * height
	if !(width > 0 && height > 0) || math.IsInf(area, 0) {
		return 0, 0, errorf("a page of the PDF is %g x %g points", width, height)
	}
	scale := min(pageScale, math.Sqrt(pagePixels/area))
	w, h = max(1, int(width*scale)), max(1, int(height*scale))
	if long, short := max(w, h), min(w, h); long > MaxAspect*short || w*h > pagePixels {
		return 0, 0, errorf("a page of the PDF is %g x %g points: absolute aspect ratio must be smaller than %d", width, height, MaxAspect)
	}
	return w, h, nil
}
