package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"splash/internal/flock"
)

// A Download is a file that the cache lacks, and how much of it.
type Download struct {
	File
	Left int64 // bytes that no earlier attempt fetched
}

// Missing lists what the cache lacks of files, and the bytes of that.
func (c *Client) Missing(m *Model, files []File) (missing []Download, bytes int64) {
	for _, f := range files {
		if _, ok := c.Cache.Path(m.Repo, m.Commit, f); ok {
			continue
		}
		d := Download{File: f}
		if _, err := c.blobSize(m.Repo, f); err != nil {
			d.Left = f.Size
			if info, err := os.Stat(c.Cache.blob(m.Repo, f.Digest) + incomplete); err == nil {
				d.Left -= min(f.Size, info.Size())
			}
		}
		missing = append(missing, d)
		bytes += d.Left
	}
	return missing, bytes
}

var errNoBlob = errors.New("no such blob")

// blobSize reports the size of a file's blob when it is the listed one.
func (c *Client) blobSize(repo string, f File) (int64, error) {
	info, err := os.Stat(c.Cache.blob(repo, f.Digest))
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || info.Size() != f.Size {
		return info.Size(), errNoBlob
	}
	return info.Size(), nil
}

// Fetch brings files of a commit into the cache, at most four at once, and records the commit under the branch that m
// was asked by. What an interrupted attempt left is resumed, by this process or another.
func (c *Client) Fetch(ctx context.Context, m *Model, files []File) error {
	missing, bytes := c.Missing(m, files)
	if len(missing) > 0 {
		if err := c.fetchAll(ctx, m, missing, bytes); err != nil {
			return err
		}
	}
	branch := m.Revision
	if branch == "" {
		branch = "main"
	}
	if IsCommit(branch) || m.Cached {
		return nil
	}
	if err := c.Cache.SetRef(m.Repo, branch, m.Commit); err != nil {
		c.logf("Warning: could not record %s of %s in the Hub cache: %v", branch, m.Repo, err)
	}
	return nil
}

