package reference

import "splash/internal/model"

var _ model.Unloader = (*Backend)(nil)

// Unload forgets the network. Checkpoints are copies and stay.
func (b *Backend) Unload() {
	b.matrices, b.experts, b.vectors, b.buffers = nil, nil, nil, nil
	b.states, b.lanes = nil, nil
	b.cache = cachedWeights
}
