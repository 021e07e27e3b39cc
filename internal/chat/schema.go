package chat

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"splash/internal/chat/ojson"
)

// types is a set of JSON types.
type types uint8

const (
	typeNull types = 1 << iota
	typeBool
	typeInteger
	typeFraction // numbers that are not written as integers
	typeString
	typeArray
	typeObject

	// anyType is the set of a value whose type is not declared.
	anyType    types = 1<<7 - 1
	typeNumber       = typeInteger | typeFraction
)

var typeNames = map[string]types{
	"null": typeNull, "boolean": typeBool, "integer": typeInteger, "number": typeNumber, "string": typeString,
	"array": typeArray, "object": typeObject,
}

// typeOf returns the type of a JSON value.
func typeOf(v any) types {
	switch v := v.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBool
	case string:
		return typeString
	case json.Number:
		if ojson.IsInteger(v) {
			return typeInteger
		}
		return typeFraction
	case []any:
		return typeArray
	}
	return typeObject
}

// A ToolSet is the tools that a request offers: their names and the schemas of their parameters.
type ToolSet struct {
	schemas map[string]any
}

// NewToolSet reads the tools of a request in the shape of Chat Completions, {"type":"function","function":{"name",
// "parameters"}}, which the server has checked.
func NewToolSet(tools []any) *ToolSet {
	ts := &ToolSet{}
	for _, v := range tools {
		tool, _ := v.(*ojson.Object)
		if tool == nil {
			continue
		}
		function, _ := tool.Value("function").(*ojson.Object)
		if function == nil {
			continue
		}
		if name, ok := function.Value("name").(string); ok {
			ts.Add(name, function.Value("parameters"))
		}
	}
	return ts
}

// Add adds a tool whose arguments have the given JSON Schema, decoded by ojson.
func (ts *ToolSet) Add(name string, schema any) {
	if ts.schemas == nil {
		ts.schemas = map[string]any{}
	}
	ts.schemas[name] = schema
}

// Len returns the number of tools.
func (ts *ToolSet) Len() int {
	if ts == nil {
		return 0
	}
	return len(ts.schemas)
}

// parameter returns the types that a tool declares for a parameter. A tool that is not offered declares none.
func (ts *ToolSet) parameter(tool, name string) types {
	if ts == nil {
		return anyType
	}
	root := ts.schemas[tool]
	r := typeReader{root: root, left: maxSchemaNodes, open: map[*ojson.Object]bool{}}
	schema, ok := r.property(root, name)
	if !ok {
		return anyType
	}
	return r.read(schema)
}

// maxSchemaNodes bounds how much of a schema is read for one parameter, and maxSchemaDepth how deeply. What lies
// beyond declares nothing.
const (
	maxSchemaNodes = 10_000
	maxSchemaDepth = 200
)

// typeReader reads types from a tool's schema.
type typeReader struct {
	root  any
	left  int
	depth int
	open  map[*ojson.Object]bool // the schemas being read, so that references in a circle end
}

// enter reports whether a schema is to be read, and not already being read.
func (r *typeReader) enter(schema any) (*ojson.Object, bool) {
	o, ok := schema.(*ojson.Object)
	if !ok || r.left <= 0 || r.depth >= maxSchemaDepth || r.open[o] {
		return nil, false
	}
	r.left--
	r.depth++
	r.open[o] = true
	return o, true
}

func (r *typeReader) leave(o *ojson.Object) {
	r.depth--
	delete(r.open, o)
}

// property finds the schema of a parameter: among a schema's properties, those of what it is composed of, or what it
// says of all others.
func (r *typeReader) property(schema any, name string) (any, bool) {
	o, ok := r.enter(schema)
	if !ok {
		return nil, false
	}
	defer r.leave(o)
	if props, ok := o.Value("properties").(*ojson.Object); ok {
		if p, ok := props.Get(name); ok {
			return p, true
		}
	}
	if target, ok := r.reference(o); ok {
		if p, ok := r.property(target, name); ok {
			return p, true
		}
	}
	all, _ := o.Value("allOf").([]any)
	for _, s := range all {
		if p, ok := r.property(s, name); ok {
			return p, true
		}
	}
	return o.Get("additionalProperties")
}

// read returns the types that a schema declares: those it names, else those of the values it lists, else the union
// over its alternatives; narrowed by allOf and by a local reference.
func (r *typeReader) read(schema any) types {
	o, ok := r.enter(schema)
	if !ok {
		return anyType
	}
	defer r.leave(o)
	t := r.own(o)
	all, _ := o.Value("allOf").([]any)
	for _, s := range all {
		t &= r.read(s)
	}
	if target, ok := r.reference(o); ok {
		t &= r.read(target)
	}
	return t
}

func (r *typeReader) own(o *ojson.Object) types {
	switch t := o.Value("type").(type) {
	case string:
		if set, ok := typeNames[t]; ok {
			return set
		}
	case []any:
		var set types
		for _, v := range t {
			name, _ := v.(string)
			set |= typeNames[name]
		}
		if set != 0 {
			return set
		}
	}
	if list, ok := o.Value("enum").([]any); ok && len(list) > 0 {
		return listed(list)
	}
	if v, ok := o.Get("const"); ok {
		return typeOf(v)
	}
	return r.alternatives(o)
}

// listed returns the types of listed values.
func listed(list []any) types {
	var set types
	for _, v := range list {
		set |= typeOf(v)
	}
	return set
}

// alternatives returns the union over anyOf and oneOf.
func (r *typeReader) alternatives(o *ojson.Object) types {
	var set types
	for _, key := range []string{"anyOf", "oneOf"} {
		list, _ := o.Value(key).([]any)
		for _, s := range list {
			if set == anyType {
				return set
			}
			if o, ok := s.(*ojson.Object); ok && r.open[o] {
				continue // an alternative that is the schema itself adds nothing
			}
			set |= r.read(s)
		}
	}
	if set == 0 {
		return anyType
	}
	return set
}

// reference follows a local $ref: "#", or "#/" and a JSON pointer (RFC 6901).
func (r *typeReader) reference(o *ojson.Object) (any, bool) {
	ref, ok := o.Value("$ref").(string)
	if !ok {
		return nil, false
	}
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	if pointer == "" {
		return r.root, true
	}
	pointer, ok = strings.CutPrefix(pointer, "/")
	if !ok {
		return nil, false
	}
	at := r.root
	for step := range strings.SplitSeq(pointer, "/") {
		if s, err := url.PathUnescape(step); err == nil {
			step = s
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch v := at.(type) {
		case *ojson.Object:
			at, ok = v.Get(step)
		case []any:
			i, err := strconv.Atoi(step)
			if ok = err == nil && i >= 0 && i < len(v); ok {
				at = v[i]
			}
		default:
			ok = false
		}
		if r.left--; !ok || r.left <= 0 {
			return nil, false
		}
	}
	return at, true
}
