package prefixstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"splash/internal/flock"
)

// lockName is the file whose lock a process holds that uses a directory, and whose time says when it was used.
const lockName = "lock"

// unusedTime is how long a directory stays that no one uses.
const unusedTime = 14 * 24 * time.Hour

// openFiles opens the files: those of the directory, or, without one or where another process keeps it, unnamed ones.
func (s *Store) openFiles() error {
	create := s.o.create
	if create == nil {
		create = temporary
		persistent, err := s.lock()
		if err != nil {
			return err
		}
		if persistent {
			create = s.named
			s.stats.Persistent = true
		}
	} else {
		s.stats.Persistent = s.o.Dir != ""
	}
	for _, k := range []*slots{&s.pages, &s.states} {
		var err error
		if k.data, err = create(k.name + ".slots"); err != nil {
			return fmt.Errorf("prefix store: %w", err)
		}
		if k.records, err = create(k.name + ".records"); err != nil {
			return fmt.Errorf("prefix store: %w", err)
		}
	}
	return nil
}

// lock takes the directory. It reports false where there is none, or another process keeps it.
func (s *Store) lock() (bool, error) {
	if s.o.Dir == "" {
		return false, nil
	}
	if err := os.MkdirAll(s.o.Dir, 0o700); err != nil {
		return false, fmt.Errorf("prefix store: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Wait)
	defer cancel()
	path := filepath.Join(s.o.Dir, lockName)
	lock, err := flock.Acquire(ctx, path, func() {
		s.o.Log("Prefix cache · another process uses " + s.o.Dir + "; waiting")
	})
	if errors.Is(err, context.DeadlineExceeded) {
		s.o.Log("Prefix cache · another process uses " + s.o.Dir + "; this one keeps its own until it ends")
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("prefix store: %w", err)
	}
	s.release = func() {
		s.stamp(path)
		lock.Unlock()
	}
	s.stamp(path)
	return true, nil
}

// stamp notes that the directory is used.
func (s *Store) stamp(path string) {
	now := s.o.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		s.o.Log("Prefix cache · " + err.Error())
	}
}

// A diskFile is a file of the file system.
type diskFile struct {
	*os.File
	remove string // when it is closed, where it could not be before
}

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f diskFile) Close() error {
	err := f.File.Close()
	if f.remove != "" {
		err = errors.Join(err, os.Remove(f.remove))
	}
	return err
}

func (s *Store) named(name string) (file, error) {
	f, err := os.OpenFile(filepath.Join(s.o.Dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{File: f}, nil
}

// temporary is a file without a name, where the system has such.
func temporary(name string) (file, error) {
	f, err := os.CreateTemp("", "splash-*-"+name)
	if err != nil {
		return nil, err
	}
	if os.Remove(f.Name()) != nil {
		return diskFile{f, f.Name()}, nil
	}
	return diskFile{File: f}, nil
}

// takeBack finds what the directory's records say is there. Slots are verified when they are read.
func (s *Store) takeBack() error {
	pages, err := s.pages.scan(s.o.Page)
	if err != nil {
		return err
	}
	states, err := s.states.scan(s.o.State)
	if err != nil {
		return err
	}
	slices.SortFunc(pages, func(a, b found) int { return cmp.Compare(a.tokens, b.tokens) })
	for _, r := range pages {
		parent := s.index[r.parent]
		first := r.parent == digest{}
		right := first && r.tokens == s.o.PageTokens || parent != nil && r.tokens == parent.tokens+s.o.PageTokens
		if !right || s.index[r.key] != nil || r.length != s.o.Page {
			s.pages.give(r.slot)
			continue
		}
		s.index[r.key] = &page{key: r.key, parent: parent, tokens: r.tokens, slot: r.slot, crc: r.crc}
		if parent != nil {
			parent.refs++
		}
	}
	for _, r := range states {
		at := s.index[r.key]
		if at == nil || at.state != nil || at.tokens != r.tokens {
			s.states.give(r.slot)
			continue
		}
		at.state = &state{at: at, slot: r.slot, length: r.length, crc: r.crc, used: r.order}
		at.refs++
		s.order = max(s.order, r.order)
		s.stats.TakenBack++
	}
	s.prune()
	return s.fit()
}

// prune drops the pages that no state needs.
func (s *Store) prune() {
	var leaves []*page
	for _, p := range s.index {
		if p.refs == 0 {
			leaves = append(leaves, p)
		}
	}
	for _, p := range leaves {
		p.refs = 1
		s.unref(p)
	}
}

// fit makes what was taken back fit a quota that may have been larger.
func (s *Store) fit() error {
	s.pages.shrink()
	s.states.shrink()
	for s.pages.bytes()+s.states.bytes() > s.o.Quota {
		oldest := s.oldest()
		if oldest == nil {
			break
		}
		s.drop(oldest)
		s.pages.shrink()
		s.states.shrink()
	}
	if s.pages.failed || s.states.failed {
		return errors.New("prefix store: the files cannot be cut")
	}
	return nil
}

// found is a record and its slot.
type found struct {
	record
	slot int
}

// scan reads the records. Slots without one, or of another kind or size, are free, as are those that the data ends before.
func (s *slots) scan(most int) ([]found, error) {
	size, err := s.records.Size()
	if err != nil {
		return nil, err
	}
	there, err := s.data.Size()
	if err != nil {
		return nil, err
	}
	s.count = int(size / recordSize)
	var list []found
	r := io.NewSectionReader(s.records, 0, size)
	b := make([]byte, recordSize)
	for slot := range s.count {
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("prefix store: read record %d of %s: %w", slot, s.name, err)
		}
		rec, ok := decodeRecord(b)
		if !ok || rec.kind != s.kind || rec.length > most || int64(slot)*s.size+int64(rec.length) > there {
			s.free = append(s.free, slot)
			continue
		}
		list = append(list, found{rec, slot})
	}
	slices.Reverse(s.free)
	return list, nil
}

// namespace is the form of the directories that Clean looks at.
var namespace = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Clean removes the directories of stores below root that no one has used for two weeks.
func Clean(root string, now time.Time) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.IsDir() && namespace.MatchString(e.Name()) {
			errs = append(errs, clean(filepath.Join(root, e.Name()), now))
		}
	}
	return errors.Join(errs...)
}

func clean(dir string, now time.Time) error {
	path := filepath.Join(dir, lockName)
	info, err := os.Stat(path)
	if err != nil || now.Sub(info.ModTime()) < unusedTime {
		return nil
	}
	lock, err := flock.Try(path)
	if errors.Is(err, flock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Unlock()
	var errs []error
	for _, name := range []string{"kv.slots", "kv.records", "state.slots", "state.records", lockName} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, os.Remove(dir))...)
}
