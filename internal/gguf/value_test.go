package gguf

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyType is a key of every value type and of every array type.
var everyType = []struct {
	key   string
	value any
}{
	{"u8", uint8(200)},
	{"i8", int8(-100)},
	{"u16", uint16(60000)},
	{"i16", int16(-30000)},
	{"u32", uint32(4000000000)},
	{"i32", int32(-2000000000)},
	{"f32", float32(1e-40)},
	{"true", true},
	{"false", false},
	{"text", "caf\u00e9 \x00 \U0001f4a7"},
	{"empty text", ""},
	{"u64", uint64(math.MaxUint64)},
	{"i64", int64(math.MinInt64)},
	{"f64", math.Pi},
	{"u8s", []uint8{0, 1, 255}},
	{"i8s", []int8{0, 1, -128}},
	{"u16s", []uint16{0, 1, 65535}},
	{"i16s", []int16{0, 1, -32768}},
	{"u32s", []uint32{0, 1, math.MaxUint32}},
	{"i32s", []int32{0, 1, math.MinInt32}},
	{"f32s", []float32{0, 0.1, float32(math.Inf(1))}},
	{"bools", []bool{true, false, true}},
	{"u64s", []uint64{0, 1, math.MaxUint64}},
	{"i64s", []int64{0, 1, math.MinInt64}},
	{"f64s", []float64{0, 0.1, math.Inf(-1)}},
	{"no u32s", []uint32{}},
	{"tokenizer.texts", []string{"a", "", "\u00e9t\u00e9"}},
	{"tokenizer.no texts", []string{}},
	{"prism.hadamard.names", []string{"a", "b"}},
}

func TestEveryTypeRoundTrips(t *testing.T) {
	data := encode(t, func(w *Writer) {
		for _, kv := range everyType {
			w.Set(kv.key, kv.value)
		}
	})
	for _, window := range []int{0, 8, 9, 31} {
		h := mustParse(t, Options{window: window}, data)
		if len(h.Keys) != len(everyType) {
			t.Fatalf("%d keys, want %d", len(h.Keys), len(everyType))
		}
		for i, want := range everyType {
			kv := &h.Keys[i]
			if kv.Key != want.key {
				t.Errorf("key %d is %q, want %q", i, kv.Key, want.key)
			}
			if diff := cmp.Diff(want.value, kv.Value()); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", want.key, diff)
			}
		}
		if h.End != int64(len(data)) {
			t.Errorf("header ends at %d, want %d", h.End, len(data))
		}
	}
}

// The bytes of each type, written out by hand from the table of gguf.h.
func TestBytesOfTypes(t *testing.T) {
	const head = "GGUF\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00k"
	for _, test := range []struct {
		value any
		bytes string
	}{
		{uint8(1), "\x00\x00\x00\x00\x01"},
		{int8(-2), "\x01\x00\x00\x00\xfe"},
		{uint16(0x102), "\x02\x00\x00\x00\x02\x01"},
		{int16(-2), "\x03\x00\x00\x00\xfe\xff"},
		{uint32(0x1020304), "\x04\x00\x00\x00\x04\x03\x02\x01"},
		{int32(-2), "\x05\x00\x00\x00\xfe\xff\xff\xff"},
		{float32(1), "\x06\x00\x00\x00\x00\x00\x80\x3f"},
		{true, "\x07\x00\x00\x00\x01"},
		{"hi", "\x08\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00hi"},
		{[]uint16{7}, "\x09\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00"},
		{[]bool{false, true}, "\x09\x00\x00\x00\x07\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01"},
		{uint64(1), "\x0a\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"},
		{int64(-1), "\x0b\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"},
		{float64(1), "\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x3f"},
	} {
		if diff := cmp.Diff([]byte(head+test.bytes), encode(t, func(w *Writer) { w.Set("k", test.value) })); diff != "" {
			t.Errorf("%T: (-want +got)\n%s", test.value, diff)
		}
		h := mustParse(t, Options{}, []byte(head+test.bytes))
		if diff := cmp.Diff(test.value, h.Keys[0].Value()); diff != "" {
			t.Errorf("%T: (-want +got)\n%s", test.value, diff)
		}
	}
	// Any nonzero byte is true.
	h := mustParse(t, Options{}, []byte(head+"\x07\x00\x00\x00\x02"))
	if v, ok := h.Bool("k"); !v || !ok {
		t.Errorf("bool of byte 2: %v, %v", v, ok)
	}
	if v, ok := h.Uint("k"); v != 1 || !ok {
		t.Errorf("bool of byte 2 as integer: %v, %v", v, ok)
	}
}

// A looked result is what a look-up gave.
type looked struct {
	Value any
	OK    bool
}

func look[T any](v T, ok bool) looked { return looked{v, ok} }

