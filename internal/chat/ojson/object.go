// Package ojson reads and writes JSON whose objects keep the order of their keys and whose numbers keep their text.
//
// A prompt is made of a client's JSON: tools, their schemas, and the arguments of earlier calls. Another order of the
// keys or another spelling of a number is another prompt, so the values here are the ones a chat template sees.
//
// A JSON value is nil, bool, string, json.Number, []any or *Object. The encoder also takes int, int64 and float64,
// which programs compute.
package ojson

import "iter"

// An Object is a JSON object that keeps the order in which its keys were first set. Its zero value is an empty object.
// It may be read by several goroutines at once.
type Object struct {
	keys  []string
	vals  []any
	index map[string]int // nil while the object is small enough to be searched
}

// indexAbove is the number of keys above which an object keeps an index of them.
const indexAbove = 12

// NewObject returns an object of the given keys and values, in pairs: NewObject("role", "user", "content", "Hi").
func NewObject(pairs ...any) *Object {
	o := &Object{}
	for i := 0; i+1 < len(pairs); i += 2 {
		o.Set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// Len returns the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// Get returns the value of key and whether the object has it.
func (o *Object) Get(key string) (any, bool) {
	if i := o.find(key); i >= 0 {
		return o.vals[i], true
	}
	return nil, false
}

// Value returns the value of key, nil without one.
func (o *Object) Value(key string) any {
	v, _ := o.Get(key)
	return v
}

// Set gives key a value. A key that is there already keeps its place.
func (o *Object) Set(key string, v any) {
	if i := o.find(key); i >= 0 {
		o.vals[i] = v
		return
	}
	o.keys = append(o.keys, key)
	o.vals = append(o.vals, v)
	switch {
	case o.index != nil:
		o.index[key] = len(o.keys) - 1
	case len(o.keys) > indexAbove:
		o.index = make(map[string]int, 2*len(o.keys))
		for i, k := range o.keys {
			o.index[k] = i
		}
	}
}

// At returns the key and the value at place i, which counts from 0.
func (o *Object) At(i int) (string, any) { return o.keys[i], o.vals[i] }

// All yields the keys and values in order.
func (o *Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i, k := range o.keys {
			if !yield(k, o.vals[i]) {
				return
			}
		}
	}
}

func (o *Object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range o.keys {
		if k == key {
			return i
		}
	}
	return -1
}

// MarshalJSON writes the object without spaces, as Compact does.
func (o *Object) MarshalJSON() ([]byte, error) { return Append(nil, o, Compact) }

// UnmarshalJSON reads an object, at most MaxDepth levels deep.
func (o *Object) UnmarshalJSON(data []byte) error {
	v, err := Decode(string(data), Options{})
	if err != nil {
		return err
	}
	obj, ok := v.(*Object)
	if !ok {
		return &SyntaxError{Msg: "the value is not an object"}
	}
	*o = *obj
	return nil
}
