package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file is a file of that header and so many bytes of data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func parse(b []byte) (*Header, error) { return Parse(bytes.NewReader(b), int64(len(b)), "f") }

func TestParse(t *testing.T) {
	h, err := parse(file(`{"__metadata__":{"format":"pt","n":[1,{"a":null}],"x":-1.5e3,"y":true},
		"b\u0062\ud83d\ude00\n":{"shape":[2,3],"dtype":"BF16","data_offsets":[4,16],"extra":[false]},
		"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
		"empty":{"dtype":"U8","shape":[0,9007199254740991,9007199254740991],"data_offsets":[3,3]},
		"odd":{"dtype":"F4","shape":[1],"data_offsets":[16,20]}}   `, 24))
	if err != nil {
		t.Fatal(err)
	}
	want := []Tensor{
		{Name: "bb\U0001F600\n", DType: BF16, Shape: []int64{2, 3}, Begin: 4, End: 16},
		{Name: "a", DType: F32, Shape: []int64{}, Begin: 0, End: 4},
		{Name: "empty", DType: U8, Shape: []int64{0, 1<<53 - 1, 1<<53 - 1}, Begin: 3, End: 3},
		{Name: "odd", DType: "F4", Shape: []int64{1}, Begin: 16, End: 20},
	}
	if diff := cmp.Diff(want, h.Tensors); diff != "" {
		t.Errorf("tensors (-want +got):\n%s", diff)
	}
	if n := h.Tensors[0].Elements(); n != 6 {
		t.Errorf("%d elements, want 6", n)
	}
	if n := h.Tensors[0].Bytes(); n != 12 {
		t.Errorf("%d bytes, want 12", n)
	}
}

