package gguf

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var partPattern = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// ParsePartName splits the name of a part of a split GGUF, NAME-00002-of-00003.gguf, into NAME, 2 and 3.
func ParsePartName(file string) (name string, part, parts int, ok bool) {
	m := partPattern.FindStringSubmatch(file)
	if m == nil {
		return "", 0, 0, false
	}
	part, _ = strconv.Atoi(m[2]) // five digits
	parts, _ = strconv.Atoi(m[3])
	return m[1], part, parts, 1 <= part && part <= parts
}

// PartName is the file name of a part, counted from 1.
func PartName(name string, part, parts int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", name, part, parts)
}

// IsProjector says whether a file of that name is a vision projector, which is never a target.
func IsProjector(file string) bool {
	return strings.HasSuffix(file, ".gguf") && strings.Contains(strings.ToLower(filepath.Base(file)), "mmproj")
}

// Join makes one header of the headers of a split's parts, in order: metadata from the first, tensors from all. The parts'
// split keys must agree with their number, their places and their tensors. Join of one header returns it, unless it is
// a part of more.
func Join(parts []*Header) (*Header, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("a GGUF of no parts")
	}
	first := parts[0]
	if len(parts) == 1 {
		if count, ok := first.Uint(keySplitCount); ok && count > 1 {
			return nil, fmt.Errorf("%s: an incomplete split: key %s is %d, found this file alone",
				first.Name, quote(keySplitCount), count)
		}
		return first, nil
	}
	joined := *first
	joined.Parts, joined.Size, joined.Tensors = slices.Clone(parts), 0, nil
	joined.tensors = make(map[string]int)
	for i, part := range parts {
		if err := checkPart(part, i, len(parts)); err != nil {
			return nil, err
		}
		joined.Size += part.Size
		for _, t := range part.Tensors {
			if at, ok := joined.tensors[t.Name]; ok {
				return nil, fmt.Errorf("%s: tensor %s is in %s too",
					part.Name, quote(t.Name), parts[joined.Tensors[at].Part].Name)
			}
			t.Part = i
			joined.tensors[t.Name] = len(joined.Tensors)
			joined.Tensors = append(joined.Tensors, t)
		}
	}
	if err := checkTotal(first, len(joined.Tensors), len(parts)); err != nil {
		return nil, err
	}
	return &joined, nil
}

// checkPart holds a part's keys to its place among all of them. The first must state the number of parts, the others
// their place; what else a part states must be right too.
func checkPart(h *Header, place, parts int) error {
	if kv := h.Key(keySplitNo); kv != nil {
		if kv.Type != TypeUint16 && kv.Type != TypeUint32 {
			return fmt.Errorf("%s: key %s is of type %s; uint16 and uint32 are accepted",
				h.Name, quote(keySplitNo), kv.Type)
		}
		if no := integer(kv.Type, kv.data); no != uint64(place) {
			return fmt.Errorf("%s: key %s is %d; this is part %d of %d, so %d is accepted",
				h.Name, quote(keySplitNo), no, place+1, parts, place)
		}
	} else if place > 0 {
		return fmt.Errorf("%s: key %s is missing; part %d of %d states %d",
			h.Name, quote(keySplitNo), place+1, parts, place)
	}
	count, ok := h.Uint(keySplitCount)
	switch {
	case !ok && (place == 0 || h.Key(keySplitCount) != nil):
		return fmt.Errorf("%s: key %s is missing or no integer; the split has %d parts",
			h.Name, quote(keySplitCount), parts)
	case ok && count != uint64(parts):
		return fmt.Errorf("%s: key %s is %d; the split has %d parts", h.Name, quote(keySplitCount), count, parts)
	}
	return nil
}

func checkTotal(first *Header, tensors, parts int) error {
	stated, ok := first.Uint(keySplitTensors)
	switch {
	case tensors > maxTensors:
		return fmt.Errorf("%s: the %d parts hold %d tensors; at most %d are accepted",
			first.Name, parts, tensors, maxTensors)
	case !ok:
		return fmt.Errorf("%s: key %s is missing or no integer; the %d parts hold %d tensors",
			first.Name, quote(keySplitTensors), parts, tensors)
	case stated != uint64(tensors):
		return fmt.Errorf("%s: key %s is %d; the %d parts hold %d tensors",
			first.Name, quote(keySplitTensors), stated, parts, tensors)
	}
	return nil
}

