package chat

import "strings"

// A Reply is a whole answer.
type Reply struct {
	Reasoning string
	Content   string
	Calls     []ReplyCall
}

// A ReplyCall is a tool call of an answer.
type ReplyCall struct {
	Name      string
	Arguments string // JSON, unfinished where the call is not complete
	Complete  bool
}

// A Collector joins events to a Reply. Its zero value is ready to use.
type Collector struct {
	reasoning, content strings.Builder
	calls              []*collectedCall
}

type collectedCall struct {
	name      string
	arguments strings.Builder
	complete  bool
}

// Add takes the events of a parser in order.
func (c *Collector) Add(events []Event) {
	for _, e := range events {
		switch e.Kind {
		case ReasoningDelta:
			c.reasoning.WriteString(e.Text)
		case ContentDelta:
			c.content.WriteString(e.Text)
		case CallStart:
			c.calls = append(c.calls, &collectedCall{name: e.Text})
		case ArgumentsDelta:
			c.calls[e.Call].arguments.WriteString(e.Text)
		case CallEnd:
			c.calls[e.Call].complete = true
		}
	}
}

// Reply returns the answer so far.
func (c *Collector) Reply() Reply {
	r := Reply{Reasoning: c.reasoning.String(), Content: c.content.String()}
	for _, call := range c.calls {
		r.Calls = append(r.Calls, ReplyCall{call.name, call.arguments.String(), call.complete})
	}
	return r
}
