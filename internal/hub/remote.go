package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
)

// Step is the grain in which a Remote fetches: what is read costs whole steps.
const Step = 1 << 20

// maxSteps bounds what a Remote keeps: no header is as large.
const maxSteps = 256

// spans are the lengths in steps of the ranges that a sequential reading asks for, the last one over and over: a header
// refused early costs one step, one of 12 MiB five ranges.
var spans = []int64{1, 1, 2, 4, 4, 8}

// Reach is the number of bytes that the first so many ranges of a sequential reading cover.
func Reach(ranges int) int64 {
	var steps int64
	for i := range ranges {
		steps += spans[min(i, len(spans)-1)]
	}
	return steps * Step
}

// A Remote reads a file of the Hub by ranges, as an io.ReaderAt. It fetches whole steps, each at most once, and nothing
// before it is asked for: a range is read from its connection only as far as the reader goes, and Close drops the rest.
type Remote struct {
	ctx  context.Context // of the reading: io.ReaderAt passes none
	c    *Client
	file File
	name string
	at   *location

	mu    sync.Mutex
	steps map[int64][]byte
	body  io.ReadCloser // of the open range
	next  int64         // the step that body is at
	end   int64         // the step that the open range ends before
	run   int           // ranges of the sequential reading so far
	err   error         // of the last request; the same for every read after it
}

// Open returns a reader of a file at a commit. It makes no request.
func (c *Client) Open(ctx context.Context, m *Model, f File) *Remote {
	return &Remote{
		ctx:   ctx,
		c:     c,
		file:  f,
		name:  m.Repo + " " + f.Path,
		at:    &location{hub: c.fileURL(m.Repo, m.Commit, f.Path)},
		steps: map[int64][]byte{},
	}
}

// Size is the file's size as the Hub lists it.
func (r *Remote) Size() int64 { return r.file.Size }

// Fetched is the number of bytes read so far.
func (r *Remote) Fetched() (n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		n += int64(len(s))
	}
	return n
}

// ReadAt implements io.ReaderAt.
func (r *Remote) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("hub: negative offset")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(p) && off+int64(n) < r.file.Size {
		at := off + int64(n)
		step, err := r.step(at / Step)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], step[at%Step:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (r *Remote) step(i int64) ([]byte, error) {
	if s, ok := r.steps[i]; ok {
		return s, nil
	}
	if r.err == nil {
		r.err = r.fetch(i)
	}
	return r.steps[i], r.err
}

// fetch reads the open range, or else a new one, up to step i.
func (r *Remote) fetch(i int64) error {
	if len(r.steps) >= maxSteps {
		return fmt.Errorf("%s: more than %d MiB were asked for without a download", r.name, maxSteps*Step>>20)
	}
	for attempt := 0; ; attempt++ {
		err := r.advance(i)
		if err == nil {
			return nil
		}
		r.drop()
		wait, again := r.c.another(err, true)
		if !again || attempt+1 >= r.c.attempts || !pause(r.ctx, r.c.Sleep(attempt, wait)) {
			return fmt.Errorf("read %s: %w", r.name, err)
		}
	}
}

func (r *Remote) advance(i int64) error {
	if r.body == nil || i < r.next || i >= r.end {
		if err := r.ask(i); err != nil {
			return err
		}
	}
	for r.next <= i {
		data := make([]byte, min(Step, r.file.Size-r.next*Step))
		if _, err := io.ReadFull(r.body, data); err != nil {
			return fmt.Errorf("range ends early: %w", err)
		}
		r.steps[r.next] = data
		r.next++
	}
	if r.next == r.end {
		r.body.Close()
		r.body = nil
	}
	return nil
}

// ask opens the range that starts at step i: a longer one where the reading goes on from the last.
func (r *Remote) ask(i int64) error {
	if r.body != nil || i != r.end {
		r.run = 0
	}
	r.drop()
	steps := (r.file.Size + Step - 1) / Step
	end := min(steps, i+spans[min(r.run, len(spans)-1)])
	body, err := r.c.open(r.ctx, r.at, i*Step, min(end*Step, r.file.Size), r.file.Size)
	if err != nil {
		return err
	}
	r.body, r.next, r.end = body, i, end
	r.run++
	return nil
}

func (r *Remote) drop() {
	if r.body != nil {
		r.body.Close()
		r.body = nil
	}
}

// Close ends the open range. Steps already read can still be.
func (r *Remote) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop()
	if r.err == nil {
		r.err = errors.New("hub: read of a closed file")
	}
	return nil
}

// A location is where a file's bytes are: at the Hub's own address until a redirect tells another, which then serves the
// next ranges too, until it no longer does.
type location struct {
	hub string

	mu     sync.Mutex
	direct string
}

func (l *location) address() (url string, direct bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.direct != "" {
		return l.direct, true
	}
	return l.hub, false
}

func (l *location) learn(url string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.direct = ""
	if url != l.hub {
		l.direct = url
	}
}

// open asks for the bytes [from, to) of a file of so many bytes and checks that the answer holds them.
func (c *Client) open(ctx context.Context, at *location, from, to, size int64) (io.ReadCloser, error) {
	q := request{method: http.MethodGet, ranges: fmt.Sprintf("bytes=%d-%d", from, to-1)}
	var direct bool
	q.url, direct = at.address()
	resp, err := c.get(ctx, q)
	if direct && err != nil {
		at.learn(at.hub) // the next attempt asks the Hub again
	}
	var refused *Error
	if direct && errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusTooManyRequests {
		q.url = at.hub // a signed address has ended
		resp, err = c.get(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	if err := checkRange(resp, from, to, size); err != nil {
		resp.Body.Close()
		return nil, &permanentError{err}
	}
	at.learn(resp.Request.URL.String())
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, to-from), resp.Body}, nil
}

var contentRange = regexp.MustCompile(`^bytes (\d+)-(\d+)/(\d+|\*)$`)

// checkRange holds an answer to the range asked for. A whole file answers a range that starts at its first byte.
func checkRange(resp *http.Response, from, to, size int64) error {
	where := resp.Request.URL.Host + resp.Request.URL.Path
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return fmt.Errorf("%s sends the file encoded as %q", where, e)
	}
	if resp.StatusCode == http.StatusOK {
		if from != 0 {
			return fmt.Errorf("%s does not serve ranges", where)
		}
		if resp.ContentLength >= 0 && resp.ContentLength != size {
			return fmt.Errorf("%s holds %d bytes; the Hub lists %d", where, resp.ContentLength, size)
		}
		return nil
	}
	m := contentRange.FindStringSubmatch(resp.Header.Get("Content-Range"))
	if resp.StatusCode != http.StatusPartialContent || m == nil {
		return fmt.Errorf("%s answers a range with %s, Content-Range %q", where, resp.Status, resp.Header.Get("Content-Range"))
	}
	first, _ := strconv.ParseInt(m[1], 10, 64)
	last, _ := strconv.ParseInt(m[2], 10, 64)
	if total, err := strconv.ParseInt(m[3], 10, 64); err == nil && total != size {
		return fmt.Errorf("%s holds %d bytes; the Hub lists %d", where, total, size)
	}
	if first != from || last != to-1 {
		return fmt.Errorf("%s answers bytes %d-%d with %d-%d", where, from, to-1, first, last)
	}
	return nil
}
