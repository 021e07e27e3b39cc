//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package gguf

// syncFolder does nothing where folders are not known to be files that can be synchronized.
func syncFolder(string) error { return nil }
