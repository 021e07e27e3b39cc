package schema

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"splash/internal/chat/ojson"
)

const (
	maxDepth   = 64      // levels of arrays and objects in a schema
	maxBytes   = 8 << 20 // of a schema's text
	maxSchemas = 5000    // in a schema, itself included; package jsonschema takes time by their square
)

// A Schema is a JSON Schema that was checked. It is safe for concurrent use.
type Schema struct {
	use   Use
	root  *node
	old   bool // of draft 7 or before: a $ref stands for itself alone
	nodes map[*ojson.Object]*node
	yes   *node // the schema true
	no    *node // the schema false

	count   int                     // schemas checked
	pending []*node                 // made and not yet read
	anchors map[anchorName]anchored // found on demand

	validator *validator
}

// Parse checks a schema, decoded by ojson. Errors are *Error, one line that names the keyword.
func Parse(source any, use Use) (*Schema, error) {
	s := &Schema{use: use, nodes: map[*ojson.Object]*node{}}
	s.yes, s.no = &node{schema: s}, &node{schema: s, never: true}
	if err := s.check(source); err != nil {
		return nil, err
	}
	if o, ok := source.(*ojson.Object); ok {
		dialect, _ := o.Value("$schema").(string)
		for _, d := range []string{"draft-04", "draft-06", "draft-07"} {
			s.old = s.old || strings.Contains(dialect, d)
		}
	}
	validator, err := newValidator(source)
	if err != nil {
		return nil, s.unsupported(err.Error())
	}
	s.validator = validator
	s.root, err = s.node(source, place{root: source})
	if err != nil {
		return nil, err
	}
	return s, s.link()
}

func (s *Schema) unsupported(reason string) error {
	return errorf("unsupported %s schema: %s", s.use, reason)
}

// A place is where in a document a schema stands.
type place struct {
	path string // JSON pointer
	root any    // the document, or the part with an $id of its own, that "#" is
}

func (p place) at(steps ...string) place {
	for _, step := range steps {
		p.path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
	}
	return p
}

// A node is a schema, as far as grammars are concerned.
type node struct {
	schema *Schema
	place  place
	never  bool // the schema false

	source *ojson.Object
	types  types // 0: any

	listed   bool // enum or const
	values   []any
	ref      *node
	all      []*node
	choices  []choice
	numbers  numbers
	least    int // minLength
	most     int // maxLength, or -1
	patterns []string
	formats  []string

	properties []property
	index      map[string]int
	byPattern  []property // name is the pattern
	additional *node
	required   []string
	minProps   int

	prefix   []*node
	items    *node
	minItems int
	maxItems int // or -1

	closed     bool // unevaluatedProperties false
	hides      bool // properties may be declared that grammars do not know of
	speaks     types
	unenforced []string // keywords
}

type property struct {
	name string
	node *node
}

// A choice is an anyOf or a oneOf.
type choice []*node

// node returns the node of a schema, which may still be empty: it is filled by link.
func (s *Schema) node(source any, at place) (*node, error) {
	switch v := source.(type) {
	case bool:
		if v {
			return s.yes, nil
		}
		return s.no, nil
	case *ojson.Object:
		if n, ok := s.nodes[v]; ok {
			return n, nil
		}
		if id, ok := v.Value("$id").(string); ok && !strings.HasPrefix(id, "#") {
			at.root = v
		}
		n := &node{schema: s, place: at, source: v}
		s.nodes[v] = n
		s.pending = append(s.pending, n)
		return n, nil
	}
	return nil, s.unsupported(fmt.Sprintf("%s is no schema", orRoot(at.path)))
}

func orRoot(path string) string {
	if path == "" {
		return "the root"
	}
	return path
}

// link reads the nodes that were made, and those they lead to.
func (s *Schema) link() error {
	for len(s.pending) > 0 {
		n := s.pending[0]
		s.pending = s.pending[1:]
		r := reader{n: n, s: s}
		if r.read(); r.err != nil {
			return r.err
		}
	}
	return nil
}

// A reader reads the keywords of one schema. The dialect's own schema has been held to it, so that keywords have the
// types they should; what another dialect means by a keyword is taken too where it does no harm.
type reader struct {
	n   *node
	s   *Schema
	err error
}

func (r *reader) read() {
	n, o := r.n, r.n.source
	n.most, n.maxItems = -1, -1
	if ref, ok := o.Value("$ref").(string); ok {
		n.ref = r.resolve(ref)
		if r.s.old {
			return
		}
	}
	r.readTypes()
	r.readValues()
	r.readApplicators()
	r.readNumbers()
	r.readStrings()
	r.readObjects()
	r.readArrays()
	if r.s.use == StrictTool {
		r.close()
	}
	r.note()
}

