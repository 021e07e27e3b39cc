// Package amx says whether a program may use the tiles of Intel's Advanced Matrix Extensions.
//
// Tiles are eight kilobytes more that a thread's state can have, so Linux gives them to a program only when it asks, and
// from then on makes room for them in what a signal handler is given. A function in assembly must configure tiles, use them
// and release them before it returns: nothing keeps a goroutine on its thread after that.
package amx

import "sync/atomic"

// emulated says that something else carries out the instructions.
var emulated atomic.Bool

// Emulate says that the instructions are carried out although the machine does not have them. Tests of the kernels do
// that (package amxtest); a program never does.
func Emulate() { emulated.Store(true) }

// Runs reports whether the instructions of tiles, of bytes and of bfloat16 numbers can be carried out.
func Runs() bool { return emulated.Load() || Present() }

// Present reports whether the machine has the instructions and the system gives them to this program. The first call asks
// for them.
func Present() bool { return present() }
