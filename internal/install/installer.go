package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"splash/internal/flock"
	"splash/internal/hub"
)

// An Installer installs models below one models directory. Its fields are set before the first call.
type Installer struct {
	Hub    *hub.Client
	Models string            // the models directory
	Check  Checker           // nil: Engine
	Log    func(line string) // nil: dropped
}

func (in *Installer) check() Checker {
	if in.Check == nil {
		return Engine{}
	}
	return in.Check
}

func (in *Installer) logf(format string, args ...any) {
	if in.Log != nil {
		in.Log(fmt.Sprintf(format, args...))
	}
}

func (in *Installer) store() *store { return &store{in.Models} }

func (in *Installer) lock(ctx context.Context) (*flock.Lock, error) {
	return in.store().lock(ctx, func(line string) { in.logf("%s", line) })
}

// An Installed is an assembly that this process holds: it is not removed before Close, or the process's end.
type Installed struct {
	Dir    string // of the assembly
	Record Record
	lock   *flock.Lock
}

// Close lets the assembly go.
func (i *Installed) Close() error { return i.lock.Unlock() }

// Target is the path that the target loads from: a GGUF file, the first part of a split, or the folder of the shards.
func (i *Installed) Target() string {
	if i.Record.TargetFormat == Safetensors {
		return filepath.Join(i.Dir, "target")
	}
	return filepath.Join(i.Dir, filepath.FromSlash(i.Record.under("target/")[0]))
}

// Vision is the path that vision loads from: a projector, or the folder of the tower's shards; empty: none.
func (i *Installed) Vision() string {
	switch i.Record.VisionFormat {
	case GGUF:
		return filepath.Join(i.Dir, "vision", "mmproj.gguf")
	case Safetensors:
		return filepath.Join(i.Dir, "vision")
	}
	return ""
}

// Draft is the folder of the draft; empty: none.
func (i *Installed) Draft() string {
	if i.Record.Sources.Draft == nil {
		return ""
	}
	return filepath.Join(i.Dir, "draft")
}

// Tokenizer is the folder of a safetensors target's tokenizer; empty for a GGUF, which holds its own.
func (i *Installed) Tokenizer() string {
	if i.Record.TargetFormat == GGUF {
		return ""
	}
	return filepath.Join(i.Dir, "tokenizer")
}

// Config is the target's configuration.
func (i *Installed) Config() string { return filepath.Join(i.Dir, "config.json") }

