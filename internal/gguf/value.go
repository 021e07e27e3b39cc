package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A ValueType is the type of a key's value, or of an array's elements.
type ValueType uint32

// The value types of gguf.h.
const (
	TypeUint8 ValueType = iota
	TypeInt8
	TypeUint16
	TypeInt16
	TypeUint32
	TypeInt32
	TypeFloat32
	TypeBool
	TypeString
	TypeArray
	TypeUint64
	TypeInt64
	TypeFloat64
	numTypes
)

var typeNames = [numTypes]string{
	"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64",
}

// String is the type's name in gguf.h, in lower case.
func (t ValueType) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return fmt.Sprintf("value type %d", uint32(t))
}

// width is the size of a value of a type of fixed size, and 0 for strings and arrays.
func (t ValueType) width() int {
	switch t {
	case TypeUint8, TypeInt8, TypeBool:
		return 1
	case TypeUint16, TypeInt16:
		return 2
	case TypeUint32, TypeInt32, TypeFloat32:
		return 4
	case TypeUint64, TypeInt64, TypeFloat64:
		return 8
	}
	return 0
}

// smallest is the size of the smallest value of the type in a file: an empty string is its length, an empty array its
// element type and count.
func (t ValueType) smallest() int {
	switch t {
	case TypeString:
		return 8
	case TypeArray:
		return 12
	}
	return t.width()
}

// isInteger says whether the look-ups take values of the type as integers; a bool is 0 or 1.
func (t ValueType) isInteger() bool { return t.width() > 0 && !t.isFloat() }

func (t ValueType) isFloat() bool { return t == TypeFloat32 || t == TypeFloat64 }

// A KeyValue is one key of the metadata with its value.
//
// The contents of an array are kept when its key begins with tokenizer. or prism.hadamard., and else when it is numeric
// and has at most 1024 elements; those of an array of arrays never are. Where they are not, type and length still stand.
type KeyValue struct {
	Key  string
	Type ValueType
	Elem ValueType // of an array
	Len  int       // elements of an array
	Kept bool      // false for an array whose contents were skipped

	data    []byte // numbers, as stored
	text    string
	strings []string
}

// Value returns the value in the Go type of its value type: uint8 to float64, bool, string, or a slice of those. It is nil
// where the contents of an array were not kept. A slice of strings is shared and must not be written to.
func (kv *KeyValue) Value() any {
	switch {
	case !kv.Kept:
		return nil
	case kv.Type == TypeString:
		return kv.text
	case kv.Type != TypeArray:
		return scalar(kv.Type, kv.data)
	case kv.Elem == TypeString:
		return kv.strings
	}
	return array(kv.Elem, kv.data)
}

func scalar(t ValueType, b []byte) any {
	switch t {
	case TypeUint8:
		return b[0]
	case TypeInt8:
		return int8(b[0])
	case TypeUint16:
		return binary.LittleEndian.Uint16(b)
	case TypeInt16:
		return int16(binary.LittleEndian.Uint16(b))
	case TypeUint32:
		return binary.LittleEndian.Uint32(b)
	case TypeInt32:
		return int32(binary.LittleEndian.Uint32(b))
	case TypeFloat32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case TypeBool:
		return b[0] != 0
	case TypeUint64:
		return binary.LittleEndian.Uint64(b)
	case TypeInt64:
		return int64(binary.LittleEndian.Uint64(b))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

func array(t ValueType, b []byte) any {
	switch t {
	case TypeUint8:
		return decoded[uint8](t, b)
	case TypeInt8:
		return decoded[int8](t, b)
	case TypeUint16:
		return decoded[uint16](t, b)
	case TypeInt16:
		return decoded[int16](t, b)
	case TypeUint32:
		return decoded[uint32](t, b)
	case TypeInt32:
		return decoded[int32](t, b)
	case TypeFloat32:
		return decoded[float32](t, b)
	case TypeBool:
		return decoded[bool](t, b)
	case TypeUint64:
		return decoded[uint64](t, b)
	case TypeInt64:
		return decoded[int64](t, b)
	}
	return decoded[float64](t, b)
}

// decoded returns the elements in b, whole values of type t, which is T's.
func decoded[T any](t ValueType, b []byte) []T {
	v := make([]T, len(b)/t.width())
	if _, err := binary.Decode(b, binary.LittleEndian, v); err != nil {
		panic(err) // the lengths agree
	}
	return v
}

// integer is the value of an integer or bool as 64 bits, negatives in two's complement.
func integer(t ValueType, b []byte) uint64 {
	switch t {
	case TypeInt8:
		return uint64(int8(b[0]))
	case TypeInt16:
		return uint64(int16(binary.LittleEndian.Uint16(b)))
	case TypeInt32:
		return uint64(int32(binary.LittleEndian.Uint32(b)))
	case TypeBool:
		if b[0] != 0 {
			return 1
		}
		return 0
	case TypeUint8:
		return uint64(b[0])
	case TypeUint16:
		return uint64(binary.LittleEndian.Uint16(b))
	case TypeUint32:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func float(t ValueType, b []byte) float64 {
	if t == TypeFloat32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}
