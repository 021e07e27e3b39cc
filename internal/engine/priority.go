package engine

import (
	"fmt"
	"slices"
)

// A Priority says which requests go before others.
type Priority int8

const (
	Background Priority = iota - 1
	Normal
	Foreground
)

func (p Priority) String() string {
	switch p {
	case Background:
		return "background"
	case Normal:
		return "normal"
	case Foreground:
		return "foreground"
	}
	return fmt.Sprintf("priority %d", int(p))
}

// before orders requests: by falling priority, then as they came.
func before(a, b *Stream) int {
	switch {
	case a.request.Priority != b.request.Priority:
		return int(b.request.Priority) - int(a.request.Priority)
	case a.id < b.id:
		return -1
	case a.id > b.id:
		return 1
	}
	return 0
}

// insert puts a stream in its place. A queue of one priority only grows at its end.
func insert(queue []*Stream, s *Stream) []*Stream {
	at := len(queue)
	for at > 0 && before(s, queue[at-1]) < 0 {
		at--
	}
	return slices.Insert(queue, at, s)
}
