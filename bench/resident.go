package bench

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"splash/dequant"
	"splash/planner"
)

// A Resident is the memory of a process that is in RAM, in bytes.
type Resident struct {
	Total int64 `json:"resident_bytes"`
	File  int64 `json:"resident_file_bytes"` // mapped from files: weights and the program
}

// ReadResident reads this process's own, on Linux. Elsewhere it is all zeros.
func ReadResident() (Resident, error) {
	data, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, fs.ErrNotExist) {
		return Resident{}, nil
	}
	if err != nil {
		return Resident{}, err
	}
	return ParseResident(data)
}

// ParseResident reads the text of /proc/PID/status.
func ParseResident(status []byte) (r Resident, err error) {
	for s := bufio.NewScanner(bytes.NewReader(status)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		var to *int64
		switch name {
		case "VmRSS":
			to = &r.Total
		case "RssFile":
			to = &r.File
		default:
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil || kib < 0 || kib > 1<<50 {
			return Resident{}, errors.New("bench: the process's status has " + s.Text())
		}
		*to = kib << 10
	}
	if r.Total == 0 {
		return Resident{}, errors.New("bench: the process's status has no resident set")
	}
	return r, nil
}

// ModelBytes is what a plan's weights are as stored.
func ModelBytes(p *planner.Plan) (sum int64) {
	for i := range p.Tensors {
		sum += storedBytes(&p.Tensors[i]) * int64(max(1, p.Tensors[i].Experts))
	}
	return sum
}

// storedBytes is the size of a tensor's matrix, of an expert's one.
func storedBytes(t *planner.Tensor) int64 {
	f := dequant.Lookup(t.Type)
	if f == nil {
		return 0
	}
	return int64(f.RowBytes(t.Cols)) * int64(t.Rows)
}
