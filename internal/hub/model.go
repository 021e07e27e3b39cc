package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// A Model is a repository at one commit, as the Hub lists it.
type Model struct {
	Repo     string // OWNER/NAME
	Revision string // the branch, tag or commit asked for; empty: the default branch
	Commit   string // 40 hex digits
	Files    []File
	Cached   bool // listed from the cache: files that another tool did not fetch are not in it
}

// A File is one file of a commit.
type File struct {
	Path   string // slashes
	Size   int64
	Digest string // of its content: 64 hex digits, SHA-256, or 40, the SHA-1 of a Git blob; the Hub's ETag
}

// File returns the file of that path, or nil.
func (m *Model) File(path string) *File {
	for i := range m.Files {
		if m.Files[i].Path == path {
			return &m.Files[i]
		}
	}
	return nil
}

// Most bytes and files of a listing that is read.
const (
	maxListing = 64 << 20
	maxFiles   = 1 << 18
)

var (
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
	digestPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	repoPattern   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*$`)
)

// IsCommit reports whether revision is a commit, which never moves.
func IsCommit(revision string) bool { return commitPattern.MatchString(revision) }

// listing is what the two listing routes answer, as far as it is read.
type listing struct {
	Sha      string    `json:"sha"`
	Siblings []sibling `json:"siblings"`
}

type sibling struct {
	Name string `json:"rfilename"`
	Size *int64 `json:"size"`
	Blob string `json:"blobId"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
		Size   int64  `json:"size"`
	} `json:"lfs"`
}

// Model resolves a revision to a commit and lists its files, in one request and at most five seconds.
func (c *Client) Model(ctx context.Context, repo, revision string) (*Model, error) {
	if c.Offline {
		return nil, ErrOffline
	}
	if !repoPattern.MatchString(repo) {
		return nil, fmt.Errorf("%q is not a repository of the Hub", repo)
	}
	outer := ctx
	late := fmt.Errorf("%s did not answer within %s", c.endpoint.Host, c.answer)
	ctx, cancel := context.WithTimeoutCause(ctx, c.answer, late)
	defer cancel()
	var l listing
	err := c.decode(ctx, c.modelURL(repo, revision)+"?blobs=true", &l, nil)
	if err == nil {
		var m *Model
		if m, err = l.model(repo, revision); err == nil && m.unsized() {
			err = c.tree(ctx, m)
		}
		if err == nil {
			return m, nil
		}
	}
	if outer.Err() == nil && ctx.Err() != nil {
		err = late
	}
	return nil, err
}

func (c *Client) modelURL(repo, revision string) string {
	u := c.endpoint.String() + "/api/models/" + repo
	if revision != "" {
		u += "/revision/" + url.PathEscape(revision)
	}
	return u
}

// decode reads one JSON answer. link, unless nil, receives the address of the next page.
func (c *Client) decode(ctx context.Context, u string, v any, link *string) error {
	resp, err := c.get(ctx, request{method: http.MethodGet, url: u})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxListing+1))
	if err != nil {
		return fmt.Errorf("read the Hub's listing: %w", err)
	}
	if len(data) > maxListing {
		return fmt.Errorf("the Hub's listing is over %d bytes", maxListing)
	}
	if err := decodeListing(data, v); err != nil {
		return err
	}
	if link != nil {
		*link = nextPage(resp.Header.Get("Link"))
	}
	return nil
}

func decodeListing(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("the Hub's listing: %w", err)
	}
	return nil
}

func (l *listing) model(repo, revision string) (*Model, error) {
	if !IsCommit(l.Sha) {
		return nil, fmt.Errorf("the Hub did not resolve %s to a commit", repo)
	}
	if len(l.Siblings) > maxFiles {
		return nil, fmt.Errorf("%s lists %d files, over %d", repo, len(l.Siblings), maxFiles)
	}
	m := &Model{Repo: repo, Revision: revision, Commit: l.Sha}
	for _, s := range l.Siblings {
		f := File{Path: s.Name, Size: -1, Digest: s.Blob}
		if s.Size != nil {
			f.Size = *s.Size
		}
		if s.LFS != nil {
			f.Digest = s.LFS.SHA256
			if s.LFS.Size > 0 {
				f.Size = s.LFS.Size
			}
		}
		m.add(f)
	}
	return m, nil
}

// add keeps a file whose name a cache can hold. Another is as if it were not there.
func (m *Model) add(f File) {
	if safePath(f.Path) {
		m.Files = append(m.Files, f)
	}
}

// safePath reports whether a path stays below its folder on every system.
func safePath(p string) bool {
	if p == "" || p != path.Clean(p) || strings.HasPrefix(p, "/") || p == ".." || strings.HasPrefix(p, "../") || p == "." {
		return false
	}
	for _, c := range p {
		if c < ' ' || c == 0x7f || c == '\\' {
			return false
		}
	}
	return true
}

// unsized reports whether the listing lacks what a download is checked against, as listings of some mirrors do.
func (m *Model) unsized() bool {
	for _, f := range m.Files {
		if f.Size < 0 || !digestPattern.MatchString(f.Digest) {
			return true
		}
	}
	return false
}

type entry struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

// tree lists m's files by the tree route, page by page.
func (c *Client) tree(ctx context.Context, m *Model) error {
	m.Files = nil
	next := c.endpoint.String() + "/api/models/" + m.Repo + "/tree/" + m.Commit + "?recursive=true"
	for next != "" {
		u, err := url.Parse(next)
		if err != nil || !sameOrigin(u, c.endpoint) {
			return fmt.Errorf("the Hub's listing of %s goes on outside %s", m.Repo, c.endpoint.Host)
		}
		var page []entry
		if err := c.decode(ctx, next, &page, &next); err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			if e.Type != "file" {
				continue
			}
			f := File{Path: e.Path, Size: e.Size, Digest: e.OID}
			if e.LFS != nil {
				f.Size, f.Digest = e.LFS.Size, e.LFS.OID
			}
			m.add(f)
		}
		if len(m.Files) > maxFiles {
			return fmt.Errorf("%s lists over %d files", m.Repo, maxFiles)
		}
	}
	if m.unsized() {
		return fmt.Errorf("the Hub lists files of %s without sizes or digests", m.Repo)
	}
	return nil
}

var nextPattern = regexp.MustCompile(`<([^>]*)>\s*;\s*rel="next"`)

func nextPage(link string) string {
	if m := nextPattern.FindStringSubmatch(link); m != nil {
		return m[1]
	}
	return ""
}

// fileURL is the address of a file's bytes at a commit.
func (c *Client) fileURL(repo, commit, file string) string {
	parts := strings.Split(file, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return c.endpoint.String() + "/" + repo + "/resolve/" + commit + "/" + strings.Join(parts, "/")
}

// IsDigest reports whether text is a digest as the Hub names content: 64 hex digits, or 40 of a Git blob.
func IsDigest(text string) bool { return digestPattern.MatchString(text) }
