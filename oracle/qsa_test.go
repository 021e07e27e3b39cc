package oracle_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

// TestIndexer was worked with Python's math module: heads of 6 values, the first 4 rotated with base 100, F32 angles.
func TestIndexer(t *testing.T) {
	freq := oracle.RopeFrequencies(100, 4)
	raw := []float64{
		1, 2, -1, 0.5, 3, -2,
		0.5, -1, 2, 1, 0, 1,
		-1, 0, 1, 2, 1, 0.25,
		2, 1, 0, -0.5, 1, 1.75,
	}
	key := make([]float64, 6)
	oracle.IndexerKey(key, raw, []float64{1, 0.5, 2, 1, 1.5, 0.75}, oracle.Position{T: 8, H: 9, W: 9}, freq, 1e-6)
	wantNear(t, "key", key, []float64{-1.5082549193805472, -0.603266235705644, 0.6601679429728375, 0.9243060022689458,
		2.6177812208953455, 0.26177812208953455}, 1e-12)

	q := []float64{1, -1, 0.5, 2, 0.25, 1, -2, 0.5, 1, -1, -1.5, 0.5}
	oracle.IndexerQuery(q, []float64{0.5, 1, 1, 2, 1, 1}, oracle.Position{T: 21, H: 22, W: 23}, freq, 1e-6)
	wantNear(t, "queries", q, []float64{-0.6270026336813657, -2.396335953327902, 0.13085782740315266, -2.864660626045166,
		0.22645531392419402, 0.9058212556967761, -0.23925368940035907, 1.0953342059357283, -1.1463792143655476,
		1.3093993635353904, -1.2421175809474259, 0.41403919364914193}, 1e-12)

	// Only the first head's product, 0.65980816, is positive.
	wantNear(t, "score", []float64{oracle.IndexerScore(q, key)}, []float64{0.26936555491119474}, 1e-12)
}

func TestIndexerScore(t *testing.T) {
	key := []float64{1, -1, 1, -1}
	// Heads' products 4, -4, 2: (4 + 0 + 2) / 2.
	q := []float64{1, -1, 1, -1, -1, 1, -1, 1, 2, 0, 0, 0}
	wantNear(t, "score", []float64{oracle.IndexerScore(q, key)}, []float64{3}, 0)
}

func TestSparseSeen(t *testing.T) {
	nan := math.NaN()
	all := func(n int) string { return "1111111111111111111111111111111111111111"[:n] }
	for _, c := range []struct {
		name   string
		index  int
		scores []float64
		want   string
	}{
		// The tiny family: blocks of 4, a budget of 4 blocks. Rows up to index 18 have 4 complete blocks at most.
		{"first row", 0, nil, all(1)},
		{"last dense row", 18, nil, all(19)},
		{"first sparse row, no tail", 19, []float64{5, 4, 3, 2, 1}, "1111111111111111" + "0000"},
		{"its own block wins", 19, []float64{5, 4, 1, 2, 3}, "1111111100001111" + "1111"},
		{"a tail of one", 20, []float64{1, 4, 3, 2, 5}, "0000111111111111" + "1111" + "1"},
		{"a tail of three", 22, []float64{3, 2, 1, 4, 5}, "1111111100001111" + "1111" + "111"},
		{"ties to the earlier block", 24, []float64{1, 1, 1, 1, 1, 1}, "1111111111111111" + "00000000" + "1"},
		{"ties below a winner", 24, []float64{1, 1, 1, 1, 1, 2}, "111111111111" + "0000" + "00001111" + "1"},
		{"zeros are scores", 20, []float64{0, 0, 0, 0, 1}, "111111111111" + "00001111" + "1"},
		{"NaN loses", 20, []float64{nan, 0, -1, 0, 0}, "0000" + "1111111111111111" + "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := make([]bool, c.index+1)
			oracle.SparseSeen(seen, c.scores, c.index, 4, 4)
			got := make([]byte, len(seen))
			for i, s := range seen {
				got[i] = '0'
				if s {
					got[i] = '1'
				}
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("seen (-want +got)\n%s", diff)
			}
		})
	}
}

// TestSparseSeenRanks holds the choice to its definition, for every row of a sequence of random scores with ties.
func TestSparseSeenRanks(t *testing.T) {
	const block, budget, length = 4, 6, 150
	scores := normals(7, length/block)
	for i := range scores {
		scores[i] = math.Max(0, math.Round(2*scores[i]))
	}
	for index := range length {
		complete := (index + 1) / block
		if got := oracle.SparseBlocks(index, block); got != complete {
			t.Fatalf("%d complete blocks at %d, want %d", got, index, complete)
		}
		seen := make([]bool, index+1)
		oracle.SparseSeen(seen, scores[:complete], index, block, budget)
		count := 0
		for i := range seen {
			want := true
			if b := i / block; b < complete {
				better := 0
				for o := range complete {
					if scores[o] > scores[b] || scores[o] == scores[b] && o < b {
						better++
					}
				}
				want = better < budget
			}
			if seen[i] != want {
				t.Fatalf("row %d: token %d seen %v, want %v", index, i, seen[i], want)
			}
			if seen[i] {
				count++
			}
		}
		if want := min(index+1, budget*block+(index+1)%block); count != want {
			t.Errorf("row %d sees %d tokens, want %d", index, count, want)
		}
	}
}
