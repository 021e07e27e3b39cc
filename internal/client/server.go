package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"
)

// DefaultPort is the port of a server that was not told another.
const DefaultPort = 8000

// A Server is a Splash server that answers on this machine.
type Server struct {
	URL        string // without a path
	Port       int
	Model      string // as its responses name it
	Context    int    // tokens of prompt and answer
	Modalities []string
}

// ErrNotReady says that no server answers.
var ErrNotReady = errors.New("No ready Splash server")

// Probe asks the server on a port of this machine what it serves. The key may be empty. The error wraps ErrNotReady where
// nobody answers.
func Probe(ctx context.Context, port int, key string) (*Server, error) {
	return probe(ctx, port, key, 2*time.Second)
}

func probe(ctx context.Context, port int, key string, patience time.Duration) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := &Server{URL: fmt.Sprintf("http://127.0.0.1:%d", port), Port: port}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.endpoint()+"/models", nil)
	if err != nil {
		return nil, err
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	// Neither a proxy nor another address may learn the key.
	h := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := h.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w at %s", ErrNotReady, s.URL)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return nil, errors.New("Splash authentication failed; set SPLASH_API_KEY to the server's key")
	case res.StatusCode >= 500:
		return nil, fmt.Errorf("%w at %s", ErrNotReady, s.URL)
	}
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(res.Body, most))
	if err != nil {
		return nil, fmt.Errorf("%w at %s", ErrNotReady, s.URL)
	}
	if res.StatusCode != http.StatusOK || !s.identify(body) {
		return nil, errors.New("Could not identify the local Splash server")
	}
	if !slices.Contains(s.Modalities, "text") {
		return nil, errors.New("the server does not say what its model takes; restart it with this version of Splash")
	}
	return s, nil
}

// identify reads the list of models, whose first is the one that is served.
func (s *Server) identify(body []byte) bool {
	var list struct {
		Data []struct {
			ID         string          `json:"id"`
			Owner      string          `json:"owned_by"`
			Context    json.RawMessage `json:"context_length"`
			Modalities []string        `json:"input_modalities"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil || len(list.Data) == 0 {
		return false
	}
	m := list.Data[0]
	if json.Unmarshal(m.Context, &s.Context) != nil {
		return false
	}
	s.Model, s.Modalities = m.ID, m.Modalities
	return m.Owner == "splash" && m.ID != "" && s.Context > 0 && s.Context <= math.MaxInt32
}
