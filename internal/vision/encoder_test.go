package vision

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEncoder(t *testing.T) {
	tower := tinyTower(t)
	e := NewEncoder(tower)
	row := int64(4 * tower.Width())
	e.limit = 2 * row
	encode := func(i byte) []float32 {
		rows, err := e.Encode(t.Context(), Digest{i}, randomPixels(uint64(i), 2, 2), 2, 2)
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	first := encode(1)
	want, err := tower.Encode(t.Context(), randomPixels(1, 2, 2), 2, 2)
	if err != nil || !slices.Equal(first, want) {
		t.Errorf("%v, or other rows", err)
	}
	encode(2)
	if &first[0] != &encode(1)[0] {
		t.Error("rows that are kept were made anew")
	}
	encode(3) // takes the place of 2
	encode(1)
	encode(2)
	if diff := cmp.Diff(Stats{Encodes: 4, Reuses: 2, Weights: tower.Bytes(), Kept: 2 * row}, e.Stats()); diff != "" {
		t.Error(diff)
	}
	if rows, err := e.Encode(t.Context(), Digest{9}, randomPixels(9, 2, 6), 2, 6); err != nil || int64(4*len(rows)) != 3*row {
		t.Errorf("an image larger than all that is kept: %v", err)
	}
	if _, err := e.Encode(t.Context(), Digest{8}, nil, 2, 2); err == nil {
		t.Error("no pixels are an image")
	}
}

func TestEncoderWaits(t *testing.T) {
	e := NewEncoder(tinyTower(t))
	<-e.turn
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := e.Encode(ctx, Digest{1}, randomPixels(1, 2, 2), 2, 2); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := e.Encode(t.Context(), Digest{1}, randomPixels(1, 2, 2), 2, 2); err != nil {
				t.Error(err)
			}
		})
	}
	e.turn <- struct{}{}
	all.Wait()
	if s := e.Stats(); s.Encodes != 1 || s.Reuses != 3 {
		t.Errorf("one image for four requests: %+v", s)
	}
}
