package engine

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/model"
	"splash/internal/prefixstore"
)

// portableFake is a fake whose checkpoints can be written to a store: a page is the hashes of its rows.
type portableFake struct{ *fake }

type portableBackend struct{ fakeBackend }

func (f portableFake) Backend() model.Backend { return portableBackend{fakeBackend{fake: f.fake}} }

const fakePage = 8 * model.PortablePage

func (portableBackend) PortableShape() (page, state int) { return fakePage, 8 }

func (b portableBackend) ExportPage(dst []byte, c model.Checkpoint, page int) error {
	for i, h := range b.saved[c][1+page*model.PortablePage : 1+(page+1)*model.PortablePage] {
		binary.LittleEndian.PutUint64(dst[8*i:], h)
	}
	return nil
}

func (b portableBackend) ExportState(dst []byte, c model.Checkpoint) (int, error) {
	binary.LittleEndian.PutUint64(dst, uint64(len(b.saved[c])))
	return 8, nil
}

func (b portableBackend) Import(tokens int) (model.Checkpoint, int64, error) {
	h := make([]uint64, tokens+1)
	h[0] = 1
	b.fake.saved = append(b.fake.saved, h)
	return model.Checkpoint(len(b.fake.saved) - 1), int64(8 * len(h)), nil
}

func (b portableBackend) ImportPage(c model.Checkpoint, page int, src []byte) error {
	for i := range model.PortablePage {
		b.saved[c][1+page*model.PortablePage+i] = binary.LittleEndian.Uint64(src[8*i:])
	}
	return nil
}

func (b portableBackend) ImportState(c model.Checkpoint, src []byte) error {
	if binary.LittleEndian.Uint64(src) != uint64(len(b.saved[c])) {
		return errors.New("another state")
	}
	return nil
}

func openStore(t *testing.T, dir string) *prefixstore.Store {
	t.Helper()
	s, err := prefixstore.Open(prefixstore.Options{PageTokens: model.PortablePage, Page: fakePage, State: 8, Quota: 64 << 20, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestStore: what memory cannot keep comes back from the store, and says the same.
func TestStore(t *testing.T) {
	f := newFake(97)
	store := openStore(t, "")
	e := New(portableFake{f}, Options{Context: 1 << 20, Cache: 12_000, Store: store})
	defer e.Close()
	var requests []Request
	for i := range 8 {
		requests = append(requests, Request{Prompt: prompt(200+50*i, uint64(i)), MaxTokens: 5})
	}
	for range 2 {
		for i, r := range requests {
			if got, _ := ask(t, e, r); !slices.Equal(got, text(t, r)) {
				t.Errorf("request %d says %v", i, got)
			}
		}
	}
	got, cached := ask(t, e, requests[0])
	if d := cmp.Diff(text(t, requests[0]), got); d != "" || cached != 192 {
		t.Errorf("%d cached, %s", cached, d)
	}
	s := e.Stats()
	if s.Cache.DiskHits < 8 || s.Cache.DiskTokens < 8*192 || s.Cache.Bytes > 12_000 || s.Disk == nil || s.Disk.Hits != s.Cache.DiskHits {
		t.Errorf("%+v %+v", s.Cache, s.Disk)
	}
	kept := 0
	for _, h := range f.saved {
		if h != nil {
			kept++
		}
	}
	if kept != s.Cache.Entries {
		t.Errorf("the backend keeps %d checkpoints, the engine knows %d", kept, s.Cache.Entries)
	}
	// An entry larger than memory may hold is used, and not kept.
	large := Request{Prompt: prompt(1400, 1), MaxTokens: 2}
	e.Close()
	e = New(portableFake{newFake(97)}, Options{Context: 1 << 20, Store: store})
	ask(t, e, large)
	e.prefixes.stash() // as an engine does whose backend goes
	e.Close()
	e = New(portableFake{newFake(97)}, Options{Context: 1 << 20, Cache: 1000, Store: store})
	defer e.Close()
	if got, cached := ask(t, e, large); cached != 1376 || !slices.Equal(got, text(t, large)) || e.Stats().Cache.Bytes > 1000 {
		t.Errorf("%d cached, %+v", cached, e.Stats().Cache)
	}
}

// TestWriteBehind: a store that lasts gets what is long enough ten seconds after it was kept, or at the end.
func TestWriteBehind(t *testing.T) {
	dir := t.TempDir()
	long := Request{Prompt: prompt(2100, 1), MaxTokens: 3}
	last := Request{Prompt: prompt(3000, 2), MaxTokens: 3}
	short := Request{Prompt: prompt(1000, 3), MaxTokens: 3}
	synctest.Test(t, func(t *testing.T) {
		e := New(portableFake{newFake(97)}, Options{Context: 1 << 20, Store: openStore(t, dir)})
		ask(t, e, long)
		time.Sleep(writtenAfter - time.Second)
		synctest.Wait()
		if s := e.Stats().Disk; s.States != 0 || !s.Persistent {
			t.Errorf("too soon: %+v", s)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := e.Stats().Disk; s.States != 1 || s.Written == 0 {
			t.Errorf("not written: %+v", s)
		}
		ask(t, e, last)
		ask(t, e, short)
		e.Close()
		if s := e.Stats().Disk; s.States != 2 {
			t.Errorf("at the end: %+v", s)
		}
		e.o.Store.Close()
	})
	e := New(portableFake{newFake(97)}, Options{Context: 1 << 20, Store: openStore(t, dir)})
	defer e.Close()
	for _, c := range []struct {
		r      Request
		cached int
	}{{long, 2080}, {last, 2976}, {short, 0}} {
		if got, cached := ask(t, e, c.r); cached != c.cached || !slices.Equal(got, text(t, c.r)) {
			t.Errorf("a prompt of %d tokens has %d cached, want %d", len(c.r.Prompt), cached, c.cached)
		}
	}
}
