// Mutate holds the tests of the kernels to their purpose: it breaks one line of a kernel at a time, in a copy, and runs the
// operators' tests there. A mutation that they do not notice fails it. Each takes a build of the host devices.
//
//	go run ./metal/lint/mutate [-from N] [-n N]
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed mutations.txt
var list string

// A mutation is a line of a file, and what stands there instead.
type mutation struct{ file, line, instead string }

func mutations() (all []mutation, err error) {
	_, rest, _ := strings.Cut(list, "\n\n")
	for part := range strings.SplitSeq(strings.TrimRight(rest, "\n"), "\n\n") {
		m := strings.Split(part, "\n")
		if len(m) != 3 {
			return nil, fmt.Errorf("mutations.txt: %d lines, want 3: %s", len(m), part)
		}
		all = append(all, mutation{m[0], m[1], m[2]})
	}
	return all, nil
}

func main() {
	from, count := flag.Int("from", 0, "the first mutation"), flag.Int("n", 1000, "how many")
	flag.Parse()
	if err := run(*from, *count); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(from, count int) error {
	all, err := mutations()
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	all = all[min(from, len(all)):]
	all = all[:min(count, len(all))]
	caught := 0
	for i, m := range all {
		found, err := m.try(root)
		if err != nil {
			return fmt.Errorf("%d, %s: %w", from+i, m.file, err)
		}
		if found != "" {
			caught++
		}
		fmt.Printf("%2d %-16s %s\n   by: %s\n", from+i, m.file, strings.TrimSpace(m.instead), found)
	}
	fmt.Printf("%d of %d mutations are caught\n", caught, len(all))
	if caught < len(all) {
		return errors.New("the others are not")
	}
	return nil
}

// moduleRoot is the directory of go.mod.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// try runs the tests with the mutation, in a copy of the module whose other folders are links, and returns the first line that
// says that something is wrong, or "".
func (m mutation) try(root string) (string, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Name() == "metal" || e.Name() == ".git" {
			continue
		}
		if err := copyOrLink(root, dir, e); err != nil {
			return "", err
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "metal"), os.DirFS(filepath.Join(root, "metal"))); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "metal", "kernels", m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	// The first of equal lines is meant.
	changed := bytes.Replace(text, []byte("\n"+m.line+"\n"), []byte("\n"+m.instead+"\n"), 1)
	if bytes.Equal(changed, text) {
		return "", fmt.Errorf("no such line: %s", m.line)
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return "", err
	}
	return test(dir)
}

// copyOrLink copies go.mod and go.sum, and other files; a folder of packages is copied, as go follows no links to folders.
func copyOrLink(root, dir string, e os.DirEntry) error {
	from, to := filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())
	switch e.Name() {
	case "dequant", "oracle", "planner", "internal", "fixtures":
		return os.CopyFS(to, os.DirFS(from))
	}
	if e.IsDir() {
		return nil
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// test runs the operators' tests and returns the first complaint.
func test(dir string) (string, error) {
	c := exec.Command("go", "test", "./metal", "-run", "^Test(Planes|Project|Norm|GatedNorm|Copy|Attention|Conv|GDN)")
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err == nil {
		return "", nil
	}
	if !bytes.Contains(out, []byte("--- FAIL")) {
		return "", fmt.Errorf("the tests do not run: %s", out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") && (strings.Contains(line, "want") || strings.Contains(line, "kernel ") ||
			strings.Contains(line, "differs") || strings.Contains(line, "is not row")) {
			return strings.TrimSpace(line), nil
		}
	}
	return "the tests fail", nil
}
