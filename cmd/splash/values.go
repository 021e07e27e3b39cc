package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// A sizeValue is a flag of bytes: 28G, 28GB, 28GiB and 28g are the same number.
type sizeValue int64

func (v *sizeValue) Type() string { return "size" }

// String is the size in the largest unit that it is a whole number of.
func (v *sizeValue) String() string {
	n, unit := int64(*v), ""
	for _, u := range []string{"K", "M", "G"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return strconv.FormatInt(n, 10) + unit
}

func (v *sizeValue) Set(s string) error {
	n, ok := parseSize(s)
	if !ok {
		return errors.New("must be a positive byte count such as 32G")
	}
	*v = sizeValue(n)
	return nil
}

func parseSize(s string) (bytes int64, ok bool) {
	digits := strings.TrimRight(s, "kKmMgGiIbB")
	unit := strings.ToUpper(s[len(digits):])
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || digits[0] == '+' {
		return 0, false
	}
	shift := map[string]int{
		"": 0, "K": 10, "KB": 10, "KIB": 10, "M": 20, "MB": 20, "MIB": 20, "G": 30, "GB": 30, "GIB": 30,
	}
	bits, ok := shift[unit]
	if !ok || n > math.MaxInt64>>bits {
		return 0, false
	}
	return n << bits, true
}

// An autoSize is a flag of bytes, or auto, for which zero stands.
type autoSize int64

func (v *autoSize) Type() string { return "size" }
func (v *autoSize) String() string {
	if *v == 0 {
		return "auto"
	}
	return (*sizeValue)(v).String()
}

func (v *autoSize) Set(s string) error {
	n, ok := parseSize(s)
	if !ok && !strings.EqualFold(s, "auto") {
		return errors.New("must be 'auto' or a positive byte count such as 32G")
	}
	*v = autoSize(n)
	return nil
}

// A diskSize is a flag of bytes that may be 0.
type diskSize int64

func (v *diskSize) Type() string   { return "size" }
func (v *diskSize) String() string { return (*sizeValue)(v).String() }

func (v *diskSize) Set(s string) error {
	n, ok := parseSize(s)
	if !ok && s != "0" {
		return errors.New("must be 0 or a positive byte count such as 32G")
	}
	*v = diskSize(n)
	return nil
}

// An offDuration is a flag of time, or off, for which zero stands.
type offDuration time.Duration

func (v *offDuration) Type() string { return "duration" }
func (v *offDuration) String() string {
	if *v == 0 {
		return "off"
	}
	return spellDuration(time.Duration(*v))
}

func (v *offDuration) Set(s string) error {
	if strings.EqualFold(s, "off") {
		*v = 0
		return nil
	}
	var d durationValue
	if err := d.Set(s); err != nil {
		return errors.New("must be 'off' or a positive duration such as 30m, 2h or 3600")
	}
	*v = offDuration(d)
	return nil
}

// spellDuration spells a duration as flags take it: 10m rather than 10m0s.
func spellDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// A tokensValue is a flag of tokens: 100K is 102400. Zero stands for auto.
type tokensValue int

func (v *tokensValue) Type() string { return "tokens" }
func (v *tokensValue) String() string {
	if *v == 0 {
		return "auto"
	}
	return strconv.Itoa(int(*v))
}

func (v *tokensValue) Set(s string) error {
	const most = 256 << 10
	if strings.EqualFold(s, "auto") {
		*v = 0
		return nil
	}
	digits, kilo := s, 1
	if n := len(s); n > 0 && (s[n-1] == 'K' || s[n-1] == 'k') {
		digits, kilo = s[:n-1], 1<<10
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n == 0 || int(n) > most/kilo {
		return errors.New("must be 'auto' or a token count up to 256K, such as 100K")
	}
	*v = tokensValue(int(n) * kilo)
	return nil
}

// A durationValue is a flag of time: 90, 90s, 30m and 1.5h. Zero stands for none.
type durationValue time.Duration

func (v *durationValue) Type() string { return "duration" }
func (v *durationValue) String() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}

func (v *durationValue) Set(s string) error {
	fault := errors.New("must be a positive duration such as 30m, 2h or 3600")
	unit := time.Second
	number := s
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 's':
			number = s[:n-1]
		case 'm':
			number, unit = s[:n-1], time.Minute
		case 'h':
			number, unit = s[:n-1], time.Hour
		}
	}
	if strings.Trim(number, "0123456789.") != "" {
		return fault
	}
	x, err := strconv.ParseFloat(number, 64)
	ns := x * float64(unit)
	if err != nil || x <= 0 || ns < 1 || ns >= math.MaxInt64 {
		return fault
	}
	*v = durationValue(ns)
	return nil
}

// groupThousands spells n with commas.
func groupThousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// contextSize is a context as the console names it.
func contextSize(n int) string {
	if n%1024 == 0 {
		return strconv.Itoa(n/1024) + "K"
	}
	return groupThousands(n)
}
