package cpu_test

import (
	"flag"
	"testing"
	"time"

	"splash/fixtures"
	"splash/internal/cpu"
	"splash/internal/gguf"
	"splash/internal/model"
	"splash/planner"
)

// The benchmarks of whole models run on random weights of Qwen3.5-0.8B's sizes, which are made in memory unless a file
// that "go run ./fixtures/make model bench-qwen35 Q4_K_M FILE" wrote is given.
var speedModel = flag.String("speed.model", "", "a GGUF for the benchmarks of whole models; made in memory without one")

func loadSpeed(b *testing.B, maxRows int) model.Network {
	b.Helper()
	if *speedModel != "" {
		return load(b, *speedModel, maxRows, cpu.Options{}, model.Options{})
	}
	l := planner.FamilyByName("bench-qwen35").Layout
	g, err := (&fixtures.Recipe{Family: "bench-qwen35", Formats: fixtures.Q4KM(&l)}).GGUF()
	if err != nil {
		b.Fatal(err)
	}
	f, err := g.Open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return loadFile(b, f, maxRows)
}

func loadFile(b *testing.B, f *gguf.File, maxRows int) model.Network {
	b.Helper()
	p, err := planner.PlanGGUF(f.Header)
	if err != nil {
		b.Fatal(err)
	}
	c, err := cpu.New(p, maxRows, cpu.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	n, err := model.New(c, p, planner.OpenGGUF(f, p), model.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func promptOf(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i*7919%30000 + 10)
	}
	return tokens
}

// BenchmarkDecode is one row a pass after a prompt of 32 tokens, and the eight rows of a cycle beside it, of which seven
// are taken back. It prints the best of each: other work on the machine makes the rest.
func BenchmarkDecode(b *testing.B) {
	n := loadSpeed(b, 256)
	lane := newLane(b, n)
	run := func(tokens []int32) time.Duration {
		began := time.Now()
		p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens, Outputs: min(len(tokens), 8)}}}
		if err := n.Forward(p); err != nil {
			b.Fatal(err)
		}
		took := time.Since(began)
		if back := len(tokens) - 1; back > 0 && back <= 7 {
			if err := n.Backend().Rollback(lane, back); err != nil {
				b.Fatal(err)
			}
		}
		return took
	}
	run(promptOf(32))
	one, eight := time.Hour, time.Hour
	for b.Loop() {
		for range 4 {
			one = min(one, run([]int32{int32(b.N%1000 + 5)}))
		}
		eight = min(eight, run(promptOf(8)))
	}
	b.ReportMetric(1/one.Seconds(), "tokens/s")
	b.ReportMetric(eight.Seconds()/one.Seconds(), "eight/one")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPrefill is a prompt of 512 tokens, 256 rows a pass.
func BenchmarkPrefill(b *testing.B) {
	n := loadSpeed(b, 256)
	tokens := promptOf(512)
	best := time.Hour
	for b.Loop() {
		lane := newLane(b, n)
		began := time.Now()
		for at := 0; at < len(tokens); at += 256 {
			p := &model.Pass{Segments: []model.Segment{{Lane: lane, Tokens: tokens[at : at+256], Outputs: at / 256}}}
			if err := n.Forward(p); err != nil {
				b.Fatal(err)
			}
		}
		best = min(best, time.Since(began))
		n.Backend().FreeLane(lane)
	}
	b.ReportMetric(512/best.Seconds(), "tokens/s")
	b.ReportMetric(0, "ns/op")
}
