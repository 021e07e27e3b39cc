package machine

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// The limits of containers, in the files of control groups of version 2 and 1 (docs.kernel.org, admin-guide/cgroup-v2 and
// cgroup-v1/memory). Version 1 spells none as a number beyond every machine's.
var limits = []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}

func memory() int64 { return memoryOf(os.DirFS("/")) }

func memoryOf(root fs.FS) int64 {
	n := total(root)
	for _, name := range limits {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && limit > 0 && (n == 0 || limit < n) {
			n = limit
		}
	}
	return n
}

// total is the machine's memory: MemTotal of /proc/meminfo, in units of 1024 bytes.
func total(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "MemTotal:" || fields[2] != "kB" {
			continue
		}
		if kb, err := strconv.ParseInt(fields[1], 10, 54); err == nil && kb > 0 {
			return kb << 10
		}
	}
	return 0
}