func TestParseRefused(t *testing.T) {
	const tensor = `"dtype":"F32","shape":[1]`
	one := func(fields string) []byte { return file(`{"t":{`+fields+`}}`, 8) }
	integer := "expected an integer from 0 to 9007199254740991"
	for _, test := range []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "f: truncated safetensors file: 0 bytes, at least 8"},
		{"seven bytes", make([]byte, 7), "f: truncated safetensors file: 7 bytes, at least 8"},
		{"no header", make([]byte, 8), "f: safetensors header exceeds bounds: 0 bytes, from 1 to the 0 that follow"},
		{"a header past the end", binary.LittleEndian.AppendUint64(nil, 1),
			"f: safetensors header exceeds bounds: 1 bytes, from 1 to the 0 that follow"},
		{"a header of 2^64 - 1 bytes", bytes.Repeat([]byte{255}, 20),
			"f: safetensors header exceeds bounds: 18446744073709551615 bytes, from 1 to the 12 that follow"},
		{"an array", file(`[]`, 0), `f: at byte 0 of its JSON: not valid JSON: expected '{'`},
		{"nothing", file(`  `, 0), `f: at byte 2 of its JSON: not valid JSON: expected '{'`},
		{"an open object", file(`{`, 0), `f: at byte 1 of its JSON: expected a string`},
		{"no colon", file(`{"t" 1}`, 0), `f: at byte 5 of its JSON: not valid JSON: expected ':'`},
		{"a comma at the end", file(`{"__metadata__":{},}`, 0), `f: at byte 19 of its JSON: expected a string`},
		{"two objects", file(`{} {}`, 0), `f: at byte 3 of its JSON: not valid JSON: something follows the object`},
		{"a key twice", file(`{"t":{`+tensor+`,"data_offsets":[0,4]},"t":{`+tensor+`,"data_offsets":[4,8]}}`, 8),
			"f: t appears twice in the header"},
		{"a key twice, escaped once",
			file(`{"t":{`+tensor+`,"data_offsets":[0,4]},"\u0074":{`+tensor+`,"data_offsets":[4,8]}}`, 8), "f: t appears twice in the header"},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "f: __metadata__ appears twice in the header"},
		{"a name of two lines", file(`{"a\nb":1}`, 0),
			`f: tensor "a\nb": at byte 8 of its JSON: not valid JSON: expected '{'`},
		{"an empty name", file(`{"":{}}`, 0), "f: a tensor name of 0 bytes, from 1 to 1024"},
		{"a long name", file(`{"`+strings.Repeat("n", 1025)+`":{}}`, 0), "f: a tensor name of 1025 bytes, from 1 to 1024"},
		{"a name that is not UTF-8", file("{\"\xff\":{}}", 0), "f: at byte 3 of its JSON: a string is not UTF-8"},
		{"a name that is not UTF-8, with an escape", file("{\"\\n\xff\":{}}", 0),
			"f: at byte 6 of its JSON: a string is not UTF-8"},
		{"a control character", file("{\"\x01\":{}}", 0),
			"f: at byte 2 of its JSON: not valid JSON: a control character in a string"},
		{"an unknown escape", file(`{"\x":{}}`, 0), "f: at byte 4 of its JSON: not valid JSON: an unknown escape"},
		{"half a pair", file(`{"\ud83dx":{}}`, 0), "f: at byte 8 of its JSON: half a surrogate pair in a string"},
		{"the wrong half", file(`{"\ud83d\u0041":{}}`, 0), "f: at byte 14 of its JSON: half a surrogate pair in a string"},
		{"a string that does not end", file(`{"t`, 0), "f: at byte 3 of its JSON: not valid JSON: a string does not end"},
		{"nested metadata", file(`{"__metadata__":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)+`}`, 0),
			"f: at byte 81 of its JSON: values nested more than 64 deep"},
		{"a tensor of a number", file(`{"t":1}`, 0), `f: tensor t: at byte 5 of its JSON: not valid JSON: expected '{'`},
		{"no dtype", one(`"shape":[1],"data_offsets":[0,4]`), "f: tensor t: no dtype"},
		{"no shape", one(`"dtype":"F32","data_offsets":[0,4]`), "f: tensor t: no shape"},
		{"no offsets", one(tensor), "f: tensor t: no data_offsets"},
		{"a dtype twice", one(tensor + `,"dtype":"F32","data_offsets":[0,4]`), "f: tensor t: dtype appears twice"},
		{"a dtype of a number", one(`"dtype":3`), "f: tensor t: dtype: at byte 14 of its JSON: expected a string"},
		{"a long dtype", one(`"dtype":"` + strings.Repeat("F", 65) + `"`), "f: tensor t: a dtype of 65 bytes"},
		{"a shape of true", one(`"shape":[true]`), "f: tensor t: shape: at byte 15 of its JSON: " + integer},
		{"a shape of 1.0", one(`"shape":[1.0]`),
			"f: tensor t: shape: at byte 16 of its JSON: " + integer + ", not a fraction"},
		{"a shape of 1e0", one(`"shape":[1e0]`),
			"f: tensor t: shape: at byte 16 of its JSON: " + integer + ", not a fraction"},
		{"a negative extent", one(`"shape":[-1]`), "f: tensor t: shape: at byte 15 of its JSON: " + integer},
		{"an extent of 2^53", one(`"shape":[9007199254740992]`), "f: tensor t: shape: at byte 30 of its JSON: " + integer},
		{"an extent of 40 digits", one(`"shape":[` + strings.Repeat("9", 40) + `]`),
			"f: tensor t: shape: at byte 30 of its JSON: " + integer},
		{"an extent of 01", one(`"shape":[01]`),
			"f: tensor t: shape: at byte 17 of its JSON: not valid JSON: a number with a leading zero"},
		{"nine extents", one(`"shape":[1,1,1,1,1,1,1,1,1]`),
			"f: tensor t: shape: at byte 31 of its JSON: more than 8 integers"},
		{"a shape of an object", one(`"shape":{}`),
			"f: tensor t: shape: at byte 14 of its JSON: not valid JSON: expected '['"},
		{"one offset", one(tensor + `,"data_offsets":[0]`), "f: tensor t: data_offsets: 1 integers, expected 2"},
		{"three offsets", one(tensor + `,"data_offsets":[0,4,8]`),
			"f: tensor t: data_offsets: at byte 52 of its JSON: more than 2 integers"},
		{"offsets of true", one(tensor + `,"data_offsets":[true,4]`),
			"f: tensor t: data_offsets: at byte 48 of its JSON: " + integer},
		{"offsets reversed", one(tensor + `,"data_offsets":[4,0]`),
			"f: tensor t: data_offsets [4, 0] lie outside the 8 bytes of data"},
		{"offsets past the end", one(tensor + `,"data_offsets":[8,12]`),
			"f: tensor t: data_offsets [8, 12] lie outside the 8 bytes of data"},
		{"offsets of another size", one(tensor + `,"data_offsets":[0,8]`),
			"f: tensor t: data_offsets [0, 8] hold 8 bytes, F32 [1] is 4"},
		{"a shape that overflows", one(`"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]`),
			"f: tensor t: shape [4294967296 4294967296] of F64 overflows"},
		{"a shape that wraps to 0", one(`"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]`),
			"f: tensor t: shape [4294967296 4294967296] of U8 overflows"},
		{"an overlap", file(`{"a":{`+tensor+`,"data_offsets":[0,4]},"b":{`+tensor+`,"data_offsets":[2,6]}}`, 8),
			"f: tensors a and b overlap: [0, 4] and [2, 6]"},
		{"the same bytes", file(`{"b":{`+tensor+`,"data_offsets":[4,8]},"a":{`+tensor+`,"data_offsets":[4,8]}}`, 8),
			"f: tensors b and a overlap: [4, 8] and [4, 8]"},
		{"a value of no kind", file(`{"__metadata__":nul}`, 0),
			"f: at byte 19 of its JSON: not valid JSON: expected a value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(test.file)
			if err == nil {
				t.Fatalf("accepted, want %q", test.want)
			}
			if err.Error() != test.want {
				t.Errorf("refused with\n\t%s\nwant\n\t%s", err, test.want)
			}
		})
	}
}

