package reference

import (
	"errors"
	"fmt"

	"splash/internal/model"
)

// Save keeps a copy of the lane's states.
func (b *Backend) Save(h model.Lane) (model.Checkpoint, int64, error) {
	l, err := b.lane(h)
	if err != nil {
		return 0, 0, err
	}
	saved := l.copy()
	var bytes int64
	for _, s := range saved.states {
		bytes += int64(s.size())
	}
	for i, old := range b.saved {
		if old == nil {
			b.saved[i] = saved
			return model.Checkpoint(i), bytes, nil
		}
	}
	b.saved = append(b.saved, saved)
	return model.Checkpoint(len(b.saved) - 1), bytes, nil
}

// copy is a lane with the same rows, none of which can be taken back.
func (l *lane) copy() *lane {
	c := &lane{length: l.length}
	for _, s := range l.states {
		c.states = append(c.states, s.clone())
	}
	return c
}

var errNoCheckpoint = errors.New("reference: no such checkpoint")

// Resume gives a lane a copy of the checkpoint's states.
func (b *Backend) Resume(h model.Lane, c model.Checkpoint) error {
	l, err := b.lane(h)
	if err != nil {
		return err
	}
	if c < 0 || int(c) >= len(b.saved) || b.saved[c] == nil {
		return fmt.Errorf("%w: %d", errNoCheckpoint, c)
	}
	if l.length != 0 {
		return fmt.Errorf("reference: lane %d has %d rows and cannot resume", h, l.length)
	}
	*l = *b.saved[c].copy()
	return nil
}

// Drop lets go of a checkpoint.
func (b *Backend) Drop(c model.Checkpoint) { b.saved[c] = nil }
