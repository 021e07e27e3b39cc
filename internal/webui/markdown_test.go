package webui_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer/html"
)

// outline is a script that says in a canonical form what a document holds, be it the page's or another renderer's:
// paragraphs of tight lists are paragraphs, headings have their own level in the page, code blocks their own elements.
const outline = `
const BLOCK = /^(P|UL|OL|LI|BLOCKQUOTE|PRE|FIGURE|HR|TABLE|DIV|H[1-6])$/;
function outline(root, shift) {
	const inline = (nodes) => {
		let out = '', text = '', broken = false;
		const flush = () => { if (text) out += JSON.stringify(text); text = ''; };
		for (const n of nodes) {
			if (n.nodeType === 3) { text += broken ? n.data.trimStart() : n.data; broken = false; continue; }
			flush();
			broken = n.tagName === 'BR' || n.tagName === 'INPUT';
			if (n.tagName === 'INPUT') out += n.checked ? '[x]' : '[ ]';
			else if (n.tagName === 'BR') out += '/';
			else if (n.tagName === 'CODE') out += '<code ' + JSON.stringify(n.textContent) + '>';
			else if (n.tagName === 'A') out += '<a ' + n.href + (n.title && ' ' + JSON.stringify(n.title)) + ' ' + (!n.textContent.trim() || n.textContent === n.href ? '' : inline(n.childNodes)) + '>';
			else out += '<' + n.tagName.toLowerCase() + ' ' + inline(n.childNodes) + '>';
		}
		flush();
		return out;
	};
	const paragraph = (nodes) => {
		const last = nodes.at(-1);
		if (last?.nodeType === 3) last.data = last.data.trimEnd();
		if (nodes[0]?.nodeType === 3) nodes[0].data = nodes[0].data.trimStart();
		return inline(nodes);
	};
	const children = (node) => {
		const out = [];
		let run = [];
		const flush = () => {
			const text = paragraph(run);
			if (text) out.push('p ' + text);
			run = [];
		};
		for (const n of [...node.childNodes]) {
			if (n.tagName === 'P' && run[0]?.tagName === 'INPUT') n.prepend(run.pop());
			if (!BLOCK.test(n.tagName)) { run.push(n); continue; }
			flush();
			out.push(block(n));
		}
		flush();
		return out;
	};
	const cell = (n) => {
		const side = n.style.textAlign || n.getAttribute('align') || n.className || 'left';
		return (side === 'left' ? '' : side + ' ') + inline(n.childNodes);
	};
	const block = (n) => {
		switch (n.tagName) {
		case 'P': return 'p ' + paragraph([...n.childNodes]);
		case 'HR': return 'hr';
		case 'BLOCKQUOTE': return ['quote', ...children(n)];
		case 'LI': return ['li', ...children(n)];
		case 'UL': case 'OL': {
			const loose = (!shift || n.className === 'loose') && [...n.children].some((li) => li.querySelector(':scope > p'));
			return [n.tagName.toLowerCase() + (n.start > 1 || n.getAttribute('start') === '0' ? n.start : '') + (loose ? ' loose' : ''), ...children(n)];
		}
		case 'FIGURE': return ['code ' + n.querySelector('.language').textContent, n.querySelector('code').textContent];
		case 'PRE': return ['code ' + (n.firstChild.className.replace('language-', '') || 'text'), n.textContent.replace(/\n$/, '')];
		case 'DIV': case 'TABLE': return ['table', ...[...n.querySelectorAll('tr')].map((tr) => [...tr.children].map(cell))];
		default: return 'h' + Math.min(4, n.tagName[1] - shift) + ' ' + inline(n.childNodes);
		}
	};
	return children(root);
}
`

// render is a script that draws a text, split into pieces, and returns the element.
const render = `
function render(pieces) {
	const root = document.createElement('div');
	const markdown = new Markdown(root);
	for (const piece of pieces) markdown.append(piece);
	markdown.finish();
	root.normalize();
	return root;
}
`

// A judge compares the page's Markdown with goldmark's.
type judge struct {
	page, other *tab
	goldmark    goldmark.Markdown
}

