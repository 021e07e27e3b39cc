//go:build unix && !linux

package filemap

// largePages does nothing: the system chooses.
func largePages([]byte) {}
