package hub

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// A Progress shows how far a download is. Its methods may be called from several goroutines.
type Progress interface {
	Add(bytes int64)  // fetched; negative: thrown away
	Grow(bytes int64) // to fetch beyond what was announced
	Close()
}

type silent struct{}

func (silent) Add(int64)  {}
func (silent) Grow(int64) {}
func (silent) Close()     {}

// Bar returns the progress of a terminal: a bar with bytes, rate and the time left.
func Bar(w io.Writer) func(bytes int64) Progress {
	return func(bytes int64) Progress {
		return &terminal{w, progressbar.NewOptions64(bytes,
			progressbar.OptionSetWriter(w),
			progressbar.OptionShowBytes(true),
			progressbar.OptionShowCount(),
			progressbar.OptionShowTotalBytes(true),
			progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionUseANSICodes(true),
		)}
	}
}

type terminal struct {
	w   io.Writer
	bar *progressbar.ProgressBar
}

func (t *terminal) Add(bytes int64) { t.bar.Add64(bytes) }

func (t *terminal) Grow(bytes int64) {
	if bytes != 0 {
		t.bar.AddMax64(bytes)
	}
}

func (t *terminal) Close() {
	t.bar.Exit()
	fmt.Fprintln(t.w)
}

// Lines returns the progress of what is not a terminal: a plain line at most every so often.
func Lines(log func(line string), every time.Duration) func(bytes int64) Progress {
	return func(bytes int64) Progress {
		now := time.Now()
		return &lines{log: log, every: every, now: time.Now, total: bytes, start: now, last: now}
	}
}

type lines struct {
	log   func(string)
	every time.Duration
	now   func() time.Time

	mu          sync.Mutex
	total, done int64
	start, last time.Time
}

func (l *lines) Add(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done += bytes
	if now := l.now(); now.Sub(l.last) >= l.every {
		l.last = now
		l.log(l.line(now))
	}
}

func (l *lines) Grow(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += bytes
}

// line says how much is there of how much, the rate since the start, and the time left at that rate.
func (l *lines) line(now time.Time) string {
	text := fmt.Sprintf("Fetched %.2f of %.2f GB (%d%%)",
		float64(l.done)/1e9, float64(l.total)/1e9, percent(l.done, l.total))
	taken := now.Sub(l.start)
	if l.done <= 0 || taken <= 0 {
		return text
	}
	rate := float64(l.done) / taken.Seconds()
	left := time.Duration(float64(l.total-l.done) / rate * float64(time.Second))
	return fmt.Sprintf("%s · %.1f MB/s · %s left", text, rate/1e6, left.Round(time.Second))
}

func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 100
	}
	return int64(float64(part) / float64(whole) * 100)
}

func (l *lines) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done >= l.total {
		l.log(fmt.Sprintf("Fetched %.2f GB in %s.", float64(l.total)/1e9, l.now().Sub(l.start).Round(time.Second)))
	}
}