// TestCut reads a file of every shorter length than its own, with its own size: as from a server that ends too soon.
func TestCut(t *testing.T) {
	b := file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4)
	for n := range len(b) - 4 {
		if _, err := Parse(bytes.NewReader(b[:n]), int64(len(b)), "f"); err == nil || !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("%d bytes of %d: %v", n, len(b), err)
		}
	}
	if _, err := Parse(bytes.NewReader(b[:len(b)-4]), int64(len(b)), "f"); err != nil {
		t.Errorf("the header alone: %v", err)
	}
}

// TestParseAllocates holds what a hostile header makes the parser allocate to a small multiple of its own size.
func TestParseAllocates(t *testing.T) {
	var b strings.Builder
	b.WriteString("{")
	for i := range 20000 {
		fmt.Fprintf(&b, `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
	}
	b.WriteString(`"x":1`)
	data := file(b.String(), 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := parse(data); err == nil {
		t.Fatal("accepted")
	}
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(16*len(data)); got > limit {
		t.Errorf("%d bytes allocated for a header of %d, limit %d", got, len(data), limit)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(`{"__metadata__":{"a":"b"},"t":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}} `, 8))
	f.Add(file(`{"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"X","shape":[0],"data_offsets":[2,2]}}`, 4))
	f.Add(file(`{"\ud83d\ude00":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0))
	f.Add(file(`{"__metadata__":[[[[{"a":[1,-2.5e3,true,null]}]]]]}`, 0))
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parse(b)
		if err != nil {
			return
		}
		c, err := Join([]*Header{h})
		if err != nil {
			t.Fatalf("a file that parses does not join: %v", err)
		}
		for i := range c.Tensors {
			n := &c.Tensors[i]
			if n.Begin < 0 || n.Begin > n.End || h.DataStart+n.End > int64(len(b)) {
				t.Fatalf("tensor %q lies outside the file: %+v", n.Name, n)
			}
			if c.Tensor(n.Name) != n {
				t.Fatalf("tensor %q is not found", n.Name)
			}
			if size := n.DType.Bytes(); size > 0 && n.Elements()*size != n.Bytes() {
				t.Fatalf("tensor %q has %d bytes, its shape %d", n.Name, n.Bytes(), n.Elements()*size)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"sub/x.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		index, err := ReadIndex(bytes.NewReader(b), "i")
		if err == nil && len(index.Files()) == 0 {
			t.Fatal("an index of no files")
		}
	})
}
