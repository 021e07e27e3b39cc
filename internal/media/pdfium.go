package media

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"time"

	"github.com/klippa-app/go-pdfium"
	pdfiumerrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// A sandbox is PDFium as WebAssembly: without files or network, with bounded memory, and stopped when it takes too
// long. A document has an instance of its own, so that nothing is left of it for the next one. The module is compiled for
// the first document, once.
type sandbox struct {
	turn  chan struct{} // holds the turn to render
	cache wazero.CompilationCache
}

const (
	sandboxPages = 8192            // of 64 KiB: 512 MiB
	renderTime   = 2 * time.Minute // of a document
)

func newPDFium() *sandbox {
	p := &sandbox{turn: make(chan struct{}, 1), cache: wazero.NewCompilationCache()}
	p.turn <- struct{}{}
	return p
}

// Close lets go of the compiled module.
func (p *sandbox) Close() error {
	<-p.turn
	return p.cache.Close(context.Background())
}

var errTooLong = errorf("the PDF takes longer than %v to render", renderTime)

// Render renders a document.
func (p *sandbox) Render(
	ctx context.Context, pdf []byte, begin func(pages int) error, page func(text string, m image.Image) error,
) error {
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, renderTime, errTooLong)
	defer cancel()
	err := p.render(ctx, pdf, begin, page)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// render opens the document in a sandbox of its own.
func (p *sandbox) render(
	ctx context.Context, pdf []byte, begin func(pages int) error, page func(text string, m image.Image) error,
) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("PDFium failed: %v", fault)
		}
	}()
	pool, err := webassembly.Init(webassembly.Config{
		Context: ctx, MaxTotal: 1, FSConfig: wazero.NewFSConfig(), Stdout: io.Discard, Stderr: io.Discard,
		RuntimeConfig: wazero.NewRuntimeConfig().WithCompilationCache(p.cache).WithMemoryLimitPages(sandboxPages).
			WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling).WithCloseOnContextDone(true),
	})
	if err != nil {
		return err
	}
	defer pool.Close()
	instance, err := pool.GetInstanceWithContext(ctx)
	if err != nil {
		return err
	}
	defer instance.Close()
	opened, err := instance.OpenDocument(&requests.OpenDocument{File: &pdf})
	if errors.Is(err, pdfiumerrors.ErrPassword) || errors.Is(err, pdfiumerrors.ErrSecurity) {
		return errPassword
	}
	if err != nil {
		return err
	}
	d := document{instance, opened.Document}
	count, err := instance.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: d.ref})
	if err != nil {
		return err
	}
	if err := begin(count.PageCount); err != nil {
		return err
	}
	for i := range count.PageCount {
		if err := d.page(i, page); err != nil {
			return err
		}
	}
	return nil
}

// A document is open in an instance.
type document struct {
	pdfium.Pdfium
	ref references.FPDF_DOCUMENT
}

// page hands on the text and the image of page i.
func (d *document) page(i int, to func(text string, m image.Image) error) error {
	page := requests.Page{ByIndex: &requests.PageByIndex{Document: d.ref, Index: i}}
	size, err := d.GetPageSize(&requests.GetPageSize{Page: page})
	if err != nil {
		return fmt.Errorf("page %d: %w", i+1, err)
	}
	w, h, err := pageSize(size.Width, size.Height)
	if err != nil {
		return err
	}
	text, err := d.GetPageText(&requests.GetPageText{Page: page})
	if err != nil {
		return fmt.Errorf("page %d: %w", i+1, err)
	}
	r, err := d.RenderPageInPixels(&requests.RenderPageInPixels{Page: page, Width: w, Height: h})
	if err != nil {
		return fmt.Errorf("page %d: %w", i+1, err)
	}
	defer r.Cleanup()
	return to(text.Text, r.Result.RenderedImage)
}
