// Package crash keeps what is known of an engine's fault, where its user asks for that: the error with the stack it came
// from, the tokens of the requests under way, and the engine's last lines.
package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"splash/internal/engine"
)

// Limits of what is kept.
const (
	maxBundle  = 16 << 20 // bytes of a bundle
	maxBundles = 4
	maxKept    = 64 << 20 // bytes of all bundles
	maxLines   = 512      // of the engine
	maxTokens  = 1 << 20  // of all requests of a bundle
)

// Dir is the folder of bundles: in Logs on macOS, elsewhere in the state folder of the XDG base directories.
func Dir(getenv func(string) string) string {
	if runtime.GOOS == "darwin" {
		return filepath.Join(getenv("HOME"), "Library", "Logs", "Splash", "crash")
	}
	if dir := getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "splash", "crash")
	}
	return filepath.Join(getenv("HOME"), ".local", "state", "splash", "crash")
}

// A Recorder writes bundles to a folder. It is safe for concurrent use.
type Recorder struct {
	dir string

	mu    sync.Mutex
	lines []string // the last ones
	last  string   // path of the newest bundle
}

// New returns a recorder. The folder is made when there is something to keep.
func New(dir string) *Recorder { return &Recorder{dir: dir} }

// Log keeps a line of the engine.
func (r *Recorder) Log(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == maxLines {
		r.lines = slices.Delete(r.lines, 0, 1)
	}
	r.lines = append(r.lines, time.Now().UTC().Format(time.RFC3339)+" "+line)
}

// Last is the path of the newest bundle this recorder wrote; empty before any.
func (r *Recorder) Last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// bundle is a bundle's JSON.
type bundle struct {
	Time     string    `json:"time"`
	Error    string    `json:"error"`
	Stack    string    `json:"stack,omitempty"`
	Requests []request `json:"requests"`
	Log      []string  `json:"log"`
}

type request struct {
	Prompt    []int32 `json:"prompt"`            // its last tokens
	Omitted   int     `json:"omitted,omitempty"` // tokens before those
	Processed int     `json:"processed"`         // rows that are part of the lane
	Generated int     `json:"generated"`
	Inputs    []int32 `json:"inputs"` // of the cycle: the anchor and its proposals
	Seed      uint64  `json:"seed"`
}

// Record writes a bundle of a fault, which nobody but its owner may read, and removes the oldest ones beyond the limits.
func (r *Recorder) Record(f *engine.Fault) (path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UTC()
	b := bundle{Time: now.Format(time.RFC3339Nano), Error: f.Err.Error(), Stack: string(f.Stack), Requests: []request{}, Log: r.lines}
	for _, q := range f.Requests {
		most := maxTokens / len(f.Requests)
		omitted := max(0, len(q.Prompt)-most)
		b.Requests = append(b.Requests, request{q.Prompt[omitted:], omitted, q.Processed, q.Generated, q.Inputs, q.Seed})
	}
	data, err := json.Marshal(b)
	if err == nil && len(data) > maxBundle {
		b.Log, b.Stack = nil, ""
		data, err = json.Marshal(b)
	}
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return "", err
	}
	if path, err = write(r.dir, now, data); err != nil {
		return "", err
	}
	r.last = path
	return path, prune(r.dir)
}

// write publishes a bundle under a name that sorts by time.
func write(dir string, now time.Time, data []byte) (string, error) {
	f, err := os.CreateTemp(dir, ".crash-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("crash-%s-%d.json", now.Format("20060102T150405.000000000"), os.Getpid()))
	return path, os.Rename(f.Name(), path)
}

// prune keeps the newest bundles.
func prune(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	kept, bytes := 0, int64(0)
	var faults []error
	for _, e := range slices.Backward(entries) {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(e.Name(), "crash-") || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		kept++
		bytes += info.Size()
		if kept > maxBundles || bytes > maxKept {
			faults = append(faults, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(faults...)
}
