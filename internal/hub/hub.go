// Package hub reads models from the Hugging Face Hub into the cache that the Hub's other tools share.
//
// A repository is listed at one commit (Client.Model); the head of a file is read by ranges without a download
// (Client.Open); files are fetched into the cache, resumed where an earlier attempt stopped, and become visible only
// once their size and digest are right (Client.Fetch). The routes, headers and environment variables are those of the
// Hub's public HTTP interface and of the huggingface_hub library's documentation.
package hub

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Config says where the Hub and its cache are, and who asks.
type Config struct {
	Endpoint string // https://huggingface.co
	Cache    Cache
	Token    string // sent to the endpoint alone; empty: anonymous
	Offline  bool   // no request is made
}

// Environment reads the variables that the Hub's tools share: HF_ENDPOINT, HF_HOME, HF_HUB_CACHE, HF_TOKEN,
// HF_TOKEN_PATH, HF_HUB_OFFLINE, XDG_CACHE_HOME and HOME.
func Environment(getenv func(string) string) (Config, error) {
	home := getenv("HOME")
	expand := func(path string) string {
		if path == "~" || strings.HasPrefix(path, "~/") {
			return filepath.Join(home, path[1:])
		}
		return path
	}
	or := func(name, fallback string) string {
		if v := getenv(name); v != "" {
			return expand(v)
		}
		return fallback
	}
	root := or("HF_HOME", filepath.Join(or("XDG_CACHE_HOME", filepath.Join(home, ".cache")), "huggingface"))
	cache, err := filepath.Abs(or("HF_HUB_CACHE", filepath.Join(root, "hub")))
	if err != nil {
		return Config{}, fmt.Errorf("HF_HUB_CACHE: %w", err)
	}
	token, err := readToken(getenv("HF_TOKEN"), or("HF_TOKEN_PATH", filepath.Join(root, "token")))
	if err != nil {
		return Config{}, err
	}
	endpoint := getenv("HF_ENDPOINT")
	if endpoint == "" {
		endpoint = "https://huggingface.co"
	}
	if _, err := parseEndpoint(endpoint); err != nil {
		return Config{}, fmt.Errorf("HF_ENDPOINT: %w", err)
	}
	return Config{Endpoint: endpoint, Cache: Cache{Dir: cache}, Token: token, Offline: truth(getenv("HF_HUB_OFFLINE"))}, nil
}

// truth reads a boolean as huggingface_hub documents it: 1, ON, YES or TRUE in any case.
func truth(value string) bool {
	switch strings.ToUpper(value) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// readToken takes the variable's token, or else the file's, which `hf auth login` writes; none is no error.
func readToken(variable, path string) (string, error) {
	source, token := "HF_TOKEN", strings.TrimSpace(variable)
	if token == "" {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("read the Hub token: %w", err)
		}
		source, token = path, strings.TrimSpace(string(data))
	}
	for _, c := range token {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("the Hub token in %s holds a character that no header can carry", source)
		}
	}
	return token, nil
}

func parseEndpoint(endpoint string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(endpoint, "/"))
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s is not an endpoint: expected http(s)://HOST[:PORT][/PATH]", u.Redacted())
	}
	return u, nil
}

// A Client asks one Hub. Its exported fields are set before the first call and not changed after it.
type Client struct {
	Config
	Log      func(line string)                                    // one line a message; nil: dropped
	Progress func(bytes int64) Progress                           // starts the report of a download; nil: none
	Sleep    func(attempt int, asked time.Duration) time.Duration // the wait before another attempt

	endpoint *url.URL
	http     *http.Client

	attempts int           // requests for one answer, the first included
	answer   time.Duration // the most a start waits for a revision
	stall    time.Duration // the longest silence of a body
	chunk    int64         // bytes of one range of a download
	window   int           // ranges of one file in flight
	files    int           // files in flight
	symlink  func(oldname, newname string) error
	space    func(dir string) (int64, error)
}

// New returns a client of cfg.
func New(cfg Config) (*Client, error) {
	endpoint, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if cfg.Cache.Dir == "" {
		return nil, errors.New("the Hub cache has no directory")
	}
	c := &Client{
		Config:   cfg,
		Sleep:    backOff,
		endpoint: endpoint,
		attempts: 5,
		answer:   5 * time.Second,
		stall:    30 * time.Second,
		chunk:    8 << 20,
		window:   4,
		files:    4,
		symlink:  os.Symlink,
		space:    freeSpace,
	}
	c.http = &http.Client{Transport: newTransport(endpoint, cfg.Token), CheckRedirect: checkRedirect}
	return c, nil
}

func (c *Client) logf(format string, args ...any) {
	if c.Log != nil {
		c.Log(fmt.Sprintf(format, args...))
	}
}

// Host is the endpoint's host, for messages.
func (c *Client) Host() string { return c.endpoint.Host }
