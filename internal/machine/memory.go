// Package machine says what there is to compute with.
package machine

// Memory is the bytes of memory that this process may use: the machine's, or what its container leaves it; 0 where that is
// not known.
func Memory() int64 { return memory() }
