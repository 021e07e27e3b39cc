package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"splash/internal/flock"
)

func TestHold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runtime")
	first := holder{PID: 12, Model: "a/b", Port: 8000}
	release, err := hold(dir, first)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "serve-8000.lock")); err != nil || string(data) != `{"pid":12,"model":"a/b","port":8000}`+"\n" {
		t.Errorf("%s %v", data, err)
	}
	_, err = hold(dir, holder{PID: 13, Port: 8000})
	if err == nil || err.Error() != "Splash is already serving (PID 12, model a/b, port 8000); stop it with Ctrl+C first" {
		t.Errorf("the same port: %v", err)
	}
	other, err := hold(dir, holder{PID: 13, Model: "c", Port: 8001})
	if err != nil {
		t.Fatal(err)
	}
	other()
	if _, err := flock.Try(filepath.Join(dir, "serve.lock")); err == nil {
		t.Error("an upgrade goes on beside a server")
	}
	release()
	upgrade, err := flock.Try(filepath.Join(dir, "serve.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold(dir, first); err == nil || !strings.Contains(err.Error(), "being upgraded") {
		t.Errorf("during an upgrade: %v", err)
	}
	upgrade.Unlock()
	if release, err = hold(dir, first); err != nil {
		t.Fatal(err)
	}
	release()
}
