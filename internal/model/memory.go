package model

// A Sizer is a backend that says what lanes take.
type Sizer interface {
	// LaneBytes returns the bytes of a lane without rows, and those that each of its tokens adds.
	LaneBytes() (lane, token int64)
}

// An Unloader is a backend that lets go of its weights and keeps its checkpoints. No lane may be open.
type Unloader interface {
	// Unload forgets the network: its tensors, buffers and declared states. The same network is then loaded again.
	Unload()
}
