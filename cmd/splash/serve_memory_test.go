package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"splash/internal/target"
	"splash/metal"
)

func TestMemoryUsage(t *testing.T) {
	const size, duration = "must be 'auto' or a positive byte count such as 32G", "must be 'off' or a positive duration such as 30m, 2h or 3600"
	for _, c := range []struct{ args, says string }{
		{"--max-memory 0", size},
		{"--max-memory 1.5G", size},
		{"--max-memory 9223372036854775808", size},
		{"--expert-memory x", size},
		{"--kv-format fp8", "fp8"},
		{"--kv-format INT8", "INT8"},
		{"--idle-release 0", duration},
		{"--idle-release never", duration},
		{"--idle-release 1d", duration},
		{"--activations int8", "int8"},
		{"--decode-share -0.1", "--decode-share is -0.1"},
		{"--decode-share nan", "--decode-share is NaN"},
		{"--decode-share inf", "--decode-share is +Inf"},
		{"--decode-share x", "decode-share"},
		{"--disable-ane=maybe", "disable-ane"},
		{"--max-cache-disk auto", "must be 0 or a positive byte count such as 32G"},
		{"--max-cache-disk -1", "must be 0 or a positive byte count such as 32G"},
		{"--persistent-cache", "--persistent-cache needs --max-cache-disk"},
		{"--persistent-cache --max-cache-disk 0", "--persistent-cache needs --max-cache-disk"},
		{"--cache-dir x --max-cache-disk 1G", "--cache-dir needs --persistent-cache"},
		{"--cache-dir= --max-cache-disk 1G --persistent-cache", "--cache-dir is empty"},
	} {
		var stderr bytes.Buffer
		status := run(t.Context(), append([]string{"serve"}, strings.Fields(c.args)...), console{nil, io.Discard, &stderr})
		if status != exitUsage || !strings.Contains(stderr.String(), "\nerror: ") || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: status %d: %s", c.args, status, stderr.String())
		}
	}
}

// TestMemoryFlags: what the flags come to, for each backend.
func TestMemoryFlags(t *testing.T) {
	type result struct {
		KV     string
		Memory int64
		Idle   time.Duration
		Share  float64

		Exact, Chunked bool
	}
	const auto = -1
	for _, c := range []struct {
		backend, args string
		want          result
	}{
		{"cpu", "", result{"int8", auto, 10 * time.Minute, 0.5, false, false}},
		{"oracle", "", result{"", auto, 10 * time.Minute, 0.5, false, false}},
		{"metal", "--chunked-gdn --activations auto", result{"int8", auto, 10 * time.Minute, 0.5, false, true}},
		{"cpu", "--kv-format bf16 --idle-release off --decode-share 0 --max-memory AUTO", result{"bf16", auto, 0, -1, false, false}},
		{"cpu", "--max-memory 100M --idle-release=1.5h --decode-share=2 --activations BF16 --expert-memory 4g --disable-ane --allow-idle-sleep",
			result{"int8", 100 << 20, 90 * time.Minute, 2, true, false}},
	} {
		if c.backend == "metal" && metal.Usable() != nil {
			continue
		}
		var m memoryFlags
		cmd := &cobra.Command{}
		m.flags(cmd, cmd.Flags())
		m.turns(cmd.Flags())
		o := target.Options{Backend: c.backend}
		err := cmd.ParseFlags(strings.Fields(c.args))
		if err == nil {
			err = m.check(cmd)
		}
		if err == nil {
			err = m.options(&o)
		}
		got := result{o.KV, o.Memory, o.Engine.IdleRelease, o.Engine.DecodeShare, o.ExactActivations, o.ChunkedGDN}
		if m.most == 0 {
			got.Memory = auto
		}
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("%s %s: %v %s", c.backend, c.args, err, d)
		}
	}
	for _, c := range [][3]int64{{0, 0, 0}, {0, 5, 5}, {800, 0, 700}, {800, 100, 100}, {800, 10_000, 700}} {
		if got := budget(c[0], c[1]); got != c[2] {
			t.Errorf("of %d bytes and a limit of %d there are %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// TestDoesNotFit: a model that has no room is refused before it is loaded, with what it takes.
func TestDoesNotFit(t *testing.T) {
	for args, says := range map[string]string{
		"--max-memory 1M":                                  "error: the demonstration model: the model does not fit in memory: weights ",
		"--max-memory 1M --max-context 100":                "of 1 MiB",
		"--backend oracle --kv-format int8":                "error: backend oracle keeps keys and values in a format of its own, not in int8",
		"--max-memory 48M --max-context 4096 --lanes 1":    "a context of 4096 tokens does not fit in memory, at most ",
		"--backend oracle --kv-format bf16 --max-memory 9": "format of its own",
		"--backend cpu --chunked-gdn":                      "error: backend cpu takes recurrent layers row by row alone",
		"--backend oracle --max-cache-disk 1G":             "error: backend oracle keeps no prompts on a disk",
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), append([]string{"serve", "--port", freePort(t)}, strings.Fields(args)...), console{nil, &stdout, &stderr})
		if status != exitFailure || !strings.Contains(stderr.String(), says) || strings.Count(stderr.String(), "\n") != 1 || strings.Contains(stdout.String(), "Weights loaded") {
			t.Errorf("%s: status %d: %s%s", args, status, stdout.String(), stderr.String())
		}
	}
}

func TestMemoryValues(t *testing.T) {
	var size autoSize
	var disk diskSize
	var off offDuration
	got := map[string]string{}
	for _, text := range []string{"auto", "28GB", "0", "5m", "90s", "off", "OFF", "2h", "1.5h", "-1", ""} {
		var all []string
		for _, v := range []interface {
			Set(string) error
			String() string
		}{&size, &disk, &off} {
			if err := v.Set(text); err != nil {
				all = append(all, "-")
			} else {
				all = append(all, v.String())
			}
		}
		got[text] = strings.Join(all, " ")
	}
	want := map[string]string{
		"auto": "auto - -", "28GB": "28G 28G -", "0": "- 0 -", "5m": "5M 5M 5m", "90s": "- - 1m30s", "off": "- - off", "OFF": "- - off",
		"2h": "- - 2h", "1.5h": "- - 1h30m", "-1": "- - -", "": "- - -",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCacheDir(t *testing.T) {
	for _, c := range []struct{ system, xdg, want string }{
		{"darwin", "/x", "/h/Library/Caches/Splash/prefix-cache"},
		{"linux", "/x", "/x/splash/prefix-cache"},
		{"linux", "", "/h/.cache/splash/prefix-cache"},
		{"linux", "relative", "/h/.cache/splash/prefix-cache"},
	} {
		if got := defaultCacheDir("/h", c.system, func(string) string { return c.xdg }); got != filepath.FromSlash(c.want) {
			t.Errorf("%s %q: %s", c.system, c.xdg, got)
		}
	}
	m := memoryFlags{persistent: true, cacheDir: "x"}
	if dir, err := m.root(); err != nil || !filepath.IsAbs(dir) || filepath.Base(dir) != "x" {
		t.Errorf("%s, %v", dir, err)
	}
}
