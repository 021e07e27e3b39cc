package target

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"splash/fixtures"
	"splash/internal/model"
	"splash/internal/prefixstore"
	"splash/planner"
)

// A Disk is where prompts are kept that memory does not hold.
type Disk struct {
	Quota int64  // bytes; 0: none are
	Root  string // of the directories of models, whose prompts stay; empty: they end with the process
}

// prefixFormat is part of what names a directory. Another layout of what a backend exports is another format.
const prefixFormat = "splash prefixes 1"

// check refuses a backend whose prompts cannot leave its memory.
func (d *Disk) check(b *Backend) error {
	if d.Quota > 0 && !b.Portable {
		return fmt.Errorf("backend %s keeps no prompts on a disk", b.Name)
	}
	return nil
}

// openDisk opens the store of prompts for the loaded network.
func (t *Target) openDisk(s *source, d *draftFiles, o Options) error {
	b, ok := t.Network.Backend().(model.Portable)
	if o.Disk.Quota == 0 || !ok {
		return nil
	}
	page, state := b.PortableShape()
	if page == 0 {
		return fmt.Errorf("the keys of %s cannot be kept on a disk", t.Plan.Family.Name)
	}
	so := prefixstore.Options{PageTokens: model.PortablePage, Page: page, State: state, Quota: o.Disk.Quota, Log: o.log}
	if root := o.Disk.Root; root != "" {
		if err := prefixstore.Clean(root, time.Now()); err != nil {
			o.log("Prefix cache · " + err.Error())
		}
		name, err := namespace(t.Backend, o, page, state, s, d)
		if err != nil {
			return err
		}
		so.Dir = filepath.Join(root, name)
	}
	store, err := prefixstore.Open(so)
	if err != nil {
		return err
	}
	t.close = append(t.close, store)
	t.Engine.Store = store
	if st := store.Stats(); st.Persistent {
		o.log(fmt.Sprintf("Prefix cache · %d prompts in %s", st.TakenBack, so.Dir))
	}
	return nil
}

// namespace is the digest of everything that the bytes of a prompt depend on: the files of the model and its draft, the
// backend, and how it keeps keys, values and states.
func namespace(backend string, o Options, page, state int, s *source, d *draftFiles) (string, error) {
	files, err := s.images()
	if err != nil {
		return "", err
	}
	id := struct {
		Format, Backend, KV string
		Page, State, Tokens int
		Target, Draft       []planner.ImageSource
		Embedded, Vision    []string
	}{Format: prefixFormat, Backend: backend, KV: o.KV, Page: page, State: state, Tokens: model.PortablePage, Target: files}
	if o.Path == "" {
		id.Embedded = append(id.Embedded, digestOf(fixtures.Pebble))
	}
	if id.Vision, err = stamps(o.Vision); err != nil {
		return "", err
	}
	if d != nil {
		if id.Draft, err = d.images(); err != nil {
			return "", err
		}
		if !d.onDisk {
			id.Embedded = append(id.Embedded, digestOf(fixtures.PebbleDraft))
		}
	}
	for _, list := range [][]planner.ImageSource{id.Target, id.Draft} {
		for i := range list {
			list[i].Path = ""
		}
	}
	data, err := json.Marshal(id)
	return digestOf(data), err
}

// stamps are what the file system says of a vision projector, or of the shards of a tower.
func stamps(path string) (list []string, err error) {
	if path == "" {
		return nil, nil
	}
	err = filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(path) // of what a link leads to
		if err == nil {
			list = append(list, fmt.Sprintf("%s %d %d", filepath.Base(path), info.Size(), info.ModTime().UnixNano()))
		}
		return err
	})
	return list, err
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
