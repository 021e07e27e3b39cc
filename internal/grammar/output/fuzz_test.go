package output

import (
	"context"
	"testing"
)

// FuzzSplits feeds texts to grammars of answers in two splits into tokens, which must end alike; and to the masks.
func FuzzSplits(f *testing.F) {
	for i, text := range []string{add, "text" + say + "more", json0, "{\"a\":[1,{\"é\":\"\\u00e9\"}]}", "why</think>\n\n" + add, "§<tool_call>"} {
		f.Add(text, byte(i), uint64(i))
	}
	var outputs []*Output
	for choice := Auto; choice <= Named; choice++ {
		for _, response := range []*Response{nil, {AnyObject: true}} {
			for _, c := range []*Compiler{qwen(f), glm(f)} {
				o, err := c.Compile(context.Background(), &Request{Tools: tools(f), Choice: choice, Name: "note", Response: response, Thinking: response != nil})
				if err != nil {
					f.Fatal(err)
				}
				outputs = append(outputs, o)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, which byte, seed uint64) {
		o := outputs[int(which)%len(outputs)]
		if text == "" || text[len(text)-1] == 0xA7 || len(text) > 2000 {
			return
		}
		follow := func(longer bool) (accepted, end bool) {
			m := o.Matcher()
			row := make([]uint64, m.Words())
			for _, id := range tokensOf(text, seed, longer) {
				if err := m.Allowed(row); err != nil {
					t.Fatal(err)
				}
				err := m.Accept(id)
				if (err == nil) != (row[id>>6]>>(id&63)&1 != 0) {
					t.Fatalf("token %d: the mask and %v disagree", id, err)
				}
				if err != nil {
					return false, false
				}
			}
			return true, m.CanEnd()
		}
		a, aEnd := follow(false)
		b, bEnd := follow(true)
		if a != b || aEnd != bEnd {
			t.Fatalf("%q: %v %v, in longer tokens %v %v", text, a, aEnd, b, bEnd)
		}
	})
}
