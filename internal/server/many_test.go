package server

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"splash/internal/engine"
)

// soakVariable is how long TestManyClients runs, such as 60s, in place of a few requests a client.
const soakVariable = "SPLASH_SOAK"

// TestManyClients streams to 32 clients at once, half of which hang up on their way: none of the others fails, and nothing
// of any of them is left, no memory either (serve looks for goroutines and lanes).
func TestManyClients(t *testing.T) {
	const clients, each = 32, 12
	var end time.Time
	if v := os.Getenv(soakVariable); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
		end = time.Now().Add(d)
	}
	f := serveModel(t, Options{Queue: clients}, func(m *Model, o *engine.Options) { o.Lanes = 4 })
	text := strings.Repeat("word ", 60)
	f.says(text)
	var served, gone atomic.Int64
	all := func(requests func(i int) bool) {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for i := 0; requests(i); i++ {
					if rand.IntN(2) == 0 {
						leave(t, f, rand.IntN(4000))
						gone.Add(1)
					} else if stay(t, f, text) {
						served.Add(1)
					}
				}
			})
		}
		wg.Wait()
		waitFor(t, "the slots", func() bool { return len(f.server.slots) == 0 && f.server.bodies.inUse() == 0 })
	}
	all(func(i int) bool { return i < each })
	if served.Load()+gone.Load() != clients*each {
		t.Errorf("%d answers and %d clients gone of %d", served.Load(), gone.Load(), clients*each)
	}
	if !end.IsZero() {
		before := memoryInUse()
		all(func(int) bool { return time.Now().Before(end) })
		after := memoryInUse()
		t.Logf("%d answers, %d clients gone; %d KB in use at first, %d at the end", served.Load(), gone.Load(), before>>10, after>>10)
		if left := int64(after) - int64(before); left > 4<<20 {
			t.Errorf("%d bytes are left", left)
		}
	}
	if f.script.most > 4 {
		t.Errorf("%d lanes at once, at most 4", f.script.most)
	}
	waitFor(t, "the engine", func() bool {
		s := f.server.model.Engine.Stats()
		return s.Active+s.Waiting+s.Suspended+len(f.server.model.Engine.Live()) == 0
	})
}

func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var priorities = [3]string{"background", "normal", "foreground"}

// streamRequest starts a stream. A server whose slots are all taken, as by clients that have only just gone, is asked again.
func streamRequest(ctx context.Context, f *fixture) (*http.Response, error) {
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+cc, strings.NewReader(chatBody(`"stream":true,"priority":"`+priorities[rand.IntN(3)]+`"`)))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil || res.StatusCode != http.StatusServiceUnavailable {
			return res, err
		}
		res.Body.Close()
		time.Sleep(time.Millisecond)
	}
}

// stay reads a whole stream.
func stay(t *testing.T, f *fixture, want string) bool {
	res, err := streamRequest(t.Context(), f)
	if err != nil {
		t.Error(err)
		return false
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("status %d, %v: %.200s", res.StatusCode, err, data)
		return false
	}
	events, _, err := parseEvents(bytes.NewReader(data))
	if err != nil {
		t.Error(err)
		return false
	}
	if got := joined(t, events, "choices", 0, "delta", "content"); got != want {
		t.Errorf("%q", got)
		return false
	}
	return true
}

// leave hangs up after so many bytes.
func leave(t *testing.T, f *fixture, after int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := streamRequest(ctx, f)
	if err != nil {
		t.Error(err)
		return
	}
	io.CopyN(io.Discard, res.Body, int64(after))
	cancel()
	res.Body.Close()
}
