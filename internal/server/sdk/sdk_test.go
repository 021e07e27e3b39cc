package sdk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sdkTests is the environment variable that asks for the tests that need node, npm and a registry of npm's.
const sdkTests = "SPLASH_SDK_TESTS"

// patience bounds every process. It is only met by what will never happen.
const patience = 5 * time.Minute

const key = "open-sesame"

// TestClients runs the tests of each client. Everything they need is made in a folder of its own.
func TestClients(t *testing.T) {
	if os.Getenv(sdkTests) == "" {
		t.Skipf("set %s=1 to have the official clients use the server", sdkTests)
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is needed for the official clients: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := copyFiles(dir); err != nil {
		t.Fatal(err)
	}
	install := command(t, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel", "error")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	splash := filepath.Join(dir, "splash")
	if out, err := command(t, "go", "build", "-o", splash, "splash/cmd/splash").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, client := range []string{"openai", "anthropic"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			url := serve(t, splash)
			small := serve(t, splash, "--queue-size", "1", "--max-request-size", "4K")
			node := command(t, "node", client+".test.mjs")
			node.Dir = dir
			node.Env = append(os.Environ(), "SPLASH_URL="+url, "SPLASH_SMALL_URL="+small, "SPLASH_KEY="+key, "NO_COLOR=1")
			out, err := node.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if testing.Verbose() {
				t.Logf("%s", out)
			}
		})
	}
}

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return exec.CommandContext(ctx, name, args...)
}

// copyFiles copies the clients' tests and the list of their modules.
func copyFiles(dir string) error {
	entries, err := os.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		data, err := os.ReadFile(e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, fs.FileMode(0o600)); err != nil {
			return err
		}
	}
	return nil
}

// serve starts splash serve on a free port, and returns its address. It ends with the test.
func serve(t *testing.T, splash string, args ...string) string {
	t.Helper()
	for range 5 {
		url, log, err := start(t, splash, args...)
		if err == nil {
			return url
		}
		// Another process may have taken the port meanwhile.
		if !strings.Contains(log, "cannot bind") {
			t.Fatalf("splash serve: %v\n%s", err, log)
		}
	}
	t.Fatal("no port is free")
	return ""
}

func start(t *testing.T, splash string, args ...string) (url, log string, err error) {
	t.Helper()
	port, err := freePort()
	if err != nil {
		return "", "", err
	}
	p := exec.Command(splash, append([]string{"serve", "--port", port, "--api-key", key}, args...)...)
	p.Env = append(os.Environ(), "SPLASH_DATA_DIR="+t.TempDir())
	var stderr bytes.Buffer
	p.Stderr = &stderr
	out, err := p.StdoutPipe()
	if err != nil {
		return "", "", err
	}
	if err := p.Start(); err != nil {
		return "", "", err
	}
	lines := bufio.NewScanner(out)
	ready := regexp.MustCompile(` Ready · .* (http://\S+)$`)
	for url == "" && lines.Scan() {
		if m := ready.FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
	}
	if url == "" {
		return "", stderr.String(), errors.Join(errors.New("not ready"), p.Wait())
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
		}
	}()
	t.Cleanup(func() {
		p.Process.Signal(os.Interrupt)
		<-drained
		if err := p.Wait(); err != nil {
			t.Errorf("splash serve ended with %v", err)
		}
		if strings.Contains(stderr.String(), "panic") || strings.Contains(stderr.String(), "internal_server_error") {
			t.Error(stderr.String())
		}
	})
	return url, "", nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
