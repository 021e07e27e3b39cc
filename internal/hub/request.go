package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrOffline says that a request was needed and HF_HUB_OFFLINE forbids it.
var ErrOffline = errors.New("HF_HUB_OFFLINE is set")

// An Error is an answer that is not the one asked for.
type Error struct {
	Status  int    // of HTTP
	Code    string // the Hub's name of the cause: RepoNotFound, RevisionNotFound, EntryNotFound, GatedRepo
	Message string // one line
	wait    time.Duration
}

func (e *Error) Error() string { return e.Message }

// maxWait bounds the pause that a Retry-After can ask for.
const maxWait = time.Minute

// backOff doubles from half a second, and grants what the server asked for up to a minute.
func backOff(attempt int, asked time.Duration) time.Duration {
	return min(max(asked, 500*time.Millisecond<<min(attempt, 6)), maxWait)
}

// transport adds the token to requests whose scheme, host and port are the endpoint's, hop by hop: net/http itself keeps
// an Authorization header across a redirect to another port of one host.
type transport struct {
	base     http.RoundTripper
	endpoint *url.URL
	token    string
}

func newTransport(endpoint *url.URL, token string) *transport {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	base.TLSHandshakeTimeout = 10 * time.Second
	base.ResponseHeaderTimeout = 30 * time.Second
	base.MaxIdleConnsPerHost = 16
	base.DisableCompression = true
	// One connection a range: HTTP/2 would put them all through one.
	base.Protocols = new(http.Protocols)
	base.Protocols.SetHTTP1(true)
	return &transport{base, endpoint, token}
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("Authorization")
	if t.token != "" && sameOrigin(r.URL, t.endpoint) {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	r.Header.Set("User-Agent", "splash")
	return t.base.RoundTrip(r)
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "https" {
		return "443"
	}
	return "80"
}

// checkRedirect follows at most ten redirects, never from https to http. A HEAD stops where the Hub sends the reader
// elsewhere: what it asks for, the size and the digest, is in the Hub's own answer.
func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return &permanentError{errors.New("stopped after 10 redirects")}
	}
	if via[0].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return &permanentError{fmt.Errorf("refused a redirect from https to %s://%s", r.URL.Scheme, r.URL.Host)}
	}
	if via[0].Method == http.MethodHead && (!sameOrigin(r.URL, via[0].URL) || r.Response.Header.Get("X-Linked-Etag") != "") {
		return http.ErrUseLastResponse
	}
	return nil
}

// A request is what send needs to make an attempt again.
type request struct {
	method, url string
	ranges      string // the Range header's value
	patient     bool   // network errors are tried again too
}

// send makes a request until it is answered with a status below 400, or with one that another attempt cannot mend, or
// until the attempts or ctx end. The caller closes the body.
func (c *Client) send(ctx context.Context, q request) (*http.Response, error) {
	if c.Offline {
		return nil, ErrOffline
	}
	for attempt := 0; ; attempt++ {
		resp, err := c.once(ctx, q)
		if err == nil {
			return resp, nil
		}
		wait, again := c.another(err, q.patient)
		if !again || attempt+1 >= c.attempts || ctx.Err() != nil {
			return nil, err
		}
		if !pause(ctx, c.Sleep(attempt, wait)) {
			return nil, err // the refusal says more than the end of the context
		}
	}
}

func (c *Client) once(ctx context.Context, q request) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, q.method, q.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept-Encoding", "identity")
	if q.ranges != "" {
		r.Header.Set("Range", q.ranges)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.clean(err)
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, c.refusal(resp)
	}
	return resp, nil
}

// another reports whether an attempt after err may fare better, and how long the server asked to wait.
func (c *Client) another(err error, patient bool) (time.Duration, bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.wait, e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout || e.Status >= 500
	}
	var permanent *permanentError
	var untrusted *tls.CertificateVerificationError
	return 0, patient && !errors.As(err, &permanent) && !errors.As(err, &untrusted) && !errors.Is(err, ErrOffline)
}

// A permanentError is a fault of the answer that another attempt would meet again.
type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// pause waits, or reports false at once when ctx would end first.
func pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// refusal turns an answer into an error of one line, without the token.
func (c *Client) refusal(resp *http.Response) *Error {
	e := &Error{Status: resp.StatusCode, Code: resp.Header.Get("X-Error-Code"), wait: retryAfter(resp.Header, time.Now())}
	text := resp.Header.Get("X-Error-Message")
	if text == "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		text = string(body)
	}
	u := resp.Request.URL
	e.Message = fmt.Sprintf("%d %s for %s%s", e.Status, http.StatusText(e.Status), u.Host, u.Path)
	if text = strings.TrimSpace(text); text != "" {
		e.Message += ": " + text
	}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		e.Message += "; set HF_TOKEN or run 'hf auth login' with access to this repository"
	}
	e.Message = c.oneLine(e.Message)
	return e
}

// clean drops the query of a URL from a network error: a CDN's holds a signature.
func (c *Client) clean(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	where := u.URL
	if parsed, e := url.Parse(u.URL); e == nil {
		where = parsed.Host + parsed.Path
	}
	return fmt.Errorf("%s %s: %w", strings.ToUpper(u.Op), where, u.Err)
}

func (c *Client) oneLine(text string) string {
	if c.Token != "" {
		text = strings.ReplaceAll(text, c.Token, "[redacted]")
	}
	return strings.Join(strings.Fields(text), " ")
}

// Reason is err's text in one line, without the token.
func (c *Client) Reason(err error) string { return c.oneLine(err.Error()) }

// retryAfter reads the header's seconds or date; zero: none.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if n, err := strconv.ParseUint(value, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}

// body reads an answer's bytes and ends the request when none comes for the client's stall.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	ctx    context.Context
}

var errStalled = errors.New("the server stopped sending")

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (b *body) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// get sends q and guards the body of its answer against silence.
func (c *Client) get(ctx context.Context, q request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := c.send(ctx, q)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	timer := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	timer.Stop()
	resp.Body = &body{resp.Body, cancel, timer, c.stall, ctx}
	return resp, nil
}
