package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestCrashTrace: what is known of a fault is written down where that is asked for, and /status says where.
func TestCrashTrace(t *testing.T) {
	data, err := os.ReadFile(pebblePath("pebble-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []bool{false, true} {
		home := t.TempDir()
		t.Setenv("XDG_STATE_HOME", home)
		t.Setenv("SPLASH_CRASH_TRACE", map[bool]string{true: "1"}[asked])
		dir := filepath.Join(home, "splash", "crash")
		if runtime.GOOS == "darwin" {
			t.Setenv("HOME", home)
			dir = filepath.Join(home, "Library", "Logs", "Splash", "crash")
		}
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := host(t, "--model-dir", path, "--backend", "cpu")
		if err := os.Truncate(path, 100_000); err != nil {
			t.Fatal(err)
		}
		res, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"hi there","max_tokens":2}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode < 500 {
			t.Fatalf("a model that is cut short answers with status %d", res.StatusCode)
		}
		if res, err = http.Get(s.url + "/status"); err != nil {
			t.Fatal(err)
		}
		status, _ := io.ReadAll(res.Body)
		res.Body.Close()
		bundles, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		if !asked {
			if len(bundles) > 0 || !strings.Contains(string(status), `"last_crash_trace":null`) {
				t.Errorf("unasked: %q, %s", bundles, status)
			}
			continue
		}
		if len(bundles) != 1 || !strings.Contains(string(status), `"last_crash_trace":"`+bundles[0]+`"`) || !strings.Contains(s.stderr.String(), bundles[0]) {
			t.Fatalf("%q, the console says %s\n%s", bundles, s.stderr.String(), status)
		}
		var b struct {
			Error    string
			Requests []struct{ Prompt []int32 }
			Log      []string
		}
		text, err := os.ReadFile(bundles[0])
		if err == nil {
			err = json.Unmarshal(text, &b)
		}
		if err != nil || !strings.Contains(b.Error, "cut short") || len(b.Requests) != 1 || len(b.Requests[0].Prompt) == 0 || len(b.Log) == 0 {
			t.Errorf("%v: %.500s", err, text)
		}
	}
}
