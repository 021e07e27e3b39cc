package chat

import (
	"strings"

	"splash/internal/chat/ojson"
)

// maxArgumentDepth is how deeply a value may nest inside a call's arguments, so that a message that quotes the call is
// still within the depth that requests may have: ojson.MaxDepth, less the levels around a value.
const maxArgumentDepth = ojson.MaxDepth - 5 - 1

// argumentStyle is how arguments are written: without spaces, numbers as Python writes them back.
var argumentStyle = ojson.Style{ItemSep: ",", KeySep: ":", CanonicalNumber: true}

// appendArgument appends the JSON of a parameter's value, which the model wrote as text, by the types declared for it.
//
// The value is the JSON that the text spells, if it is of a declared type; the text itself, if a string is declared and
// the JSON is not of another declared type; the JSON of whatever type, if no string is declared; and the text, where it
// is not JSON. Python's True, False and None count where a boolean or null is declared and a string is not.
func appendArgument(dst []byte, text string, declared types) []byte {
	if declared == typeString {
		return ojson.AppendString(dst, text, false)
	}
	v, err := ojson.Decode(text, ojson.Options{MaxDepth: maxArgumentDepth, RejectSurrogates: true})
	if err != nil {
		if declared&typeString == 0 {
			if word, ok := pythonWord(strings.TrimSpace(text), declared); ok {
				return append(dst, word...)
			}
		}
		return ojson.AppendString(dst, text, false)
	}
	if t := typeOf(v); declared&typeString != 0 && (t == typeString || declared&t == 0) {
		return ojson.AppendString(dst, text, false)
	}
	out, err := ojson.Append(dst, v, argumentStyle)
	if err != nil { // a number that is infinite, or too long for others to read
		return ojson.AppendString(dst, text, false)
	}
	return out
}

// pythonWord returns the JSON of Python's name of a constant of a declared type.
func pythonWord(text string, declared types) (string, bool) {
	switch text {
	case "True":
		return "true", declared&typeBool != 0
	case "False":
		return "false", declared&typeBool != 0
	case "None":
		return "null", declared&typeNull != 0
	}
	return "", false
}
