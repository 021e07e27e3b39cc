package gguf

import "bytes"

// FromBytes reads a whole GGUF that is in memory, such as an embedded one. name stands for it in messages. data is the
// file's until Close, and is not changed.
func FromBytes(name string, data []byte) (*File, error) {
	h, err := Parse(bytes.NewReader(data), int64(len(data)), name)
	if err != nil {
		return nil, err
	}
	if h, err = Join([]*Header{h}); err != nil {
		return nil, err
	}
	return &File{Header: h, maps: [][]byte{data}}, nil
}
