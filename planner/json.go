package planner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxConfig bounds a config.json and the other small JSON records of a model.
const MaxConfig = 1 << 20

// maxConfigDepth bounds the nesting of a configuration.
const maxConfigDepth = 64

// An object is a JSON object. Its numbers are json.Number, so that none is rounded and none is taken for a boolean.
type object map[string]any

// parseObject reads one JSON object and nothing after it. A key that an object names twice is refused: which of the two
// stands would depend on the reader.
func parseObject(what string, data []byte) (object, error) {
	if len(data) > MaxConfig {
		return nil, fmt.Errorf("%s is %d bytes, at most %d", what, len(data), MaxConfig)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	o, ok := v.(object)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", what)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s: something follows the object", what)
	}
	return o, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxConfigDepth {
		return nil, fmt.Errorf("values nested more than %d deep", maxConfigDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return parseMembers(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}

func parseMembers(d *json.Decoder, depth int) (any, error) {
	o := object{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := token.(string) // the decoder accepts nothing else here
		if _, ok := o[key]; ok {
			return nil, fmt.Errorf("%s appears twice", plain(key))
		}
		if o[key], err = parseValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return o, err
}

// float returns a number. Booleans and strings are none.
func (o object) float(key string) (float64, bool) { return toFloat(o[key]) }

func toFloat(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(n), 64)
	return f, err == nil
}

// whole returns a number without a fraction, however it is written, from -2^53 to 2^53.
func (o object) whole(key string) (int64, bool) { return toWhole(o[key]) }

func toWhole(v any) (int64, bool) {
	f, ok := toFloat(v)
	if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

func (o object) object(key string) (object, bool) { v, ok := o[key].(object); return v, ok }
func (o object) text(key string) (string, bool)   { v, ok := o[key].(string); return v, ok }
func (o object) flag(key string) (bool, bool)     { v, ok := o[key].(bool); return v, ok }

// list returns an array.
func (o object) list(key string) ([]any, bool) { v, ok := o[key].([]any); return v, ok }

// texts returns an array of strings.
func (o object) texts(key string) ([]string, bool) { return toTexts(o[key]) }

func toTexts(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, len(list))
	for i, v := range list {
		if out[i], ok = v.(string); !ok {
			return nil, false
		}
	}
	return out, true
}

// keys returns the object's keys in order.
func (o object) keys() []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// show prints a JSON value for a message: numbers as number does, anything long cut short.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return plain(v)
	case json.Number:
		if f, ok := toFloat(v); ok {
			return number(f)
		}
		return plain(string(v))
	case []any:
		texts := make([]string, 0, len(v))
		for i, e := range v {
			if i == 12 {
				texts = append(texts, "...")
				break
			}
			texts = append(texts, show(e))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	case object:
		return "an object"
	}
	return fmt.Sprint(v)
}
