package schema

import (
	"encoding/json"

	"splash/internal/chat/ojson"
)

// types is a set of JSON types.
type types uint8

const (
	null types = 1 << iota
	boolean
	integer
	fraction // numbers that are no integers
	str
	array
	object

	number   = integer | fraction
	anyTypes = 1<<7 - 1
)

var typeNames = map[string]types{
	"null": null, "boolean": boolean, "integer": integer, "number": number, "string": str, "array": array, "object": object,
}

// typeOf returns the type of a JSON value. 1.0 is an integer.
func typeOf(v any) types {
	switch v := v.(type) {
	case nil:
		return null
	case bool:
		return boolean
	case string:
		return str
	case json.Number:
		if d, ok := parseDecimal(string(v)); ok && len(d.fraction) == 0 {
			return integer
		}
		return fraction
	case []any:
		return array
	}
	return object
}

// canonical is a JSON value's spelling in which equal values are equal.
var canonical = ojson.Style{ItemSep: ",", KeySep: ":", SortKeys: true}

// spelling returns a value's canonical text.
func spelling(v any) string {
	s, err := ojson.String(plainNumbers(v), canonical)
	if err != nil {
		return ""
	}
	return s
}

// plainNumbers returns v with numbers that are equal spelled alike.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if d, ok := parseDecimal(string(v)); ok {
			return json.Number(d.String())
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plainNumbers(v[i])
		}
		return out
	case *ojson.Object:
		out := &ojson.Object{}
		for k, x := range v.All() {
			out.Set(k, plainNumbers(x))
		}
		return out
	}
	return v
}
