// Mutate holds the tests of the kernels to their purpose: it breaks one line of a kernel at a time, in a copy, and runs the
// operators' tests there. A mutation that they do not notice fails it. Every few mutations take a build of the host devices.
//
// A build serves a round of them, whose tests have nothing in common; from and n choose rounds.
//
//	go run ./metal/lint/mutate [-from N] [-n N]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"splash/metal/lint/mutations"
)

func main() {
	from, count := flag.Int("from", 0, "the first round"), flag.Int("n", 1000, "how many")
	flag.Parse()
	if err := run(*from, *count); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// owners are the tests of the operators whose kernels a file holds. What math.h holds belongs to several.
var owners = map[string]string{
	"attention.metal": "Attention", "conv.metal": "Conv", "gdn.metal": "GDN", "norm.metal": "Norm|GatedNorm", "rows.metal": "Copy",
	"draft.metal": "DraftRows|DraftTaps|DraftConv|DraftHeads|DraftStore|DraftAttention",
	"order.h":     "Top|SamplingTargets", "selector.metal": "Top|SelectorEdges|SelectorWalks|SelectorVerifyRows",
	"sampling.metal": "SamplingPenalties|SamplingMask|SamplingTargets", "pick.h": "SamplingTargets|SamplingAccept",
	"accept.metal":  "SamplingAccept|SamplingWorked",
	"project.metal": "Planes|Project", "gate.metal": "GateUp", "planes.h": "Planes|Project|Expert", "formats.h": "Planes|Project|Expert",
	"math.h": "GatedNorm|Attention|Conv|GDN|Route|Index", "moe.metal": "Route|Expert", "hyper.metal": "Streams", "ngram.metal": "NGrams",
	"hadamard.metal": "Hadamard", "repack.metal": "Repack", "ternary.metal": "Ternary", "qsa.metal": "Index",
}

// rounds puts mutations together whose operators' tests have nothing in common, so that one build serves them all.
func rounds(all []mutations.Mutation) (out [][]mutations.Mutation) {
	next := make(map[string]int) // the first round that an owner has no part in
	for _, m := range all {
		round := 0
		owned := strings.Split(owners[m.File], "|")
		for _, o := range owned {
			round = max(round, next[o])
		}
		for _, o := range owned {
			next[o] = round + 1
		}
		if round == len(out) {
			out = append(out, nil)
		}
		out[round] = append(out[round], m)
	}
	return out
}

func run(from, count int) error {
	all, err := mutations.All()
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	together := rounds(all)
	if from < 0 || from >= len(together) {
		return fmt.Errorf("round %d of %d", from, len(together))
	}
	together = together[from:]
	caught, tried := 0, 0
	for i, round := range together[:min(count, len(together))] {
		n, err := tryRound(root, round)
		if err != nil {
			return fmt.Errorf("round %d: %w", from+i, err)
		}
		caught += n
		tried += len(round)
	}
	fmt.Printf("%d of %d mutations are caught\n", caught, tried)
	if caught < tried {
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

// tryRound builds the tests with mutations in a copy of the module, runs those of each one's operator, and says what found it.
func tryRound(root string, round []mutations.Mutation) (caught int, err error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := copyModule(root, dir); err != nil {
		return 0, err
	}
	for _, m := range round {
		if err := m.Apply(filepath.Join(dir, "metal", "kernels")); err != nil {
			return 0, fmt.Errorf("%s: %w", m.File, err)
		}
	}
	build := exec.Command("go", "test", "-c", "-trimpath", "-o", filepath.Join("metal", "mutated.test"), "./metal")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	for _, m := range round {
		found := test(filepath.Join(dir, "metal"), owners[m.File])
		if found != "" {
			caught++
		}
		fmt.Printf("%-16s %s\n   by: %s\n", m.File, strings.TrimSpace(m.Instead), found)
	}
	return caught, nil
}

// copyModule copies what the tests of the kernels need of the module.
func copyModule(root, dir string) error {
	for _, name := range []string{"metal", "dequant", "oracle", "planner", "internal", "fixtures"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// test runs tests and returns the first complaint, or "".
func test(dir, owners string) string {
	c := exec.Command("./mutated.test", "-test.run", "^Test("+owners+")")
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "_test.go:") && !strings.Contains(line, "values, worst error") {
			return strings.TrimSpace(line)
		}
	}
	return "the tests fail: " + err.Error()
}
