package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"splash/internal/hub/hubtest"
)

const repo = "owner/model-GGUF"

// noise is content that no two places of repeat.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0] = byte(seed)
	data := make([]byte, n)
	rand.NewChaCha8(key).Read(data)
	return data
}

// logged collects a client's lines.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *logged) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// client returns a client of s with small ranges and no waits.
func client(t *testing.T, s *hubtest.Server, dir string) (*Client, *logged) {
	t.Helper()
	c, err := New(Config{Endpoint: s.URL(), Cache: Cache{Dir: dir}, Token: s.Token})
	if err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	c.Log = log.add
	c.Sleep = func(int, time.Duration) time.Duration { return 0 }
	c.chunk = 64 << 10
	return c, log
}

func model(t *testing.T, c *Client, revision string) *Model {
	t.Helper()
	m, err := c.Model(context.Background(), repo, revision)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	tokens := filepath.Join(home, "elsewhere")
	if err := os.WriteFile(tokens, []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(home, "bad")
	if err := os.WriteFile(bad, []byte("hf\nfile"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		want Config
		err  string
	}{
		{name: "defaults", want: Config{Endpoint: "https://huggingface.co", Cache: Cache{home + "/.cache/huggingface/hub"}}},
		{name: "cache home", env: map[string]string{"XDG_CACHE_HOME": "/x"}, want: Config{Endpoint: "https://huggingface.co", Cache: Cache{"/x/huggingface/hub"}}},
		{name: "hub home", env: map[string]string{"XDG_CACHE_HOME": "/x", "HF_HOME": "~/hf"}, want: Config{Endpoint: "https://huggingface.co", Cache: Cache{home + "/hf/hub"}}},
		{name: "hub cache", env: map[string]string{"HF_HOME": "/hf", "HF_HUB_CACHE": "/c"}, want: Config{Endpoint: "https://huggingface.co", Cache: Cache{"/c"}}},
		{name: "token", env: map[string]string{"HF_TOKEN": " hf_a ", "HF_TOKEN_PATH": tokens}, want: Config{Endpoint: "https://huggingface.co", Cache: Cache{home + "/.cache/huggingface/hub"}, Token: "hf_a"}},
		{name: "token file", env: map[string]string{"HF_TOKEN_PATH": tokens}, want: Config{Endpoint: "https://huggingface.co", Cache: Cache{home + "/.cache/huggingface/hub"}, Token: "hf_file"}},
		{name: "offline", env: map[string]string{"HF_HUB_OFFLINE": "yes", "HF_ENDPOINT": "http://127.0.0.1:1/hf/"}, want: Config{Endpoint: "http://127.0.0.1:1/hf/", Cache: Cache{home + "/.cache/huggingface/hub"}, Offline: true}},
		{name: "not offline", env: map[string]string{"HF_HUB_OFFLINE": "0"}, want: Config{Endpoint: "https://huggingface.co", Cache: Cache{home + "/.cache/huggingface/hub"}}},
		{name: "token of two lines", env: map[string]string{"HF_TOKEN_PATH": bad}, err: "the Hub token in " + bad + " holds a character that no header can carry"},
		{name: "endpoint", env: map[string]string{"HF_ENDPOINT": "ftp://x"}, err: "HF_ENDPOINT: ftp://x is not an endpoint: expected http(s)://HOST[:PORT][/PATH]"},
		{name: "endpoint with a password", env: map[string]string{"HF_ENDPOINT": "https://u:secret@x"}, err: "HF_ENDPOINT: https://u:xxxxx@x is not an endpoint: expected http(s)://HOST[:PORT][/PATH]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Environment(func(name string) string {
				if v, ok := tt.env[name]; ok {
					return v
				}
				return map[string]string{"HOME": home}[name]
			})
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Fatalf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if err := os.MkdirAll(filepath.Join(home, ".cache/huggingface"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".cache/huggingface/token"), []byte("hf_login"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Environment(func(name string) string { return map[string]string{"HOME": home}[name] })
	if err != nil || got.Token != "hf_login" {
		t.Errorf("token %q, %v; want the one of hf auth login", got.Token, err)
	}
}

func TestModel(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{
		"m.gguf": noise(1, 1000), "config.json": []byte("{}"), "UD-Q4/m-00001-of-00001.gguf": noise(2, 10), "tokenizer.json": []byte("{ }"),
		"../up": nil, "a/./b": nil, "/abs": nil, `a\b`: nil, "": nil,
	}
	commit := s.Commit(repo, "main", files)
	dev := s.Commit(repo, "refs/pr/1", map[string][]byte{"README.md": []byte("x")})
	c, _ := client(t, s, t.TempDir())
	var want []File
	for _, p := range []string{"UD-Q4/m-00001-of-00001.gguf", "config.json", "m.gguf", "tokenizer.json"} {
		want = append(want, File{p, int64(len(files[p])), hubtest.Digest(p, files[p])})
	}
	got := model(t, c, "")
	if d := cmp.Diff(&Model{Repo: repo, Commit: commit, Files: want}, got); d != "" {
		t.Error(d)
	}
	if n := s.Total().Hub; n != 1 {
		t.Errorf("%d requests, want one", n)
	}
	if got.File("config.json") == nil || got.File("absent") != nil {
		t.Error("File does not find what is there alone")
	}
	if m := model(t, c, "refs/pr/1"); m.Commit != dev {
		t.Errorf("a branch with slashes is at %s, want %s", m.Commit, dev)
	}
	if m := model(t, c, dev); m.Commit != dev {
		t.Errorf("commit %s, want %s", m.Commit, dev)
	}
}

func TestModelOfAMirrorWithoutSizes(t *testing.T) {
	s := hubtest.New(t)
	files := map[string][]byte{}
	for i := range 23 {
		files[fmt.Sprintf("d%d/m-%02d.gguf", i%3, i)] = noise(uint64(i), 100+i)
	}
	s.Commit(repo, "main", files)
	c, _ := client(t, s, t.TempDir())
	want := model(t, c, "")
	s.NoSizes, s.PageSize = true, 5
	got := model(t, c, "")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := s.Total().Hub; n != 1+1+5 {
		t.Errorf("%d requests, want one listing, then another and five pages", n)
	}
}

func TestModelRefusals(t *testing.T) {
	s := hubtest.New(t)
	s.Token = "hf_secret"
	s.Commit(repo, "main", nil)
	u, _ := url.Parse(s.URL())
	for _, tt := range []struct {
		name, repo, revision, token, want string
		fault                             hubtest.Fault
		requests                          int
	}{
		{name: "no repository", repo: "a/b", want: "404 Not Found for HOST/api/models/a/b: a/b main not found", requests: 1},
		{name: "no revision", repo: repo, revision: "v2", want: "404 Not Found for HOST/api/models/owner/model-GGUF/revision/v2: owner/model-GGUF v2 not found", requests: 1},
		{name: "no token", repo: repo, token: "-", want: "401 Unauthorized for HOST/api/models/owner/model-GGUF: Access to this repository is restricted. You sent; set HF_TOKEN or run 'hf auth login' with access to this repository", requests: 1},
		{name: "wrong token", repo: repo, token: "hf_other", want: "401 Unauthorized for HOST/api/models/owner/model-GGUF: Access to this repository is restricted. You sent Bearer [redacted]; set HF_TOKEN or run 'hf auth login' with access to this repository", requests: 1},
		{name: "denied", repo: repo, fault: hubtest.Fault{Status: 403, Times: -1, Message: "ask\nthe owner"}, want: "403 Forbidden for HOST/api/models/owner/model-GGUF: ask the owner; set HF_TOKEN or run 'hf auth login' with access to this repository", requests: 1},
		{name: "busy for long", repo: repo, fault: hubtest.Fault{Status: 503, Times: -1}, want: "503 Service Unavailable for HOST/api/models/owner/model-GGUF", requests: 5},
		{name: "busy", repo: repo, fault: hubtest.Fault{Status: 502, Times: 4}, requests: 5},
		{name: "limited", repo: repo, fault: hubtest.Fault{Status: 429, RetryAfter: "0", Times: 2}, requests: 3},
		{name: "limited for an hour", repo: repo, token: "slow", fault: hubtest.Fault{Status: 429, RetryAfter: "3600", Times: -1}, want: "429 Too Many Requests for HOST/api/models/owner/model-GGUF", requests: 1},
		{name: "no repository's name", repo: "a/../b", want: `"a/../b" is not a repository of the Hub`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.Heal()
			s.Reset()
			if tt.fault.Times != 0 {
				tt.fault.Place = hubtest.API
				s.Inject(tt.fault)
			}
			c, _ := client(t, s, t.TempDir())
			switch tt.token {
			case "-":
				c, _ = clientOf(t, Config{Endpoint: s.URL(), Cache: c.Cache})
			case "slow":
				c.Sleep = backOff
			default:
				if tt.token != "" {
					c, _ = clientOf(t, Config{Endpoint: s.URL(), Cache: c.Cache, Token: tt.token})
				}
			}
			_, err := c.Model(context.Background(), tt.repo, tt.revision)
			got := ""
			if err != nil {
				got = c.Reason(err)
			}
			if want := strings.ReplaceAll(tt.want, "HOST", u.Host); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if n := s.Total().Hub; n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
		})
	}
}

func clientOf(t *testing.T, cfg Config) (*Client, *logged) {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	log := &logged{}
	c.Log = log.add
	c.Sleep = func(int, time.Duration) time.Duration { return 0 }
	return c, log
}

func TestModelIsBounded(t *testing.T) {
	s := hubtest.New(t)
	s.Commit(repo, "main", nil)
	c, _ := client(t, s, t.TempDir())
	c.answer = 30 * time.Millisecond
	s.Inject(hubtest.Fault{Place: hubtest.API, Delay: time.Hour, Times: -1})
	u, _ := url.Parse(s.URL())
	_, err := c.Model(context.Background(), repo, "")
	if want := u.Host + " did not answer within 30ms"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.answer = time.Hour
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := c.Model(ctx, repo, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	// Nobody listens: the answer is there at once, without further attempts.
	s.Hub.Close()
	attempts := 0
	c.Sleep = func(int, time.Duration) time.Duration { attempts++; return 0 }
	if _, err := c.Model(context.Background(), repo, ""); err == nil || attempts != 0 {
		t.Errorf("error %v after %d more attempts, want one and none", err, attempts)
	}
}

func TestBackOff(t *testing.T) {
	for _, tt := range []struct {
		attempt int
		asked   time.Duration
		want    time.Duration
	}{
		{0, 0, 500 * time.Millisecond}, {1, 0, time.Second}, {4, 0, 8 * time.Second}, {50, 0, 32 * time.Second},
		{0, 3 * time.Second, 3 * time.Second}, {3, time.Second, 4 * time.Second}, {0, time.Hour, time.Minute},
	} {
		if got := backOff(tt.attempt, tt.asked); got != tt.want {
			t.Errorf("backOff(%d, %v) = %v, want %v", tt.attempt, tt.asked, got, tt.want)
		}
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "x": 0, "99999999999": 0,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"https://hub.co", "https://hub.co:443/x", true},
		{"https://HUB.co", "https://hub.co", true},
		{"http://hub.co", "http://hub.co:80", true},
		{"https://hub.co", "http://hub.co", false},
		{"https://hub.co", "https://hub.co:8443", false},
		{"https://hub.co", "https://cdn.hub.co", false},
		{"http://127.0.0.1:1", "http://127.0.0.1:2", false},
	} {
		a, _ := url.Parse(tt.a)
		b, _ := url.Parse(tt.b)
		if got := sameOrigin(a, b); got != tt.want {
			t.Errorf("sameOrigin(%s, %s) = %v", tt.a, tt.b, got)
		}
	}
}

// The token goes to the endpoint and nowhere else: not to another port of its host, not to another host.
func TestTokenStaysAtTheHub(t *testing.T) {
	for _, host := range []string{"", "localhost"} {
		s := hubtest.New(t) // fails the test where the CDN sees a token
		s.Token, s.CDNHost = "hf_secret", host
		data := noise(3, 300<<10)
		s.Commit(repo, "main", map[string][]byte{"m.gguf": data})
		c, _ := client(t, s, t.TempDir())
		m := model(t, c, "")
		r := c.Open(context.Background(), m, m.Files[0])
		got := make([]byte, 100)
		if _, err := r.ReadAt(got, 200<<10); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data[200<<10:200<<10+100]) {
			t.Error("wrong bytes of a range")
		}
		if err := c.Fetch(context.Background(), m, m.Files); err != nil {
			t.Fatal(err)
		}
		if n := s.Count(repo, "m.gguf"); n.CDN < 6 {
			t.Errorf("%+v: the redirects were not met", n)
		}
	}
}

func TestInsecureRedirect(t *testing.T) {
	via, _ := http.NewRequest("GET", "https://hub.co/a", nil)
	next, _ := http.NewRequest("GET", "http://hub.co/a", nil)
	if err := checkRedirect(next, []*http.Request{via}); err == nil || err.Error() != "refused a redirect from https to http://hub.co" {
		t.Errorf("error %v", err)
	}
	c, _ := clientOf(t, Config{Endpoint: "https://hub.co", Cache: Cache{t.TempDir()}})
	if _, again := c.another(c.clean(&url.Error{Op: "Get", URL: "https://hub.co/a?secret", Err: checkRedirect(next, []*http.Request{via})}), true); again {
		t.Error("a refused redirect is tried again")
	}
	if err := checkRedirect(via, make([]*http.Request, 10)); err == nil {
		t.Error("an eleventh redirect is followed")
	}
}
