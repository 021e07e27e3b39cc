//go:build cgo && linux && amd64

package checked

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFaults compiles kernels with one fault each, and sees that the device finds every one and says where, and nothing in sound
// ones.
func TestFaults(t *testing.T) {
	program := filepath.Join(t.TempDir(), "faults")
	build := exec.Command("g++", "-std=c++17", "-O1", "-fsanitize=kernel-address", "-Wno-attributes",
		"-Wno-subobject-linkage", "-o", program,
		filepath.Join("testdata", "faults.cpp"), "-lpthread")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, err := exec.Command(program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	const at = ", threadgroup 0 0 0: "
	want := `sound: sound
sound_simd: sound
writes_past: kernel writes_past` + at + `thread 40 writes 4 bytes at byte 416 of buffer 0, which has 256
reads_before: kernel reads_before` + at + `thread 3 reads 4 bytes at byte -4 of buffer 0, which has 256
reads_unwritten: kernel reads_unwritten` + at + `thread 5 reads byte 20 of threadgroup memory, which no thread wrote
races_read: kernel races_read` + at + `a race of threads 2 and 33 for byte 8 of threadgroup memory: no barrier stands between
races_write: kernel races_write` + at + `a race of threads 0 and 1 for byte 0 of threadgroup memory: no barrier stands between
crosses_simd_barrier: kernel crosses_simd_barrier` + at + `a race of threads 0 and 32 for byte 0 of threadgroup memory: no barrier stands between
races_past_no_fence: kernel races_past_no_fence` + at + `a race of threads 1 and 0 for byte 4 of threadgroup memory: no barrier stands between
past_shared: kernel past_shared` + at + `thread 7 is at byte 284 of threadgroup memory of 256 bytes
parts_at_sum: kernel parts_at_sum` + at + `the lanes of SIMD-group 0 part: lane 0 is at simd_sum, lane 31 is not
leaves_barrier: kernel leaves_barrier` + at + `32 of 64 threads ended before a threadgroup_barrier that the others wait at
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}
