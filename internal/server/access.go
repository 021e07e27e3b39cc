package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Access says who may use the server.
type Access struct {
	Hosts   []string // names beside the loopback's, the address served and that a connection arrived at
	Origins []string // of pages in a browser, "scheme://host[:port]" each; "*" admits every one
	Key     string   // empty: none is asked for
}

// CheckOrigin holds an allowed origin to its form.
func CheckOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	if strings.Contains(origin, "*") {
		return fmt.Errorf("%s is not an origin: only a bare '*' admits every origin", origin)
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
		return fmt.Errorf("%s is not an origin: expected a scheme and a host", origin)
	}
	return nil
}

// CheckKey holds an API key to what a header can carry.
func CheckKey(key string) error {
	for i := range len(key) {
		if key[i] < 33 || key[i] > 126 {
			return errors.New("an API key is visible ASCII characters alone")
		}
	}
	return nil
}

// checkHost says whether the request is for this server, by its Host header: a page whose name was made to point here
// has another one.
func (s *Server) checkHost(r *http.Request) *Error {
	if r.Host == "" && !r.ProtoAtLeast(1, 1) {
		return nil
	}
	name := hostName(r.Host)
	switch name {
	case "localhost", "127.0.0.1", "::1":
		return nil
	}
	for _, allowed := range s.o.Access.Hosts {
		if name == hostName(allowed) {
			return nil
		}
	}
	if name == hostName(s.o.Host) && !wildcard(s.o.Host) {
		return nil
	}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && name == a.IP.String() {
		return nil
	}
	return forbiddenf("Host %s is not served here; restart with --allowed-host %s to accept it", shorten(name), shorten(name))
}

// hostName is the name in a Host header, without its port, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// checkOrigin refuses the pages of other sites, and tells a browser that those admitted may read the answer.
func (s *Server) checkOrigin(w http.ResponseWriter, r *http.Request) *Error {
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	origin := origins[0]
	switch {
	case len(origins) > 1:
		return forbiddenf("more than one Origin header")
	case strings.EqualFold(origin, "http://"+r.Host):
		return nil
	case slices.Contains(s.o.Access.Origins, "*"):
		w.Header().Set("Access-Control-Allow-Origin", "*")
	case origin != "null" && slices.Contains(s.o.Access.Origins, origin):
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Vary", "Origin")
	default:
		s.refused.note(s.o.Console, origin)
		return forbiddenf("Origin %s is not allowed; restart with --allowed-origin %s to accept it", shorten(origin), shorten(origin))
	}
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate")
	return nil
}

// preflight answers OPTIONS.
func preflight(w http.ResponseWriter, r *http.Request) {
	const methods = "GET, HEAD, POST, DELETE, OPTIONS"
	h := w.Header()
	h.Set("Allow", methods)
	if r.Header.Get("Access-Control-Request-Method") != "" && h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", methods)
		if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
			h.Set("Access-Control-Allow-Headers", asked)
		}
		h.Set("Access-Control-Max-Age", "600")
	}
	h.Set("Content-Length", "0")
	w.WriteHeader(http.StatusNoContent)
}

// checkKey asks for the key where there is one.
func (s *Server) checkKey(r *http.Request) *Error {
	if s.o.Access.Key == "" {
		return nil
	}
	refused := &Error{Status: http.StatusUnauthorized, Code: codeAuth, Message: "the API key is missing or wrong"}
	bearer, keys := r.Header.Values("Authorization"), r.Header.Values("X-Api-Key")
	if len(bearer) > 1 || len(keys) > 1 || len(bearer)+len(keys) == 0 {
		return refused
	}
	for _, value := range bearer {
		scheme, key, _ := strings.Cut(value, " ")
		if !strings.EqualFold(scheme, "Bearer") || !s.isKey(strings.TrimSpace(key)) {
			return refused
		}
	}
	for _, key := range keys {
		if !s.isKey(strings.TrimSpace(key)) {
			return refused
		}
	}
	return nil
}

// isKey compares in constant time, whatever the lengths.
func (s *Server) isKey(key string) bool {
	a, b := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(s.o.Access.Key))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// refusedOrigins remembers which origins the console was told of.
type refusedOrigins struct {
	mu   sync.Mutex
	seen map[string]bool
	full bool
}

func (o *refusedOrigins) note(c *Console, origin string) {
	const most = 32
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.full || o.seen[origin] {
		return
	}
	if len(o.seen) == most {
		o.full = true
		c.Errorf("Refused · further Origins are not logged")
		return
	}
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	o.seen[origin] = true
	short := shorten(origin)
	c.Errorf("Refused · Origin %s · restart with --allowed-origin %s to accept it", short, shellQuote(short))
}

// shellQuote spells s as one word of a shell.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("@%+=:,./-_", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}
