package cpu

import "unsafe"

// A tile's rows are too many streams for a processor to read ahead of by itself, so kernels fetch: each of them, on its way,
// as many bytes as it multiplies, of what its worker multiplies next. That is the tile behind it in the file, as a rule; at
// the end of a worker's share it is where it began what came after this task in the last pass.
//
// A core drops fetches while too many of its lines are under way, and some (AMD's) those to the second cache whose page it has
// yet to look up. A dropped line is waited for when it is multiplied. So the kernels for eight rows, of most formats, and
// for a single one, of Q8_0, fetch twice: from farBytes beyond the next tile on to the second cache, and from the next tile
// on, where a line that has come costs nothing, to the first.
const farBytes = 8192

// address is where a row lies, or would, for kernels to fetch from: it is not read through.
func (m *matrix) address(row int) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(m.stored.Data))) + uintptr(row*(len(m.stored.Data)/m.rows))
}

// next is where what a worker multiplies after the tiles before tile i lies, which is in a span from number at on.
func (t *productTask) next(w, i, at int) uintptr {
	if _, end := t.bounds(w); i == end || i == t.tiles {
		return t.shares.after(w)
	}
	return t.address(i, at)
}

// bounds are the tiles of a worker's share.
func (t *productTask) bounds(w int) (first, end int) {
	first, end = t.b.pool.bounds(w, call{parts: t.tiles / t.step})
	return first * t.step, end * t.step
}

func (t *productTask) address(i, at int) uintptr {
	s := &t.spans[t.spanOf(i, at)]
	return s.p.m.address((s.tile + i - s.before) * t.b.k.lanes)
}

// spanOf is the span of a tile, which is at or one behind it.
func (t *productTask) spanOf(i, at int) int {
	for at+1 < len(t.spans) && t.spans[at+1].before <= i {
		at++
	}
	return at
}

// shares are where the workers' shares of the products of a kind of pass lay the last time, task after task: the next such
// pass has the same ones, or, where experts are chosen, some of them.
type shares struct {
	workers int
	number  int       // of the task under way
	starts  []uintptr // [tasks][workers]
}

// begin notes the shares of a task.
func (s *shares) begin(t *productTask) {
	s.workers = t.b.pool.workers
	for w := range s.workers {
		at := s.number*s.workers + w
		if at == len(s.starts) {
			s.starts = append(s.starts, 0)
		}
		// Workers read what lies beside it, so it is left alone where it is right.
		if first, end := t.bounds(w); first < end {
			if start := t.address(first, 0); s.starts[at] != start {
				s.starts[at] = start
			}
		}
	}
}

// after is where the share of a worker lies in the next task, or after the last one in the first.
func (s *shares) after(w int) uintptr {
	if at := (s.number+1)*s.workers + w; at < len(s.starts) {
		return s.starts[at]
	}
	return s.starts[w]
}
