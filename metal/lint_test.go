package metal

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"splash/metal/kernels"
)

// lines calls f with every line of the kernels' sources, without its comment.
func lines(t *testing.T, f func(at, line string)) {
	t.Helper()
	names, err := fs.Glob(kernels.Sources, "*")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := kernels.Sources.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			line, _, _ = strings.Cut(line, "//")
			f(fmt.Sprintf("%s:%d", name, i+1), line)
		}
	}
}

// The host and the check of clang take an unqualified pointer, which Metal refuses: a pointer or a reference is written
// "space type *name", "space const type *name" or "const space type &name".
var (
	pointer   = regexp.MustCompile(`\b[A-Za-z]\w* [*&][A-Za-z)]`)
	qualified = regexp.MustCompile(`\b(device|constant|threadgroup|thread) (const )?[A-Za-z]\w* [*&][A-Za-z)]`)
)

// unsupported are words that Metal's language does not have, or that the host does not understand as Metal does.
var unsupported = regexp.MustCompile(`\b(double|long long|goto|new|delete|throw|try|virtual|std::|static_cast|` +
	`reinterpret_cast|dynamic_cast|printf|malloc|assert|thread_local|volatile|union|atomic_\w+|texture\w*|sampler)\b`)

// swizzle is a choice of components other than one.
var swizzle = regexp.MustCompile(`\.[xyzw]{2,4}\b`)

func TestKernelSources(t *testing.T) {
	for _, line := range lintKernels(t) {
		t.Error(line)
	}
}

func lintKernels(t *testing.T) (found []string) {
	lines(t, func(at, line string) { found = append(found, lintLine(at, line)...) })
	return found
}

func lintLine(at, line string) (found []string) {
	if rest := qualified.ReplaceAllString(line, ""); pointer.MatchString(rest) {
		found = append(found, fmt.Sprintf("%s: a pointer without an address space: %s", at, strings.TrimSpace(line)))
	}
	if w := unsupported.FindString(line); w != "" {
		found = append(found, fmt.Sprintf("%s: %s is not in the kernels' language", at, w))
	}
	if w := swizzle.FindString(line); w != "" {
		found = append(found, fmt.Sprintf("%s: the swizzle %s", at, w))
	}
	if len(line) > 130 {
		found = append(found, at+": a long line")
	}
	return found
}

// TestLintFinds holds the lint itself to lines that it must find, and to others.
func TestLintFinds(t *testing.T) {
	for line, want := range map[string]int{
		"float *p = x;": 1, "device float *p = x, *q = y;": 0, "(float *)shared": 1,
		"threadgroup float *s = (threadgroup float *)shared;": 0,
		"constant uint &n": 0, "uint &n": 1, "a * b": 0, "double d = 0;": 1, "v.xy": 1, "v.x": 0, "device const T *keys": 0, "a & b": 0,
	} {
		if got := lintLine("test:1", line); len(got) != want {
			t.Errorf("%s: found %q", line, got)
		}
	}
}

// argument is one of a kernel's.
var argument = regexp.MustCompile(`\[\[buffer\((\d+)\)\]\]`)

// TestKernelArguments: buffers are numbered in order, and parameters come last, which is how the host and the encoder bind
// them.
func TestKernelArguments(t *testing.T) {
	for _, s := range mustSources(t) {
		for _, part := range strings.Split(s.text, "kernel void ")[1:] {
			head, _, ok := strings.Cut(part, "THREADS) {")
			name, _, _ := strings.Cut(part, "(")
			if !ok {
				t.Errorf("%s: kernel %s does not end its arguments with THREADS", s.name, name)
				continue
			}
			all := argument.FindAllStringSubmatch(head, -1)
			for i, m := range all {
				if m[1] != fmt.Sprint(i) {
					t.Errorf("%s: kernel %s: buffer(%s) stands in place %d", s.name, name, m[1], i)
				}
			}
			last := head[strings.LastIndex(strings.TrimRight(head, ", \n\t"), ",")+1:]
			if len(all) == 0 || !strings.HasPrefix(strings.TrimSpace(last), "constant ") {
				t.Errorf("%s: kernel %s: its last buffer is not its parameters: %s", s.name, name, strings.TrimSpace(last))
			}
		}
	}
}

func mustSources(t testing.TB) []source {
	t.Helper()
	all, err := sources()
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all
}

// clang runs clang's checks on a source that is given on its standard input.
func clang(t *testing.T, source string, arguments ...string) error {
	t.Helper()
	path, err := exec.LookPath("clang")
	if err != nil {
		t.Skip("clang is not installed; Debian's package clang has it")
	}
	c := exec.Command(path, append(arguments, "-fsyntax-only", "-")...)
	c.Stdin = strings.NewReader(source)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// TestAddressSpaces compiles every kernel as C++ for OpenCL, whose address spaces have Metal's rules, and sees that wrong ones are
// found.
func TestAddressSpaces(t *testing.T) {
	check := func(text string) error {
		return clang(t, "#define SPLASH_QUALIFIERS \"lint/address_spaces.h\"\n"+strings.ReplaceAll(text, "#line", "// #line"),
			"-x", "clcpp", "-cl-std=clc++", "-cl-no-stdinc", "-I.", "-Wno-everything")
	}
	for _, s := range mustSources(t) {
		if err := check(s.text); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		for _, wrong := range [][2]string{
			{"threadgroup float *part =", "device float *part ="}, {"(threadgroup float *)shared", "(device float *)shared"},
			{"device const uchar *b)", "constant uchar *b)"}, {"device float *past", "constant float *past"},
			{"device float *state =", "threadgroup float *state ="}, {"constant CopyParams &p", "device CopyParams &p2"},
		} {
			if strings.Contains(s.text, wrong[0]) && check(strings.Replace(s.text, wrong[0], wrong[1], 1)) == nil {
				t.Errorf("%s: %q in the place of %q is not found", s.name, wrong[1], wrong[0])
			}
		}
	}
}

// TestBridgeSource checks bridge_darwin.m against declarations of the API that it uses, and that mistakes are found.
func TestBridgeSource(t *testing.T) {
	text, err := os.ReadFile("bridge_darwin.m")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		return clang(t, text, "-x", "objective-c", "-std=gnu11", "-fobjc-arc", "-fblocks", "-target", "arm64-apple-macos14.0", "-ffreestanding",
			"-nostdlibinc", "-Wunguarded-availability", "-Wall", "-Wextra", "-Werror", "-I.", "-isystem", filepath.Join("lint", "include"))
	}
	if err := check(string(text)); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][2]string{
		{"setBytes:x->params length:", "setBytes:x->params size:"}, {"d.queue = [gpu newCommandQueue]", "d.queue = [gpu commandQueue]"},
		{".wait = waitDevice", ".wait = commit2"}, {"(__bridge_retained void *)d", "(void *)d"}, {"%llu bytes cannot", "%d bytes cannot"},
		{"serializeToURL:url error:NULL", "serializeToURL:fresh error:NULL"}, {"[set requestResidency]", "[d.queue requestResidency]"},
		{"if (@available(macOS 15.0, *)) {\n\t\tNSError", "if (YES) {\n\t\tNSError"}, {".graph = newGraph", ".graph = encode"},
	} {
		changed := strings.Replace(string(text), wrong[0], wrong[1], 1)
		if changed == string(text) || check(changed) == nil {
			t.Errorf("%q in the place of %q is not found", wrong[1], wrong[0])
		}
	}
}
