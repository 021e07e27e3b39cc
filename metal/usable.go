package metal

import (
	"slices"
	"strconv"
	"strings"
)

// Usable says why this build can run no target; nil where it can.
func Usable() error {
	if len(Devices()) > 0 {
		return nil
	}
	_, err := Open(gpu)
	return err
}

// gpu is the kind of the device that is the GPU of a Mac.
const gpu = "metal"

// HasGPU reports whether a GPU is among the devices.
func HasGPU() bool { return slices.Contains(Devices(), gpu) }

// fastInt8 reports whether the device of that name multiplies integers of 8 bits at twice the rate of floats: an Apple GPU of the
// M5 or later.
func fastInt8(name string) bool {
	rest, ok := strings.CutPrefix(name, "Apple M")
	number, _, _ := strings.Cut(rest, " ")
	generation, err := strconv.Atoi(number)
	return ok && err == nil && generation >= 5
}

// A Footprint is what a target and its draft take of a device's memory, in bytes. The table of n-grams, which stays in its file, is
// among the images.
type Footprint struct {
	Images int64
	Passes int64 // activations, scratch, and weights that are not read from an image as they stand there
	Graphs int64 // of the CPU's: passes that are kept to be replayed, at most
	Lane   int64 // of a lane without tokens
	Token  int64 // of each token of it
}

// A Traffic is what a pass takes: dispatches, and the bytes that its operators read and write, each of an operator's inputs and
// results once.
type Traffic struct {
	Dispatches  int   `json:"dispatches"`
	Choosing    int   `json:"choosing"` // of the dispatches, those that choose tokens from its logits
	Weights     int64 `json:"weights"`  // of routed experts, those of routes that all differ
	States      int64 `json:"states"`   // recurrent states and inputs of convolutions
	KV          int64 `json:"keys_and_values"`
	Activations int64 `json:"activations"`

	// Loads are all bytes that threadgroups ask for: every threadgroup of a projection reads its rows' inputs, which caches are
	// for.
	Loads int64 `json:"loads"`
}

// Total is the bytes of a pass together.
func (t *Traffic) Total() int64 { return t.Weights + t.States + t.KV + t.Activations }
