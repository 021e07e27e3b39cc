// Package media makes a vision tower's pixels of the images and documents that requests hold: it decodes data URLs and
// PDFs, turns and scales images as the model was taught, and keeps what it prepared for the next turn of a conversation.
//
// What it reads is written by strangers. Every count is held to a limit before anything of its size is allocated, and
// decoders share a fixed amount of memory.
package media

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of what a request may hold.
const (
	MaxImages       = 64        // pages of documents among them
	MaxFileBytes    = 32 << 20  // of an image
	MaxSourcePixels = 32 << 20  // of an image, before it is scaled
	MaxAspect       = 200       // the longer side over the shorter
	MinPixels       = 65_536    // of a prepared image, as far as the most allows
	MaxPixels       = 4_194_304 // of a prepared image
)

// Patch is the side of a tower's patch, and factor that of a token, in pixels.
const (
	Patch  = 16
	factor = 2 * Patch
)

// An Error is what a request did wrong.
type Error struct{ msg string }

func (e *Error) Error() string { return e.msg }

func errorf(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

// ErrBusy says that images of other requests take all the memory there is for them.
var ErrBusy = errors.New("in-flight image memory budget is full")

// Errors that tests and callers compare.
var (
	errNotData = errorf("only data: image URLs are supported")
	errTooMany = errorf("a request may hold at most %d images, pages of PDFs counted", MaxImages)
)

// An Image is an image as a vision tower reads it. It is not changed once it is made.
type Image struct {
	GridH, GridW int    // patches, both even
	Pixels       []byte // RGB, row after row: 16 GridH rows of 16 GridW pixels
	Digest       [sha256.Size]byte
}

func newImage(width, height int, pixels []byte) *Image {
	m := &Image{GridH: height / Patch, GridW: width / Patch, Pixels: pixels}
	m.Digest = digest(m.GridH, m.GridW, pixels)
	return m
}

// digest identifies an image: the SHA-256 of its grid as two little-endian 32-bit numbers, height first, and its pixels.
func digest(gridH, gridW int, pixels []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	var grid [8]byte
	binary.LittleEndian.PutUint32(grid[:4], uint32(gridH))
	binary.LittleEndian.PutUint32(grid[4:], uint32(gridW))
	h.Write(grid[:])
	h.Write(pixels)
	h.Sum(sum[:0])
	return sum
}

// Tokens is the number of tokens that the image takes in a prompt.
func (m *Image) Tokens() int { return m.GridH / 2 * (m.GridW / 2) }

// prepare makes an Image of an image file.
func (p *Preparer) prepare(ctx context.Context, file []byte) (*Image, error) {
	h, err := readHeader(file)
	if err != nil {
		return nil, err
	}
	width, height, err := targetSize(h.width, h.height, p.o.MaxPixels)
	if err != nil {
		return nil, err
	}
	room := int64(h.width) * int64(h.height) * decodeBytes
	if err := p.decoding.Acquire(ctx, room); err != nil {
		return nil, context.Cause(ctx)
	}
	defer p.decoding.Release(room)
	canvas, err := h.decode(file)
	if err != nil {
		return nil, err
	}
	if o := h.orientation(file); o.turns() {
		width, height = height, width
		canvas = canvas.oriented(o)
	} else if o != upright {
		canvas = canvas.oriented(o)
	}
	return newImage(width, height, resize(canvas, width, height)), nil
}
