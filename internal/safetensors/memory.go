package safetensors

import "bytes"

// FromBytes reads a whole file that is in memory, such as an embedded one. name stands for it in messages. data is the
// checkpoint's until Close, and is not changed.
func FromBytes(name string, data []byte) (*Checkpoint, error) {
	h, err := Parse(bytes.NewReader(data), int64(len(data)), name)
	if err != nil {
		return nil, err
	}
	c, err := Join([]*Header{h})
	if err != nil {
		return nil, err
	}
	c.maps = []mapping{{data: data}}
	return c, nil
}
