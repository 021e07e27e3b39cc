// Package hubtest is a Hub for tests: the routes that internal/hub reads, on the loopback interface, with large files on
// a second server behind redirects, counts of what was asked and sent, and faults on demand.
package hubtest

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Server is the Hub and its CDN.
type Server struct {
	Hub, CDN *httptest.Server

	// Set before the first request.
	Token     string // asked of every request to the Hub; empty: none is asked
	NoSizes   bool   // listings lack sizes, as those of some mirrors do
	PageSize  int    // files of one page of the tree route; 0: all
	CDNHost   string // the name of the CDN in redirects; empty: the Hub's own host, at another port
	SignedFor int    // times one signed CDN address is served; 0: always

	Renamed map[string]string // repositories that redirect to another name

	mu      sync.Mutex
	repos   map[string]*repo
	faults  []*Fault
	counts  map[string]Count
	total   Count
	leaks   []string
	signed  map[string]int
	serial  int
	content map[string][]byte // by digest
}

type repo struct {
	branches map[string]string
	commits  map[string]map[string][]byte
}

// A Count is what the Hub and the CDN were asked about a file, and what they sent of it.
type Count struct {
	Hub, CDN, Heads int   // requests
	Bytes           int64 // of content
}

// Requests is the number of GET requests, redirected ones counted at both servers.
func (c Count) Requests() int { return c.Hub + c.CDN }

// A Place is a kind of request.
type Place int

// The places where a fault can be put.
const (
	API     Place = iota // listings
	Head                 // HEAD of a file at the Hub
	Resolve              // GET of a file at the Hub
	CDN                  // GET of a large file's bytes
)

// A Fault changes the answers to requests for a place and path.
type Fault struct {
	Place Place
	Path  string // of the file, or the repository's name; empty: any
	Times int    // requests that it meets; negative: all

	Status      int           // answer with this status
	RetryAfter  string        // and this header
	Message     string        // and this text
	Delay       time.Duration // wait before answering
	Rate        int           // bytes a second
	Truncate    int64         // break the connection after so many bytes; -1: before the first
	ETag        string        // say this ETag
	Corrupt     bool          // invert the first byte
	IgnoreRange bool          // answer with the whole file
	Stall       bool          // send nothing after Truncate bytes and keep the connection
}

// New starts a Hub that ends with the test. A token that reached the CDN fails the test.
func New(t testing.TB) *Server {
	s := &Server{
		repos: map[string]*repo{}, counts: map[string]Count{}, signed: map[string]int{}, content: map[string][]byte{},
	}
	s.Hub = httptest.NewServer(http.HandlerFunc(s.serveHub))
	s.CDN = httptest.NewServer(http.HandlerFunc(s.serveCDN))
	t.Cleanup(func() {
		s.Hub.CloseClientConnections()
		s.CDN.CloseClientConnections()
		s.Hub.Close()
		s.CDN.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.leaks) > 0 {
			t.Errorf("the token reached another server: %q", s.leaks)
		}
	})
	return s
}

// URL is the endpoint.
func (s *Server) URL() string { return s.Hub.URL }

// Commit makes files the head of a branch and returns its commit. Content is not copied.
func (s *Server) Commit(name, branch string, files map[string][]byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[name]
	if r == nil {
		r = &repo{map[string]string{}, map[string]map[string][]byte{}}
		s.repos[name] = r
	}
	s.serial++
	sum := sha1.Sum(fmt.Appendf(nil, "%s %s %d", name, branch, s.serial))
	commit := hex.EncodeToString(sum[:])
	r.branches[branch] = commit
	r.commits[commit] = files
	for p, data := range files {
		s.content[Digest(p, data)] = data
	}
	return commit
}

// Large reports whether the Hub keeps a file of that path as an LFS object.
func Large(p string) bool {
	return slices.Contains([]string{".gguf", ".safetensors", ".bin"}, path.Ext(p)) || path.Base(p) == "tokenizer.json"
}

// Digest is what the Hub names a file's content by.
func Digest(p string, data []byte) string {
	if Large(p) {
		sum := sha256.Sum256(data)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}

// Inject adds a fault. Those added first are met first.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal drops every fault.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Count is what was asked and sent of a file.
func (s *Server) Count(repo, path string) Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[repo+" "+path]
}

// Total is all that was asked and sent, listings among the Hub's requests.
func (s *Server) Total() Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Files is the number of requests to the Hub that were for files.
func (s *Server) Files() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.counts {
		n += c.Hub
	}
	return n
}

// Current reports whether the head of a branch holds content of that digest.
func (s *Server) Current(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.repos {
		for _, commit := range r.branches {
			for p, data := range r.commits[commit] {
				if Digest(p, data) == digest {
					return true
				}
			}
		}
	}
	return false
}

// Drop removes a branch; its commits stay.
func (s *Server) Drop(name, branch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.repos[name].branches, branch)
}

// Reset sets every count to zero.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts, s.total = map[string]Count{}, Count{}
}

