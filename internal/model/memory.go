package model

// A Sizer is a backend that says what lanes take.
type Sizer interface {
	// LaneBytes returns the bytes of a lane without rows, and those that each of its tokens adds.
	LaneBytes() (lane, token int64)
}

// A Sharer is a backend whose buffers can lie in the same memory.
type Sharer interface {
	// Share lets the buffers of different groups overlap: what is in those of one is of no use once those of another are
	// written. It is called before the first pass.
	Share(groups [][]Buffer)
}

// An Unloader is a backend that lets go of its weights and keeps its checkpoints. No lane may be open.
type Unloader interface {
	// Unload forgets the network: its tensors, buffers and declared states. The same network is then loaded again.
	Unload()
}

// PortablePage is the number of tokens of a page of a checkpoint that leaves its backend.
const PortablePage = 32

// A Portable backend's checkpoints can be written elsewhere and read back, as far as they are of whole pages: what each
// page's tokens left in the states that grow with them, and what the others hold after the last. A page depends on no token
// after it, so checkpoints of prompts that begin alike share the bytes of their first pages.
type Portable interface {
	// PortableShape returns the bytes of a page, and of the other states at most.
	PortableShape() (page, state int)
	// ExportPage writes a page of a checkpoint, ExportState its other states, whose length it returns.
	ExportPage(dst []byte, c Checkpoint, page int) error
	ExportState(dst []byte, c Checkpoint) (n int, err error)
	// Import makes a checkpoint of so many tokens, whose parts ImportPage and ImportState then read. Bytes that no export
	// wrote are an error, or give a checkpoint of no use. bytes is what it takes.
	Import(tokens int) (c Checkpoint, bytes int64, err error)
	ImportPage(c Checkpoint, page int, src []byte) error
	ImportState(c Checkpoint, src []byte) error
}
