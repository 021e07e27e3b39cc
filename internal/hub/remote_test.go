package hub

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"splash/internal/hub/hubtest"
)

// open commits one file and opens it.
func open(t *testing.T, data []byte) (*hubtest.Server, *Client, *Remote) {
	t.Helper()
	s := hubtest.New(t)
	s.Commit(repo, "main", map[string][]byte{"m.gguf": data})
	c, _ := client(t, s, t.TempDir())
	m := model(t, c, "")
	s.Reset()
	r := c.Open(context.Background(), m, m.Files[0])
	t.Cleanup(func() { r.Close() })
	return s, c, r
}

// A header of 12 MB costs 12 MiB and six requests, the redirect's among them, whatever pieces it is read in.
func TestSequentialReading(t *testing.T) {
	data := noise(4, 40<<20)
	for _, piece := range []int{1 << 12, 1 << 16, 5 << 20, 12_000_000} {
		s, _, r := open(t, data)
		buf := make([]byte, piece)
		for off := 0; off < 12_000_000; off += piece {
			n := min(piece, 12_000_000-off)
			if _, err := r.ReadAt(buf[:n], int64(off)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(buf[:n], data[off:off+n]) {
				t.Fatalf("wrong bytes at %d", off)
			}
		}
		got := s.Count(repo, "m.gguf")
		if got.Requests() > 6 || got.Bytes > 12<<20 || r.Fetched() != 12<<20 {
			t.Errorf("pieces of %d: %+v, %d read; want at most 6 requests and 12 MiB", piece, got, r.Fetched())
		}
	}
}

// A reading that ends early costs what it read, rounded up to a step.
func TestReadingThatStops(t *testing.T) {
	data := noise(5, 8<<20)
	for _, tt := range []struct {
		read     int64
		fetched  int64
		requests int
	}{{1, 1 << 20, 2}, {1 << 20, 1 << 20, 2}, {1<<20 + 1, 2 << 20, 3}, {3 << 20, 3 << 20, 4}, {3<<20 + 1, 4 << 20, 4}, {8 << 20, 8 << 20, 5}} {
		s, _, r := open(t, data)
		if _, err := io.Copy(io.Discard, io.NewSectionReader(r, 0, tt.read)); err != nil {
			t.Fatal(err)
		}
		if got := s.Count(repo, "m.gguf"); got.Requests() != tt.requests || r.Fetched() != tt.fetched {
			t.Errorf("%d bytes: %+v, %d fetched; want %d requests, %d fetched", tt.read, got, r.Fetched(), tt.requests, tt.fetched)
		}
		// Read again: nothing is asked for twice.
		before := s.Count(repo, "m.gguf").Requests()
		io.Copy(io.Discard, io.NewSectionReader(r, 0, tt.read))
		if after := s.Count(repo, "m.gguf").Requests(); after != before {
			t.Errorf("%d requests for bytes that were read before", after-before)
		}
	}
}

func TestReadingAtRandom(t *testing.T) {
	data := noise(6, 5<<20+123)
	_, _, r := open(t, data)
	for _, off := range []int64{4 << 20, 0, 5<<20 + 100, 3 << 20, 1<<20 - 7, 2 << 20} {
		got := make([]byte, 20)
		n, err := r.ReadAt(got, off)
		if err != nil || !bytes.Equal(got[:n], data[off:off+20]) {
			t.Errorf("at %d: %d bytes, %v", off, n, err)
		}
	}
	got := make([]byte, 50)
	if n, err := r.ReadAt(got, int64(len(data))-10); n != 10 || err != io.EOF || !bytes.Equal(got[:10], data[len(data)-10:]) {
		t.Errorf("across the end: %d, %v", n, err)
	}
	if n, err := r.ReadAt(got, int64(len(data))); n != 0 || err != io.EOF {
		t.Errorf("past the end: %d, %v", n, err)
	}
	if _, err := r.ReadAt(got, -1); err == nil {
		t.Error("a negative offset is no error")
	}
	if n, err := r.ReadAt(nil, 0); n != 0 || err != nil {
		t.Errorf("of nothing: %d, %v", n, err)
	}
}

func TestSmallAndEmptyFiles(t *testing.T) {
	for _, size := range []int{0, 1, 36, 65} {
		s, _, r := open(t, noise(7, size))
		n, err := r.ReadAt(make([]byte, 1<<16), 0)
		if n != size || err != io.EOF {
			t.Errorf("%d bytes: %d, %v", size, n, err)
		}
		if want := min(size, 1) * 2; s.Count(repo, "m.gguf").Requests() != want {
			t.Errorf("%d bytes: %d requests, want %d", size, s.Count(repo, "m.gguf").Requests(), want)
		}
	}
}

func TestReadingSurvivesFaults(t *testing.T) {
	data := noise(8, 6<<20)
	for name, fault := range map[string]hubtest.Fault{
		"broken connection": {Place: hubtest.CDN, Truncate: 1<<20 + 5000, Times: 3},
		"broken at once":    {Place: hubtest.CDN, Truncate: -1, Times: 2},
		"busy CDN":          {Place: hubtest.CDN, Status: 503, Times: 3},
		"limited Hub":       {Place: hubtest.Resolve, Status: 429, RetryAfter: "1", Times: 3},
		"silence":           {Place: hubtest.CDN, Truncate: 100, Stall: true, Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, c, r := open(t, data)
			c.stall = 50 * time.Millisecond
			s.Inject(fault)
			got, err := io.ReadAll(io.NewSectionReader(r, 0, int64(len(data))))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

func TestSignedAddressEnds(t *testing.T) {
	data := noise(9, 6<<20)
	s := hubtest.New(t)
	s.SignedFor = 2
	s.Commit(repo, "main", map[string][]byte{"m.gguf": data})
	c, _ := client(t, s, t.TempDir())
	m := model(t, c, "")
	s.Reset()
	r := c.Open(context.Background(), m, m.Files[0])
	got, err := io.ReadAll(io.NewSectionReader(r, 0, int64(len(data))))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := s.Count(repo, "m.gguf"); n.Hub != 2 || n.CDN != 5 {
		t.Errorf("%+v; want two addresses of two ranges each and one request refused", n)
	}
}

func TestReadingRefusals(t *testing.T) {
	data := noise(10, 3<<20)
	for _, tt := range []struct {
		name  string
		fault hubtest.Fault
		want  string
	}{
		{"no ranges", hubtest.Fault{Place: hubtest.CDN, IgnoreRange: true, Times: -1}, "does not serve ranges"},
		{"gone", hubtest.Fault{Place: hubtest.Resolve, Status: 404, Times: -1}, "404 Not Found"},
		{"denied", hubtest.Fault{Place: hubtest.Resolve, Status: 403, Times: -1}, "set HF_TOKEN or run 'hf auth login'"},
		{"busy for ever", hubtest.Fault{Place: hubtest.Resolve, Status: 500, Times: -1}, "500 Internal Server Error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _, r := open(t, data)
			s.Inject(tt.fault)
			buf := make([]byte, 1)
			_, err := r.ReadAt(buf, 2<<20)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "read "+repo+" m.gguf: ") {
				t.Fatalf("error %v, want %s", err, tt.want)
			}
			before := s.Count(repo, "m.gguf").Requests()
			if _, again := r.ReadAt(buf, 0); again == nil || again.Error() != err.Error() {
				t.Errorf("then %v, want the same error", again)
			}
			if s.Count(repo, "m.gguf").Requests() != before {
				t.Error("a reading that failed asks again")
			}
		})
	}
}

// A file that is larger or smaller than the Hub lists is not read as if it were the one.
func TestSizeOfAnotherFile(t *testing.T) {
	s, c, _ := open(t, noise(11, 3<<20))
	m := model(t, c, "")
	f := m.Files[0]
	f.Size++
	r := c.Open(context.Background(), m, f)
	if _, err := r.ReadAt(make([]byte, 1), 0); err == nil || !strings.Contains(err.Error(), "holds 3145728 bytes; the Hub lists 3145729") {
		t.Errorf("error %v", err)
	}
	if n := s.Count(repo, "m.gguf"); n.Requests() != 2 {
		t.Errorf("%+v: a refusal is tried again", n)
	}
}

func TestReadingIsBounded(t *testing.T) {
	_, _, r := open(t, noise(12, 2<<20))
	r.file.Size = 1 << 40
	for i := range int64(maxSteps) {
		r.steps[i] = nil
	}
	if _, err := r.ReadAt(make([]byte, 1), maxSteps*Step); err == nil || !strings.Contains(err.Error(), "more than 256 MiB") {
		t.Errorf("error %v", err)
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	s, c, _ := open(t, noise(13, 2<<20))
	s.Inject(hubtest.Fault{Place: hubtest.CDN, Truncate: 10, Stall: true, Times: -1})
	ctx, cancel := context.WithCancel(context.Background())
	m := model(t, c, "")
	r := c.Open(ctx, m, m.Files[0])
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := r.ReadAt(make([]byte, 100), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	r.Close()
	if _, err := r.ReadAt(make([]byte, 100), 0); err == nil {
		t.Error("a closed file is read")
	}
}