func (s *Server) count(repo, path string, add Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total = s.total.plus(add)
	if path != "" {
		s.counts[repo+" "+path] = s.counts[repo+" "+path].plus(add)
	}
}

func (c Count) plus(d Count) Count {
	return Count{c.Hub + d.Hub, c.CDN + d.CDN, c.Heads + d.Heads, c.Bytes + d.Bytes}
}

func (s *Server) fault(place Place, path string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.Place == place && (f.Path == "" || f.Path == path) && f.Times != 0 {
			f.Times--
			return *f
		}
	}
	return Fault{}
}

// refuse answers with a fault's status.
func (f Fault) refuse(w http.ResponseWriter, r *http.Request) bool {
	if f.Delay > 0 {
		select {
		case <-r.Context().Done():
		case <-time.After(f.Delay):
		}
	}
	if f.Status == 0 {
		return false
	}
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	http.Error(w, f.Message, f.Status)
	return true
}

func (s *Server) serveHub(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Authorization"); s.Token != "" && got != "Bearer "+s.Token {
		s.count("", "", Count{Hub: 1})
		fail(w, http.StatusUnauthorized, "GatedRepo", "Access to this repository is restricted. You sent "+got)
		return
	}
	for from, to := range s.Renamed {
		if strings.Contains(r.URL.Path+"/", "/"+from+"/") {
			s.count("", "", Count{Hub: 1})
			http.Redirect(w, r, strings.Replace(r.URL.RequestURI(), from, to, 1), http.StatusTemporaryRedirect)
			return
		}
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	switch {
	case len(parts) >= 4 && parts[0] == "api" && parts[1] == "models":
		s.serveListing(w, r, parts[2]+"/"+parts[3], parts[4:])
	case len(parts) >= 5 && parts[2] == "resolve":
		file, err := url.PathUnescape(strings.Join(parts[4:], "/"))
		if err != nil {
			fail(w, http.StatusBadRequest, "", err.Error())
			return
		}
		s.serveFile(w, r, parts[0]+"/"+parts[1], parts[3], file)
	default:
		fail(w, http.StatusNotFound, "", "no such route")
	}
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Error-Code", code)
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
}

// files finds the commit of a revision and its files.
func (s *Server) files(name, revision string) (commit string, files map[string][]byte, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[name]
	if r == nil {
		return "", nil, "RepoNotFound"
	}
	if c, ok := r.branches[revision]; ok {
		revision = c
	}
	files, ok := r.commits[revision]
	if !ok {
		return "", nil, "RevisionNotFound"
	}
	return revision, files, ""
}

func (s *Server) serveListing(w http.ResponseWriter, r *http.Request, name string, rest []string) {
	s.count("", "", Count{Hub: 1})
	if s.fault(API, name).refuse(w, r) {
		return
	}
	revision := "main"
	if len(rest) == 2 {
		revision, _ = url.PathUnescape(rest[1])
	}
	commit, files, code := s.files(name, revision)
	if code != "" {
		fail(w, http.StatusNotFound, code, name+" "+revision+" not found")
		return
	}
	paths := make([]string, 0, len(files))
	for p := range files {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	w.Header().Set("Content-Type", "application/json")
	if len(rest) == 2 && rest[0] == "tree" {
		s.serveTree(w, r, paths, files)
		return
	}
	siblings := []any{}
	for _, p := range paths {
		item := map[string]any{"rfilename": p}
		if r.URL.Query().Get("blobs") == "true" && !s.NoSizes {
			item["size"], item["blobId"] = len(files[p]), gitDigest(files[p])
			if Large(p) {
				item["lfs"] = map[string]any{"sha256": Digest(p, files[p]), "size": len(files[p]), "pointerSize": 134}
			}
		}
		siblings = append(siblings, item)
	}
	json.NewEncoder(w).Encode(map[string]any{
		"id": name, "modelId": name, "sha": commit, "private": false, "siblings": siblings,
	})
}

func gitDigest(data []byte) string { return Digest("", data) }

func (s *Server) serveTree(w http.ResponseWriter, r *http.Request, paths []string, files map[string][]byte) {
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	to := len(paths)
	if s.PageSize > 0 && from+s.PageSize < to {
		to = from + s.PageSize
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.Itoa(to))
		next.RawQuery = q.Encode()
		w.Header().Set("Link", fmt.Sprintf(`<%s%s>; rel="next"`, s.Hub.URL, next.String()))
	}
	entries := []any{}
	for _, p := range paths[from:to] {
		e := map[string]any{"type": "file", "path": p, "size": len(files[p]), "oid": gitDigest(files[p])}
		if Large(p) {
			e["lfs"] = map[string]any{"oid": Digest(p, files[p]), "size": len(files[p]), "pointerSize": 134}
		}
		entries = append(entries, e)
		if dir := path.Dir(p); dir != "." {
			entries = append(entries, map[string]any{"type": "directory", "path": dir, "size": 0, "oid": strings.Repeat("0", 40)})
		}
	}
	json.NewEncoder(w).Encode(entries)
}

