package metal

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"splash/metal/kernels"
	"splash/planner"
)

// A source is a .metal file whose quoted includes stand in it, each once.
type source struct{ name, text string }

// sources are the kernels of splash/metal/kernels.
func sources() ([]source, error) {
	names, err := fs.Glob(kernels.Sources, "*.metal")
	if err != nil {
		return nil, err
	}
	var all []source
	for _, name := range names {
		var b strings.Builder
		if err := expand(&b, name, make(map[string]bool)); err != nil {
			return nil, err
		}
		all = append(all, source{name, b.String()})
	}
	return all, nil
}

// expand writes a file with its quoted includes in place. Lines are numbered as in the files. The host's own include names
// no file and stays.
func expand(b *strings.Builder, name string, seen map[string]bool) error {
	seen[name] = true
	text, err := kernels.Sources.ReadFile(name)
	if err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	fmt.Fprintf(b, "#line 1 %q\n", name)
	for i, line := range strings.Split(string(text), "\n") {
		include, ok := strings.CutPrefix(line, "#include \"")
		if !ok {
			b.WriteString(line + "\n")
			continue
		}
		include = strings.TrimSuffix(include, "\"")
		if !seen[include] {
			if err := expand(b, include, seen); err != nil {
				return err
			}
			fmt.Fprintf(b, "#line %d %q\n", i+2, name)
		} else {
			b.WriteString("\n")
		}
	}
	return nil
}

var (
	plainKernel = regexp.MustCompile(`(?m)^KERNEL\((\w+)\)`)
	instance    = regexp.MustCompile(`(?m)\bINSTANCE\((\w+)(##suffix)?,`)
)

// KernelNames are the kernels that the sources define.
func KernelNames() ([]string, error) {
	all, err := sources()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range all {
		_, text, _ := strings.Cut(s.text, "using namespace metal;") // the prelude defines the macros
		for _, m := range plainKernel.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		for _, m := range instance.FindAllStringSubmatch(text, -1) {
			if m[2] == "" {
				names = append(names, m[1])
				continue
			}
			for _, f := range planner.ImageFormats() {
				names = append(names, m[1]+f.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}
