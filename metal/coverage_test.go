//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"splash/planner"
)

// TestMain holds a run of all tests to every kernel: one that no operator test dispatched fails it.
func TestMain(m *testing.M) {
	code := m.Run()
	if run := flag.Lookup("test.run").Value.String(); run == "" && code == 0 && flag.Lookup("test.list").Value.String() == "" {
		code = coverage()
	}
	os.Exit(code)
}

func coverage() int {
	names, err := KernelNames()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var unused []string
	for _, name := range names {
		if dispatched[name] == 0 {
			unused = append(unused, name)
		}
	}
	fmt.Printf("%d kernels, %d dispatched by a test of their operator\n", len(names), len(names)-len(unused))
	if len(unused) > 0 {
		fmt.Println("not dispatched:", strings.Join(unused, " "))
		return 1
	}
	return 0
}

// TestKernelNames finds every kernel of the sources in the device.
func TestKernelNames(t *testing.T) {
	names, err := KernelNames()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 3*len(planner.ImageFormats()) {
		t.Fatalf("%d kernels", len(names))
	}
	for _, kind := range Devices() {
		d := open(t, kind)
		for _, name := range names {
			if _, err := d.Kernel(name); err != nil {
				t.Error(err)
			}
		}
		if _, err := d.Kernel("no_such"); err == nil || !strings.Contains(err.Error(), "no_such") {
			t.Errorf("an unknown kernel: %v", err)
		}
	}
	if _, err := Open("abacus"); err == nil || !strings.Contains(err.Error(), Devices()[0]) {
		t.Errorf("an unknown device: %v", err)
	}
}
