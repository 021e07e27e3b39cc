package metal

import "slices"

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
