//go:build cgo && linux && amd64

package conformance_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"splash/metal"
	"splash/metal/lint/mutations"
)

// openMutant opens a device that was built as a library.
func openMutant(path string) (*metal.Device, error) {
	return metal.OpenLibrary(path, "splash_checked_bridge")
}

// owners are the tests here that hold the kernels of a file to their operators, and those that its kernels have a part in.
var owners = map[string]struct{ tests, part []string }{
	"attention.metal": {[]string{"TestAttention", "TestSparseAttention"}, []string{"TestTakenBack"}},
	"conv.metal":      {[]string{"TestConvolution", "TestTakenBack"}, nil},
	"gdn.metal":       {[]string{"TestDeltaRule", "TestDeltaRuleChunked", "TestTakenBack"}, nil},
	"norm.metal":      {[]string{"TestNorms"}, nil},
	"gate.metal":      {[]string{"TestGateUp"}, nil},
	"project.metal":   {[]string{"TestProject", "TestProjectParts", "TestProjectOrders"}, []string{"TestStreams"}},
	"planes.h":        {[]string{"TestProject"}, []string{"TestProjectParts", "TestProjectOrders", "TestStreams", "TestExperts"}},
	"formats.h":       {[]string{"TestEmbed"}, []string{"TestProject", "TestProjectParts", "TestProjectOrders", "TestStreams", "TestExperts"}},
	"moe.metal":       {[]string{"TestRouters", "TestSharedExpert", "TestExperts"}, nil},
	"hyper.metal":     {[]string{"TestStreams"}, []string{"TestNGrams", "TestTakenBack"}},
	"ngram.metal":     {[]string{"TestNGrams", "TestTakenBack"}, nil},
	"hadamard.metal":  {[]string{"TestProjectOrders"}, nil},
	"qsa.metal":       {[]string{"TestSparseAttention"}, []string{"TestTakenBack"}},
	"selector.metal":  {[]string{"TestChooseWalks", "TestChooseVerifyRows"}, nil},
	"order.h":         {[]string{"TestChooseWalks", "TestChooseTokens"}, nil},
	"sampling.metal":  {[]string{"TestChooseTokens"}, nil},
	"pick.h":          {[]string{"TestChooseTokens"}, nil},
	"accept.metal":    {[]string{"TestChooseTokens", "TestChooseNothing"}, nil},
	"repack.metal":    {[]string{"TestRepacked"}, nil},
	"math.h":          {[]string{"TestNorms", "TestConvolution", "TestDeltaRule", "TestDeltaRuleChunked", "TestRouters"}, []string{"TestAttention", "TestSparseAttention", "TestTakenBack", "TestStreams", "TestNGrams", "TestExperts"}},
}

// mutantKernels are the formats that mutants are built with: those of the mutations, and of the tests that need some.
var mutantKernels = map[string]string{
	"q4k": "Q4K", "q80": "Q80", "q40": "Q40", "iq4xs": "IQ4XS", "iq3xxs": "IQ3XXS", "mxfp4": "MXFP4", "nvfp4": "NVFP4", "iq2xxs": "IQ2XXS",
	"bf16": "BF16",
}

// fewMutations are as many as are tried where not all are: a spread over every file.
const fewMutations = 30

// A run of some rounds alone, of -full.
var (
	firstRound = flag.Int("round", 0, "the first round of mutations")
	someRounds = flag.Int("rounds", math.MaxInt, "how many rounds of mutations")
)

