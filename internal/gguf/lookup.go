package gguf

import "math"

// The look-ups below report false for a key that is not there and for one that holds another kind of value: an integer
// is not a float, a scalar not an array, and an array whose contents were not kept is not there.

// Uint returns an integer of any width, negatives in two's complement, or a bool as 0 or 1.
func (h *Header) Uint(key string) (uint64, bool) {
	kv := h.Key(key)
	if kv == nil || !kv.Type.isInteger() {
		return 0, false
	}
	return integer(kv.Type, kv.data), true
}

// Int returns an integer of any width that fits an int64, or a bool as 0 or 1.
func (h *Header) Int(key string) (int64, bool) {
	kv := h.Key(key)
	if kv == nil || !kv.Type.isInteger() {
		return 0, false
	}
	return signed(kv.Type, kv.data)
}

// Float returns a float32 or float64.
func (h *Header) Float(key string) (float64, bool) {
	kv := h.Key(key)
	if kv == nil || !kv.Type.isFloat() {
		return 0, false
	}
	return float(kv.Type, kv.data), true
}

// Bool returns a bool.
func (h *Header) Bool(key string) (value, ok bool) {
	kv := h.Key(key)
	if kv == nil || kv.Type != TypeBool {
		return false, false
	}
	return kv.data[0] != 0, true
}

// String returns a string.
func (h *Header) String(key string) (string, bool) {
	kv := h.Key(key)
	if kv == nil || kv.Type != TypeString {
		return "", false
	}
	return kv.text, true
}

// ArrayLen returns the number of elements of an array, whether or not they were kept.
func (h *Header) ArrayLen(key string) (int, bool) {
	kv := h.Key(key)
	if kv == nil || kv.Type != TypeArray {
		return 0, false
	}
	return kv.Len, true
}

// Uints returns an array of integers or bools as Uint gives them.
func (h *Header) Uints(key string) ([]uint64, bool) {
	kv := h.array(key)
	if kv == nil || !kv.Elem.isInteger() {
		return nil, false
	}
	return each(kv, integer), true
}

// Ints returns an array of integers or bools, all of which fit an int64.
func (h *Header) Ints(key string) ([]int64, bool) {
	kv := h.array(key)
	if kv == nil || !kv.Elem.isInteger() {
		return nil, false
	}
	fits := true
	ints := each(kv, func(t ValueType, b []byte) int64 {
		v, ok := signed(t, b)
		fits = fits && ok
		return v
	})
	if !fits {
		return nil, false
	}
	return ints, true
}

// Floats returns an array of float32 or float64.
func (h *Header) Floats(key string) ([]float64, bool) {
	kv := h.array(key)
	if kv == nil || !kv.Elem.isFloat() {
		return nil, false
	}
	return each(kv, float), true
}

// Bools returns an array of bools.
func (h *Header) Bools(key string) ([]bool, bool) {
	kv := h.array(key)
	if kv == nil || kv.Elem != TypeBool {
		return nil, false
	}
	return each(kv, func(_ ValueType, b []byte) bool { return b[0] != 0 }), true
}

// Strings returns an array of strings. It is shared and must not be written to.
func (h *Header) Strings(key string) ([]string, bool) {
	kv := h.array(key)
	if kv == nil || kv.Elem != TypeString {
		return nil, false
	}
	return kv.strings, true
}

// array returns the array of that key if its contents were kept.
func (h *Header) array(key string) *KeyValue {
	kv := h.Key(key)
	if kv == nil || kv.Type != TypeArray || !kv.Kept {
		return nil
	}
	return kv
}

func each[T any](kv *KeyValue, value func(ValueType, []byte) T) []T {
	width := kv.Elem.width()
	values := make([]T, kv.Len)
	for i := range values {
		values[i] = value(kv.Elem, kv.data[i*width:])
	}
	return values
}

func signed(t ValueType, b []byte) (int64, bool) {
	v := integer(t, b)
	if t == TypeUint64 && v > math.MaxInt64 {
		return 0, false
	}
	return int64(v), true
}
