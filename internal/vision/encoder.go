package vision

import (
	"container/list"
	"context"
	"sync"
)

// cacheBytes bounds the rows that are kept of images.
const cacheBytes = 256 << 20

// A Digest identifies an image.
type Digest = [32]byte

// An Encoder makes rows of images, one image at a time, and keeps those used last. It is safe for concurrent use.
type Encoder struct {
	tower *Tower
	limit int64
	turn  chan struct{} // holds the turn to encode

	mu      sync.Mutex
	kept    map[Digest]*list.Element
	recent  *list.List // of keptRows, the last used first
	bytes   int64
	encodes int64
	reuses  int64
}

type keptRows struct {
	digest Digest
	rows   []float32
}

// NewEncoder returns an encoder of the tower.
func NewEncoder(t *Tower) *Encoder {
	e := &Encoder{
		tower: t, limit: cacheBytes, turn: make(chan struct{}, 1), kept: map[Digest]*list.Element{}, recent: list.New(),
	}
	e.turn <- struct{}{}
	return e
}

// Encode returns the rows of an image (Tower.Encode), which must not be changed. It waits for the images before it, and
// returns early with the context's cause.
func (e *Encoder) Encode(ctx context.Context, d Digest, pixels []byte, gridH, gridW int) ([]float32, error) {
	if rows := e.find(d); rows != nil {
		return rows, nil
	}
	select {
	case <-e.turn:
		defer func() { e.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if rows := e.find(d); rows != nil { // another request has brought the same image
		return rows, nil
	}
	rows, err := e.tower.Encode(ctx, pixels, gridH, gridW)
	if err == nil {
		e.keep(d, rows)
	}
	return rows, err
}

func (e *Encoder) find(d Digest) []float32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.kept[d]
	if !ok {
		return nil
	}
	e.reuses++
	e.recent.MoveToFront(at)
	return at.Value.(*keptRows).rows
}

func (e *Encoder) keep(d Digest, rows []float32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.encodes++
	size := int64(4 * len(rows))
	if _, ok := e.kept[d]; ok || size > e.limit {
		return
	}
	e.kept[d] = e.recent.PushFront(&keptRows{d, rows})
	e.bytes += size
	for e.bytes > e.limit {
		last := e.recent.Remove(e.recent.Back()).(*keptRows)
		delete(e.kept, last.digest)
		e.bytes -= int64(4 * len(last.rows))
	}
}

// Stats are the figures of an encoder.
type Stats struct {
	Encodes, Reuses int64 // images encoded, and taken from those kept
	Weights         int64 // bytes of the tower
	Kept            int64 // bytes of rows
}

// Stats returns the figures as they are now.
func (e *Encoder) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Stats{Encodes: e.encodes, Reuses: e.reuses, Weights: e.tower.Bytes(), Kept: e.bytes}
}
