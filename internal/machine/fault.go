package machine

import "fmt"

// Unreadable is the error of a panic that reading mapped memory ended in, where debug.SetPanicOnFault makes such reads
// panic: a file that has become shorter under its mapping, as a rule. It is nil for any other panic.
func Unreadable(panicked any) error {
	f, ok := panicked.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		return nil
	}
	return fmt.Errorf("memory at %#x cannot be read, as where a file of the model was cut short", f.Addr())
}
