package media

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Options are a preparer's limits. A zero value takes the default.
type Options struct {
	MaxPixels int   // of a prepared image: MinPixels to MaxPixels
	Cache     int64 // bytes of prepared images that are kept for later requests; 256 MiB
	InFlight  int64 // bytes of prepared images that requests under way may hold; 256 MiB

	PDF Renderer // of documents; nil: PDFium
}

func (o Options) withDefaults() Options {
	if o.MaxPixels == 0 {
		o.MaxPixels = MaxPixels
	}
	if o.Cache == 0 {
		o.Cache = 256 << 20
	}
	if o.InFlight == 0 {
		o.InFlight = 256 << 20
	}
	if o.PDF == nil {
		o.PDF = newPDFium()
	}
	return o
}

// A Preparer prepares the images of requests. It is safe for concurrent use.
type Preparer struct {
	o         Options
	decoding  *semaphore.Weighted // bytes
	images    *cache[*Image]
	documents *cache[[]Page]

	mu       sync.Mutex
	inFlight int64
}

// New returns a preparer.
func New(o Options) *Preparer {
	o = o.withDefaults()
	return &Preparer{
		o: o, decoding: semaphore.NewWeighted(decodeRoom), images: newCache[*Image](o.Cache, 0),
		documents: newCache[[]Page](documentsBytes, documentsKept),
	}
}

// Close ends the renderer of documents. No batch may be under way.
func (p *Preparer) Close() error { return p.o.PDF.Close() }

// Stats are the figures of a preparer.
type Stats struct {
	Entries          int // kept images
	Bytes, Limit     int64
	InFlight, Budget int64 // bytes of requests under way
}

// Stats returns the figures as they are now.
func (p *Preparer) Stats() Stats {
	entries, bytes := p.images.size()
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Entries: entries, Bytes: bytes, Limit: p.o.Cache, InFlight: p.inFlight, Budget: p.o.InFlight}
}

// A Batch is the images and documents of one request. Its methods are for one goroutine at a time, but Close.
type Batch struct {
	p     *Preparer
	count int // images, pages of documents among them

	documents int64 // bytes of PDFs and of their pages' images
	held      int64 // bytes of prepared images; p.mu guards it, and closed
	closed    bool
}

// Batch begins a request.
func (p *Preparer) Batch() *Batch { return &Batch{p: p} }

// Close lets go of the memory of the request's images.
func (b *Batch) Close() {
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if !b.closed {
		b.p.inFlight -= b.held
	}
	b.closed = true
}

// Count adds images to those that the request holds, and refuses too many. PDF counts the pages of its document.
func (b *Batch) Count(n int) error {
	if b.count += n; b.count > MaxImages {
		return errTooMany
	}
	return nil
}

// Image prepares the image of a data URL. Errors are *Error, ErrBusy, and the context's.
func (b *Batch) Image(ctx context.Context, url string) (*Image, error) {
	file, err := decodeURL(url)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(file)
	m, ok := b.p.images.get(key)
	if !ok {
		if m, err = b.p.prepare(ctx, file); err != nil {
			return nil, err
		}
		b.p.images.put(key, m, int64(len(m.Pixels)))
	}
	return m, b.hold(int64(len(m.Pixels)))
}

// hold charges the request for an image, also for one that others hold.
func (b *Batch) hold(n int64) error {
	b.p.mu.Lock()
	defer b.p.mu.Unlock()
	if b.held+n > b.p.o.InFlight {
		return errorf("the images of the request exceed the limit of %d MiB of pixels", b.p.o.InFlight>>20)
	}
	if b.closed || b.p.inFlight+n > b.p.o.InFlight {
		return ErrBusy
	}
	b.p.inFlight += n
	b.held += n
	return nil
}

// A cache keeps values by the digest of what they were made of, those used last within a limit of bytes.
type cache[V any] struct {
	limit int64
	count int // of values; 0: any

	mu      sync.Mutex
	entries map[[sha256.Size]byte]*list.Element
	recent  *list.List // of entries, the last used first
	bytes   int64
}

type cacheEntry[V any] struct {
	key   [sha256.Size]byte
	value V
	bytes int64
}

func newCache[V any](limit int64, count int) *cache[V] {
	return &cache[V]{limit: limit, count: count, entries: map[[sha256.Size]byte]*list.Element{}, recent: list.New()}
}

func (c *cache[V]) get(key [sha256.Size]byte) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok {
		return v, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cacheEntry[V]).value, true
}

func (c *cache[V]) put(key [sha256.Size]byte, v V, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.entries[key]; ok || bytes > c.limit {
		return
	}
	c.entries[key] = c.recent.PushFront(&cacheEntry[V]{key, v, bytes})
	c.bytes += bytes
	for c.bytes > c.limit || c.count > 0 && len(c.entries) > c.count {
		last := c.recent.Back()
		e := c.recent.Remove(last).(*cacheEntry[V])
		delete(c.entries, e.key)
		c.bytes -= e.bytes
	}
}

func (c *cache[V]) size() (entries int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.bytes
}
