package server

import (
	"net/url"
	"strings"
)

// normalPath is the path that a request's target names: what is before a query or fragment, decoded, with dots and empty
// segments resolved and a trailing slash kept. It decides the route, the key and the dialect alike.
func normalPath(target string) (path string, ok bool) {
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	if _, rest, absolute := strings.Cut(target, "://"); absolute && !strings.HasPrefix(target, "/") {
		_, path, _ := strings.Cut(rest, "/")
		target = "/" + path
	}
	decoded, err := url.PathUnescape(target)
	if err != nil {
		return "", false
	}
	var kept []string
	segments := strings.Split(decoded, "/")
	for _, s := range segments {
		switch s {
		case "", ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, s)
		}
	}
	path = "/" + strings.Join(kept, "/")
	if last := segments[len(segments)-1]; len(kept) > 0 && (last == "" || last == "." || last == "..") {
		path += "/"
	}
	return path, true
}

// dialectOf is the dialect of a normalized path.
func dialectOf(path string) dialect {
	if path == "/v1/messages" || strings.HasPrefix(path, "/v1/messages/") {
		return anthropic
	}
	if path == "/v1/systemone" {
		return systemOne
	}
	return openAI
}
