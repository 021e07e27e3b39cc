// Package mutations lists changes of single lines of the kernels that break them, which tests have to notice.
package mutations

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed mutations.txt
var list string

// A Mutation is a line of a file of the kernels, and what stands there instead.
type Mutation struct {
	File, Line, Instead string

	Format string // the one that a change of formats.h breaks; "" elsewhere

	// Elsewhere says that it is the tests of package metal that notice it, which run kernels by themselves.
	Elsewhere bool
}

// All reads the list.
func All() (all []Mutation, err error) {
	_, rest, _ := strings.Cut(list, "\n\n")
	for part := range strings.SplitSeq(strings.TrimRight(rest, "\n"), "\n\n") {
		lines := strings.Split(part, "\n")
		if len(lines) != 3 {
			return nil, fmt.Errorf("mutations.txt: %d lines, want 3: %s", len(lines), part)
		}
		file, elsewhere := strings.CutSuffix(lines[0], " elsewhere")
		file, format, _ := strings.Cut(file, " ")
		all = append(all, Mutation{file, lines[1], lines[2], format, elsewhere})
	}
	return all, nil
}

// Apply changes the first line in a directory of kernels that is the mutation's.
func (m *Mutation) Apply(kernels string) error {
	path := filepath.Join(kernels, m.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := bytes.Replace(text, []byte("\n"+m.Line+"\n"), []byte("\n"+m.Instead+"\n"), 1)
	if bytes.Equal(changed, text) {
		return fmt.Errorf("%s has no line %s", m.File, m.Line)
	}
	return os.WriteFile(path, changed, 0o644)
}
