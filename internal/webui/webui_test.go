package webui_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"splash/internal/webui"
)

func TestHandler(t *testing.T) {
	page, err := os.ReadFile("chat.html")
	if err != nil {
		t.Fatal(err)
	}
	icon, err := os.ReadFile("icon.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		method, target string
		status         int
		mediaType      string
		body           []byte
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", page},
		{"GET", "/?x=y", 200, "text/html; charset=utf-8", page},
		{"GET", "/./", 200, "text/html; charset=utf-8", page},
		{"GET", "//", 200, "text/html; charset=utf-8", page},
		{"GET", "/x/../index.html", 200, "text/html; charset=utf-8", page},
		{"HEAD", "/index.html", 200, "text/html; charset=utf-8", nil},
		{"GET", "/favicon.ico", 200, "image/svg+xml", icon},
		{"HEAD", "/favicon.ico", 200, "image/svg+xml", nil},
		{"GET", "/index.html/", 404, "", nil},
		{"GET", "/chat.html", 404, "", nil},
		{"GET", "/icon.svg", 404, "", nil},
		{"GET", "/webui.go", 404, "", nil},
		{"GET", "/chat-assets/../server.go", 404, "", nil},
		{"GET", "/chat-assets/", 404, "", nil},
		{"GET", "/%2e%2e/%2e%2e/etc/passwd", 404, "", nil},
		{"POST", "/", 405, "", nil},
		{"DELETE", "/favicon.ico", 405, "", nil},
	} {
		r := httptest.NewRequest(test.method, test.target, nil)
		w := httptest.NewRecorder()
		webui.Handler().ServeHTTP(w, r)
		name := test.method + " " + test.target
		if w.Code != test.status {
			t.Errorf("%s: status %d, want %d", name, w.Code, test.status)
			continue
		}
		if test.status != 200 {
			continue
		}
		if got := w.Header().Get("Content-Type"); got != test.mediaType {
			t.Errorf("%s: type %q, want %q", name, got, test.mediaType)
		}
		if test.body != nil && !bytes.Equal(w.Body.Bytes(), test.body) || test.method == "HEAD" && w.Body.Len() > 0 {
			t.Errorf("%s: the body is not the file's", name)
		}
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
			"Cross-Origin-Resource-Policy": "same-origin", "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
		} {
			if got := w.Header().Get(header); got != want {
				t.Errorf("%s: %s %q, want %q", name, header, got, want)
			}
		}
		again := httptest.NewRequest(test.method, test.target, nil)
		again.Header.Set("If-None-Match", w.Header().Get("Etag"))
		second := httptest.NewRecorder()
		webui.Handler().ServeHTTP(second, again)
		if second.Code != http.StatusNotModified || second.Body.Len() > 0 {
			t.Errorf("%s: unchanged, status %d with %d bytes, want 304 with none", name, second.Code, second.Body.Len())
		}
	}
	for _, path := range webui.Paths() {
		w := httptest.NewRecorder()
		webui.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 {
			t.Errorf("%s: status %d", path, w.Code)
		}
	}
}

func TestContentSecurityPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	webui.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	digests := func(tag string) (list []string) {
		rest := string(body)
		for {
			_, after, ok := strings.Cut(rest, "<"+tag+">")
			if !ok {
				return list
			}
			var text string
			text, rest, _ = strings.Cut(after, "</"+tag+">")
			sum := sha256.Sum256([]byte(text))
			list = append(list, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		}
	}
	scripts, styles := digests("script"), digests("style")
	if len(scripts) != 2 || len(styles) != 1 {
		t.Errorf("%d scripts and %d styles, want 2 and 1", len(scripts), len(styles))
	}
	want := "default-src 'none'; script-src " + strings.Join(scripts, " ") + "; style-src " + strings.Join(styles, " ") + "; connect-src 'self'; img-src 'self' data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("policy %q, want %q", got, want)
	}
}

// TestPageIsWhole holds the page to be one file that neither loads anything else nor takes text for HTML.
func TestPageIsWhole(t *testing.T) {
	page, err := os.ReadFile("chat.html")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, pattern := range []string{
		`\b(?:innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|createContextualFragment|DOMParser|srcdoc)\b`, `document\.write`, `\beval\(`, `new Function`,
		`javascript:`, `<[a-z]+ [^>]*\bsrc=`, `@import\s+["'u]`, `:[^;{}\n]*\burl\(`, `<[a-z]+ [^>]*\bon[a-z]+=`, `<[a-z]+ [^>]*\bstyle=`, `<iframe`,
		`importScripts|new Worker|WebSocket|EventSource|sendBeacon`, `TODO|FIXME|XXX`,
	} {
		if m := regexp.MustCompile(pattern).FindString(text); m != "" {
			t.Errorf("the page has %q", m)
		}
	}
	if links := regexp.MustCompile(`<link[^>]*>`).FindAllString(text, -1); len(links) != 1 || !strings.Contains(links[0], `href="favicon.ico"`) {
		t.Errorf("the page links %q, want its icon alone", links)
	}
	for _, m := range regexp.MustCompile(`https?://[\w.]+`).FindAllString(text, -1) {
		if m != "http://www.w3.org" { // the name space of SVG
			t.Errorf("the page names %s", m)
		}
	}
	for _, m := range regexp.MustCompile(`fetch\(('[^']*'|[^,)]*)`).FindAllStringSubmatch(text, -1) {
		switch m[1] {
		case "'ready'", "'v1/models'", "'v1/chat/completions'":
		default:
			t.Errorf("the page fetches %s", m[1])
		}
	}
}

// TestPageMarkup checks the page's names for its parts.
func TestPageMarkup(t *testing.T) {
	page, err := os.ReadFile("chat.html")
	if err != nil {
		t.Fatal(err)
	}
	markup := string(page[bytes.Index(page, []byte("<body>")):bytes.LastIndex(page, []byte("<script>"))])
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bid="([^"]*)"`).FindAllStringSubmatch(markup, -1) {
		if ids[m[1]] {
			t.Errorf("two parts are called %s", m[1])
		}
		ids[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?:\b(?:for|aria-labelledby|aria-describedby)="|href="#)([^"]*)"`).FindAllStringSubmatch(markup, -1) {
		if !ids[m[1]] {
			t.Errorf("%s names no part", m[0])
		}
	}
	for _, m := range regexp.MustCompile(`\$\('([\w-]+)'\)|fromTemplate\('([\w-]+)'\)`).FindAllStringSubmatch(string(page), -1) {
		if !ids[m[1]+m[2]] {
			t.Errorf("%s names no part", m[0])
		}
	}
	for _, m := range regexp.MustCompile(`<button[^>]*>`).FindAllString(markup, -1) {
		if !strings.Contains(m, ` type="`) {
			t.Errorf("%s has no type", m)
		}
	}
	labelled := regexp.MustCompile(`<(?:input|select|textarea) [^>]*>`)
	id := regexp.MustCompile(`\bid="([^"]*)"`)
	for _, m := range labelled.FindAllString(markup, -1) {
		named := strings.Contains(m, "aria-label=")
		if i := id.FindStringSubmatch(m); i != nil {
			named = named || strings.Contains(markup, `for="`+i[1]+`"`)
		}
		if !named {
			t.Errorf("%s has no label", m)
		}
	}
}
