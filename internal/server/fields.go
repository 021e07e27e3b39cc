package server

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"splash/internal/chat/ojson"
	"splash/internal/engine"
	"splash/oracle"
)

// fields reads the fields of a request. Null stands for a field that is not there. The first fault is kept, and names its
// field.
type fields struct {
	o   *ojson.Object
	err error
}

func (f *fields) fault(format string, args ...any) {
	if f.err == nil {
		f.err = invalidf(format, args...)
	}
}

func (f *fields) has(name string) bool { return f.o.Value(name) != nil }

func (f *fields) bool(name string, absent bool) bool {
	v := f.o.Value(name)
	if v == nil {
		return absent
	}
	b, ok := v.(bool)
	if !ok {
		f.fault("%s must be a boolean", name)
	}
	return b
}

func (f *fields) string(name, absent string) string {
	v := f.o.Value(name)
	if v == nil {
		return absent
	}
	s, ok := v.(string)
	if !ok {
		f.fault("%s must be a string", name)
	}
	return s
}

// number reads a number that accepted takes; rule says which those are.
func (f *fields) number(name string, absent float64, rule string, accepted func(x float64) bool) float64 {
	v := f.o.Value(name)
	if v == nil {
		return absent
	}
	n, ok := v.(json.Number)
	x, err := n.Float64()
	if !ok || err != nil || !accepted(x) {
		f.fault("%s must be a number %s", name, rule)
		return absent
	}
	return x
}

func between(low, high float64) (rule string, accepted func(x float64) bool) {
	return fmt.Sprintf("from %g to %g", low, high), func(x float64) bool { return x >= low && x <= high }
}

// positive reads a positive integer; 0 stands for a field that is not there.
func (f *fields) positive(name string) int {
	v := f.o.Value(name)
	if v == nil {
		return 0
	}
	n, ok := v.(json.Number)
	if !ok || !ojson.IsInteger(n) || strings.HasPrefix(n.String(), "-") || strings.Trim(n.String(), "0") == "" {
		f.fault("%s must be a positive integer", name)
		return 0
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil || i > math.MaxInt32 {
		return math.MaxInt32 // beyond every context
	}
	return int(i)
}

// sampling reads how tokens are chosen.
func (f *fields) sampling(penalties bool) (p oracle.Policy, seed uint64) {
	rule, ok := between(0, 2)
	p.Temperature = f.number("temperature", 1, rule, ok)
	if p.Temperature > 0 {
		p.Temperature = max(p.Temperature, 0.01)
	}
	p.TopP = f.number("top_p", 0.95, "above 0, up to 1", func(x float64) bool { return x > 0 && x <= 1 })
	p.TopK = f.topK()
	if penalties {
		rule, ok = between(0, 1)
		p.MinP = f.number("min_p", 0, rule, ok)
		rule, ok = between(-2, 2)
		p.Presence = f.number("presence_penalty", 0, rule, ok)
		p.Frequency = f.number("frequency_penalty", 0, rule, ok)
		p.Repetition = f.number("repetition_penalty", 1, "above 0", func(x float64) bool {
			return float32(x) > 0 && x <= math.MaxFloat32
		})
	}
	return p, f.seed()
}

func (f *fields) topK() int {
	const absent = 20
	v := f.o.Value("top_k")
	if v == nil {
		return absent
	}
	n, ok := v.(json.Number)
	if !ok || !ojson.IsInteger(n) {
		f.fault("top_k must be an integer, at least -1")
		return absent
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case err != nil && !strings.HasPrefix(n.String(), "-"), i > math.MaxUint32:
		return 0 // as many as there are
	case err != nil || i < -1:
		f.fault("top_k must be an integer, at least -1")
		return absent
	}
	return int(max(i, 0))
}

func (f *fields) seed() uint64 {
	v := f.o.Value("seed")
	if v == nil {
		return rand.Uint64()
	}
	n, _ := v.(json.Number)
	seed, err := strconv.ParseUint(n.String(), 10, 64)
	if err != nil {
		f.fault("seed must be an unsigned 64-bit integer")
	}
	return seed
}

// stop reads the strings that end an output.
func (f *fields) stop(name string) []string {
	const rule = "%s must be a string or up to four strings"
	var list []any
	switch v := f.o.Value(name).(type) {
	case nil:
		return nil
	case string:
		list = []any{v}
	case []any:
		list = v
	default:
		f.fault(rule, name)
		return nil
	}
	var stop []string
	for _, v := range list {
		s, _ := v.(string)
		if s == "" || len(list) > 4 {
			f.fault(rule, name)
			return nil
		}
		stop = append(stop, s)
	}
	return stop
}

// priority reads which requests it goes before.
func (f *fields) priority() engine.Priority {
	switch f.o.Value("priority") {
	case nil, "normal":
	case "foreground":
		return engine.Foreground
	case "background":
		return engine.Background
	default:
		f.fault("priority must be foreground, normal or background")
	}
	return engine.Normal
}

// timeout reads the request's own limit; 0 stands for none.
func (f *fields) timeout() time.Duration {
	if !f.has("timeout") {
		return 0
	}
	seconds := f.number("timeout", 0, "of seconds above 0", func(x float64) bool { return x > 0 && !math.IsInf(x, 0) })
	const most = float64(math.MaxInt64 / int64(time.Second))
	return max(1, time.Duration(min(seconds, most-1)*float64(time.Second)))
}

// streaming reads whether and what to stream.
func (f *fields) streaming(g *generation) {
	g.stream = f.bool("stream", false)
	if v := f.o.Value("stream_options"); v != nil {
		options, ok := v.(*ojson.Object)
		if !ok {
			f.fault("invalid streaming options")
			return
		}
		usage := options.Value("include_usage")
		if b, ok := usage.(bool); ok {
			g.usage = b
		} else if usage != nil {
			f.fault("invalid streaming options")
		}
	}
	f.progress(g)
}

func (f *fields) progress(g *generation) {
	if v := f.o.Value("return_progress"); v != nil {
		b, ok := v.(bool)
		if !ok || b && !g.stream {
			f.fault("return_progress requires stream: true and must be a boolean")
		}
		g.progress = b
	}
}

// unsupported refuses what OpenAI's interfaces have and no request here can ask for.
func (f *fields) unsupported() {
	if n := f.o.Value("n"); n != nil && n != json.Number("1") {
		f.fault("n and logprobs are not currently supported")
	}
	if v := f.o.Value("logprobs"); v != nil && v != false {
		f.fault("n and logprobs are not currently supported")
	}
	if v := f.o.Value("logit_bias"); v != nil {
		if o, ok := v.(*ojson.Object); !ok || o.Len() > 0 {
			f.fault("logit_bias is not supported")
		}
	}
}