// under lists the record's paths in a folder, sorted.
func (r *Record) under(folder string) []string {
	var names []string
	for name := range r.Files {
		if strings.HasPrefix(name, folder) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Hold holds the assembly in a folder, as PrepareLocalModel returns it, once it is verified.
func (in *Installer) Hold(ctx context.Context, dir string) (*Installed, error) {
	lock, err := in.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	return in.store().hold(dir)
}

// hold verifies and holds an assembly. The caller holds the installation lock.
func (s *store) hold(dir string) (*Installed, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	r, err := verify(real)
	if err != nil {
		return nil, err
	}
	held, err := flock.Existing(filepath.Join(real, recordFile), false)
	if err != nil {
		return nil, err
	}
	return &Installed{Dir: real, Record: *r, lock: held}, nil
}

// A pin is a snapshot that an assembly links.
type pin struct {
	cache        hub.Cache
	repo, commit string
}

// pins lists the snapshots that a record's files lie in, wherever their caches are.
func (r *Record) pins() []pin {
	var found []pin
	for _, name := range r.under("") {
		cache, folder, commit, ok := hub.SnapshotOf(r.Files[name].Path)
		if !ok {
			continue
		}
		for _, s := range []*Source{&r.Sources.Target, r.Sources.Draft} {
			if s == nil || s.Commit() != commit || cache.Folder(s.Repo) != filepath.Join(cache.Dir, folder) {
				continue
			}
			if p := (pin{cache, s.Repo, commit}); !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// pinOwner names an installation in the Hub cache, by the absolute path of its link.
func pinOwner(link string) string {
	parent := filepath.Dir(link)
	if real, err := filepath.EvalSymlinks(parent); err == nil {
		parent = real
	}
	if abs, err := filepath.Abs(parent); err == nil {
		parent = abs
	}
	return sha256Hex([]byte(filepath.Join(parent, filepath.Base(link))))
}

// keepPins pins the snapshots that a record links, for the installation at rel. A cache that cannot be written leaves the
// model usable.
func (in *Installer) keepPins(rel string, r *Record) error {
	at := in.store().link(rel)
	if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
		return err
	}
	for _, p := range r.pins() {
		err := p.cache.Pin(p.repo, p.commit, pinOwner(at))
		if unwritable(err) {
			in.logf("Warning: the verified model can be used, but its Hub cache reference could not be retained; "+
				"protect this snapshot from external cache pruning: %v", err)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unwritable reports whether a write failed because nobody may write there.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// retirePins drops the pins of the installation at rel that nothing needs: neither its record, nor an assembly that a
// process holds though no selection links it. It looks into the repositories of those and of the records before. An old
// pin wastes space in the cache and harms nothing.
func (in *Installer) retirePins(rel string, r *Record, before ...*Record) {
	folder := func(p pin) string { return p.cache.Folder(p.repo) }
	keep, seen := map[string][]string{}, map[string]pin{}
	for _, needed := range append(in.store().heldAlone(), r) {
		if needed == nil {
			continue
		}
		for _, p := range needed.pins() {
			keep[folder(p)] = append(keep[folder(p)], p.commit)
			seen[folder(p)] = p
		}
	}
	for _, b := range before {
		if b == nil {
			continue
		}
		for _, p := range b.pins() {
			seen[folder(p)] = p
		}
	}
	owner := pinOwner(in.store().link(rel))
	for at, p := range seen {
		if err := p.cache.Unpin(p.repo, owner, keep[at]...); err != nil {
			in.logf("Warning: could not retire old Hub cache references: %v", err)
		}
	}
}

// A publication is what publish makes an assembly of.
type publication struct {
	rel    string // of the selection's link
	model  string
	target *candidate
	source Source
	draft  *Source
	links  map[string]link // all of them

	announced bool
}

// publish links the files of a publication as an assembly, selects it, and holds it.
func (in *Installer) publish(ctx context.Context, p *publication) (*Installed, error) {
	lock, err := in.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	s := in.store()
	r, err := in.record(ctx, p)
	if err != nil {
		return nil, err
	}
	before, _ := readRecord(s.link(p.rel))
	if err := in.keepPins(p.rel, r); err != nil {
		return nil, err
	}
	dir, err := s.stage(r)
	if err != nil {
		return nil, err
	}
	if err := s.selectAssembly(p.rel, dir); err != nil {
		return nil, err
	}
	installed, err := s.hold(dir)
	if err != nil {
		return nil, err
	}
	in.tidy(p.rel, r, before)
	return installed, nil
}

// tidy drops what nothing uses any more. The caller holds the installation lock.
func (in *Installer) tidy(rel string, r *Record, before ...*Record) {
	if err := in.store().collect(); err != nil {
		in.logf("Warning: could not remove what is no longer used: %v", err)
	}
	in.retirePins(rel, r, before...)
}

// record describes the files of a publication as they are now.
func (in *Installer) record(ctx context.Context, p *publication) (*Record, error) {
	r := &Record{
		Version:      recordVersion,
		Model:        p.model,
		Family:       p.target.plan.Family.Name,
		ChatFormat:   p.target.plan.Family.Chat,
		TargetFormat: p.target.format,
		VisionFormat: p.target.vision,
		Sources:      Sources{Target: p.source, Draft: p.draft},
		Files:        map[string]Linked{},
	}
	s := in.store()
	linked := map[string]Linked{} // by file, however many paths link it
	for at, l := range p.links {
		path := l.from.path(l.name)
		f, ok := linked[path]
		if !ok {
			var err error
			if f, err = s.linked(ctx, path, l.from.digest(l.name), in.reading); err != nil {
				return nil, err
			}
			linked[path] = f
		}
		r.Files[at] = f
	}
	if p.target.format != GGUF {
		return r, nil
	}
	config, err := deriveConfig(p.target.plan, p.target.vision != NoVision)
	if err != nil {
		return nil, err
	}
	r.Metadata = metadataKey(r.Files)
	dir, err := s.derived(r.Metadata, map[string][]byte{"config.json": config})
	if err != nil {
		return nil, err
	}
	r.Files["config.json"], err = s.linked(ctx, filepath.Join(dir, "config.json"), sha256Hex(config), nil)
	return r, err
}

// reading says that a file is read whole, where that takes a while.
func (in *Installer) reading(path string, bytes int64) {
	if bytes >= 1<<30 {
		in.logf("Reading %s, %.2f GB, for its digest; once, as long as it does not change.", path, float64(bytes)/1e9)
	}
}

// linked describes a file. An empty digest is computed, once as long as the file does not change; reading, unless nil, is
// called before.
func (s *store) linked(ctx context.Context, path, digest string, reading func(path string, bytes int64)) (Linked, error) {
	id, err := identify(path)
	if err != nil {
		return Linked{}, err
	}
	if digest == "" {
		if digest, err = s.fileDigest(ctx, path, id, reading); err != nil {
			return Linked{}, err
		}
	}
	return Linked{path, id.Bytes, id.MTime, id.CTime, digest}, nil
}
