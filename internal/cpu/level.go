package cpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// A Level is a set of instructions that kernels are written for. A machine that runs a level runs those of its
// architecture before it.
type Level int

const (
	Generic    Level = iota // plain Go, on every machine
	AVX2                    // amd64 with AVX2, FMA and F16C
	AVX512                  // amd64 with AVX-512 F, BW, DQ, VL and VNNI
	AVX512BF16              // and products of bfloat16 numbers
	AMX                     // and tiles of bytes and of bfloat16 numbers
	NEON                    // arm64 with FEAT_DotProd
)

var levelNames = []string{"generic", "avx2", "avx512", "avx512bf16", "amx", "neon"}

func (l Level) String() string { return levelNames[l] }

// LevelVariable names the environment variable that forces a level.
const LevelVariable = "SPLASH_CPU"

// Levels lists the levels this machine runs, the best last.
func Levels() []Level {
	levels := []Level{Generic}
	for _, l := range []Level{AVX2, AVX512, AVX512BF16, AMX, NEON} {
		if kernelsFor[l] != nil && machineRuns(l) {
			levels = append(levels, l)
		}
	}
	return levels
}

// kernelsOf returns the kernels of the level of that name; of the one that LevelVariable forces, or else the best, for an
// empty name.
func kernelsOf(name string) (*kernels, error) {
	asked, run := "level "+name, Levels()
	if name == "" {
		if name = os.Getenv(LevelVariable); name == "" {
			return kernelsFor[preferred(run)], nil
		}
		asked = LevelVariable + "=" + name
	}
	at := slices.Index(levelNames, name)
	switch {
	case at < 0:
		return nil, fmt.Errorf("cpu: %s is none of %s", asked, strings.Join(levelNames, ", "))
	case !slices.Contains(run, Level(at)):
		return nil, fmt.Errorf("cpu: %s: %w", asked, missing(Level(at), run))
	}
	return kernelsFor[at], nil
}

// preferred is the last of levels that run, of those that the machine has the instructions of.
func preferred(run []Level) Level {
	for _, l := range slices.Backward(run) {
		if !emulated(l) {
			return l
		}
	}
	return Generic
}

// missing says that a level does not run where others do.
func missing(l Level, run []Level) error {
	return fmt.Errorf("this machine does not run %v, but %v", l, run)
}
