//go:build !(darwin || freebsd || linux)

package hub

import "errors"

// freeSpace is not known here; a download is tried.
func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
