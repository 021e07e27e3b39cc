package prefixstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/flock"
)

const (
	testTokens = 4    // of a page
	testPage   = 5000 // bytes, two units of a slot
	testState  = 3000
	pageSlot   = 8192
	stateSlot  = 4096
)

func options(dir string) Options {
	return Options{PageTokens: testTokens, Page: testPage, State: testState, Quota: 1 << 20, Dir: dir, Wait: time.Millisecond}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fill makes bytes that depend on all tokens of a prefix.
func fill(data []byte, tokens []int32, salt byte) {
	h := sha256.New()
	h.Write([]byte{salt})
	binary.Write(h, binary.LittleEndian, tokens)
	r := rand.NewChaCha8([32]byte(h.Sum(nil)))
	r.Read(data)
}

// An entry is what belongs to tokens: what Put is given, and what Get must give.
type entry struct {
	tokens []int32
	get    bool
	wrong  string
}

func (e *entry) Page(i int, data []byte) error {
	return e.part(data, e.tokens[:(i+1)*testTokens], 'p', testPage)
}

func (e *entry) State(data []byte) (int, error) {
	n := testState - len(e.tokens)%7
	if e.get && len(data) != n {
		e.wrong = fmt.Sprintf("a state of %d bytes", len(data))
	}
	return n, e.part(data[:n], e.tokens, 's', n)
}

func (e *entry) part(data []byte, tokens []int32, salt byte, n int) error {
	want := make([]byte, n)
	fill(want, tokens, salt)
	if !e.get {
		copy(data, want)
	} else if !bytes.Equal(data, want) {
		e.wrong = fmt.Sprintf("the %c of %d tokens is another", salt, len(tokens))
	}
	return nil
}

func put(t testing.TB, s *Store, tokens []int32) {
	t.Helper()
	if err := s.Put(tokens, &entry{tokens: tokens}); err != nil {
		t.Fatal(err)
	}
}

// get reads an entry, which must be right where it is there.
func get(t testing.TB, s *Store, tokens []int32) bool {
	t.Helper()
	e := &entry{tokens: tokens, get: true}
	err := s.Get(tokens, e)
	if err != nil && !errors.Is(err, ErrNotStored) || e.wrong != "" {
		t.Fatalf("%d tokens: %v, %s", len(tokens), err, e.wrong)
	}
	return err == nil
}

func prompt(seed uint64, pages int) []int32 {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make([]int32, pages*testTokens)
	for i := range p {
		p[i] = r.Int32N(1000)
	}
	return p
}

// TestStore stores prompts that begin alike: their pages are there once, and the longest state that a prompt goes on from
// is found.
func TestStore(t *testing.T) {
	s := open(t, options(""))
	a := prompt(1, 10)
	b := append(slices.Clone(a[:6*testTokens]), prompt(2, 4)...)
	put(t, s, a)
	put(t, s, a) // again, for nothing
	put(t, s, b)
	put(t, s, a[:3*testTokens])
	if st := s.Stats(); st.Pages != 14 || st.States != 3 || st.Used != 14*pageSlot+3*stateSlot || st.File != st.Used || st.Persistent || st.Written > 14*testPage+3*testState {
		t.Errorf("%+v", st)
	}
	for _, c := range []struct {
		prompt []int32
		want   int
	}{
		{append(slices.Clone(a), 1, 2), 40},
		{a, 12}, // all of it but not the last: there is nothing to go on with
		{append(slices.Clone(b), 7), 40},
		{append(slices.Clone(a[:30]), 9, 9, 9), 12},
		{a[:12], 0},
		{a[:13], 12},
		{prompt(3, 4), 0},
		{nil, 0},
	} {
		if got := s.Longest(c.prompt); got != c.want {
			t.Errorf("%d tokens go on from %d, want %d", len(c.prompt), got, c.want)
		}
	}
	for _, p := range [][]int32{a, b, a[:12]} {
		if !get(t, s, p) || !s.Has(p) {
			t.Errorf("%d tokens are not there", len(p))
		}
	}
	if get(t, s, a[:16]) || get(t, s, b[:12+testTokens]) || s.Has(a[:16]) {
		t.Error("pages without a state are an entry")
	}
	if err := s.Put(a[:5], &entry{}); err == nil {
		t.Error("half a page is stored")
	}
	failing := errors.New("no export")
	if err := s.Put(prompt(9, 3), broken{failing}); !errors.Is(err, failing) {
		t.Error(err)
	}
	if err := s.Get(a, broken{failing}); !errors.Is(err, failing) || !errors.Is(err, ErrNotStored) {
		t.Error(err)
	}
	if st := s.Stats(); st.Pages != 14 || st.States != 3 || st.Hits != 3 || st.Corrupt != 0 || st.Failed {
		t.Errorf("%+v", st)
	}
}

type broken struct{ err error }

func (b broken) Page(int, []byte) error    { return b.err }
func (b broken) State([]byte) (int, error) { return 0, b.err }

// TestQuota: what was used longest ago makes room, and files never grow past the quota.
func TestQuota(t *testing.T) {
	o := options("")
	o.Quota = 10*pageSlot + 4*stateSlot
	s := open(t, o)
	for i := range 4 {
		put(t, s, prompt(uint64(i), 2))
	}
	get(t, s, prompt(0, 2)) // which makes the second the oldest
	put(t, s, prompt(4, 2))
	for i, want := range []bool{true, false, true, true, true} {
		if got := get(t, s, prompt(uint64(i), 2)); got != want {
			t.Errorf("entry %d is there: %v", i, got)
		}
	}
	if err := s.Put(prompt(5, 12), &entry{tokens: prompt(5, 12)}); !errors.Is(err, ErrTooLarge) || !s.Has(prompt(0, 2)) {
		t.Error(err)
	}
	// An entry that goes on from the oldest keeps what it needs of it.
	long := append(prompt(0, 2), prompt(6, 7)...)
	put(t, s, long)
	if !get(t, s, long) {
		t.Error("a longer entry is not there")
	}
	random := rand.New(rand.NewPCG(7, 8))
	var live [][]int32
	for range 500 {
		p := prompt(random.Uint64N(5), 1+random.IntN(4))
		p = append(p, prompt(100+random.Uint64N(3), random.IntN(4))...)
		if random.IntN(3) == 0 && len(live) > 0 {
			get(t, s, live[random.IntN(len(live))])
			continue
		}
		put(t, s, p)
		live = append(live, p)
		if !get(t, s, p) {
			t.Fatal("what was just stored is not there")
		}
		st := s.Stats()
		if st.File > o.Quota || st.Used > st.File || st.Pages != len(s.index) {
			t.Fatalf("%+v, %d in the index", st, len(s.index))
		}
		holds(t, s)
	}
	for _, st := range s.all() {
		s.drop(st)
	}
	if s.publish(); len(s.index) != 0 || s.Stats().Used != 0 {
		t.Errorf("%d pages are left, %+v", len(s.index), s.Stats())
	}
}

// holds checks that the pages' references are those of their states and of the pages after them.
func holds(t *testing.T, s *Store) {
	t.Helper()
	refs, slots := map[*page]int{}, map[int]bool{}
	for _, p := range s.index {
		if p.state != nil {
			refs[p]++
		}
		if p.parent != nil {
			refs[p.parent]++
			if s.index[p.parent.key] != p.parent {
				t.Fatal("a page goes on from one that is not there")
			}
		}
		if slots[p.slot] || p.slot >= s.pages.count || slices.Contains(s.pages.free, p.slot) {
			t.Fatalf("slot %d is not a page's alone", p.slot)
		}
		slots[p.slot] = true
	}
	for _, p := range s.index {
		if refs[p] != p.refs || p.refs == 0 {
			t.Fatalf("a page is needed by %d, which it counts as %d", refs[p], p.refs)
		}
	}
}

// TestLasting opens a directory again and again.
func TestLasting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	a, b := prompt(1, 5), append(prompt(1, 3), prompt(2, 3)...)
	s := open(t, options(dir))
	put(t, s, a)
	put(t, s, b)
	if !s.Stats().Persistent {
		t.Error("the store does not last")
	}
	if runtime.GOOS != "windows" {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
	s.Close()
	s = open(t, options(dir))
	if st := s.Stats(); st.TakenBack != 2 || st.Pages != 8 || st.States != 2 {
		t.Errorf("%+v", st)
	}
	holds(t, s)
	if !get(t, s, a) || !get(t, s, b) {
		t.Error("an entry is not there")
	}
	put(t, s, prompt(3, 2))
	s.Close()
	// A smaller quota keeps what was stored last.
	o := options(dir)
	o.Quota = 3*pageSlot + 3*stateSlot
	s = open(t, o)
	if get(t, s, a) || s.Stats().File > o.Quota {
		t.Errorf("a smaller quota is passed: %+v", s.Stats())
	}
	s.Close()
	// Pages of another size are none.
	o = options(dir)
	o.Page++
	if s = open(t, o); s.Stats().TakenBack != 0 || len(s.index) != 0 {
		t.Errorf("%+v", s.Stats())
	}
}

// TestOneProcess: while a store has the directory, another keeps its entries elsewhere.
func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	first := open(t, options(dir))
	put(t, first, prompt(1, 2))
	var lines []string
	o := options(dir)
	o.Log = func(line string) { lines = append(lines, line) }
	second := open(t, o)
	if second.Stats().Persistent || get(t, second, prompt(1, 2)) || len(lines) != 2 || !strings.Contains(lines[1], "this one keeps its own") {
		t.Errorf("%+v %q", second.Stats(), lines)
	}
	put(t, second, prompt(2, 2))
	if !get(t, second, prompt(2, 2)) {
		t.Error("its entry is not there")
	}
	first.Close()
	if third := open(t, options(dir)); !third.Stats().Persistent || !get(t, third, prompt(1, 2)) {
		t.Error("the directory is not free")
	}
}

