//go:build !unix

package planner

import (
	"context"
	"errors"
	"io"
	"os"
)

// Backends that read images run on Unix systems alone.
var errNoImages = errors.New("weight images are not available on this system")

func (s *ImageSource) identify(*os.File) error { return errNoImages }

func syncDir(string) error { return errNoImages }

func lockFile(context.Context, string, bool, func()) (io.Closer, error) { return nil, errNoImages }