func (r *reader) child(source any, steps ...string) *node {
	if r.err != nil {
		return r.s.yes
	}
	var n *node
	n, r.err = r.s.node(source, r.n.place.at(steps...))
	return n
}

func (r *reader) list(key string) []*node {
	list, _ := r.n.source.Value(key).([]any)
	var nodes []*node
	for i, v := range list {
		nodes = append(nodes, r.child(v, key, strconv.Itoa(i)))
	}
	return nodes
}

func (r *reader) readTypes() {
	switch t := r.n.source.Value("type").(type) {
	case string:
		r.n.types = typeNames[t]
	case []any:
		for _, v := range t {
			name, _ := v.(string)
			r.n.types |= typeNames[name]
		}
	}
	if nullable(r.n.source) {
		r.n.types |= null
	}
}

// nullable reports OpenAPI's nullable beside a type.
func nullable(o *ojson.Object) bool {
	_, typed := o.Get("type")
	return typed && o.Value("nullable") == true
}

func (r *reader) readValues() {
	o := r.n.source
	if list, ok := o.Value("enum").([]any); ok {
		r.n.listed, r.n.values = true, list
	}
	if v, ok := o.Get("const"); ok {
		if r.n.listed {
			r.n.all = append(r.n.all, &node{schema: r.s, listed: true, values: []any{v}, most: -1, maxItems: -1})
		} else {
			r.n.listed, r.n.values = true, []any{v}
		}
	}
	if r.n.listed && nullable(o) {
		r.n.values = append(r.n.values[:len(r.n.values):len(r.n.values)], nil)
	}
}

func (r *reader) readApplicators() {
	r.n.all = append(r.n.all, r.list("allOf")...)
	for _, key := range []string{"anyOf", "oneOf"} {
		if list := r.list(key); len(list) > 0 {
			r.n.choices = append(r.n.choices, list)
		}
	}
}

func (r *reader) readNumbers() {
	n, o := r.n, r.n.source
	take := func(key string) (decimal, bool) {
		v, ok := o.Value(key).(json.Number)
		if !ok {
			return decimal{}, false
		}
		n.speaks |= number
		d, ok := parseDecimal(string(v))
		if !ok && r.err == nil {
			r.err = r.s.unsupported(fmt.Sprintf("%s is too large a number", n.place.at(key).path))
		}
		return d, ok
	}
	if d, ok := take("minimum"); ok {
		n.numbers.min = bound{d, o.Value("exclusiveMinimum") == true, true}
	}
	if d, ok := take("exclusiveMinimum"); ok {
		n.numbers.min.tighten(bound{d, true, true}, 1)
	}
	if d, ok := take("maximum"); ok {
		n.numbers.max = bound{d, o.Value("exclusiveMaximum") == true, true}
	}
	if d, ok := take("exclusiveMaximum"); ok {
		n.numbers.max.tighten(bound{d, true, true}, -1)
	}
	if d, ok := take("multipleOf"); ok {
		n.numbers.multipleOf = []decimal{d}
	}
}

// count returns a keyword's number of items, or other where there is none. What is beyond counting is the most there is.
func (r *reader) count(key string, speaks types, other int) int {
	v, ok := r.n.source.Value(key).(json.Number)
	if !ok {
		return other
	}
	r.n.speaks |= speaks
	d, _ := parseDecimal(string(v))
	if n, err := strconv.Atoi(d.integer); err == nil && len(d.integer) < 10 {
		return n
	}
	return 1<<30 - 1
}

func (r *reader) readStrings() {
	n := r.n
	n.least, n.most = r.count("minLength", str, 0), r.count("maxLength", str, -1)
	if p, ok := n.source.Value("pattern").(string); ok {
		n.speaks |= str
		n.patterns = append(n.patterns, p)
	}
	if f, ok := n.source.Value("format").(string); ok {
		if _, known := formats[f]; known {
			n.formats = append(n.formats, f)
		} else {
			n.unenforced = append(n.unenforced, "format")
		}
	}
}