func (s *Server) serveFile(w http.ResponseWriter, r *http.Request, name, revision, file string) {
	place, add := Resolve, Count{Hub: 1}
	if r.Method == http.MethodHead {
		place, add = Head, Count{Heads: 1}
	}
	s.count(name, file, add)
	f := s.fault(place, file)
	if f.refuse(w, r) {
		return
	}
	commit, files, code := s.files(name, revision)
	data, ok := files[file]
	if code == "" && !ok {
		code = "EntryNotFound"
	}
	if code != "" {
		fail(w, http.StatusNotFound, code, name+" "+file+" not found")
		return
	}
	etag := Digest(file, data)
	if f.ETag != "" {
		etag = f.ETag
	}
	w.Header().Set("X-Repo-Commit", commit)
	if !Large(file) {
		w.Header().Set("ETag", `W/"`+etag+`"`)
		s.send(w, r, name, file, data, f)
		return
	}
	w.Header().Set("X-Linked-Etag", `"`+etag+`"`)
	w.Header().Set("X-Linked-Size", strconv.Itoa(len(data)))
	http.Redirect(w, r, s.sign(name, file, Digest(file, data)), http.StatusFound)
}

// sign makes a CDN address that is served SignedFor times.
func (s *Server) sign(name, file, digest string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	key := strconv.Itoa(s.serial)
	s.signed[key] = s.SignedFor
	base := s.CDN.URL
	if s.CDNHost != "" {
		u, _ := url.Parse(base)
		base = "http://" + s.CDNHost + ":" + u.Port()
	}
	return base + "/" + digest + "?" + url.Values{"repo": {name}, "file": {file}, "signature": {key}}.Encode()
}

func (s *Server) serveCDN(w http.ResponseWriter, r *http.Request) {
	name, file := r.URL.Query().Get("repo"), r.URL.Query().Get("file")
	s.count(name, file, Count{CDN: 1})
	if a := r.Header.Get("Authorization"); a != "" {
		s.mu.Lock()
		s.leaks = append(s.leaks, a)
		s.mu.Unlock()
		fail(w, http.StatusBadRequest, "", "two kinds of authentication")
		return
	}
	f := s.fault(CDN, file)
	if f.refuse(w, r) {
		return
	}
	key := r.URL.Query().Get("signature")
	s.mu.Lock()
	data, known := s.content[strings.TrimPrefix(r.URL.Path, "/")]
	left, signed := s.signed[key]
	if left > 0 {
		left--
		if s.signed[key] = left; left == 0 {
			delete(s.signed, key)
		}
	}
	s.mu.Unlock()
	if !known || !signed {
		fail(w, http.StatusForbidden, "", "the signature has expired")
		return
	}
	w.Header().Set("ETag", `"of-the-store"`)
	s.send(w, r, name, file, data, f)
}

// send answers with the range asked for, and counts what it writes.
func (s *Server) send(w http.ResponseWriter, r *http.Request, name, file string, data []byte, f Fault) {
	from, to, status := 0, len(data), http.StatusOK
	if h := r.Header.Get("Range"); h != "" && !f.IgnoreRange {
		var ok bool
		if from, to, ok = parseRange(h, len(data)); !ok {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(data)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
	}
	w.Header().Set("Content-Length", strconv.Itoa(to-from))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	body := data[from:to]
	if f.Corrupt && len(body) > 0 {
		body = slices.Clone(body)
		body[0] ^= 0xff
	}
	cut := f.Truncate != 0
	if cut {
		body = body[:min(int64(len(body)), max(f.Truncate, 0))]
	}
	s.write(w, r, name, file, body, f.Rate)
	if !cut {
		return
	}
	http.NewResponseController(w).Flush()
	if f.Stall {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, name, file string, body []byte, rate int) {
	piece := 64 << 10
	if rate > 0 {
		piece = max(1, min(piece, rate/50))
	}
	for len(body) > 0 {
		next := body[:min(piece, len(body))]
		// Counted before a client can have it, which may look at the count at once.
		s.count(name, file, Count{Bytes: int64(len(next))})
		n, err := w.Write(next)
		if err != nil {
			s.count(name, file, Count{Bytes: int64(n - len(next))})
			return
		}
		body = body[n:]
		if rate > 0 {
			http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Duration(float64(n) / float64(rate) * float64(time.Second))):
			}
		}
	}
}

func parseRange(h string, size int) (from, to int, ok bool) {
	first, last, found := strings.Cut(strings.TrimPrefix(h, "bytes="), "-")
	from, err := strconv.Atoi(first)
	if err != nil || !found || from >= size {
		return 0, 0, false
	}
	if last == "" {
		return from, size, true
	}
	to, err = strconv.Atoi(last)
	return from, min(to+1, size), err == nil && to >= from
}
