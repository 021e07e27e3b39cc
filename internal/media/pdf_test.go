package media

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"strings"
	"sync"
	"testing"
)

// noPDF reads no documents.
type noPDF struct{}

func (noPDF) Render(context.Context, []byte, func(int) error, func(string, image.Image) error) error {
	return errors.New("no documents are read")
}
func (noPDF) Close() error { return nil }

// document is a PDF of pages of a text each, and of the size in points. extra stands in the trailer.
func pdfOf(width, height float64, extra string, texts ...string) []byte {
	var out bytes.Buffer
	var offsets []int
	object := func(text string) {
		offsets = append(offsets, out.Len())
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", len(offsets), text)
	}
	out.WriteString("%PDF-1.4\n")
	object("<</Type/Catalog/Pages 2 0 R>>")
	var kids strings.Builder
	for i := range texts {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object(fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]/MediaBox[0 0 %g %g]>>", len(texts), kids.String(), width, height))
	object("<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
	for i, text := range texts {
		object(fmt.Sprintf("<</Type/Page/Parent 2 0 R/Resources<</Font<</F 3 0 R>>>>/Contents %d 0 R>>", 5+2*i))
		content := fmt.Sprintf("1 0 0 rg 0 0 %g %g re f 0 g BT /F 24 Tf 72 %g Td (%s) Tj ET", width/2, height/2, height-72, text)
		object(fmt.Sprintf("<</Length %d>>stream\n%s\nendstream", len(content), content))
	}
	at := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(offsets)+1)
	for _, o := range offsets {
		fmt.Fprintf(&out, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&out, "trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n", len(offsets)+1, extra, at)
	return out.Bytes()
}

// locked is what a trailer says of a document that no empty password opens.
const locked = "/ID[<00112233445566778899aabbccddeeff><00112233445566778899aabbccddeeff>]/Encrypt<</Filter/Standard/V 1/R 2/P -4" +
	"/O<0101010101010101010101010101010101010101010101010101010101010101>" +
	"/U<0202020202020202020202020202020202020202020202020202020202020202>>>"

// withPDFium is a preparer whose renderer compiles PDFium once for all tests.
var withPDFium = sync.OnceValue(func() *Preparer { return New(Options{}) })

func TestPDF(t *testing.T) {
	p := withPDFium()
	b := p.Batch()
	defer b.Close()
	file := pdfOf(612, 792, "", "Hello from page one", "The second page")
	for _, data := range []string{base64.StdEncoding.EncodeToString(file), url("application/pdf", file)} {
		pages, err := b.PDF(t.Context(), data)
		if err != nil {
			t.Fatal(err)
		}
		if len(pages) != 2 || pages[0].Text != "Hello from page one" || pages[1].Text != "The second page" {
			t.Fatalf("%d pages: %q", len(pages), pages[0].Text)
		}
		m, err := b.Image(t.Context(), pages[1].URL)
		if err != nil {
			t.Fatal(err)
		}
		// The page is scaled to at most 1,048,576 pixels: 900 x 1164, then to whole tokens. A quarter of it is red.
		w, h := Patch*m.GridW, Patch*m.GridH
		if w != 896 || h != 1152 {
			t.Errorf("a page of %d x %d", w, h)
		}
		at := func(x, y int) [3]byte { return [3]byte(m.Pixels[3*(y*w+x):]) }
		if red, white := at(w/4, h-h/4), at(w-w/4, h-h/4); red != [3]byte{255, 0, 0} || white != [3]byte{255, 255, 255} {
			t.Errorf("%v, %v", red, white)
		}
	}
	t.Run("closed", func(t *testing.T) {
		if err := New(Options{}).Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		many := make([]string, 65)
		for _, c := range []struct {
			name, want string
			file       []byte
		}{
			{"a password", "needs a password", pdfOf(612, 792, locked, "x")},
			{"no PDF", "the file is no PDF", []byte("hello")},
			{"damaged", "the PDF could not be read", []byte("%PDF-1.4\nhello")},
			{"no pages", "the PDF has no pages", pdfOf(612, 792, "")},
			{"too many pages", "the PDF has 65 pages; at most 64 are read", pdfOf(612, 792, "", many...)},
			{"more pages than images are left", "at most 64 images", pdfOf(612, 792, "", many[:63]...)},
			{"a strip", "absolute aspect ratio must be smaller than 200", pdfOf(10, 4000, "", "x")},
		} {
			_, err := b.PDF(t.Context(), base64.StdEncoding.EncodeToString(c.file))
			fault := (*Error)(nil)
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		for url, want := range map[string]string{
			"data:application/json;base64,e30=":      "only data:application/pdf;base64 URLs of files are supported",
			"???":                                    "PDF data is not valid base64",
			strings.Repeat("A", documentBytes/3*4+8): "PDF exceeds the size limit of 64 MiB",
		} {
			if _, err := b.PDF(t.Context(), url); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.40s: %v", url, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.PDF(ctx, base64.StdEncoding.EncodeToString(pdfOf(100, 100, "", "x"))); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A printer is a renderer of pages that are all alike.
type printer struct {
	noPDF
	pages int
	text  string
	m     image.Image
	calls int
}

func (p *printer) Render(_ context.Context, _ []byte, begin func(int) error, page func(string, image.Image) error) error {
	p.calls++
	if err := begin(p.pages); err != nil {
		return err
	}
	for range p.pages {
		if err := page(p.text, p.m); err != nil {
			return err
		}
	}
	return nil
}

func TestDocumentLimits(t *testing.T) {
	random := image.NewRGBA(image.Rect(0, 0, 1000, 1000))
	copy(random.Pix, noise(len(random.Pix), 1))
	small := image.NewGray(image.Rect(0, 0, 8, 8))
	pdf := base64.StdEncoding.EncodeToString([]byte("%PDF-1.4"))
	for _, c := range []struct {
		name, want string
		r          printer
	}{
		{"text", "the text of the PDF exceeds 1000000 characters", printer{pages: 2, text: strings.Repeat("ä", 500_001), m: small}},
		{"images", "the pages of the PDF exceed 32 MiB as images", printer{pages: 64, m: random}},
	} {
		if _, err := New(Options{PDF: &c.r}).Batch().PDF(t.Context(), pdf); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	r := &printer{pages: 3, text: "a\r\nb\x00\x02\tc\rd\ufffe", m: small}
	p := New(Options{PDF: r})
	b := p.Batch()
	for range 2 {
		pages, err := b.PDF(t.Context(), pdf)
		if err != nil || len(pages) != 3 || pages[2].Text != "a\nb\tc\nd" {
			t.Errorf("%v, %v", pages, err)
		}
	}
	if r.calls != 1 {
		t.Errorf("a document that was kept is rendered %d times", r.calls)
	}
	b.documents = documentBytes - 10
	if _, err := b.PDF(t.Context(), pdf); err == nil || !strings.Contains(err.Error(), "and their pages exceed the limit of 64 MiB") {
		t.Errorf("%v", err)
	}
	b = p.Batch()
	b.count = 62
	if _, err := b.PDF(t.Context(), pdf); !errors.Is(err, errTooMany) {
		t.Errorf("a document kept, of more pages than images are left: %v", err)
	}
}

func TestPageSize(t *testing.T) {
	for _, c := range []struct {
		width, height float64
		w, h          int
	}{{100, 200, 200, 400}, {612, 792, 900, 1164}, {5000, 5000, 1024, 1024}, {0.4, 0.4, 1, 1}, {14400, 14400, 1024, 1024}} {
		if w, h, err := pageSize(c.width, c.height); err != nil || w != c.w || h != c.h {
			t.Errorf("%g x %g: %d x %d, %v", c.width, c.height, w, h, err)
		}
	}
	for _, c := range [][2]float64{{0, 5}, {-1, 5}, {1e300, 1e300}, {1, 300}} {
		if _, _, err := pageSize(c[0], c[1]); err == nil {
			t.Errorf("%v is a page", c)
		}
	}
}

// FuzzPDF holds PDFium's sandbox to its word on any file.
func FuzzPDF(f *testing.F) {
	f.Add(pdfOf(100, 100, "", "seed"))
	f.Add([]byte("%PDF-1.7\n1 0 obj<</Length 99999999999>>stream"))
	// Compiling PDFium takes longer than a fuzzed call may.
	if _, err := withPDFium().Batch().PDF(f.Context(), base64.StdEncoding.EncodeToString(pdfOf(100, 100, "", "first"))); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		_, err := withPDFium().Batch().PDF(t.Context(), base64.StdEncoding.EncodeToString(file))
		fault := (*Error)(nil)
		if err != nil && !errors.As(err, &fault) {
			t.Error(err)
		}
	})
}