func newJudge(t *testing.T) *judge {
	_, page := open(t, view{})
	other := page.b.blank(t)
	page.eval(nil, outline+render)
	other.eval(nil, outline)
	return &judge{page, other, goldmark.New(
		goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList),
		goldmark.WithRendererOptions(html.WithHardWraps()),
	)}
}

// outlines returns what both make of the documents.
func (j *judge) outlines(documents []string) (got, want []any) {
	j.page.t.Helper()
	var pages []string
	for _, d := range documents {
		var b bytes.Buffer
		j.page.must(j.goldmark.Convert([]byte(d), &b))
		pages = append(pages, b.String())
	}
	j.page.eval(&got, `$0.map((d) => outline(render([d]), 2))`, documents)
	j.other.eval(&want, `$0.map((h) => outline(new DOMParser().parseFromString(h, 'text/html').body, 0))`, pages)
	return got, want
}

// TestMarkdownBlocks compares random documents of lines that mean something with goldmark's reading of them.
func TestMarkdownBlocks(t *testing.T) {
	lines := []string{
		"- a", "- b", "- a\n  - nested", "1. one", "2. two", "   - below", "> q", "> > r", "> - in a quote", "", "", "text", "more *text*",
		"  indented", "```go", "```", "~~~", "# H", "### H3 ##", "\n---", "***", "| a | b |\n|---|:-:|\n| 1 | `2` |\n", "* star", "+ plus",
		"- [ ] todo", "- [X] done", "   more", "  more", "9) nine", "\n-", "> ", "-\ttab", "- a\n\tbelow", "#hash", "-dash", "1.5", "text\\",
	}
	newJudge(t).compareRandom(t, 2000, 9, "", lines, "\n")
}

// TestMarkdownInlines compares random paragraphs with goldmark's reading of them.
func TestMarkdownInlines(t *testing.T) {
	pieces := []string{
		"*", "**", "***", "_", "__", "~~", "`", "``", "[", "](mailto:a)", "](mailto:b \"title\")", "]", "! ", "a", "b", " ", " ", "c.",
		"\\*", "\\_", "\\ ", "&amp;", "&#65;", " &nope;", "](mailto:(d))", "é", "\n", "😀", "“", "x_y",
	}
	newJudge(t).compareRandom(t, 2500, 12, "x ", pieces, "")
}

// compareRandom compares documents of up to so many pieces each, after the same beginning.
func (j *judge) compareRandom(t *testing.T, documents, most int, before string, pieces []string, between string) {
	r := rand.New(rand.NewPCG(7, 9))
	texts := make([]string, documents)
	for i := range texts {
		chosen := make([]string, 1+r.IntN(most))
		for k := range chosen {
			chosen[k] = pieces[r.IntN(len(pieces))]
		}
		texts[i] = before + strings.Join(chosen, between)
	}
	got, want := j.outlines(texts)
	wrong := 0
	for i, text := range texts {
		if !reflect.DeepEqual(got[i], want[i]) && wrong < 5 {
			t.Errorf("%q\nwant %v\ngot  %v", text, want[i], got[i])
			wrong++
		}
	}
}

