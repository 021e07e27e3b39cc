package webui_test

import (
	"fmt"
	"testing"
)

const sample = `The **Gated DeltaNet** keeps a state of fixed size, so that a long conversation costs no more per token than a short one.
Three things decide what it remembers:

1. the *decay*, which forgets,
2. the *write strength*, which says how much of a new value is stored:
   - near 0: almost nothing
   - near 1: it replaces what was there
3. the key, which says **where**.

## In code

Each step is a rank-one update, see [the paper](https://arxiv.org/abs/2412.06464):

` + "```go" + `
// step updates the state s of one head with key k and value v.
func step(s [][]float64, k, v []float64, decay, beta float64) {
	for i := range s {
		old := 0.0
		for j, x := range k {
			s[i][j] *= decay
			old += s[i][j] * x
		}
		for j, x := range k {
			s[i][j] += beta * (v[i] - old) * x // what is new
		}
	}
}
` + "```" + `

| layer | state | bytes a lane |
| :-- | :-: | --: |
| attention | KV cache | 64 × length |
| delta | matrix | 2,097,152 |
| convolution | window | 24,576 |

> A state of fixed size cannot remember everything; it has to choose.

- [x] prefill in chunks
- [ ] decode with a draft
`

// TestLooks shows a whole conversation at three widths in both themes, and holds what is seen to rules.
func TestLooks(t *testing.T) {
	f, p := open(t, view{})
	draw := func(name string) {
		p.eval(nil, `new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))`)
		p.screenshot(name)
	}
	draw("welcome")
	p.click("#open-settings")
	draw("settings")
	p.show(view{width: 360, height: 640, dark: true, mobile: true})
	draw("settings-360-dark")
	p.key("Escape", 0)
	draw("welcome-360-dark")
	p.show(view{width: 768, height: 900})
	l := newLive()
	f.answers(l.serve)
	p.ask("How?")
	l.send(role, reasoning("Let me think about **this**.\n\n- one\n- two"))
	p.wait(`document.querySelector('.reasoning .prose li')`)
	p.click(".reasoning summary")
	draw("thinking")
	l.send(content("Some words with `code` and **strong te"))
	p.wait(`document.querySelector('.content strong')`)
	draw("answering")
	p.key("Escape", 0)
	p.done(2)
	draw("stopped")
	p.click("#new")
	draw("cleared")
	f.answers(
		stream(role, reasoning("The user asks how the state works. I should "), reasoning("be brief."), content(sample), finish("stop")),
		stream(role, reasoning("I need the weather."), call(0, "call_1_0", "get_weather", `{"city":"Zürich","days":[1,2,3],"units":{"temperature":"C"}}`), finish("tool_calls")),
		refuse(503, "frontend_overloaded", "frontend request capacity is exhausted"),
	)
	p.allow("status of 503")
	p.ask("How does the state of a Gated DeltaNet layer work?\nShow me code.")
	p.done(2)
	p.ask("And the weather?")
	p.done(4)
	p.ask("Thanks")
	p.done(6)
	for _, width := range []int{360, 768, 1440} {
		for _, theme := range []string{"light", "dark"} {
			p.show(view{width: width, height: 900, dark: theme == "dark", mobile: width == 360})
			for _, at := range []string{"top", "end"} {
				p.eval(nil, `(async () => {
					scrollTo(0, $0 === 'top' ? 0 : document.documentElement.scrollHeight);
					await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
				})()`, at)
				p.screenshot(fmt.Sprintf("%d-%s-%s", width, theme, at))
			}
		}
	}
}