func (r *reader) readObjects() {
	n, o := r.n, r.n.source
	if props, ok := o.Value("properties").(*ojson.Object); ok {
		n.speaks |= object
		n.index = map[string]int{}
		for name, v := range props.All() {
			n.index[name] = len(n.properties)
			n.properties = append(n.properties, property{name, r.child(v, "properties", name)})
		}
	}
	if props, ok := o.Value("patternProperties").(*ojson.Object); ok {
		n.speaks |= object
		for p, v := range props.All() {
			n.byPattern = append(n.byPattern, property{p, r.child(v, "patternProperties", p)})
		}
	}
	if v, ok := o.Get("additionalProperties"); ok {
		n.speaks |= object
		n.additional = r.child(v, "additionalProperties")
	}
	n.closed = o.Value("unevaluatedProperties") == false
	if list, ok := o.Value("required").([]any); ok {
		n.speaks |= object
		for _, v := range list {
			if name, ok := v.(string); ok {
				n.required = append(n.required, name)
			}
		}
	}
	n.minProps = r.count("minProperties", object, 0)
}

func (r *reader) readArrays() {
	n, o := r.n, r.n.source
	n.minItems, n.maxItems = r.count("minItems", array, 0), r.count("maxItems", array, -1)
	n.prefix = r.list("prefixItems")
	rest := "items"
	if _, ok := o.Value("items").([]any); ok {
		n.prefix, rest = r.list("items"), "additionalItems"
	}
	if v, ok := o.Get(rest); ok {
		n.items = r.child(v, rest)
	}
	if len(n.prefix) > 0 || n.items != nil {
		n.speaks |= array
	}
}

// close closes a strict tool's objects and arrays that do not say what else they take.
func (r *reader) close() {
	n, o := r.n, r.n.source
	for _, key := range []string{"allOf", "not", "if", "then", "else", "dependentSchemas"} {
		if _, ok := o.Get(key); ok {
			return
		}
	}
	if n.ref != nil && o.Len() > 1 {
		return
	}
	_, unevaluated := o.Get("unevaluatedProperties")
	if n.index != nil && len(n.byPattern) == 0 && n.additional == nil && !unevaluated {
		n.additional = r.s.no
	}
	_, unevaluated = o.Get("unevaluatedItems")
	if len(n.prefix) > 0 && n.items == nil && !unevaluated {
		n.items = r.s.no
	}
}

// note lists the keywords that no grammar keeps to.
func (r *reader) note() {
	for _, key := range []string{
		"oneOf", "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "propertyNames", "minProperties",
		"maxProperties", "uniqueItems", "contains", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
		"$recursiveRef",
	} {
		v, ok := r.n.source.Get(key)
		switch {
		case !ok, key == "uniqueItems" && v == false, strings.HasPrefix(key, "unevaluated") && v == true:
		default:
			r.n.unenforced = append(r.n.unenforced, key)
		}
		switch key {
		case "if", "dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef":
			r.n.hides = r.n.hides || ok
		case "unevaluatedProperties":
			r.n.hides = r.n.hides || ok && v != false
		}
	}
}

// resolve follows a reference inside the document: "#", an anchor, or a JSON pointer (RFC 6901).
func (r *reader) resolve(ref string) *node {
	at := place{root: r.n.place.root}
	fragment := strings.TrimPrefix(ref, "#")
	if text, err := url.PathUnescape(fragment); err == nil {
		fragment = text
	}
	target, ok := at.root, true
	switch {
	case fragment == "":
	case strings.HasPrefix(fragment, "/"):
		target, at, ok = follow(at, strings.Split(fragment[1:], "/"))
	default:
		target, at, ok = r.s.anchor(fragment, at.root)
	}
	if !ok {
		if r.err == nil {
			r.err = r.s.unsupported(fmt.Sprintf("%s refers to nothing: %.100q", orRoot(r.n.place.path), ref))
		}
		return r.s.yes
	}
	n, err := r.s.node(target, at)
	if err != nil && r.err == nil {
		r.err = err
	}
	return n
}

// follow walks a document by the steps of a JSON pointer.
func follow(at place, steps []string) (any, place, bool) {
	target := at.root
	for _, step := range steps {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		ok := false
		switch v := target.(type) {
		case *ojson.Object:
			target, ok = v.Get(step)
		case []any:
			i, err := strconv.Atoi(step)
			if ok = err == nil && i >= 0 && i < len(v); ok {
				target = v[i]
			}
		}
		if !ok {
			return nil, at, false
		}
		root := at.root
		at = at.at(step)
		at.root = root
		if o, ok := target.(*ojson.Object); ok {
			if id, ok := o.Value("$id").(string); ok && !strings.HasPrefix(id, "#") {
				at.root = o
			}
		}
	}
	return target, at, true
}
