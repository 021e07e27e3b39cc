package machine

import (
	"testing"
	"testing/fstest"
)

func TestMemory(t *testing.T) {
	if n := Memory(); n < 1<<20 {
		t.Errorf("this machine has %d bytes", n)
	}
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const meminfo = "MemFree: 1 kB\nMemTotal:       1000 kB\nMemAvailable: 3 kB\n"
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"machine":      {fstest.MapFS{"proc/meminfo": file(meminfo)}, 1024000},
		"container":    {fstest.MapFS{"proc/meminfo": file(meminfo), limits[0]: file("500000\n")}, 500000},
		"old":          {fstest.MapFS{"proc/meminfo": file(meminfo), limits[1]: file("400000\n")}, 400000},
		"no limit":     {fstest.MapFS{"proc/meminfo": file(meminfo), limits[0]: file("max\n"), limits[1]: file("9223372036854771712\n")}, 1024000},
		"limit alone":  {fstest.MapFS{limits[0]: file("7")}, 7},
		"nothing":      {fstest.MapFS{}, 0},
		"not a number": {fstest.MapFS{"proc/meminfo": file("MemTotal: x kB\nMemTotal: -3 kB\n"), limits[0]: file("-1")}, 0},
	} {
		if got := memoryOf(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
