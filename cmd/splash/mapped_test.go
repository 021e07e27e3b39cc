//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFileCutWhileServed: a model's file that is cut short under the server fails the requests that need what is gone, in
// one line on the console, and does not end the process with a bus error.
func TestFileCutWhileServed(t *testing.T) {
	data, err := os.ReadFile(pebblePath("pebble-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"cpu", "oracle"} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := host(t, "--model-dir", path, "--backend", backend)
		if err := os.Truncate(path, 100_000); err != nil {
			t.Fatal(err)
		}
		// A backend that has its own copy of the weights answers all the same.
		for range 2 {
			res, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"hi there","max_tokens":2,"temperature":0}`))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if ok := res.StatusCode == 200; !ok && (res.StatusCode < 500 || !bytes.Contains(body, []byte(`"type":"server_error"`))) {
				t.Errorf("%s: status %d, %s", backend, res.StatusCode, body)
			} else if !ok && res.StatusCode == 500 && !strings.Contains(s.stderr.String(), " cannot be read, as where a file of the model was cut short\n") {
				t.Errorf("%s: the console says %q", backend, s.stderr.String())
			}
		}
		res, err := http.Get(s.url + "/health")
		if err != nil || res.StatusCode != 200 {
			t.Fatal(fmt.Sprint(res), err)
		}
		res.Body.Close()
		if status := s.end(); status != 0 {
			t.Errorf("%s: status %d, %s", backend, status, s.stderr.String())
		}
	}
}
