package schema

import (
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"splash/internal/chat/ojson"
)

// check refuses what no dialect's own schema does: too deep and too large schemas, numbers that are costly to compute
// with, and references to other documents, which are never fetched.
func (s *Schema) check(source any) error {
	switch source.(type) {
	case bool, *ojson.Object:
	default:
		return s.unsupported("a schema is an object or a boolean")
	}
	if err := s.checkValue(source, 0); err != nil {
		return err
	}
	style := ojson.Compact
	style.MaxBytes = maxBytes
	if text, err := ojson.Append(nil, source, style); err != nil || len(text) > maxBytes {
		return ErrTooLarge
	}
	return s.checkSchema(source)
}

// checkValue checks the JSON of a schema.
func (s *Schema) checkValue(v any, depth int) error {
	switch v := v.(type) {
	case json.Number:
		if _, ok := parseDecimal(string(v)); !ok {
			return s.unsupported(fmt.Sprintf("%.40s is too large a number", v))
		}
	case []any:
		if depth == maxDepth {
			return s.tooDeep()
		}
		for _, x := range v {
			if err := s.checkValue(x, depth+1); err != nil {
				return err
			}
		}
	case *ojson.Object:
		if depth == maxDepth {
			return s.tooDeep()
		}
		for _, x := range v.All() {
			if err := s.checkValue(x, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Schema) tooDeep() error {
	return s.unsupported(fmt.Sprintf("more than %d levels of arrays and objects", maxDepth))
}

// checkSchema checks a schema and those in it.
func (s *Schema) checkSchema(v any) error {
	o, ok := v.(*ojson.Object)
	if !ok {
		return nil
	}
	if s.count++; s.count > maxSchemas {
		return ErrTooLarge
	}
	for _, key := range []string{"$ref", "$schema", "$dynamicRef", "$recursiveRef", "$anchor", "$id"} {
		v, ok := o.Get(key)
		if !ok {
			continue
		}
		text, ok := v.(string)
		if !ok {
			return s.unsupported(key + " must be a string")
		}
		if strings.HasSuffix(strings.ToLower(key), "ref") && text != "" && !strings.HasPrefix(text, "#") {
			return s.remote(text)
		}
	}
	if s.use == Response {
		_, unevaluated := o.Get("unevaluatedProperties")
		if _, patterned := o.Get("patternProperties"); unevaluated && patterned {
			return s.unsupported("unevaluatedProperties with patternProperties")
		}
	}
	for sub := range subschemas(o) {
		if err := s.checkSchema(sub); err != nil {
			return err
		}
	}
	return nil
}

func (s *Schema) remote(ref string) error {
	of := "schema"
	if s.use != Response {
		of = "tool schema"
	}
	return errorf("remote %s reference is not allowed: %.200s", of, ref)
}

// subschemas yields the schemas that stand in the keywords of one.
func subschemas(o *ojson.Object) iter.Seq2[any, []string] {
	return func(yield func(any, []string) bool) {
		for key, v := range o.All() {
			for sub, path := range subschemasOf(key, v) {
				if !yield(sub, path) {
					return
				}
			}
		}
	}
}

func subschemasOf(key string, v any) iter.Seq2[any, []string] {
	return func(yield func(any, []string) bool) {
		switch key {
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
			o, ok := v.(*ojson.Object)
			if !ok {
				return
			}
			for name, sub := range o.All() {
				if !yield(sub, []string{key, name}) {
					return
				}
			}
		case "allOf", "anyOf", "oneOf", "prefixItems", "items":
			if list, ok := v.([]any); ok {
				for i, sub := range list {
					if !yield(sub, []string{key, strconv.Itoa(i)}) {
						return
					}
				}
				return
			}
			yield(v, []string{key})
		case "additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains",
			"propertyNames", "not", "if", "then", "else", "contentSchema":
			yield(v, []string{key})
		}
	}
}

// anchor finds the schema that has an anchor in the part of the document that "#" is.
func (s *Schema) anchor(name string, root any) (any, place, bool) {
	if s.anchors == nil {
		s.anchors = map[anchorName]anchored{}
		s.findAnchors(s.root.source, place{root: s.root.source})
	}
	a, ok := s.anchors[anchorName{root, name}]
	return a.source, a.place, ok
}

type anchorName struct {
	root any
	name string
}

type anchored struct {
	source any
	place  place
}

func (s *Schema) findAnchors(v any, at place) {
	o, ok := v.(*ojson.Object)
	if !ok {
		return
	}
	if id, ok := o.Value("$id").(string); ok {
		if fragment, ok := strings.CutPrefix(id, "#"); ok {
			s.anchors[anchorName{at.root, fragment}] = anchored{o, at}
		} else {
			at.root = o
		}
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if name, ok := o.Value(key).(string); ok {
			s.anchors[anchorName{at.root, name}] = anchored{o, at}
		}
	}
	for sub, path := range subschemas(o) {
		s.findAnchors(sub, at.at(path...))
	}
}
