package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A refusal is a file of testdata/refused.
type refusal struct {
	name, fault, message string
	data                 []byte
	size                 int64
}

func loadRefusals(t testing.TB) []refusal {
	t.Helper()
	paths, err := filepath.Glob("testdata/refused/*.txt")
	if err != nil || len(paths) < 80 {
		t.Fatalf("%d files in testdata/refused, %v", len(paths), err)
	}
	var all []refusal
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseRefusal(string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		r.name = strings.TrimSuffix(filepath.Base(path), ".txt")
		all = append(all, r)
	}
	return all
}

func parseRefusal(text string) (r refusal, err error) {
	header, body, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(header) {
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "fault":
			r.fault = value
		case "message":
			r.message = value
		case "size":
			if r.size, err = strconv.ParseInt(value, 10, 64); err != nil {
				return r, err
			}
		default:
			return r, fmt.Errorf("unknown field %q", field)
		}
	}
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if r.data, err = appendLine(r.data, line); err != nil {
			return r, fmt.Errorf("%q: %w", line, err)
		}
	}
	if r.size == 0 {
		r.size = int64(len(r.data))
	}
	return r, nil
}

func appendLine(b []byte, line string) ([]byte, error) {
	kind, rest, _ := strings.Cut(line, " ")
	if kind == "raw" || kind == "str" {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, err
		}
		text, err := strconv.Unquote(quoted)
		if kind == "str" {
			return appendString(b, text), err
		}
		return append(b, text...), err
	}
	number, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "u8":
		return append(b, byte(n)), nil
	case "u16":
		return binary.LittleEndian.AppendUint16(b, uint16(n)), nil
	case "u32":
		return binary.LittleEndian.AppendUint32(b, uint32(n)), nil
	case "u64":
		return binary.LittleEndian.AppendUint64(b, n), nil
	case "zero":
		return append(b, make([]byte, n)...), nil
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

// A recorder is a source that notes what is read of it.
type recorder struct {
	io.ReaderAt
	reads   int
	from    int64 // where the next read is expected
	largest int
	errs    []string
}

func (r *recorder) ReadAt(p []byte, off int64) (int, error) {
	r.reads++
	r.largest = max(r.largest, len(p))
	if off < r.from {
		r.errs = append(r.errs, fmt.Sprintf("byte %d read again, %d was next", off, r.from))
	}
	n, err := r.ReaderAt.ReadAt(p, off)
	r.from = off + int64(n)
	return n, err
}

func TestRefused(t *testing.T) {
	for _, r := range loadRefusals(t) {
		t.Run(r.name, func(t *testing.T) {
			for _, o := range []Options{{}, {window: 16}, {window: 61}, {SkipTokenizer: r.name != "tokens-utf8"}} {
				src := &recorder{ReaderAt: bytes.NewReader(r.data)}
				h, err := o.Parse(src, r.size, "bad.gguf")
				want := strings.ReplaceAll(r.message, "FILE", "bad.gguf")
				if err == nil {
					t.Fatalf("options %+v: accepted %s as %+v; want: %s", o, r.fault, h, want)
				}
				if diff := cmp.Diff(want, err.Error()); diff != "" {
					t.Errorf("options %+v: (-want +got)\n%s", o, diff)
				}
				if src.errs != nil {
					t.Errorf("options %+v: %s", o, src.errs)
				}
			}
		})
	}
}

// The same bytes on disk are refused the same by Open.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, r := range loadRefusals(t) {
		path := filepath.Join(dir, r.name+".gguf")
		if err := os.WriteFile(path, r.data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, r.size); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err == nil {
			f.Close()
			t.Errorf("%s: opened", r.name)
			continue
		}
		if diff := cmp.Diff(strings.ReplaceAll(r.message, "FILE", path), err.Error()); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", r.name, diff)
		}
	}
}

// A refusal costs about what its file holds, whatever its counts claim.
func TestRefusalAllocatesLittle(t *testing.T) {
	for _, r := range loadRefusals(t) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(bytes.NewReader(r.data), r.size, "bad.gguf")
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", r.name)
		}
		// A window of at most 1 MiB, and kept strings of several: each read once, in pieces that double at most.
		limit := uint64(1<<20 + 64<<10 + 4*len(r.data))
		if got := after.TotalAlloc - before.TotalAlloc; got > limit {
			t.Errorf("%s: %d bytes allocated for a file of %d, want at most %d", r.name, got, len(r.data), limit)
		}
	}
}

// A ranger reads a file by HTTP ranges, as an installer reads a header before it downloads the file.
type ranger struct {
	client *http.Client
	url    string
}

func (r ranger) ReadAt(p []byte, off int64) (int, error) {
	req, err := http.NewRequest(http.MethodGet, r.url, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1))
	resp, err := r.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent {
		return 0, errors.New(resp.Status)
	}
	return io.ReadFull(resp.Body, p)
}

func TestRefusedOverHTTP(t *testing.T) {
	var requests int
	var data []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requests++
		http.ServeContent(w, req, "", noTime, bytes.NewReader(data))
	}))
	defer server.Close()
	src := ranger{server.Client(), server.URL}
	for _, r := range loadRefusals(t) {
		if r.size > 1<<20 {
			continue
		}
		// As if the header were the start of a long file: everything after the fault must stay unread.
		data = append(bytes.Clone(r.data), make([]byte, 4<<20)...)
		requests = 0
		_, err := Parse(src, r.size, "bad.gguf")
		if err == nil || err.Error() != strings.ReplaceAll(r.message, "FILE", "bad.gguf") {
			t.Errorf("%s: got %v, want %s", r.name, err, r.message)
		}
		if requests > 1 {
			t.Errorf("%s: %d requests, want at most 1", r.name, requests)
		}
	}
}

// A fault in the first bytes of a header of many chunks stops the reading there.
func TestRefusalStopsReading(t *testing.T) {
	for _, fault := range []string{"key-twice", "value-type", "alignment-3", "array-element-type"} {
		for _, r := range loadRefusals(t) {
			if r.name != fault {
				continue
			}
			src := &recorder{ReaderAt: bytes.NewReader(append(r.data, make([]byte, 8<<20)...))}
			if _, err := Parse(src, 8<<20, "bad.gguf"); err == nil {
				t.Errorf("%s: accepted", fault)
			}
			if src.reads != 1 || src.largest > chunk {
				t.Errorf("%s: %d reads of up to %d bytes, want one of at most %d", fault, src.reads, src.largest, chunk)
			}
		}
	}
}

// The faults of the source itself are told from those of the file.
func TestSourceFails(t *testing.T) {
	whole := minimal(t)
	broken := errors.New("connection reset")
	for _, test := range []struct {
		name string
		src  io.ReaderAt
		want string
	}{
		{"cut", bytes.NewReader(whole[:40]), "m.gguf: ends at byte 40 although its size is 224 bytes: it was cut while being read"},
		{"error", failing{whole[:40], broken}, `m.gguf: reading key 0 at byte 40: connection reset`},
	} {
		_, err := Options{window: 8}.Parse(test.src, int64(len(whole)), "m.gguf")
		if err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
		if test.name == "error" && !errors.Is(err, broken) {
			t.Errorf("%v does not wrap the source's error", err)
		}
	}
	if _, err := Parse(bytes.NewReader(nil), -1, "m.gguf"); err == nil {
		t.Error("a negative size was accepted")
	}
}

type failing struct {
	data []byte
	err  error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(f.data)) {
		return 0, f.err
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}
