package chat

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"splash/internal/chat/jinja"
)

// patch returns the template changed to render later system messages in place, with the block that it gives a leading
// one. It works where one construct of the source is responsible for rejecting or dropping them, and only if verify
// finds nothing else changed.
func (t *Template) patch(ctx context.Context) (*jinja.Template, bool) {
	site, ok := findSite(t.main, t.Original)
	if !ok {
		return nil, false
	}
	before, after, ok := t.systemBlock(ctx)
	if !ok {
		return nil, false
	}
	source := t.main.Source
	block := fmt.Sprintf("{{- '%s' + (%s.content|trim) + '%s' -}}", quote(before), site.message, quote(after))
	if t.Original == Drops {
		block = site.beforeCondition(source[site.tag.Start:site.tag.End], block)
	}
	patched, err := reparse(source[:site.tag.Start] + block + source[site.tag.End:])
	return patched, err == nil && t.verify(ctx, patched)
}

// A site is the tag of a template's source that is responsible, in a loop whose variable is named message.
type site struct {
	tag     jinja.Span
	message string
}

// beforeCondition puts the block before the condition of an if tag, which becomes an elif. The white space control of
// the tag stays at its two ends.
func (s site) beforeCondition(tag, block string) string {
	open := 2
	if tag[open] == '-' || tag[open] == '+' {
		open++
	}
	condition := strings.TrimLeftFunc(tag[open:], unicode.IsSpace)[len("if"):]
	return fmt.Sprintf("%s if not loop.first and %s.role == 'system' %%}%s{%% elif%s", tag[:open], s.message, block, condition)
}

// systemBlock returns what the template writes before and after the text of a leading system message: what the
// conversation with one has more than the conversation without.
func (t *Template) systemBlock(ctx context.Context) (before, after string, ok bool) {
	off := Variables{Effort: "none"}
	user := Message{Role: RoleUser, Text: canaryQuestion}
	system := Message{Role: RoleSystem, Text: canaryMarker}
	with, err := t.render(ctx, t.main, Request{Messages: []Message{system, user}, Variables: off, limits: probeLimits})
	if err != nil {
		return "", "", false
	}
	without, err := t.render(ctx, t.main, Request{Messages: []Message{user}, Variables: off, limits: probeLimits})
	if err != nil {
		return "", "", false
	}
	block, ok := strings.CutSuffix(with, without)
	if !ok || strings.Count(block, canaryMarker) != 1 {
		return "", "", false
	}
	return strings.Cut(block, canaryMarker)
}

// quote escapes text for a literal in single quotes.
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// findSite looks through the loops over messages for the one tag that rejects or drops later system messages.
func findSite(t *jinja.Template, how Behavior) (site, bool) {
	found := map[site]bool{}
	walk(t.Body, func(s jinja.Stmt) {
		loop, ok := s.(*jinja.For)
		if !ok || loop.Filter != nil || loop.Target.Tuple {
			return
		}
		if over, ok := loop.Iter.(*jinja.Name); !ok || over.Name != "messages" {
			return
		}
		message := loop.Target.Names[0]
		if how == Drops {
			dropSites(loop, message, found)
		} else {
			rejectSites(loop, message, found)
		}
	})
	for s := range found {
		return s, len(found) == 1
	}
	return site{}, false
}

// rejectSites finds the tags that raise in a branch for system messages.
func rejectSites(loop *jinja.For, message string, found map[site]bool) {
	walk(loop.Body, func(s jinja.Stmt) {
		cond, ok := s.(*jinja.If)
		if !ok {
			return
		}
		for _, b := range cond.Branches {
			if b.Test == nil || !anyOperand(b.Test, "or", func(e jinja.Expr) bool { return testsRole(e, message, "==") }) {
				continue
			}
			walk(b.Body, func(s jinja.Stmt) {
				if out, ok := s.(*jinja.Output); ok && raises(out.Expr) {
					found[site{out.Tag, message}] = true
				}
			})
		}
	})
}

// dropSites finds the conditions right in the loop's body that leave system messages out.
func dropSites(loop *jinja.For, message string, found map[site]bool) {
	for _, s := range loop.Body {
		cond, ok := s.(*jinja.If)
		if !ok || len(cond.Branches) != 1 {
			continue
		}
		b := cond.Branches[0]
		if anyOperand(b.Test, "and", func(e jinja.Expr) bool { return testsRole(e, message, "!=") }) {
			found[site{b.Tag, message}] = true
		}
	}
}

// walk visits statements and those inside them.
func walk(stmts []jinja.Stmt, visit func(jinja.Stmt)) {
	for _, s := range stmts {
		visit(s)
		switch s := s.(type) {
		case *jinja.If:
			for _, b := range s.Branches {
				walk(b.Body, visit)
			}
		case *jinja.For:
			walk(s.Body, visit)
			walk(s.Else, visit)
		case *jinja.SetBlock:
			walk(s.Body, visit)
		case *jinja.Macro:
			walk(s.Body, visit)
		case *jinja.Block:
			walk(s.Body, visit)
		}
	}
}

// anyOperand reports whether is holds for an expression or for one of the operands that op joins in it.
func anyOperand(e jinja.Expr, op string, is func(jinja.Expr) bool) bool {
	if l, ok := e.(*jinja.Logic); ok && l.Op == op {
		return anyOperand(l.Left, op, is) || anyOperand(l.Right, op, is)
	}
	return is(e)
}

// testsRole reports whether e compares the message's role with "system" by op.
func testsRole(e jinja.Expr, message, op string) bool {
	c, ok := e.(*jinja.Compare)
	if !ok || len(c.Ops) != 1 || c.Ops[0] != op {
		return false
	}
	return isRole(c.First, message) && isSystem(c.Rest[0]) || isSystem(c.First) && isRole(c.Rest[0], message)
}

func isSystem(e jinja.Expr) bool {
	c, ok := e.(*jinja.Const)
	return ok && c.Value == RoleSystem
}

// isRole reports whether e is message.role or message['role'].
func isRole(e jinja.Expr, message string) bool {
	var of jinja.Expr
	switch e := e.(type) {
	case *jinja.Attr:
		if e.Name != "role" {
			return false
		}
		of = e.Value
	case *jinja.Item:
		if c, ok := e.Index.(*jinja.Const); !ok || c.Value != "role" {
			return false
		}
		of = e.Value
	}
	name, ok := of.(*jinja.Name)
	return ok && name.Name == message
}

// raises reports whether evaluating e calls raise_exception.
func raises(e jinja.Expr) bool {
	if call, ok := e.(*jinja.Call); ok {
		if name, ok := call.Func.(*jinja.Name); ok && name.Name == "raise_exception" {
			return true
		}
	}
	for _, x := range jinja.Operands(e) {
		if x != nil && raises(x) {
			return true
		}
	}
	return false
}
