//go:build cgo

package metal

import (
	"fmt"

	"splash/internal/model"
)

// A pagePool hands out pages of keys and values. A page's number is the same in every layer. Lanes and checkpoints share full
// pages; a lane that writes to a page others hold takes a copy of it first.
type pagePool struct {
	table    *Buffer // [lanes][width]
	width    int
	capacity int
	free     []uint32
	holders  []int32 // of each page: lanes and checkpoints
	kept     []int32 // of each page: checkpoints
}

func (p *pagePool) open(b *Backend) error {
	p.width = (b.layout.Context + model.RollbackRows + pageTokens - 1) / pageTokens
	return nil
}

func (p *pagePool) growTable(b *Backend, lanes int) error {
	larger, err := b.device.NewBuffer(4 * lanes * p.width)
	if err != nil {
		return err
	}
	if p.table != nil {
		b.moved()
		copy(larger.bytes, p.table.bytes)
		p.table.Free()
	}
	p.table = larger
	return nil
}

// pagesOf is the number of pages of so many tokens.
func pagesOf(tokens int) int { return (tokens + pageTokens - 1) / pageTokens }

// take returns a page that nobody holds, with one holder.
func (p *pagePool) take(b *Backend) (uint32, error) {
	if len(p.free) == 0 {
		if err := p.grow(b); err != nil {
			return 0, err
		}
	}
	page := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.holders[page] = 1
	return page, nil
}

// release takes a holder from each of the pages.
func (p *pagePool) release(pages []uint32) {
	for _, page := range pages {
		if p.holders[page]--; p.holders[page] == 0 {
			p.free = append(p.free, page)
		}
	}
}

// reserve gives a lane the pages for so many tokens, and makes those that its next rows are written to its own.
func (p *pagePool) reserve(b *Backend, slot, tokens int) error {
	l := b.lanes[slot]
	need := pagesOf(tokens)
	if need > p.width {
		return fmt.Errorf("metal: %d tokens in lane %d; the context is %d", tokens, slot, b.layout.Context)
	}
	for i := l.length / pageTokens; i < len(l.pages); i++ {
		if p.holders[l.pages[i]] == 1 {
			continue
		}
		page, err := p.copy(b, l.pages[i])
		if err != nil {
			return err
		}
		p.release(l.pages[i : i+1])
		l.pages[i] = page
		p.place(l, slot, i)
	}
	for len(l.pages) < need {
		page, err := p.take(b)
		if err != nil {
			return err
		}
		l.pages = append(l.pages, page)
		p.place(l, slot, len(l.pages)-1)
	}
	return nil
}

// place tells the kernels of a lane's page.
func (p *pagePool) place(l *lane, slot, i int) { view[uint32](p.table)[slot*p.width+i] = l.pages[i] }

// copy takes a page and gives it what another holds.
func (p *pagePool) copy(b *Backend, from uint32) (uint32, error) {
	to, err := p.take(b)
	if err != nil {
		return 0, err
	}
	p.move(b, int(to), int(from))
	return to, nil
}

// grow adds to the pages of every attention layer: some, so that they are not copied for each, and few, for they take memory that is
// counted for those that are held.
func (p *pagePool) grow(b *Backend) error {
	b.trim()
	n := p.capacity + max(pageStep, p.capacity/pageSlack)
	for i := range b.states {
		if s := &b.states[i]; s.paged {
			if err := b.grow(s, n); err != nil {
				return err
			}
		}
	}
	for page := n - 1; page >= p.capacity; page-- {
		p.free = append(p.free, uint32(page))
	}
	p.holders = append(p.holders, make([]int32, n-p.capacity)...)
	p.kept = append(p.kept, make([]int32, n-p.capacity)...)
	p.capacity = n
	return nil
}
