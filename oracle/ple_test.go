package oracle_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"splash/oracle"
)

// TestDerivePLEHash is models.md 17.7 and 16: the arrays of the released model and of the tiny one.
func TestDerivePLEHash(t *testing.T) {
	for _, c := range []struct {
		name                string
		vocabulary, perSize int
		base                uint64
		want                oracle.PLEHash
		rows                uint64
	}{
		{"released", 248320, 8, 20_000_000, oracle.PLEHash{
			EOS:         248044,
			Multipliers: []uint64{23703573157769, 20109073645365, 8052911324071},
			Vocab: []uint64{20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
				20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171},
			Offsets: []uint64{0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297,
				160000374, 180000455, 200000548, 220000655, 240000802, 260000955, 280001114, 300001275},
		}, 320001536},
		{"tiny", 2048, 4, 500, oracle.PLEHash{
			EOS:         2000,
			Multipliers: []uint64{4295158889771065, 3929419265628323, 1270917961438207},
			Vocab:       []uint64{503, 509, 521, 523, 541, 547, 557, 563},
			Offsets:     []uint64{0, 503, 1012, 1533, 2056, 2597, 3144, 3701},
		}, 4352},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := oracle.DerivePLEHash(c.vocabulary, 3, c.perSize, c.base, c.want.EOS)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("arrays (-want +got)\n%s", diff)
			}
			if got := got.TableRows(); got != c.rows {
				t.Errorf("%d table rows, want %d", got, c.rows)
			}
		})
	}
}

func TestPLERows(t *testing.T) {
	for _, c := range []struct {
		name string
		hash oracle.PLEHash
		u    []int32
		want []uint64
	}{
		{"released", oracle.DerivePLEHash(248320, 3, 8, 20_000_000, 248044), []int32{9707, 1879, 248044},
			[]uint64{12263491, 22922798, 58453326, 60420924, 99459253, 105848191, 135471831, 148378243,
				178833431, 187501737, 212525788, 221955843, 249566755, 277489733, 293533460, 314271712}},
		{"tiny", oracle.DerivePLEHash(2048, 3, 4, 500, 2000), []int32{5, 7, 2000},
			[]uint64{375, 870, 1331, 1671, 2407, 2643, 3428, 4078}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := make([]uint64, len(c.want))
			c.hash.Rows(rows, c.u)
			if diff := cmp.Diff(c.want, rows); diff != "" {
				t.Errorf("rows (-want +got)\n%s", diff)
			}
		})
	}
}

func TestPLEContext(t *testing.T) {
	const eos = 9
	h := oracle.PLEHash{EOS: eos}
	for _, c := range []struct{ ids, want []int32 }{
		{[]int32{1}, []int32{1, eos, eos, eos}},
		{[]int32{1, 2}, []int32{2, 1, eos, eos}},
		{[]int32{1, 2, 3, 4, 5}, []int32{5, 4, 3, 2}},
		{[]int32{1, 2, eos, 4, 5}, []int32{5, 4, eos, eos}}, // an EOS cuts what stands before it
		{[]int32{1, 2, 3, 4, eos}, []int32{eos, 4, 3, 2}},   // the token's own does not
		{[]int32{1, 2, 3, eos, 5}, []int32{5, eos, eos, eos}},
		{[]int32{eos}, []int32{eos, eos, eos, eos}},
	} {
		u := make([]int32, 4)
		h.Context(u, c.ids)
		if diff := cmp.Diff(c.want, u); diff != "" {
			t.Errorf("context of %v (-want +got)\n%s", c.ids, diff)
		}
	}
}

func TestPLEGate(t *testing.T) {
	sigmoid := func(v float64) float64 { return (1 + math.Tanh(v/2)) / 2 }
	for x, want := range map[float64]float64{
		0: 0.5, 4: sigmoid(2), -4: sigmoid(-2), 1e-6: sigmoid(1e-3), 1e-9: sigmoid(1e-3), -1e-300: sigmoid(-1e-3),
	} {
		wantNear(t, "gate", []float64{oracle.PLEGate(x)}, []float64{want}, 1e-15)
	}
	if got := oracle.PLEGate(math.NaN()); !math.IsNaN(got) {
		t.Errorf("gate of NaN = %v", got)
	}
}

// TestDilatedConv reads the taps off an impulse: channel 0 sees it at distances 0, 3, 6 and 9 with taps 3 to 0.
func TestDilatedConv(t *testing.T) {
	w := []float64{1, 2, 3, 4, 0, 0, 0, 1}
	history := make([]float64, 9*2)
	for p := range 13 {
		x := []float64{0, float64(p)}
		if p == 0 {
			x[0] = 1
		}
		want := map[int]float64{0: 4, 3: 3, 6: 2, 9: 1}[p]
		oracle.DilatedConv(x, history, x, w, 3)
		wantNear(t, "row", x, []float64{oracle.SiLU(want), oracle.SiLU(float64(p))}, 0)
	}
	wantNear(t, "history", history,
		[]float64{0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12}, 0)
}

// TestPLE writes models.md 7.4 out over a whole sequence, where the convolution reads Z by index and no history is kept.
func TestPLE(t *testing.T) {
	const n, hidden, taps, dilation, length, eps = 4, 5, 4, 3, 14, 1e-6
	const wide = n * hidden
	p := oracle.PLE{
		KeyNorm: normals(1, wide), QueryNorm: normals(2, wide), ConvNorm: normals(3, wide), Conv: normals(4, wide*taps),
		Dilation: dilation,
	}
	x, key, value := normals(5, length*wide), normals(6, length*wide), normals(7, length*hidden)

	sigmoid := func(v float64) float64 { return (1 + math.Tanh(v/2)) / 2 }
	square := func(v []float64) (sum float64) { // mean square of a stream, with eps
		for _, e := range v {
			sum += e * e
		}
		return sum/hidden + eps
	}
	y, z := make([]float64, length*wide), make([]float64, length*wide)
	for s := range length * n {
		var dot float64
		k, q := key[s*hidden:(s+1)*hidden], x[s*hidden:(s+1)*hidden]
		for i := range hidden {
			at := s%n*hidden + i
			dot += k[i] * p.KeyNorm[at] * q[i] * p.QueryNorm[at]
		}
		score := dot / math.Sqrt(square(k)*square(q)*hidden)
		gate := sigmoid(score / math.Sqrt(math.Abs(score))) // |score| is far above 1e-6 here
		out := y[s*hidden : (s+1)*hidden]
		for i := range hidden {
			out[i] = gate * value[s/n*hidden+i]
		}
		for i := range hidden {
			z[s*hidden+i] = out[i] / math.Sqrt(square(out)) * p.ConvNorm[s%n*hidden+i]
		}
	}

	history := make([]float64, (taps-1)*dilation*wide)
	for row := range length {
		want := make([]float64, wide)
		for c := range wide {
			var sum float64
			for j := range taps {
				if at := row - dilation*(taps-1-j); at >= 0 {
					sum += p.Conv[c*taps+j] * z[at*wide+c]
				}
			}
			want[c] = x[row*wide+c] + y[row*wide+c] + sum*sigmoid(sum)
		}
		got := append([]float64(nil), x[row*wide:(row+1)*wide]...)
		p.Add(got, history, key[row*wide:(row+1)*wide], value[row*hidden:(row+1)*hidden], eps)
		wantNear(t, "streams", got, want, 1e-12)
	}
	wantNear(t, "history", history, z[(length-9)*wide:], 1e-12)
}
