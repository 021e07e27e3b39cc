// Package webui is the server's chat page: one HTML file with its style and script inside, which talks to the server it
// came from and to nobody else.
//
// The page needs no key to be read and holds no secret. It sends the key that its reader enters, and keeps it no longer
// than the browser's tab lives.
package webui

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"
)

//go:embed chat.html
var page []byte

//go:embed icon.svg
var icon []byte

// Paths are the paths that Handler answers, after dots and empty segments are resolved.
func Paths() []string { return []string{"/", "/index.html", "/favicon.ico"} }

// Handler returns a handler of GET and HEAD requests of Paths. It knows a path by what it resolves to, so "/./" is the
// page; every other path is not found.
//
// The page's Content-Security-Policy allows the one script and the one style that are in it, by their digests, and
// connections to its own origin. It also has the browser refuse every use of text as HTML.
func Handler() http.Handler {
	pageFile := newFile(page, "text/html; charset=utf-8", pagePolicy(page))
	iconFile := newFile(icon, "image/svg+xml", "default-src 'none'; style-src 'unsafe-inline'")
	files := map[string]*file{"/": pageFile, "/index.html": pageFile, "/favicon.ico": iconFile}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := files[resolved(r.URL.Path)]
		switch {
		case f == nil:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			f.serve(w, r)
		}
	})
}

// resolved is p without dots and empty segments. A trailing slash counts, but for the root's.
func resolved(p string) string {
	clean := path.Clean("/" + p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return clean
}

// A file is what a path serves.
type file struct {
	data   []byte
	header http.Header
}

func newFile(data []byte, mediaType, policy string) *file {
	digest := sha256.Sum256(data)
	h := http.Header{}
	h.Set("Content-Type", mediaType)
	h.Set("Content-Security-Policy", policy)
	h.Set("Etag", fmt.Sprintf("%q", base64.RawURLEncoding.EncodeToString(digest[:12])))
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	return &file{data, h}
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, values := range f.header {
		h[name] = values
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}

var inline = regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`)

// pagePolicy is the Content-Security-Policy of a page (W3C CSP Level 3; Trusted Types).
func pagePolicy(page []byte) string {
	digests := map[string]string{}
	for _, m := range inline.FindAllSubmatch(page, -1) {
		digest := sha256.Sum256(m[2])
		digests[string(m[1])] += " 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
	}
	return strings.Join([]string{
		"default-src 'none'",
		"script-src" + digests["script"],
		"style-src" + digests["style"],
		"connect-src 'self'",
		"img-src 'self' data:", // its icon, and images the reader attaches
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; ")
}
