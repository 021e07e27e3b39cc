package planner

import (
	"context"
	"fmt"
	"unsafe"
)

// BuildImages makes the images of a plan in memory, for weights that no file holds and tests. They start on a page, as
// mapped ones do.
func BuildImages(ctx context.Context, plan *ImagePlan, w Weights) (*Images, error) {
	return new(ImageMaker).Build(ctx, plan, w)
}

// alignedBytes is zeros that start at a multiple of the largest page a system has.
func alignedBytes(size int64) []byte {
	b := make([]byte, size+sectionAlignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % sectionAlignment
	return b[skip:][:size:size]
}

// A memoryWriter is memory that is written at offsets.
type memoryWriter []byte

func (m memoryWriter) WriteAt(p []byte, at int64) (int, error) {
	if at < 0 || at > int64(len(m)) || len(p) > len(m)-int(at) {
		return 0, fmt.Errorf("%d bytes at %d of %d", len(p), at, len(m))
	}
	return copy(m[at:], p), nil
}
