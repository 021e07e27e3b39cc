package safetensors

import (
	"errors"
	"fmt"

	"splash/internal/filemap"
)

// Evict lets the system take back the memory of the mapped files. Their bytes are read again when they are used.
func (c *Checkpoint) Evict() error {
	var errs []error
	for _, m := range c.maps {
		if m.path == "" { // what FromBytes got is not mapped
			continue
		}
		if err := filemap.Evict(m.data); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.path, err))
		}
	}
	return errors.Join(errs...)
}