// TestCorruption changes every part of the files: what does not verify is a miss, everything else stays, and nothing wrong
// is ever read.
func TestCorruption(t *testing.T) {
	prompts := [][]int32{prompt(1, 4), append(prompt(1, 2), prompt(2, 2)...), prompt(3, 3)}
	build := func(t *testing.T) string {
		dir := t.TempDir()
		s := open(t, options(dir))
		for _, p := range prompts {
			put(t, s, p)
		}
		s.Close()
		return dir
	}
	count := func(t *testing.T, dir string) (n int, st Stats) {
		s := open(t, options(dir))
		defer s.Close()
		for _, p := range prompts {
			if get(t, s, p) {
				n++
			}
			holds(t, s)
		}
		for _, p := range prompts { // and it can be stored again
			put(t, s, p)
			if !get(t, s, p) {
				t.Error("what was stored again is not there")
			}
		}
		holds(t, s)
		return n, s.Stats()
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"kv.slots", "kv.records", "state.slots", "state.records"} {
		t.Run(name, func(t *testing.T) {
			for range 12 {
				dir := build(t)
				path := filepath.Join(dir, name)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				what := random.IntN(3)
				switch at := random.IntN(len(data)); what {
				case 0:
					data[at] ^= 1 << random.IntN(8)
				case 1:
					data = data[:at]
				case 2:
					clear(data[at:])
				}
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				if n, _ := count(t, dir); n == len(prompts) && what == 0 && strings.HasSuffix(name, "records") {
					t.Error("a record that was changed still counts")
				}
			}
		})
	}
	dir := build(t)
	if n, st := count(t, dir); n != len(prompts) || st.Corrupt != 0 {
		t.Errorf("%d of %d entries are there: %+v", n, len(prompts), st)
	}
	// The first page of two entries.
	data, err := os.ReadFile(filepath.Join(dir, "kv.slots"))
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1
	if err := os.WriteFile(filepath.Join(dir, "kv.slots"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, st := count(t, dir); n != 1 || st.Corrupt != 1 {
		t.Errorf("%d entries are there: %+v", n, st)
	}
}

// A frail file fails its writes, or its reads.
type frail struct {
	file
	writes, reads *int // that still work
}

var errFull = errors.New("no space left on device")

func (f frail) WriteAt(p []byte, at int64) (int, error) {
	if *f.writes--; *f.writes < 0 {
		n, _ := f.file.WriteAt(p[:len(p)/2], at)
		return n, errFull
	}
	return f.file.WriteAt(p, at)
}

func (f frail) ReadAt(p []byte, at int64) (int, error) {
	if *f.reads--; *f.reads < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return f.file.ReadAt(p, at)
}

// TestFailedWrites: a write that fails is the last one, at whatever point; what was stored before is still read.
func TestFailedWrites(t *testing.T) {
	for at := range 15 {
		writes, reads := at, 1<<30
		var lines []string
		o := options("")
		o.Log = func(line string) { lines = append(lines, line) }
		o.create = func(name string) (file, error) {
			f, err := temporary(name)
			return frail{f, &writes, &reads}, err
		}
		s := open(t, o)
		stored := map[int]bool{}
		for i := range 3 {
			if s.Put(prompt(uint64(i), 1), &entry{tokens: prompt(uint64(i), 1)}) == nil {
				stored[i] = true
			}
		}
		if len(stored) != at/6 || !s.Stats().Failed || len(lines) != 1 || !strings.Contains(lines[0], "no space left") {
			t.Errorf("%d writes: %d stored, %+v, %q", at, len(stored), s.Stats(), lines)
		}
		if err := s.Put(prompt(9, 1), &entry{tokens: prompt(9, 1)}); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		for i := range 3 {
			if get(t, s, prompt(uint64(i), 1)) != stored[i] {
				t.Errorf("%d writes: entry %d, stored %v", at, i, stored[i])
			}
		}
		holds(t, s)
	}
	// A read that fails is a miss.
	writes, reads := 1<<30, 0
	o := options("")
	o.create = func(name string) (file, error) {
		f, err := temporary(name)
		return frail{f, &writes, &reads}, err
	}
	s := open(t, o)
	put(t, s, prompt(1, 2))
	if get(t, s, prompt(1, 2)) || s.Longest(append(prompt(1, 2), 1)) != 0 {
		t.Error("an entry that cannot be read is there")
	}
	reads = 100
	put(t, s, prompt(1, 2))
	if !get(t, s, prompt(1, 2)) {
		t.Error("it is not stored again")
	}
}

// TestPause: after enough of an hour's writes there are none until the next.
func TestPause(t *testing.T) {
	now := time.Unix(1e9, 0)
	o := options(t.TempDir())
	o.Now = func() time.Time { return now }
	s := open(t, o)
	put(t, s, prompt(1, 1))
	s.since = hourlyBytes
	if err := s.Put(prompt(2, 1), &entry{tokens: prompt(2, 1)}); !errors.Is(err, ErrPaused) {
		t.Error(err)
	}
	now = now.Add(time.Hour)
	put(t, s, prompt(2, 1))
}

func TestClean(t *testing.T) {
	root := t.TempDir()
	name := func(c string) string { return filepath.Join(root, strings.Repeat(c, 64)) }
	for _, c := range []string{"a", "b", "c"} {
		s := open(t, options(name(c)))
		put(t, s, prompt(1, 1))
		s.Close()
	}
	for _, other := range []string{"notes", strings.Repeat("d", 64)} { // which no store made
		if err := os.Mkdir(filepath.Join(root, other), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	held, err := flock.Try(filepath.Join(name("b"), lockName))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Unlock()
	if err := os.WriteFile(filepath.Join(name("c"), "more"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Clean(root, time.Now().Add(13*24*time.Hour)); err != nil {
		t.Error(err)
	}
	left := func() (names []string) {
		entries, _ := os.ReadDir(root)
		for _, e := range entries {
			names = append(names, e.Name()[:1])
		}
		return names
	}
	if d := cmp.Diff([]string{"a", "b", "c", "d", "n"}, left()); d != "" {
		t.Error(d)
	}
	if err := Clean(root, time.Now().Add(15*24*time.Hour)); err == nil {
		t.Error("a directory with something else in it is removed")
	}
	if d := cmp.Diff([]string{"b", "c", "d", "n"}, left()); d != "" {
		t.Error(d)
	}
	if err := Clean(filepath.Join(root, "none"), time.Now()); err != nil {
		t.Error(err)
	}
}

func TestRefusedOptions(t *testing.T) {
	for _, o := range []Options{{}, {PageTokens: 1, Page: 1}, {PageTokens: 1, Page: 1, Quota: -1}, {PageTokens: 1, Quota: 1}, {PageTokens: 1, Page: 1, State: -1, Quota: 1}} {
		if _, err := Open(o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

func TestRecord(t *testing.T) {
	want := record{kind: kindState, tokens: 1 << 20, length: 7, crc: 9, order: 1 << 40}
	want.key[3], want.parent[31] = 1, 2
	b := want.encode()
	got, ok := decodeRecord(b[:])
	if d := cmp.Diff(want, got, cmp.AllowUnexported(record{})); d != "" || !ok {
		t.Error(d)
	}
	for i := range b {
		b[i] ^= 0x10
		if _, ok := decodeRecord(b[:]); ok {
			t.Errorf("a record with another byte %d is one", i)
		}
		b[i] ^= 0x10
	}
}

// FuzzTakeBack opens a directory whose records are anything: there is an error or a store whose books are right.
func FuzzTakeBack(f *testing.F) {
	good := record{kind: kindPage, key: next(digest{}, prompt(1, 1)), tokens: testTokens, length: testPage}
	second := record{kind: kindPage, key: next(good.key, prompt(2, 1)), parent: good.key, tokens: 2 * testTokens, length: testPage}
	st := record{kind: kindState, key: second.key, tokens: 2 * testTokens, length: 5}
	join := func(list ...record) (b []byte) {
		for _, r := range list {
			e := r.encode()
			b = append(b, e[:]...)
		}
		return b
	}
	f.Add(join(good, second), join(st))
	f.Add(join(second, good, good), join(st, st))
	f.Add(join(second), join(st))
	f.Add([]byte("SPFX"), []byte{})
	f.Fuzz(func(t *testing.T, pages, states []byte) {
		if len(pages) > 4096 || len(states) > 4096 {
			return
		}
		files := map[string]*memory{
			"kv.records": {sealed(pages)}, "state.records": {sealed(states)}, "kv.slots": {make([]byte, 4*pageSlot)},
			"state.slots": {make([]byte, stateSlot)},
		}
		o := options("lasting")
		o.create = func(name string) (file, error) { return files[name], nil }
		s, err := Open(o)
		if err != nil {
			return
		}
		defer s.Close()
		for _, p := range s.index {
			if p.parent != nil && p.tokens != p.parent.tokens+testTokens || p.parent == nil && p.tokens != testTokens {
				t.Errorf("a page of %d tokens", p.tokens)
			}
		}
		p := prompt(1, 2)
		s.Longest(p)
		// Pages that were taken back do not verify, the first time they are needed.
		for range 3 {
			if s.Put(p, &entry{tokens: p}) != nil || s.Get(p, &entry{tokens: p, get: true}) == nil {
				return
			}
		}
		t.Error("what was stored is not there")
	})
}

// A memory is a file in memory.
type memory struct{ data []byte }

func (m *memory) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(m.data).ReadAt(p, at)
}
func (m *memory) Size() (int64, error) { return int64(len(m.data)), nil }
func (m *memory) Close() error         { return nil }

func (m *memory) Truncate(size int64) error {
	if more := int(size) - len(m.data); more > 0 {
		m.data = append(m.data, make([]byte, more)...)
	}
	m.data = m.data[:size]
	return nil
}

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	m.Truncate(max(int64(len(m.data)), at+int64(len(p))))
	return copy(m.data[at:], p), nil
}

// sealed makes the checksums of records right, which a fuzzer would hardly find.
func sealed(b []byte) []byte {
	b = slices.Clone(b)
	for at := 0; at+recordSize <= len(b); at += recordSize {
		r, _ := decodeUnsealed(b[at : at+recordSize])
		e := r.encode()
		copy(b[at:], e[:])
	}
	return b
}

func decodeUnsealed(b []byte) (record, bool) {
	le := binary.LittleEndian
	r := record{kind: kind(le.Uint32(b[4:])), crc: le.Uint32(b[80:]), order: le.Uint64(b[88:])}
	copy(r.key[:], b[8:])
	copy(r.parent[:], b[40:])
	r.tokens, r.length = int(int32(le.Uint32(b[72:]))), int(int32(le.Uint32(b[76:])))
	return r, true
}
