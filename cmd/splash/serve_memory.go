package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"splash/internal/machine"
	"splash/internal/target"
)

// memoryFlags are those of serve on memory and on whose turn it is.
type memoryFlags struct {
	most        autoSize
	kv          string
	kvGiven     bool
	idle        offDuration
	activations string
	chunked     bool
	experts     autoSize
	share       float64
	disk        diskSize
	persistent  bool
	cacheDir    string
	noANE       bool
	idleSleep   bool
}

func (m *memoryFlags) flags(cmd *cobra.Command, f *pflag.FlagSet) {
	m.idle = offDuration(10 * time.Minute)
	f.Var(&m.most, "max-memory", "`size` of the memory for weights, requests and what is kept of prompts, less than the machine has")
	f.StringVar(&m.kv, "kv-format", "int8", "`format` of keys and values: int8 or bf16; the backend's own where it has no int8")
	f.Var(&m.idle, "idle-release", "`duration` without a request after which the weights' memory is given back; off for never")
	f.StringVar(&m.activations, "activations", "auto", "`format` of activations: auto or bf16; auto decodes rotated models in 8 bits on an Apple M5 or later")
	f.BoolVar(&m.chunked, "chunked-gdn", false, "take recurrent layers of prompts 16 rows at a time; the last bits then depend on how prompts are cut")
	f.Var(&m.experts, "expert-memory", "`size` of the memory for streamed experts; changes nothing here, where files are mapped")
	f.Var(&m.disk, "max-cache-disk", "`size` of the disk space for prompts that memory does not hold; 0 for none")
	f.BoolVar(&m.persistent, "persistent-cache", false, "keep prompts on the disk for the next start")
	f.StringVar(&m.cacheDir, "cache-dir", "", "`directory` of --persistent-cache (default "+defaultCacheDir("~", runtime.GOOS, os.Getenv)+")")
	_ = cmd.MarkFlagDirname("cache-dir")
	complete(cmd, "kv-format", "int8", "bf16")
	complete(cmd, "activations", "auto", "bf16")
}

// turns are the flags on whose turn it is, and on the machine's sleep.
func (m *memoryFlags) turns(f *pflag.FlagSet) {
	f.Float64Var(&m.share, "decode-share", 0.5, "`time` of decoding owed for a unit of time spent on other prompts; 0 alternates")
	f.BoolVar(&m.noANE, "disable-ane", false, "accepted; there is no Neural Engine in use to disable")
	f.BoolVar(&m.idleSleep, "allow-idle-sleep", false, "accepted; this build never keeps the machine awake")
}

func (m *memoryFlags) check(cmd *cobra.Command) error {
	m.kvGiven = cmd.Flags().Changed("kv-format")
	if err := oneOf("kv-format", m.kv, "int8", "bf16"); err != nil {
		return err
	}
	if err := oneOf("activations", strings.ToLower(m.activations), "auto", "bf16"); err != nil {
		return err
	}
	if !(m.share >= 0) || math.IsInf(m.share, 1) {
		return usagef("--decode-share is %g; a number of at least 0 is expected", m.share)
	}
	if m.persistent && m.disk == 0 {
		return usagef("--persistent-cache needs --max-cache-disk")
	}
	if cmd.Flags().Changed("cache-dir") {
		if !m.persistent {
			return usagef("--cache-dir needs --persistent-cache")
		}
		if m.cacheDir == "" {
			return usagef("--cache-dir is empty")
		}
	}
	return nil
}

// defaultCacheDir is where prompts are kept below a home directory.
func defaultCacheDir(home, system string, env func(string) string) string {
	if system == "darwin" {
		return filepath.Join(home, "Library", "Caches", "Splash", "prefix-cache")
	}
	if dir := env("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "splash", "prefix-cache")
	}
	return filepath.Join(home, ".cache", "splash", "prefix-cache")
}

// root is the directory of prompts that stay; empty: none do.
func (m *memoryFlags) root() (string, error) {
	switch {
	case !m.persistent:
		return "", nil
	case m.cacheDir != "":
		return filepath.Abs(m.cacheDir)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return defaultCacheDir(home, runtime.GOOS, os.Getenv), nil
}

// options sets what the flags say of a target and its engine, and refuses what its backend does not do: before anything is
// downloaded.
func (m *memoryFlags) options(o *target.Options) error {
	b, err := target.FindBackend(o.Backend)
	if err != nil {
		return err
	}
	o.KV = m.kv
	if !m.kvGiven && !slices.Contains(b.KVFormats, m.kv) {
		o.KV = ""
	}
	o.ExactActivations = strings.EqualFold(m.activations, "bf16")
	o.ChunkedGDN = m.chunked
	o.Disk.Quota = int64(m.disk)
	if o.Disk.Root, err = m.root(); err != nil {
		return err
	}
	o.Memory = budget(machine.Memory(), int64(m.most))
	e := &o.Engine
	e.IdleRelease = time.Duration(m.idle)
	if e.DecodeShare = m.share; m.share == 0 {
		e.DecodeShare = -1
	}
	return o.Check()
}

// budget is the memory of the process: most of what there is, which a limit lowers.
func budget(there, limit int64) int64 {
	n := there - there/8
	if limit > 0 && (n == 0 || limit < n) {
		n = limit
	}
	return n
}

// collect lets the garbage collector know of the budget, unless the environment does: what is kept of prompts may be most of
// the heap, which would otherwise grow to twice that. Weights that are copied are in the heap too.
func collect(m *target.MemoryPlan) {
	const scratch = 1 << 30
	if m.Limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.Limit + scratch)
	}
}