// FindTarget returns the files of the target at path, in order: the one file, every part of a split any part of which
// path names, or in a directory the files of its one target. A directory may hold vision projectors beside it, and parts
// of a split beside their merge, which comes first; files of several names are refused.
func FindTarget(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return findInFolder(path)
	case !strings.HasSuffix(path, ".gguf"):
		return nil, fmt.Errorf("%s: not the name of a GGUF; a target ends in .gguf, in lower case", path)
	case IsProjector(path):
		return nil, fmt.Errorf("%s: a vision projector (its name has mmproj), not a target", path)
	}
	return findParts(path)
}

// findParts returns the file path, or all parts of the split that it is a part of.
func findParts(path string) ([]string, error) {
	name, _, parts, ok := ParsePartName(filepath.Base(path))
	if !ok {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() { // before it is opened, which waits where it is a pipe
			return nil, fmt.Errorf("%s: not a regular file", path)
		}
		return []string{path}, nil
	}
	// The folder is listed once: a count of parts is a claim, and no reason to look for so many files.
	folder := filepath.Dir(path)
	files, err := listFiles(folder)
	if err != nil {
		return nil, err
	}
	return partsIn(folder, files, name, parts)
}

// partsIn returns the paths of the parts of a split in a folder of those files.
func partsIn(folder string, files []string, name string, parts int) ([]string, error) {
	there := make(map[string]bool, len(files))
	for _, file := range files {
		there[file] = true
	}
	var paths []string
	for part := 1; part <= parts; part++ {
		file := PartName(name, part, parts)
		if !there[file] {
			return nil, fmt.Errorf("%s: part %d of %d of the split %s is missing",
				filepath.Join(folder, file), part, parts, quote(name))
		}
		paths = append(paths, filepath.Join(folder, file))
	}
	return paths, nil
}

// listFiles returns the names of the files in a folder, links to files included.
func listFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if info, err := os.Stat(filepath.Join(folder, entry.Name())); err == nil && info.Mode().IsRegular() {
			files = append(files, entry.Name())
		}
	}
	return files, nil
}

// findInFolder returns the files of the one target in a folder.
func findInFolder(folder string) ([]string, error) {
	files, err := listFiles(folder)
	if err != nil {
		return nil, err
	}
	whole := make(map[string]bool)
	splits := make(map[string][]int) // the counts that parts of a name state
	for _, file := range files {
		if !strings.HasSuffix(file, ".gguf") || IsProjector(file) {
			continue
		}
		if name, _, parts, ok := ParsePartName(file); !ok {
			whole[strings.TrimSuffix(file, ".gguf")] = true
		} else if !slices.Contains(splits[name], parts) {
			splits[name] = append(splits[name], parts)
		}
	}
	names := slices.Sorted(maps.Keys(splits))
	for name := range whole {
		if splits[name] == nil {
			names = append(names, name)
		}
	}
	switch slices.Sort(names); {
	case len(names) == 0:
		return nil, fmt.Errorf("%s: no GGUF target here; files that end in .gguf, in lower case, are targets", folder)
	case len(names) > 1:
		return nil, fmt.Errorf("%s: GGUF targets of %d names, %s; a folder of one is accepted, or name a file",
			folder, len(names), list(names))
	case whole[names[0]]:
		return []string{filepath.Join(folder, names[0]+".gguf")}, nil
	}
	return chooseSplit(folder, files, names[0], splits[names[0]])
}

// list gives names on one line, the first few where there are many.
func list(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// chooseSplit returns the parts of the one complete split of a name. Parts that state another count are strays.
func chooseSplit(folder string, files []string, name string, counts []int) ([]string, error) {
	var complete []string
	var missing error
	slices.Sort(counts)
	for _, count := range counts {
		paths, err := partsIn(folder, files, name, count)
		switch {
		case err != nil && missing == nil:
			missing = err
		case err == nil && complete != nil:
			return nil, fmt.Errorf("%s: complete splits of %s into %d and into %d parts; name a part of one",
				folder, quote(name), len(complete), count)
		case err == nil:
			complete = paths
		}
	}
	if complete == nil {
		return nil, missing
	}
	return complete, nil
}