// TestMarkdownRules has what the page reads in its own way, and what is left to it.
func TestMarkdownRules(t *testing.T) {
	_, p := open(t, view{})
	p.eval(nil, outline+render)
	for _, test := range []struct{ text, want string }{
		{"a\n---\nb", `["p \"a\"","hr","p \"b\""]`},
		{"    four", `["p \"four\""]`},
		{"1. one\n  - two spaces", `[["ol",["li","p \"one\"",["ul",["li","p \"two spaces\""]]]]]`},
		{"| a |\n|---|\n| 1 |\nafter", `[["table",["\"a\""],["\"1\""]],"p \"after\""]`},
		{"| a | b |\n|---|---|\n| 1 |\n| x \\| y | z | more |", `[["table",["\"a\"","\"b\""],["\"1\"",""],["\"x | y\"","\"z\""]]]`},
		{"| a | b |\n|---|\n", `["p \"| a | b |\"/\"|---|\""]`},
		{"text\n| a |\n|:-:|", `["p \"text\"",["table",["center \"a\""]]]`},
		{"<b>x</b> & <script>", `["p \"<b>x</b> & <script>\""]`},
		{"a<br>b<BR/>c", `["p \"a\"/\"b\"/\"c\""]`},
		{"![alt](https://a.b/c.png)", `["p <a https://a.b/c.png \"alt\">"]`},
		{"[x](javascript:alert(1)) [y](data:text/html,z) [z](/status)", `["p \"[x](javascript:alert(1)) [y](data:text/html,z) [z](/status)\""]`},
		{"[x](<https://a.b/c d> 'title')", `["p <a https://a.b/c%20d \"title\" \"x\">"]`},
		{"see https://a.b/c_d_e?f=(g). And (http://h.i/j)!", `["p \"see \"<a https://a.b/c_d_e?f=(g) >\". And (\"<a http://h.i/j >\")!\""]`},
		{"**https://a.b/**", `["p <strong <a https://a.b/ >>"]`},
		{"网址：https://a.b/c。好", `["p \"网址：\"<a https://a.b/c >\"。好\""]`},
		{"[https://a.b](https://c.d) [e [f](https://g.h)](https://i.j)", `["p <a https://c.d/ \"https://a.b\">\" [e \"<a https://g.h/ \"f\">\"](\"<a https://i.j/ \"https://i.j\">\")\""]`},
		{"ftp://a.b xhttp://c.d http:// http:/x", `["p \"ftp://a.b xhttp://c.d http:// http:/x\""]`},
		{"**重点。**后面", `["p <strong \"重点。\">\"后面\""]`},
		{`\(a_1 * b_1\) and \[x^2\] and $y_1*z_1$ but $5 and $6`, `["p <code \"\\\\(a_1 * b_1\\\\)\">\" and \"<code \"\\\\[x^2\\\\]\">\" and \"<code \"$y_1*z_1$\">\" but $5 and $6\""]`},
		{"$$\na_1 = *b*\n$$", `["p <code \"$$\\na_1 = *b*\\n$$\">"]`},
		{"&lt;&amp;&#x1F600;&#0;&bogus;&constructor;", `["p \"<&😀�&bogus;&constructor;\""]`},
		{"```js` x\ny", "[\"p \\\"```js` x\\\"/\\\"y\\\"\"]"},
		{"```c++ title=x\n\tint a;\n\n  b\n```\nafter", `[["code c++","\tint a;\n\n  b"],"p \"after\""]`},
		{"- a\n  ```\n  x\n    y\n  ```\n- b", `[["ul",["li","p \"a\"",["code text","x\n  y"]],["li","p \"b\""]]]`},
		{"````\n```\nx\n```\n````", "[[\"code text\",\"```\\nx\\n```\"]]"},
		{"a\r\n\r\n- b\r\n- c\r\n", `["p \"a\"",["ul",["li","p \"b\""],["li","p \"c\""]]]`},
		{"", `[]`},
		{"\n\n \n", `[]`},
	} {
		var got string
		p.eval(&got, `JSON.stringify(outline(render([$0]), 2))`, test.text)
		if got != strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(test.want) {
			t.Errorf("%q\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

// documents are texts with everything the page knows, for tests of how they are split.
var documents = []string{
	sample,
	"# One\n\nTwo *three* `four` **fi\nve** ~~six~~ [seven](https://a.b/c \"d\")\n> eight\n> - nine\n>   1. ten\n\n***\n\n~~~py\n# not a heading\n~~~\n\n- [ ] a\n- [x] b\n\n  c\n",
	"| a | b |\n|:-:|--:|\n| `c` | **d** |\n| e\n\nf | g\n\n|not a table\n\n1. a\n\n   ```sh\n   echo 'x' # y\n   ```\n2. b\n- c\n\t- d\n",
	"Grüße 😀 家族👨‍👩‍👧 **é** \\*x\\* &amp; <b> https://a.b/ü. \\(x\\) $y$\r\nlast ``` ` ``` line\r\n\r\n- \r\n- [",
	// What looks like a table until its second line ends.
	"text\n\n| a | b |\n|" + strings.Repeat("-", 90) + "|---|x\n\nmore\n| c |\n|" + strings.Repeat("-", 90) + "|---\n",
}

// TestMarkdownSplits holds a text to one reading, whatever the pieces in which it comes.
func TestMarkdownSplits(t *testing.T) {
	_, p := open(t, view{})
	p.eval(nil, outline+render)
	for i, d := range documents {
		var wrong []int
		p.eval(&wrong, `(() => {
			const text = $0, whole = render([text]).innerHTML, wrong = [];
			for (let i = 0; i <= text.length; i++) if (render([text.slice(0, i), text.slice(i)]).innerHTML !== whole) wrong.push(i);
			for (const size of [1, 2, 3, 7]) {
				const pieces = text.match(new RegExp('[^]{1,' + size + '}', 'g'));
				if (render(pieces).innerHTML !== whole) wrong.push(-size);
			}
			return wrong;
		})()`, d)
		if len(wrong) > 0 {
			t.Errorf("document %d is read differently when split at %v", i, wrong)
		}
	}
}

// TestMarkdownRandomSplits does so with documents of random pieces, split at random.
func TestMarkdownRandomSplits(t *testing.T) {
	_, p := open(t, view{})
	p.eval(nil, outline+render)
	r := rand.New(rand.NewPCG(3, 4))
	pieces := []string{
		"- ", "* ", "1. ", "> ", "#", " ", "  ", "\n", "\n", "\n\n", "```", "~~~", "|", "---", "a", "bc", "*", "**", "_", "`", "[", "](http://x)", ":", "\t", "\r\n", "\\",
	}
	var texts [][]string
	for range 1500 {
		var text []string
		for range 3 + r.IntN(25) {
			text = append(text, pieces[r.IntN(len(pieces))])
		}
		texts = append(texts, text)
	}
	var wrong []string
	p.eval(&wrong, `$0.filter((pieces) => render(pieces).innerHTML !== render([pieces.join('')]).innerHTML).map((p) => p.join(''))`, texts)
	if len(wrong) > 0 {
		t.Errorf("%d texts are read differently when split, such as %q", len(wrong), wrong[0])
	}
}

// TestMarkdownIsIncremental holds appending to touching the last block alone, and a long answer's work to its length.
func TestMarkdownIsIncremental(t *testing.T) {
	_, p := open(t, view{})
	var touched []string
	p.eval(&touched, `(async () => {
		const root = document.createElement('div');
		const markdown = new Markdown(root);
		const touched = new Set();
		const tokens = $0.repeat(3).match(/[^]{1,4}/g);
		let last = null;
		const watch = new MutationObserver(() => {});
		watch.observe(root, {subtree: true, childList: true, characterData: true, attributes: true});
		for (const token of tokens) {
			last = root.lastElementChild;
			markdown.append(token);
			for (const r of watch.takeRecords()) {
				let block = r.target;
				if (block === root) continue;
				while (block.parentNode && block.parentNode !== root) block = block.parentNode;
				if (block.parentNode === root && block !== last && block !== root.lastElementChild) touched.add(block.outerHTML);
			}
		}
		return [...touched];
	})()`, sample)
	if len(touched) > 0 {
		t.Errorf("blocks that were done were touched:\n%s", touched[0])
	}
	// Nodes made for a long paragraph, a long line, long code, and a long table, in pieces and at once.
	for _, text := range []string{
		strings.Repeat("word *em* and more words. ", 6000), strings.Repeat("x", 300_000), "```\n" + lines(5000, "line %d\n"),
		"```\n" + strings.Repeat("y", 200_000), "|a|b|\n|-|-|\n" + lines(3000, "|%d|x|\n"), lines(3000, "- item %d\n"), lines(2000, "para %d\n\n"),
		"# " + strings.Repeat("h", 50_000), "|a|\n|-|\n|" + strings.Repeat("c", 50_000),
	} {
		var same bool
		p.eval(&same, `(() => {
			const text = $0, draw = (pieces) => {
				const root = document.createElement('div'), markdown = new Markdown(root);
				for (const piece of pieces) markdown.append(piece);
				markdown.finish();
				root.normalize();
				return root.innerHTML;
			};
			return draw(text.match(/[^]{1,997}/g)) === draw([text]);
		})()`, text)
		if !same {
			t.Errorf("%.40q is read differently in pieces", text)
		}
	}
}

// TestMarkdownOfTheHostile holds texts made to be slow or deep to bounded trees.
func TestMarkdownOfTheHostile(t *testing.T) {
	_, p := open(t, view{})
	for _, text := range []string{
		strings.Repeat("> ", 3000) + "x", strings.Repeat("- ", 2000) + "x", strings.Repeat(">- ", 1000) + "x", strings.Repeat("*a _b ", 5000),
		strings.Repeat("**a", 8000), strings.Repeat("*", 20000) + "a" + strings.Repeat("*", 20000), strings.Repeat("[", 20000),
		strings.Repeat("[a](", 5000), strings.Repeat("[a](<", 4000), strings.Repeat("`", 9000) + "a", strings.Repeat("`a``b", 4000),
		strings.Repeat("<", 20000), strings.Repeat("&", 20000), strings.Repeat("http://", 3000), strings.Repeat(`\(`, 9000), strings.Repeat("$a", 9000),
		strings.Repeat(" ", 100_000) + "x", "a" + strings.Repeat(" ", 50_000) + "\nb", strings.Repeat("|", 20000) + "\n" + strings.Repeat("|-", 20000),
		"---" + strings.Repeat(" ", 20000) + "x", "# a" + strings.Repeat(" #", 2000) + "x", strings.Repeat("![", 9000), strings.Repeat("*a **b ", 2000) + strings.Repeat("b** a* ", 2000),
		lines(3000, "> - %d\n"), strings.Repeat("a\n", 30_000), strings.Repeat("\n", 100_000) + "x",
	} {
		var depth int
		p.eval(&depth, `(() => {
			const root = document.createElement('div'), markdown = new Markdown(root);
			markdown.append($0);
			markdown.finish();
			const depths = new Map([[root, 0]]);
			for (const e of root.querySelectorAll('*')) depths.set(e, depths.get(e.parentNode) + 1);
			return Math.max(...new Set(depths.values()));
		})()`, text)
		if depth > 64 {
			t.Errorf("%.20q makes a tree %d deep", text, depth)
		}
	}
}

func TestHighlight(t *testing.T) {
	_, p := open(t, view{})
	for _, test := range []struct{ language, code, want string }{
		{"go", "func f() { // x\n\treturn \"a\\\"b\" + 'c' + 0x1F }", `[k|func] f() { [c|// x]` + "\n\t" + `[k|return] [s|"a\"b"] + [s|'c'] + [n|0x1F] }`},
		{"Python", "def f(x): # y\n  return '''a\nb''' + 'c", "[k|def] f(x): [c|# y]\n  [k|return] [s|'''a\nb'''] + [s|'c]"},
		{"rust", "fn f<'a>(x: &'a str)", "[k|fn] f<'a>(x: &'a str)"},
		{"sql", "SELECT a FROM b -- c", "[k|SELECT] a [k|FROM] b [c|-- c]"},
		{"html", "<p class=\"a\">it's</p><!-- x", `<p class=[s|"a"]>it's</p>[c|<!-- x]`},
		{"bash", "echo a#b # c", "echo a#b [c|# c]"},
		{"json", `{"a": [1.5, true]}`, `{[s|"a"]: [[n|1.5], [k|true]]}`},
		{"unknown", "func", "func"},
		{"constructor", "func", "func"},
	} {
		var got, plain string
		p.eval(&got, `highlight($0, $1).map((n) => typeof n === 'string' ? n : '[' + n.className + '|' + n.textContent + ']').join('')`, test.code, test.language)
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.language, got, test.want)
		}
		p.eval(&plain, `highlight($0, $1).map((n) => n.textContent ?? n).join('')`, test.code, test.language)
		if plain != test.code {
			t.Errorf("%s: text %q of %q", test.language, plain, test.code)
		}
	}
}
