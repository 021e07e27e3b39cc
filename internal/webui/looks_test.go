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

// faults is a script that lists what is wrong with what can be seen: text whose contrast with what is behind it is less
// than 4.5 to 1, or 3 to 1 for large text (WCAG 2.2, 1.4.3); things to press of less than 24 pixels (2.5.8); and whatever
// makes the page wider than the screen (1.4.10).
const faults = `
function faults() {
	const found = [];
	const rgba = (s) => s.match(/[\d.]+/g).map(Number);
	const luminance = (c) => {
		const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		for (let n = e; n; n = n.parentElement) {
			const c = rgba(getComputedStyle(n).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c;
		}
		throw new Error('nothing is behind ' + e.outerHTML);
	};
	const ratio = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	const width = document.documentElement.clientWidth; // innerWidth grows with what is too wide
	const top = document.querySelector('dialog[open]') ?? document.body;
	for (const e of top.querySelectorAll('*')) {
		if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true}) || e.closest('.unseen, svg')) continue;
		const box = e.getBoundingClientRect(), style = getComputedStyle(e);
		const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
		if (says || e.placeholder) {
			const color = rgba(e.placeholder ? getComputedStyle(e, '::placeholder').color : style.color);
			const r = ratio(color, behind(e)), size = parseFloat(style.fontSize);
			if (r < (size >= 24 ? 3 : 4.5)) found.push('contrast ' + r.toFixed(2) + ' of ' + (e.id || e.className || e.tagName) + ' ' + e.textContent.slice(0, 30));
		}
		if (e.matches('button, input:not([type=checkbox]), select, textarea, summary') && (box.width < 24 || box.height < 24)) {
			found.push(box.width + ' by ' + box.height + ': ' + e.outerHTML.slice(0, 60));
		}
		if (box.right > width + 1 && !e.closest('pre, .scroll')) found.push('too wide: ' + e.outerHTML.slice(0, 80));
	}
	if (document.documentElement.scrollWidth > width) found.push('the page is ' + document.documentElement.scrollWidth + ' wide');
	return found;
}
`

// TestLooks shows the page in its states, at three widths and in both themes, and looks for faults. Whoever changes it
// looks at the screenshots as well: SPLASH_SCREENSHOTS names a folder for them.
func TestLooks(t *testing.T) {
	f, p := open(t, view{width: 1024, height: 768, still: true})
	p.allow("status of 503")
	p.eval(nil, faults)
	look := func(name string) {
		t.Helper()
		var found []string
		p.eval(&found, `new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn(faults()))))`)
		for _, fault := range found {
			t.Errorf("%s: %s", name, fault)
		}
		p.screenshot(name)
	}
	look("welcome")
	p.click("#open-settings")
	p.eval(nil, `document.querySelector('#settings details').open = true`)
	look("settings")
	p.show(view{width: 360, height: 640, dark: true, mobile: true, still: true})
	look("settings-360-dark")
	p.key("Escape", 0)
	look("welcome-360-dark")
	p.show(view{width: 768, height: 900, still: true})

	l := newLive()
	f.answers(l.serve)
	p.ask("How?")
	l.send(role, reasoning("Let me think about **this**.\n\n- one\n- two"))
	p.wait(`document.querySelector('.reasoning .prose li')`)
	p.click(".reasoning summary")
	look("thinking")
	l.send(content("Some words with `code` and **strong te"))
	p.wait(`document.querySelector('.content strong')`)
	look("answering")
	p.key("Escape", 0)
	<-l.gone
	p.done(2)
	p.click(".edit")
	look("editing")
	p.key("Escape", 0)
	p.click("#new")
	p.wait(`!document.getElementById('notice').hidden`)
	look("cleared")

	f.answers(
		stream(role, reasoning("The user asks how the state works. I should "), reasoning("be brief."), content(sample), finish("stop")),
		stream(role, reasoning("I need the weather."), call(0, "call_1_0", "get_weather", `{"city":"Zürich","units":{"temperature":"C"}}`), finish("tool_calls")),
	)
	p.ask("How does the state of a Gated DeltaNet layer work?\nShow me code.")
	p.done(2)
	p.ask("And the weather?")
	p.done(4)
	for _, width := range []int{360, 768, 1440} {
		everywhere(p, look, "conversation", width)
	}
	f.answers(refuse(503, "frontend_overloaded", "frontend request capacity is exhausted"))
	p.ask("Thanks. And a_word_that_is_much_longer_than_any_line_of_a_small_screen_could_ever_be_so_that_it_has_to_be_broken?")
	p.done(6)
	everywhere(p, look, "problem", 360)
}

// everywhere looks at the top and the end of the page in each theme.
func everywhere(p *tab, look func(name string), name string, width int) {
	p.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		p.show(view{width: width, height: 900, dark: theme == "dark", mobile: width == 360, still: true})
		for _, end := range []string{"top", "end"} {
			// The page follows the answer when its size changes, so it is scrolled after that.
			p.eval(nil, `new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))`)
			p.eval(nil, `scrollTo(0, $0 === 'top' ? 0 : document.documentElement.scrollHeight)`, end)
			look(fmt.Sprintf("%s-%d-%s-%s", name, width, theme, end))
		}
	}
}
