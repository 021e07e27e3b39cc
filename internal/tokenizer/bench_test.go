package tokenizer

import (
	"strings"
	"testing"
)

var benchTexts = []struct{ name, text string }{
	{"prose", `The lighthouse keeper hadn't slept for two nights, and the storm wasn't finished with him yet. He'd counted the
seconds between each flash of lightning and the thunder that followed; by dawn, he reckoned, the worst of it would have
passed over the headland towards the fishing villages further north. "We've seen worse," he told the dog, who didn't
believe a word. In 1893 a similar gale had carried off the old boathouse, three skiffs and most of the winter's firewood.
`},
	{"code", `func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	for i := range s.items {
		if err := s.items[i].run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			http.Error(w, fmt.Sprintf("item %d: %v", i, err), http.StatusInternalServerError) // 500
			return
		}
	}
}
`},
	{"Chinese", `人工智能是计算机科学的一个分支，它企图了解智能的实质，并生产出一种新的能以人类智能相似的方式作出反应的智能机器。
该领域的研究包括机器人、语言识别、图像识别、自然语言处理和专家系统等。从诞生以来，理论和技术日益成熟，应用领域也不断扩大。
`},
}

func BenchmarkEncode(b *testing.B) {
	for _, tok := range []*Tokenizer{must(newLarge())(b), must(newLargeFlint())(b)} {
		for _, bt := range benchTexts {
			b.Run(tok.profile.pre+"/"+bt.name, func(b *testing.B) {
				text := strings.Repeat(bt.text, 1+(64<<10)/len(bt.text))
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				var dst []int32
				for b.Loop() {
					dst = tok.AppendEncode(dst[:0], text, true)
				}
				b.ReportMetric(float64(len(dst)*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// BenchmarkEncodeUncached encodes words that do not come again while the piece cache has them.
func BenchmarkEncodeUncached(b *testing.B) {
	tok := must(newLarge())(b)
	draw := newTexter(1)
	var text strings.Builder
	for text.Len() < 4<<20 {
		text.WriteByte(' ')
		for range 3 + draw.IntN(8) {
			text.WriteByte("etaoinshrdlu"[draw.IntN(12)])
		}
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	var dst []int32
	for b.Loop() {
		dst = tok.AppendEncode(dst[:0], text.String(), true)
	}
}

// BenchmarkEncodeOnePiece encodes a megabyte of one letter.
func BenchmarkEncodeOnePiece(b *testing.B) {
	tok := must(newLarge())(b)
	text := strings.Repeat("a", 1<<20)
	b.SetBytes(int64(len(text)))
	var dst []int32
	for b.Loop() {
		dst = tok.AppendEncode(dst[:0], text, true)
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := must(newLarge())(b)
	for _, bt := range benchTexts {
		b.Run(bt.name, func(b *testing.B) {
			ids := tok.Encode(bt.text, true)
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				d := tok.NewDecoder()
				dst = dst[:0]
				for _, id := range ids {
					dst = d.Append(dst, id)
				}
				dst = d.Flush(dst)
			}
			b.ReportMetric(float64(len(ids)*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkLoad reads the vocabulary of 151,669 tokens and makes its tokenizer.
func BenchmarkLoad(b *testing.B) {
	b.Run("header", func(b *testing.B) {
		for b.Loop() {
			must(readHeader(largeFile))(b)
		}
	})
	b.Run("FromGGUF", func(b *testing.B) {
		h := must(readHeader(largeFile))(b)
		for b.Loop() {
			must(FromGGUF(h))(b)
		}
	})
	b.Run("New", func(b *testing.B) {
		v := must(readLarge())(b)
		for b.Loop() {
			must(New(v))(b)
		}
	})
	b.Run("FromJSON", func(b *testing.B) {
		v := must(readLarge())(b)
		s := &Snapshot{Tokenizer: marshal(b, tokenizerObject(v)), Config: marshal(b, configObject(v))}
		for b.Loop() {
			must(FromJSON(s))(b)
		}
	})
}