func (c *Client) fetchAll(ctx context.Context, m *Model, files []Download, bytes int64) error {
	report := Progress(silent{})
	if bytes > 0 {
		if c.Offline {
			return fmt.Errorf("%s of %s is not in the Hub cache and %w", files[0].Path, m.Repo, ErrOffline)
		}
		c.logf("Fetching %d file(s), %.2f GB, from %s@%.12s; cached files are reused.",
			len(files), float64(bytes)/1e9, m.Repo, m.Commit)
		if err := c.requireSpace(bytes); err != nil {
			return err
		}
		if c.Progress != nil {
			report = c.Progress(bytes)
		}
	}
	defer report.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.files)
	for _, d := range files {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := c.fetchFile(ctx, m, d, report); err != nil {
				return fmt.Errorf("fetch %s of %s: %w", d.Path, m.Repo, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// freeMargin is what a download leaves free of a disk.
const freeMargin = 256 << 20

func (c *Client) requireSpace(bytes int64) error {
	if err := os.MkdirAll(c.Cache.Dir, 0o777); err != nil {
		return fmt.Errorf("the Hub cache: %w", err)
	}
	free, err := c.space(c.Cache.Dir)
	if err == nil && free-freeMargin < bytes {
		return fmt.Errorf("%.2f GB to fetch and %.2f GB free in %s", float64(bytes)/1e9, float64(free)/1e9, c.Cache.Dir)
	}
	return nil
}

// fetchFile makes one file visible in its snapshot, under the lock of its blob.
func (c *Client) fetchFile(ctx context.Context, m *Model, d Download, report Progress) error {
	f := d.File
	if !digestPattern.MatchString(f.Digest) || f.Size < 0 {
		return errors.New("the Hub lists no size and digest of it")
	}
	lock, err := flock.Acquire(ctx, c.Cache.lock(m.Repo, f.Digest), func() {
		c.logf("Another download of %s is running; waiting...", f.Path)
	})
	if err != nil {
		return err
	}
	defer lock.Unlock()
	blob := c.Cache.blob(m.Repo, f.Digest)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	path, ok := c.Cache.Path(m.Repo, m.Commit, f)
	if ok {
		report.Grow(-d.Left) // published while this process waited
		return nil
	}
	size, err := c.blobSize(m.Repo, f)
	if errors.Is(err, errNoBlob) {
		c.logf("Threw away %s in the Hub cache: %d bytes, the Hub lists %d.", f.Path, size, f.Size)
		err = os.Remove(blob)
		if err == nil {
			err = fs.ErrNotExist
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = c.fetchBlob(ctx, m, d, blob, report)
	} else if err == nil {
		report.Grow(-d.Left)
	}
	if err != nil {
		return err
	}
	return c.link(blob, path)
}

const incomplete = ".incomplete"

// fetchBlob completes the blob's incomplete file, checks it and names it as the blob. An incomplete file always holds
// the first bytes of its content, as other tools of the Hub leave and expect it.
func (c *Client) fetchBlob(ctx context.Context, m *Model, d Download, blob string, report Progress) error {
	for attempt := 0; ; attempt++ {
		had, err := c.complete(ctx, m, d, blob+incomplete, report)
		if err == nil {
			return os.Rename(blob+incomplete, blob)
		}
		var wrong *contentError
		if !errors.As(err, &wrong) {
			return err
		}
		if rm := os.Remove(blob + incomplete); rm != nil {
			return rm
		}
		// Bytes that another attempt left may be what is wrong. All of them fresh, the server is.
		if had == 0 || attempt > 0 {
			return err
		}
		c.logf("Threw away an incomplete %s: %v.", d.Path, wrong)
		d.Left = d.Size - had
		report.Add(-d.Left)
	}
}

// A contentError says that a whole file is not the one that the Hub lists.
type contentError struct{ found, want string }

func (e *contentError) Error() string {
	return fmt.Sprintf("its content has the digest %s, the Hub lists %s", e.found, e.want)
}

// complete appends to the incomplete file what it lacks. had is what it held before.
func (c *Client) complete(ctx context.Context, m *Model, d Download, path string, report Progress) (had int64, err error) {
	f := d.File
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	had = info.Size()
	if had > f.Size {
		c.logf("Threw away an incomplete %s: %d bytes, the Hub lists %d.", f.Path, had, f.Size)
		if err := file.Truncate(0); err != nil {
			return 0, err
		}
		had = 0
	}
	report.Grow(f.Size - had - d.Left)
	at := &location{hub: c.fileURL(m.Repo, m.Commit, f.Path)}
	if had < f.Size {
		if err := c.head(ctx, at.hub, f); err != nil {
			return had, err
		}
	}
	sum := newDigest(f)
	if _, err := io.Copy(&interruptible{ctx, sum}, io.NewSectionReader(file, 0, had)); err != nil {
		return had, err
	}
	if had < f.Size {
		if _, err := file.Seek(had, io.SeekStart); err != nil {
			return had, err
		}
		if err := c.ranges(ctx, at, f, had, &sink{file, sum, report}); err != nil {
			return had, err
		}
	}
	if found := hex.EncodeToString(sum.Sum(nil)); found != f.Digest {
		return had, &contentError{found, f.Digest}
	}
	return had, file.Sync()
}

// interruptible ends a long write with its context.
type interruptible struct {
	ctx context.Context
	io.Writer
}

func (w *interruptible) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.Writer.Write(p)
}

// newDigest is the hash that the Hub names a file by: SHA-256, or Git's SHA-1 of a blob.
func newDigest(f File) hash.Hash {
	if len(f.Digest) == 2*sha256.Size {
		return sha256.New()
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

// Digest is the digest of a local file's content in the form of want: a Git blob's for 40 digits, else SHA-256.
func Digest(ctx context.Context, path, want string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	if len(want) == 2*sha1.Size {
		sum = newDigest(File{Size: info.Size(), Digest: want})
	}
	if _, err := io.Copy(&interruptible{ctx, sum}, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// head asks the Hub for the file's size and ETag before its bytes.
func (c *Client) head(ctx context.Context, u string, f File) error {
	resp, err := c.get(ctx, request{method: http.MethodHead, url: u, patient: true})
	if err != nil {
		return err
	}
	resp.Body.Close()
	etag := resp.Header.Get("X-Linked-Etag")
	if etag == "" {
		etag = resp.Header.Get("ETag")
	}
	if etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`); etag != f.Digest {
		return fmt.Errorf("the Hub serves it with ETag %q and lists %s", etag, f.Digest)
	}
	length := resp.Header.Get("X-Linked-Size")
	if length == "" && resp.StatusCode == http.StatusOK {
		length = resp.Header.Get("Content-Length")
	}
	if n, err := strconv.ParseInt(length, 10, 64); err == nil && n != f.Size {
		return fmt.Errorf("the Hub serves %d bytes of it and lists %d", n, f.Size)
	}
	return nil
}

// sink appends a file's bytes in their order.
type sink struct {
	file   *os.File
	sum    hash.Hash
	report Progress
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.file.Write(p)
	s.sum.Write(p[:n])
	s.report.Add(int64(n))
	return n, err
}

// A span is one range of a file on its way. Its pieces come in order; the channel has room for all of them, so that a
// range need not wait for the ones before it.
type span struct {
	from, to int64
	pieces   chan []byte
}

const piece = 256 << 10

var pieces = sync.Pool{New: func() any { return make([]byte, piece) }}

// ranges fetches the bytes from an offset on, several ranges at once, and writes them to out in order.
func (c *Client) ranges(ctx context.Context, at *location, f File, from int64, out io.Writer) error {
	group, ctx := errgroup.WithContext(ctx)
	started := make(chan *span)
	slots := make(chan struct{}, c.window)
	group.Go(func() error {
		defer close(started)
		for ; from < f.Size; from += c.chunk {
			s := &span{from: from, to: min(from+c.chunk, f.Size)}
			s.pieces = make(chan []byte, (c.chunk+piece-1)/piece)
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			group.Go(func() error {
				defer close(s.pieces)
				return c.fetchSpan(ctx, at, f, s)
			})
			select {
			case started <- s:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	group.Go(func() error {
		for s := range started {
			for p := range s.pieces {
				s.from += int64(len(p))
				if _, err := out.Write(p); err != nil {
					return err
				}
				pieces.Put(p[:piece])
			}
			if s.from < s.to {
				return nil // its fetcher returns why
			}
			<-slots
		}
		return nil
	})
	return group.Wait()
}

// fetchSpan fetches one range, going on after what came where its connection breaks. The attempts are counted anew
// after each one that brought bytes.
func (c *Client) fetchSpan(ctx context.Context, at *location, f File, s *span) error {
	from := s.from
	for attempt := 0; ; attempt++ {
		n, err := c.fetchPieces(ctx, at, f, from, s)
		from += n
		if from == s.to {
			return nil
		}
		if n > 0 {
			attempt = 0
		}
		wait, again := c.another(err, true)
		if !again || attempt+1 >= c.attempts || !pause(ctx, c.Sleep(attempt, wait)) {
			return err
		}
	}
}

func (c *Client) fetchPieces(ctx context.Context, at *location, f File, from int64, s *span) (n int64, err error) {
	body, err := c.open(ctx, at, from, s.to, f.Size)
	if err != nil {
		return 0, err
	}
	defer body.Close()
	for from+n < s.to {
		p := pieces.Get().([]byte)
		k, err := io.ReadFull(body, p[:min(piece, s.to-from-n)])
		if k > 0 {
			n += int64(k)
			select {
			case s.pieces <- p[:k]:
			case <-ctx.Done():
				return n, context.Cause(ctx)
			}
		}
		if err != nil && from+n < s.to {
			return n, fmt.Errorf("a range ended after %d of %d bytes: %w", n, s.to-from, err)
		}
	}
	return n, nil
}

// link makes a blob visible under a snapshot's path: by a relative link, or by moving it where there are no links.
func (c *Client) link(blob, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(path), blob)
	if err != nil {
		return err
	}
	// A link is made whole or not at all, so none of another name is needed that a killed process would leave behind.
	err = c.symlink(target, path)
	if errors.Is(err, fs.ErrExist) {
		if there, _ := os.Readlink(path); there == target {
			return nil
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		err = c.symlink(target, path)
	}
	if err == nil {
		return nil
	}
	// exFAT answers EPERM, others that they know no links, Windows that the user may not make any.
	const privilegeNotHeld = syscall.Errno(1314)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, privilegeNotHeld) {
		return os.Rename(blob, path)
	}
	return err
}

// Read returns the content of a small file of a commit, fetched into the cache when it is not there.
func (c *Client) Read(ctx context.Context, m *Model, f File, limit int64) ([]byte, error) {
	if f.Size > limit {
		return nil, fmt.Errorf("%s of %s has %d bytes, over %d", f.Path, m.Repo, f.Size, limit)
	}
	path, ok := c.Cache.Path(m.Repo, m.Commit, f)
	if !ok {
		if c.Offline {
			return nil, fmt.Errorf("%s of %s is not in the Hub cache and %w", f.Path, m.Repo, ErrOffline)
		}
		if err := c.fetchFile(ctx, m, Download{f, f.Size}, silent{}); err != nil {
			return nil, fmt.Errorf("fetch %s of %s: %w", f.Path, m.Repo, err)
		}
	}
	return os.ReadFile(path)
}
