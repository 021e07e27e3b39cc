// Package amxtest lets tests run the instructions of Intel's Advanced Matrix Extensions on machines that lack them. To
// import it is enough:
//
//	import _ "splash/internal/cpu/amxtest"
//
// On Linux on amd64, where tests are built with cgo and the processor has AVX-512, an instruction that the processor does
// not know raises SIGILL. A handler then carries out those of tiles as Intel's manual says, on tiles that it keeps for each
// thread, and goes on behind them. All else is left to the handler that was there before. Elsewhere the package does
// nothing. Where the machine has tiles, they are what is tested.
package amxtest
