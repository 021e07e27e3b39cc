// Package kernels holds the Metal sources of the operators. They are compiled by Metal on a Mac, and everywhere else by
// the C++ compiler for the host device (splash/metal/host).
package kernels

import "embed"

// Sources are the kernels and their headers.
//
//go:embed *.metal *.h
var Sources embed.FS
