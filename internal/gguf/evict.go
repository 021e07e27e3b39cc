package gguf

import (
	"errors"

	"splash/internal/filemap"
)

// Evict lets the system take back the memory of the mapped files. Their bytes are read again when they are used.
func (f *File) Evict() error {
	var errs []error
	for _, bytes := range f.maps[:min(len(f.maps), len(f.Paths))] { // what FromBytes got is not mapped
		errs = append(errs, filemap.Evict(bytes))
	}
	return errors.Join(errs...)
}
