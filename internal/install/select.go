package install

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"splash/internal/gguf"
)

// A Choice is the GGUF target that a repository's file names and a variant select.
type Choice struct {
	Files []string // in the order of their parts
	Note  string   // a line to print, where the name was not the variant's alone; else empty
}

// A target is one GGUF of a repository: a whole file, the parts of a split at the root, or those in a folder.
type target struct {
	name  string              // of the model and variant; of the folder
	whole string              // the file, where it is whole
	parts map[string]partsSet // by the name the parts share
}

// partsSet holds which parts are there, by the count that their names state.
type partsSet map[int]map[int]string

// SelectGGUF chooses a repository's GGUF target. With a variant, the first rule that finds exactly one wins, whatever the
// case of letters: the root target that is named by the model name which all root targets share, and the variant; the
// folder of that name; the only root target whose name ends in -VARIANT. Without one, the only target. A whole file comes
// before split parts of its name. Vision projectors are never targets, and neither are whole files in folders.
func SelectGGUF(files []string, variant string) (Choice, error) {
	root, folders := collect(files)
	if variant == "" {
		all := slices.Concat(root, folders)
		if len(all) != 1 {
			return Choice{}, fmt.Errorf("select a GGUF with OWNER/REPO:VARIANT (%s)", describe(root, folders))
		}
		files, err := all[0].files()
		return Choice{Files: files}, err
	}
	t, ending := match(root, folders, variant)
	if t == nil {
		return Choice{}, fmt.Errorf("no single GGUF matches :%s (%s)", variant, describe(root, folders))
	}
	chosen, err := t.files()
	if err != nil {
		return Choice{}, err
	}
	c := Choice{Files: chosen}
	if ending && len(root)+len(folders) > 1 {
		c.Note = fmt.Sprintf("No GGUF is named for :%s alone; using %s, the only one whose name ends in -%s.",
			variant, chosen[0], variant)
	}
	return c, nil
}

// match applies the three rules. ending says that the third found the target.
func match(root, folders []*target, variant string) (found *target, ending bool) {
	shared := sharedWords(root)
	one := func(targets []*target, is func(*target) bool) *target {
		var only *target
		for _, t := range targets {
			if is(t) {
				if only != nil {
					return nil
				}
				only = t
			}
		}
		return only
	}
	if t := one(root, func(t *target) bool {
		return strings.EqualFold(strings.Join(strings.Split(t.name, "-")[shared:], "-"), variant)
	}); t != nil {
		return t, false
	}
	if t := one(folders, func(t *target) bool { return strings.EqualFold(t.name, variant) }); t != nil {
		return t, false
	}
	suffix := "-" + variant
	return one(root, func(t *target) bool {
		n := len(t.name) - len(suffix)
		return n >= 0 && strings.EqualFold(t.name[n:], suffix)
	}), true
}

// sharedWords is the number of leading words, separated by dashes, that all root targets' names share.
func sharedWords(root []*target) int {
	if len(root) == 0 {
		return 0
	}
	shared := strings.Split(root[0].name, "-")
	for _, t := range root[1:] {
		words := strings.Split(t.name, "-")
		n := 0
		for n < len(shared) && n < len(words) && shared[n] == words[n] {
			n++
		}
		shared = shared[:n]
	}
	return len(shared)
}

// collect finds the targets at the root and in first-level folders, each list sorted by name.
func collect(files []string) (root, folders []*target) {
	at, in := map[string]*target{}, map[string]*target{}
	get := func(m map[string]*target, name string) *target {
		if m[name] == nil {
			m[name] = &target{name: name, parts: map[string]partsSet{}}
		}
		return m[name]
	}
	for _, file := range files {
		folder, base, nested := strings.Cut(file, "/")
		if !nested {
			folder, base = "", file
		}
		if !strings.HasSuffix(base, ".gguf") || strings.Contains(base, "/") || gguf.IsProjector(base) {
			continue
		}
		name, part, count, isPart := gguf.ParsePartName(base)
		isPart = isPart && name != ""
		switch {
		case isPart && nested:
			get(in, folder).add(name, part, count, file)
		case isPart:
			get(at, name).add(name, part, count, file)
		case !nested:
			get(at, strings.TrimSuffix(base, ".gguf")).whole = file
		}
	}
	return sorted(at), sorted(in)
}

func sorted(m map[string]*target) []*target {
	var all []*target
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[name])
	}
	return all
}

func (t *target) add(name string, part, count int, file string) {
	set := t.parts[name]
	if set == nil {
		set = partsSet{}
		t.parts[name] = set
	}
	if set[count] == nil {
		set[count] = map[int]string{}
	}
	set[count][part] = file
}

// files are the target's, in order: the whole file, or every part of the one complete split of its name. Parts that state
// another count do not belong to it.
func (t *target) files() ([]string, error) {
	if t.whole != "" {
		return []string{t.whole}, nil
	}
	names := slices.Sorted(maps.Keys(t.parts))
	if len(names) > 1 {
		return nil, fmt.Errorf("folder %s mixes the parts of several GGUFs: %s", t.name, strings.Join(names, ", "))
	}
	var complete []string
	var missing error
	set := t.parts[names[0]]
	for _, count := range slices.Sorted(maps.Keys(set)) {
		files, err := inOrder(names[0], set[count], count)
		switch {
		case err != nil && missing == nil:
			missing = err
		case err == nil && complete != nil:
			return nil, fmt.Errorf("%s is split both into %d and into %d parts", names[0], len(complete), count)
		case err == nil:
			complete = files
		}
	}
	if complete == nil {
		return nil, missing
	}
	return complete, nil
}

func inOrder(name string, parts map[int]string, count int) ([]string, error) {
	var files []string
	for i := 1; i <= count; i++ {
		file, ok := parts[i]
		if !ok {
			return nil, fmt.Errorf("%s is missing: %s is split into %d parts", gguf.PartName(name, i, count), name, count)
		}
		files = append(files, file)
	}
	return files, nil
}

// describe lists what could be chosen.
func describe(root, folders []*target) string {
	list := func(targets []*target) string {
		var names []string
		for _, t := range targets {
			names = append(names, t.forms()...)
		}
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}
	text := "files in the repository root: " + list(root)
	if len(folders) > 0 {
		text += "; folders of split files: " + list(folders)
	}
	return text
}

// forms are the target as a list of files shows it, a split by its first part.
func (t *target) forms() []string {
	var forms []string
	if t.whole != "" {
		forms = append(forms, t.whole)
	}
	for _, name := range slices.Sorted(maps.Keys(t.parts)) {
		for _, count := range slices.Sorted(maps.Keys(t.parts[name])) {
			parts := t.parts[name][count]
			forms = append(forms, parts[slices.Min(slices.Collect(maps.Keys(parts)))])
		}
	}
	return forms
}

// projectors are the root files named as vision projectors.
func projectors(files []string) []string {
	var found []string
	for _, f := range files {
		if !strings.Contains(f, "/") && gguf.IsProjector(f) {
			found = append(found, f)
		}
	}
	slices.Sort(found)
	return found
}
