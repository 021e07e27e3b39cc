package target

import (
	"context"
	"errors"
	"io"
	"runtime/debug"

	"splash/internal/engine"
	"splash/internal/model"
)

// A loader builds a target's networks, the first one and those that an engine asks for later, on the files that the target
// has open. It is the engine's from the first one on.
type loader struct {
	t       *Target
	backend Backend
	source  *source
	draft   *draftFiles // nil: none
	o       Options

	open     model.Backend // nil: there is none
	unloaded bool          // it has no network
}

// A reloader is a model.Unloader that opens its images again before its network is built.
type reloader interface {
	Reload(ctx context.Context, progress func(done, total int64)) error
}

// Load builds the network and its draft's proposer.
func (l *loader) Load(ctx context.Context, progress func()) (model.Network, engine.Proposer, error) {
	net, proposer, err := l.load(ctx, func(done, total int64) { progress() })
	if err != nil {
		l.Discard()
	}
	return net, proposer, err
}

// Release lets go of the weights. Where the backend can, it stays, with what it keeps of prompts.
func (l *loader) Release() {
	if u, ok := l.open.(model.Unloader); ok {
		u.Unload()
		l.unloaded = true
	} else {
		l.closeBackend()
	}
	l.evict()
}

// Discard closes a backend at fault.
func (l *loader) Discard() {
	l.closeBackend()
	l.evict()
}

// Close closes the backend.
func (l *loader) Close() error { return l.closeBackend() }

func (l *loader) closeBackend() error {
	b := l.open
	l.open, l.unloaded = nil, false
	if c, ok := b.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// evict gives the memory of weights back: that of the files, as far as they are mapped, and that of copies.
func (l *loader) evict() {
	errs := []error{l.source.files.Evict()}
	if l.draft != nil {
		errs = append(errs, l.draft.files.Evict())
	}
	if err := errors.Join(errs...); err != nil {
		l.o.log("Weights could not be evicted: " + err.Error())
	}
	debug.FreeOSMemory()
}

// load opens a backend, unless the last one stayed, and builds the network on it.
func (l *loader) load(ctx context.Context, report func(done, total int64)) (net model.Network, p engine.Proposer, err error) {
	if err := l.source.changed(); err != nil {
		return nil, nil, err
	}
	if l.open == nil || !l.unloaded {
		l.closeBackend()
		o := l.t.opening(l.source, l.draft, &l.o)
		o.Progress = report
		l.open, err = l.backend.Open(ctx, o)
		if err != nil {
			l.open = nil
			return nil, nil, err
		}
	} else if r, ok := l.open.(reloader); ok {
		if err := r.Reload(ctx, report); err != nil {
			return nil, nil, err
		}
	}
	l.unloaded = false
	m := &meter{ctx: ctx, report: report}
	if err := m.count(l.source.weights, l.source.plan.Tensors); err != nil {
		return nil, nil, err
	}
	var taps []int
	if l.draft != nil {
		taps = l.draft.sizes.Taps
		if err := m.count(l.draft.weights, l.draft.tensors); err != nil {
			return nil, nil, err
		}
	}
	if net, err = model.New(l.open, l.source.plan, metered{l.source.weights, m}, model.Options{Taps: taps}); err != nil {
		return nil, nil, err
	}
	if l.draft != nil {
		if p, err = l.draft.proposer(net, metered{l.draft.weights, m}, l.o); err != nil {
			return nil, nil, err
		}
	}
	return net, p, nil
}
