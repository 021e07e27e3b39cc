package model

// A Replayer is a backend that keeps what passes recorded. The operators that a program calls, and their arguments, are the same
// in every pass of a kind; so a pass whose shape has come before can be run as it was recorded then.
type Replayer interface {
	// Replay begins a pass of a program, which is any comparable value that stands for it, and reports whether the pass is known:
	// then no operator is called before it ends.
	Replay(p *Pass, program any) (known bool, err error)
}

// A program calls the operators of a pass after Begin: those of its kind, whatever its segments.
type program interface{ steps(k Kind) }

// begin begins a pass of a program, up to its end.
func begin(b Backend, p *Pass, x program) error {
	r, ok := b.(Replayer)
	if !ok {
		if err := b.Begin(p); err != nil {
			return err
		}
		x.steps(p.Kind)
		return nil
	}
	known, err := r.Replay(p, x)
	if err == nil && !known {
		x.steps(p.Kind)
	}
	return err
}