func TestLookups(t *testing.T) {
	h := mustParse(t, Options{}, encode(t, func(w *Writer) {
		for _, kv := range everyType {
			w.Set(kv.key, kv.value)
		}
		w.Set("small u64", uint64(5))
		w.Set("small u64s", []uint64{5, 6})
		w.Set("long", make([]int16, maxSmallArray+1))
		w.Set("long enough", make([]int16, maxSmallArray))
		w.Set("texts", []string{"not", "kept"})
		w.Set("arrays", [][]uint8{{1}, {2, 3}})
	}))
	for name, test := range map[string]struct{ got, want looked }{
		"Uint uint8":     {look(h.Uint("u8")), looked{uint64(200), true}},
		"Uint int8":      {look(h.Uint("i8")), looked{uint64(math.MaxUint64 - 99), true}},
		"Uint int16":     {look(h.Uint("i16")), looked{uint64(math.MaxUint64 - 29999), true}},
		"Uint int32":     {look(h.Uint("i32")), looked{uint64(math.MaxUint64 - 1999999999), true}},
		"Uint uint64":    {look(h.Uint("u64")), looked{uint64(math.MaxUint64), true}},
		"Uint bool":      {look(h.Uint("true")), looked{uint64(1), true}},
		"Uint float":     {look(h.Uint("f32")), looked{uint64(0), false}},
		"Uint string":    {look(h.Uint("text")), looked{uint64(0), false}},
		"Uint array":     {look(h.Uint("u8s")), looked{uint64(0), false}},
		"Uint missing":   {look(h.Uint("nothing")), looked{uint64(0), false}},
		"Int int8":       {look(h.Int("i8")), looked{int64(-100), true}},
		"Int uint32":     {look(h.Int("u32")), looked{int64(4000000000), true}},
		"Int int64":      {look(h.Int("i64")), looked{int64(math.MinInt64), true}},
		"Int big":        {look(h.Int("u64")), looked{int64(0), false}},
		"Int small":      {look(h.Int("small u64")), looked{int64(5), true}},
		"Int float":      {look(h.Int("f64")), looked{int64(0), false}},
		"Float float32":  {look(h.Float("f32")), looked{float64(float32(1e-40)), true}},
		"Float float64":  {look(h.Float("f64")), looked{math.Pi, true}},
		"Float integer":  {look(h.Float("u8")), looked{0.0, false}},
		"Float array":    {look(h.Float("f32s")), looked{0.0, false}},
		"Bool true":      {look(h.Bool("true")), looked{true, true}},
		"Bool false":     {look(h.Bool("false")), looked{false, true}},
		"Bool integer":   {look(h.Bool("u8")), looked{false, false}},
		"String":         {look(h.String("text")), looked{"caf\u00e9 \x00 \U0001f4a7", true}},
		"String empty":   {look(h.String("empty text")), looked{"", true}},
		"String integer": {look(h.String("u8")), looked{"", false}},
		"Uints uint8":    {look(h.Uints("u8s")), looked{[]uint64{0, 1, 255}, true}},
		"Uints int16":    {look(h.Uints("i16s")), looked{[]uint64{0, 1, math.MaxUint64 - 32767}, true}},
		"Uints bool":     {look(h.Uints("bools")), looked{[]uint64{1, 0, 1}, true}},
		"Uints empty":    {look(h.Uints("no u32s")), looked{[]uint64{}, true}},
		"Uints float":    {look(h.Uints("f32s")), looked{[]uint64(nil), false}},
		"Uints scalar":   {look(h.Uints("u8")), looked{[]uint64(nil), false}},
		"Uints long":     {look(h.Uints("long")), looked{[]uint64(nil), false}},
		"Uints in bound": {look(h.Uints("long enough")), looked{make([]uint64, maxSmallArray), true}},
		"Ints int64":     {look(h.Ints("i64s")), looked{[]int64{0, 1, math.MinInt64}, true}},
		"Ints big":       {look(h.Ints("u64s")), looked{[]int64(nil), false}},
		"Ints small":     {look(h.Ints("small u64s")), looked{[]int64{5, 6}, true}},
		"Floats float32": {look(h.Floats("f32s")), looked{[]float64{0, float64(float32(0.1)), math.Inf(1)}, true}},
		"Floats float64": {look(h.Floats("f64s")), looked{[]float64{0, 0.1, math.Inf(-1)}, true}},
		"Floats integer": {look(h.Floats("u8s")), looked{[]float64(nil), false}},
		"Bools":          {look(h.Bools("bools")), looked{[]bool{true, false, true}, true}},
		"Bools integer":  {look(h.Bools("u8s")), looked{[]bool(nil), false}},
		"Strings":        {look(h.Strings("tokenizer.texts")), looked{[]string{"a", "", "\u00e9t\u00e9"}, true}},
		"Strings unkept": {look(h.Strings("texts")), looked{[]string(nil), false}},
		"Strings scalar": {look(h.Strings("text")), looked{[]string(nil), false}},
		"Strings nested": {look(h.Strings("arrays")), looked{[]string(nil), false}},
		"ArrayLen":       {look(h.ArrayLen("u8s")), looked{3, true}},
		"ArrayLen long":  {look(h.ArrayLen("long")), looked{maxSmallArray + 1, true}},
		"ArrayLen texts": {look(h.ArrayLen("texts")), looked{2, true}},
		"ArrayLen of it": {look(h.ArrayLen("arrays")), looked{2, true}},
		"ArrayLen other": {look(h.ArrayLen("text")), looked{0, false}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
	for _, key := range []string{"long", "texts", "arrays"} {
		if kv := h.Key(key); kv.Kept || kv.Value() != nil {
			t.Errorf("the contents of %s were kept: %v", key, kv.Value())
		}
	}
	if v := h.Key("arrays"); v.Type != TypeArray || v.Elem != TypeArray {
		t.Errorf("arrays is %s of %s", v.Type, v.Elem)
	}
}

// A Header that was put together by hand, as tests of other packages do, answers the same.
func TestHeaderByHand(t *testing.T) {
	parsed := mustParse(t, Options{}, minimal(t))
	h := Header{Keys: parsed.Keys, Tensors: parsed.Tensors}
	if s, ok := h.String("general.name"); s != "minimal" || !ok {
		t.Errorf("general.name: %q, %v", s, ok)
	}
	if h.Tensor("t") == nil || h.Tensor("u") != nil || h.Key("u") != nil {
		t.Error("look-ups by name fail")
	}
}

func TestSkipTokenizer(t *testing.T) {
	data := encode(t, func(w *Writer) {
		w.Set("tokenizer.ggml.model", "gpt2")
		w.Set("tokenizer.ggml.tokens", []string{"a", "b", "\xff"})
		w.Set("tokenizer.ggml.token_type", make([]int32, 2000))
		w.Set("tokenizer.ggml.eog_token_ids", []int32{1, 2})
		w.Set("general.name", "after")
	})
	h := mustParse(t, Options{SkipTokenizer: true}, data)
	for key, want := range map[string]int{"tokenizer.ggml.tokens": 3, "tokenizer.ggml.token_type": 2000, "tokenizer.ggml.eog_token_ids": 2} {
		if n, ok := h.ArrayLen(key); n != want || !ok {
			t.Errorf("%s has %d elements, %v; want %d", key, n, ok, want)
		}
	}
	if _, ok := h.Strings("tokenizer.ggml.tokens"); ok {
		t.Error("the tokens were kept")
	}
	if v, _ := h.Ints("tokenizer.ggml.eog_token_ids"); !cmp.Equal(v, []int64{1, 2}) {
		t.Errorf("eog_token_ids: %v", v)
	}
	if v, _ := h.String("general.name"); v != "after" {
		t.Errorf("the key after them: %q", v)
	}
}

func TestNestedArrays(t *testing.T) {
	nested := [][]uint8{{1, 2}, {}}
	deep := [][][][][][][][][][][][][][][][]uint8{{{{{{{{{{{{{{{{9}}}}}}}}}}}}}}}} // 16 levels
	h := mustParse(t, Options{}, encode(t, func(w *Writer) {
		w.Set("nested", nested)
		w.Set("texts", [][]string{{"a", "bc"}, {""}})
		w.Set("deep", deep)
		w.Set("tokenizer.nested", nested)
		w.Set("last", uint8(1))
	}))
	for key, want := range map[string]int{"nested": 2, "texts": 2, "deep": 1, "tokenizer.nested": 2} {
		if n, ok := h.ArrayLen(key); n != want || !ok {
			t.Errorf("%s has %d elements, %v; want %d", key, n, ok, want)
		}
		if h.Key(key).Kept {
			t.Errorf("%s was kept", key)
		}
	}
	if v, ok := h.Uint("last"); v != 1 || !ok {
		t.Error("the key after nested arrays was not read")
	}
}

func TestVersion2(t *testing.T) {
	data := encode(t, func(w *Writer) {
		w.Version = 2
		w.Set("a", uint8(1))
	})
	if h := mustParse(t, Options{}, data); h.Version != 2 {
		t.Errorf("version %d", h.Version)
	}
}

func TestAlignmentAccepted(t *testing.T) {
	for _, alignment := range []uint32{1, 2, 16, 32, 64, 65536} {
		data := encode(t, func(w *Writer) {
			w.Set("general.alignment", alignment)
			w.AddBytes("a", 24, []uint64{3}, []byte{1, 2, 3})
			w.AddBytes("b", 24, []uint64{1}, []byte{4})
		})
		h := mustParse(t, Options{}, data)
		b := h.Tensor("b")
		part, from, to := h.place(b)
		if h.DataStart%int64(alignment) != 0 || b.Offset%uint64(alignment) != 0 || part != h || string(data[from:to]) != "\x04" {
			t.Errorf("alignment %d: data at %d, b at %d, bytes %v", alignment, h.DataStart, b.Offset, data[from:to])
		}
	}
}
