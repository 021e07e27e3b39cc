// Package conformance holds every backend to the oracle and to the goldens of a public implementation.
//
// Its tests run offline, from the repository alone.
package conformance

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// A Golden is a model's numbers as llama.cpp computes them on the file's own values in F32 (fixtures/tiny/README.md).
type Golden struct {
	Tokens []int32       // the T ids the model reads
	Logits [][]float32   // [T][V]
	Hidden [][][]float32 // [L][T][H], the residual after each layer
	Final  [][]float32   // [T][H], after the final norm

	Router [][][]float32 // [L][T][E] router logits; nil for a dense model
	Taken  [][][]int32   // [L][T][K] experts by falling logit
}

// ReadGolden reads a .logits.bin file.
func ReadGolden(path string) (*Golden, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	g, err := readGolden(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func readGolden(r io.Reader) (*Golden, error) {
	var head struct {
		Magic                        [8]byte
		Version, T, V, L, H, P, E, K uint32
	}
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return nil, err
	}
	if string(head.Magic[:]) != "SPLDLG01" || head.Version != 1 {
		return nil, fmt.Errorf("not a golden file of version 1: %q version %d", head.Magic, head.Version)
	}
	t, v, l, h, p, e, k := int(head.T), int(head.V), int(head.L), int(head.H), int(head.P), int(head.E), int(head.K)
	if t > 1<<12 || v > 1<<20 || l > 1<<8 || h > 1<<16 || p > t || e > 1<<12 || k > e {
		return nil, fmt.Errorf("sizes out of range: %+v", head)
	}
	g := &Golden{Tokens: make([]int32, t)}
	d := decoder{r: r}
	d.read(g.Tokens)
	g.Logits = floats(&d, t, v)
	for range l {
		g.Hidden = append(g.Hidden, floats(&d, t, h))
	}
	g.Final = floats(&d, t, h)
	d.read(make([]int32, p))
	floats(&d, 2*p, v) // the reference's own rounding path, which shows how far it strays
	for range l {
		if e > 0 {
			g.Router = append(g.Router, floats(&d, t, e))
		}
	}
	for range l {
		if e == 0 {
			break
		}
		layer := make([][]int32, t)
		for i := range layer {
			layer[i] = make([]int32, k)
			d.read(layer[i])
		}
		g.Taken = append(g.Taken, layer)
	}
	return g, d.err
}

type decoder struct {
	r   io.Reader
	err error
}

func (d *decoder) read(data any) {
	if d.err == nil {
		d.err = binary.Read(d.r, binary.LittleEndian, data)
	}
}

func floats(d *decoder, rows, cols int) [][]float32 {
	out := make([][]float32, rows)
	for i := range out {
		out[i] = make([]float32, cols)
		d.read(out[i])
	}
	return out
}
