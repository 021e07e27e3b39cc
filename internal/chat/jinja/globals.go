package jinja

import (
	"fmt"
	"strings"
	"time"

	"splash/internal/chat/ojson"
)

// globals are the names that every template has.
var globals = map[string]*function{
	"namespace":       {"namespace", callNamespace},
	"dict":            {"dict", func(r *renderer, a args) any { return r.newDict("dict", a) }},
	"range":           {"range", callRange},
	"raise_exception": {"raise_exception", callRaise},
	"strftime_now":    {"strftime_now", callStrftime},
}

// newDict makes a dict of another and of named arguments.
func (r *renderer) newDict(what string, a args) *ojson.Object {
	o := &ojson.Object{}
	if len(a.pos) > 1 {
		r.fail(KindType, "%s takes at most one positional argument", what)
	}
	if len(a.pos) == 1 {
		r.undefined(a.pos[0])
		r.fill(what, o, a.pos[0])
	}
	r.spend(64 * (o.Len() + len(a.names)))
	for i, name := range a.names {
		o.Set(name, a.named[i])
	}
	return o
}

// fill sets what a dict, or a list of pairs, holds.
func (r *renderer) fill(what string, o *ojson.Object, from any) {
	if d, ok := from.(*ojson.Object); ok {
		r.spend(64 * d.Len())
		for k, v := range d.All() {
			o.Set(k, v)
		}
		return
	}
	for _, v := range r.iterate(from) {
		r.spend(64)
		pair, ok := items(v)
		if ok && len(pair) == 2 {
			if k, ok := pair[0].(string); ok {
				o.Set(k, pair[1])
				continue
			}
		}
		r.fail(KindType, "%s takes pairs of a string and a value", what)
	}
}

func callNamespace(r *renderer, a args) any { return &namespace{r.newDict("namespace", a)} }

func callRange(r *renderer, a args) any {
	if len(a.names) > 0 || len(a.pos) == 0 || len(a.pos) > 3 {
		r.fail(KindType, "range takes one to three integers")
	}
	n := make([]int64, len(a.pos))
	for i, v := range a.pos {
		r.undefined(v)
		var ok bool
		if n[i], ok = r.integer(v); !ok {
			r.fail(KindType, "range takes integers, not '%s'", typeName(v))
		}
	}
	g, stop := intRange{step: 1}, n[0]
	if len(n) > 1 {
		g.start, stop = n[0], n[1]
	}
	if len(n) > 2 {
		g.step = n[2]
	}
	if g.step == 0 {
		r.fail(KindValue, "range() arg 3 must not be zero")
	}
	count := rangeLen(g.start, stop, g.step)
	if count > maxRange {
		r.fail("OverflowError", "range too big: the sandbox takes at most %d items", maxRange)
	}
	g.n = int64(count)
	return g
}

// rangeLen counts the items of a range; the span of two int64 fits an uint64.
func rangeLen(start, stop, step int64) uint64 {
	if step > 0 && start < stop {
		return (uint64(stop)-uint64(start)-1)/uint64(step) + 1
	}
	if step < 0 && start > stop {
		return (uint64(start)-uint64(stop)-1)/-uint64(step) + 1
	}
	return 0
}

func callRaise(r *renderer, a args) any {
	v := r.bindArgs("raise_exception", a, "message")
	msg := ""
	if given(v[0]) {
		msg = r.str(v[0])
	}
	r.fail(KindRaised, "%s", msg)
	return nil
}

func callStrftime(r *renderer, a args) any {
	v := r.bindArgs("strftime_now", a, "format")
	format := r.text("strftime_now", v[0])
	r.spend(16 * len(format))
	return strftime(r.now(), format)
}

// strftime formats t as C's strftime does in the C locale, glibc's flags for padding included.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		flag := byte(0)
		if strings.IndexByte("-_0", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		b.WriteString(strftimeOne(t, format[i], flag))
	}
	return b.String()
}

func strftimeOne(t time.Time, c, flag byte) string {
	num := func(n, width int, pad byte) string {
		switch flag {
		case '-':
			return fmt.Sprint(n)
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		if pad == ' ' {
			return fmt.Sprintf("%*d", width, n)
		}
		return fmt.Sprintf("%0*d", width, n)
	}
	hour12 := (t.Hour()+11)%12 + 1
	weekday := int(t.Weekday())
	switch c {
	case 'Y':
		return num(t.Year(), 1, '0')
	case 'C':
		return num(t.Year()/100, 2, '0')
	case 'y':
		return num(t.Year()%100, 2, '0')
	case 'm':
		return num(int(t.Month()), 2, '0')
	case 'd':
		return num(t.Day(), 2, '0')
	case 'e':
		return num(t.Day(), 2, ' ')
	case 'H':
		return num(t.Hour(), 2, '0')
	case 'k':
		return num(t.Hour(), 2, ' ')
	case 'I':
		return num(hour12, 2, '0')
	case 'l':
		return num(hour12, 2, ' ')
	case 'M':
		return num(t.Minute(), 2, '0')
	case 'S':
		return num(t.Second(), 2, '0')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'j':
		return num(t.YearDay(), 3, '0')
	case 'u':
		return num((weekday+6)%7+1, 1, '0')
	case 'w':
		return num(weekday, 1, '0')
	case 'U':
		return num((t.YearDay()+6-weekday)/7, 2, '0')
	case 'W':
		return num((t.YearDay()+6-(weekday+6)%7)/7, 2, '0')
	case 'G':
		year, _ := t.ISOWeek()
		return num(year, 1, '0')
	case 'V':
		_, week := t.ISOWeek()
		return num(week, 2, '0')
	case 's':
		return fmt.Sprint(t.Unix())
	case '%':
		return "%"
	case 'Z', 'z':
		return "" // Transformers' time has no zone
	case 'n':
		return "\n"
	case 't':
		return "\t"
	}
	if layout, ok := strftimeLayouts[c]; ok {
		return t.Format(layout)
	}
	return "%" + string(c)
}

var strftimeLayouts = map[byte]string{
	'A': "Monday", 'a': "Mon", 'B': "January", 'b': "Jan", 'h': "Jan", 'p': "PM", 'P': "pm",
	'c': "Mon Jan _2 15:04:05 2006", 'D': "01/02/06", 'x': "01/02/06", 'F': "2006-01-02", 'R': "15:04",
	'T': "15:04:05", 'X': "15:04:05", 'r': "03:04:05 PM",
}