// TestMutations breaks one line of a kernel at a time, builds the kernels as a library with every memory access checked, and runs
// the tests of their operators on it: every mutation must be noticed, and the kernels as they are must pass. Mutations whose tests
// have nothing in common share a library.
func TestMutations(t *testing.T) {
	all, err := mutations.All()
	if err != nil {
		t.Fatal(err)
	}
	var ours []mutations.Mutation
	for _, m := range all {
		if _, ok := owners[m.File]; ok && !m.Elsewhere {
			ours = append(ours, m)
		}
	}
	if len(ours) < 30 {
		t.Errorf("%d mutations", len(ours))
	}
	control := buildMutant(t, nil)
	var wg sync.WaitGroup
	room := make(chan struct{}, 2)
	each := func(f func()) {
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			f()
		})
	}
	each(func() {
		var tests []string
		for _, o := range owners {
			tests = append(tests, o.tests...)
		}
		if said := runMutant(control, tests, ""); said != "" {
			t.Errorf("the kernels as they are: %s", said)
		}
	})
	var mu sync.Mutex
	caught := 0
	tried := 0
	together := rounds(ours)
	together = together[min(*firstRound, len(together)):]
	for _, round := range together[:min(*someRounds, len(together))] {
		if tried >= fewMutations && !*full {
			break
		}
		tried += len(round)
		each(func() {
			library := buildMutant(t, round)
			for _, m := range round {
				said := ""
				if library != "" {
					said = runMutant(library, owners[m.File].tests, m.Format)
				}
				mu.Lock()
				if said == "" {
					t.Errorf("not noticed: %s: %s", m.File, strings.TrimSpace(m.Instead))
				} else {
					caught++
					t.Logf("%-16s %s\n    by: %s", m.File, strings.TrimSpace(m.Instead), said)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d mutations are noticed, of %d in the list", caught, tried, len(ours))
}

// rounds puts mutations together none of whose tests another's kernels have a part in.
func rounds(all []mutations.Mutation) (out [][]mutations.Mutation) {
	apart := func(a, b mutations.Mutation) bool {
		x, y := owners[a.File], owners[b.File]
		if a.File == b.File && a.Format != b.Format {
			return true
		}
		shared := func(tests, others []string) bool {
			return slices.ContainsFunc(tests, func(name string) bool { return slices.Contains(others, name) })
		}
		return !shared(x.tests, y.tests) && !shared(x.tests, y.part) && !shared(x.part, y.tests)
	}
next:
	for _, m := range all {
		for i := range out {
			if !slices.ContainsFunc(out[i], func(o mutations.Mutation) bool { return !apart(m, o) }) {
				out[i] = append(out[i], m)
				continue next
			}
		}
		out = append(out, []mutations.Mutation{m})
	}
	return out
}

// buildMutant builds the kernels with mutations as a library, and returns its path.
func buildMutant(t *testing.T, round []mutations.Mutation) string {
	dir := t.TempDir()
	for _, name := range []string{"host", "kernels"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join("..", "metal", name))); err != nil {
			t.Error(err)
			return ""
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "metal", "bridge.h"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bridge.h"), text, 0o644)
	}
	for _, m := range round {
		if err == nil {
			err = m.Apply(filepath.Join(dir, "kernels"))
		}
	}
	if err != nil {
		t.Error(err)
		return ""
	}
	var formats strings.Builder
	for suffix, name := range mutantKernels {
		fmt.Fprintf(&formats, "X(%s, %s) ", suffix, name)
	}
	library := filepath.Join(dir, "mutant.so")
	out, err := exec.Command("g++", "-std=c++17", "-g0", "-O1", "-w", "-Wno-subobject-linkage", "-fsanitize=kernel-address", "-fPIC", "-shared",
		"-DSPLASH_FORMATS(X)="+formats.String(), "-o", library, filepath.Join(dir, "host", "checked", "device.cpp"), "-lpthread").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
		return ""
	}
	return library
}

// runMutant runs tests on a library, in one format or all that it has, and returns the first complaint, or "".
func runMutant(library string, tests []string, format string) string {
	formats := []string{format}
	if format == "" {
		formats = slices.Collect(maps.Keys(mutantKernels))
	}
	c := exec.Command(os.Args[0], "-test.failfast", "-test.run", "^("+strings.Join(tests, "|")+")$")
	c.Env = append(os.Environ(), mutantLibrary+"="+library, mutantFormats+"="+strings.Join(formats, ","))
	out, err := c.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") {
			return strings.TrimSpace(line)
		}
	}
	return err.Error()
}
