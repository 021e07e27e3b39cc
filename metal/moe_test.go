//go:build cgo && ((linux && amd64) || (darwin && arm64))

package metal

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"splash/oracle"
	"splash/planner"
)

// TestRoute holds ids to the oracle's, of logits some of which are equal, infinite or no numbers, and weights to a few units
// and half the roundings of their sum.
func TestRoute(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(31, 1))
	var r ratio
	for _, c := range []struct {
		experts, taken     int
		sigmoid, normalize bool
		scale              float64
	}{
		{16, 4, false, true, 1}, {256, 8, false, true, 1}, {1000, 32, false, false, 1}, {40, 1, true, true, 2.5}, {512, 10, true, false, 0.5},
	} {
		const rows = 5
		logits := normals(rng, rows*c.experts)
		for i := range logits {
			logits[i] = float32(math.Round(4*float64(logits[i]))) / 4 // many are equal
		}
		logits[3], logits[7] = float32(math.Inf(-1)), float32(math.NaN())
		if c.sigmoid {
			for i := range c.experts {
				logits[(rows-1)*c.experts+i] = -30 // the sum is bounded from below
			}
		}
		list := make([]rowInfo, rows)
		list[2].padding = 1
		dst := empty[float32](b, rows*2*c.taken)
		flag := map[bool]cUint{true: 1}
		add(&b.commands, b.kernel("moe_route"), grid{x: rows, y: 1, threads: 32}, routeParams{
			experts: cUint(c.experts), taken: cUint(c.taken), sigmoid: flag[c.sigmoid], normalize: flag[c.normalize], scale: cFloat(c.scale),
		}, filled(b, logits).from(0), filled(b, list).from(0), dst.from(0))
		b.run()
		router := oracle.Router{Sigmoid: c.sigmoid, Normalize: c.normalize, Scale: c.scale}
		ids, weights := make([]int, c.taken), make([]float64, c.taken)
		for row := range rows {
			l := wide(logits[row*c.experts : (row+1)*c.experts])
			router.Route(ids, weights, l)
			got := view[float32](dst)[row*2*c.taken : (row+1)*2*c.taken]
			for j, id := range ids {
				want := float32(id)
				if row == 2 {
					want = -1
				}
				if got[j] != want {
					t.Errorf("%d of %d, row %d: expert %d is %v, want %v", c.taken, c.experts, row, j, got[j], want)
				}
				if !(row == 0 && !c.normalize && !c.sigmoid) { // a softmax over a NaN has none
					r.check(got[c.taken+j], weights[j], (float64(c.experts)/32+24)*u*weights[j]+1e-30, "row %d, weight %d", row, j)
				}
			}
		}
	}
	r.report(t, "moe_route")
}

// routesOf are routes of rows, all experts as likely, some of which are none.
func routesOf(rng *rand.Rand, rows, taken, experts int) []float32 {
	var routes []float32
	for row := range rows {
		ids := rng.Perm(experts)[:taken]
		for _, id := range ids {
			if row == 1 {
				id = -1
			}
			routes = append(routes, float32(id))
		}
		for range taken {
			routes = append(routes, rng.Float32())
		}
	}
	return routes
}

// grouped runs moe_group, and holds its order and tiles to their definition.
func grouped(b *bench, routes []float32, rows, taken, experts int) (order, tiles *Buffer, count int) {
	slots := rows * taken
	count = expertTiles(slots, experts)
	order, tiles = empty[uint32](b, slots), empty[expertTile](b, count)
	add(&b.commands, b.kernel("moe_group"), groupGrid(experts),
		groupParams{rows: cUint(rows), experts: cUint(experts), taken: cUint(taken), tiles: cUint(count)},
		filled(b, routes).from(0), order.from(0), tiles.from(0))
	b.run()
	var seen []uint32
	last := -1
	for i, tile := range view[expertTile](tiles) {
		if tile.count == 0 {
			continue
		}
		if tile.count > expertRows || int(tile.expert) < last || int(tile.first) != len(seen) {
			b.t.Fatalf("tile %d is %+v after %d slots of experts up to %d", i, tile, len(seen), last)
		}
		for _, slot := range view[uint32](order)[tile.first : tile.first+tile.count] {
			if id := routes[int(slot)/taken*2*taken+int(slot)%taken]; id != float32(tile.expert) {
				b.t.Fatalf("slot %d of expert %v is in a tile of %d", slot, id, tile.expert)
			}
			seen = append(seen, slot)
			last = int(tile.expert)
		}
	}
	slices.Sort(seen)
	at := 0
	for slot := range slots {
		if routes[slot/taken*2*taken+slot%taken] < 0 {
			continue
		}
		if at >= len(seen) || seen[at] != uint32(slot) {
			b.t.Fatalf("slot %d is in no tile, or in two", slot)
		}
		at++
	}
	return order, tiles, count
}

func TestExpertGroups(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(31, 2))
	for _, c := range [][3]int{{1, 1, 1}, {3, 4, 16}, {40, 2, 3}, {9, 8, 300}, {2, 32, 1024}} {
		grouped(b, routesOf(rng, c[0], c[1], c[2]), c[0], c[1], c[2])
	}
}

// TestExperts holds the projections of experts in every format to the oracle, within the bound of projections.
func TestExperts(t *testing.T) {
	const experts, taken, outputs, cols = 3, 2, 52, 256
	b := newBench(t)
	image, all := everyFormat(t, experts*64, cols, randomMatrix)
	memory := b.wrap(image.Data)
	rng := rand.New(rand.NewPCG(31, 3))
	var r ratio
	for i, f := range planner.ImageFormats() {
		rows := 3 + i%13
		routes := routesOf(rng, rows, taken, experts)
		order, tiles, count := grouped(b, routes, rows, taken, experts)
		share := 1 + i%2*(taken-1) // slots share their row's input, or have their own
		x, before := normals(rng, rows*taken/share*cols), normals(rng, rows*taken*outputs)
		dst, pl := filled(b, before), planesOf(memory, image.Tensor(f.Name))
		add(&b.commands, b.kernel("experts_"+f.Name), expertGrid(outputs, count),
			expertParams{cols: cols, outputs: outputs, stride: 64, epilogue: cUint(i % 4), share: cUint(share)},
			filled(b, x).from(0), pl.plane0, pl.plane1, pl.meta, order.from(0), tiles.from(0), dst.from(0))
		b.run()
		for slot := range rows * taken {
			e := int(routes[slot/taken*2*taken+slot%taken])
			got, old := view[float32](dst)[slot*outputs:(slot+1)*outputs], before[slot*outputs:(slot+1)*outputs]
			if e < 0 {
				if !slices.Equal(got, old) {
					t.Errorf("%s: slot %d has no expert, and a result", f.Name, slot)
				}
				continue
			}
			c := projectCase{rows: 1, first: 64 * e, outputs: outputs, epilogue: i % 4}
			checkProject(&r, "experts_"+f.Name, got, old, x[slot/share*cols:(slot/share+1)*cols], all[f.Name], c)
		}
	}
	r.report(t, "experts")
}

// TestExpertsCombine sums the slots of rows, and adds a shared expert: a sum of few products.
func TestExpertsCombine(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(31, 4))
	const rows, taken, width = 4, 3, 300
	var combined, shared ratio
	for _, sum := range []cUint{0, 1} {
		routes, results, before := routesOf(rng, rows, taken, 9), normals(rng, rows*taken*width), normals(rng, rows*width)
		dst := filled(b, before)
		add(&b.commands, b.kernel("moe_combine"), copyGrid(rows, width), combineParams{width: width, taken: taken, add: sum},
			filled(b, results).from(0), filled(b, routes).from(0), dst.from(0))
		b.run()
		for i, got := range view[float32](dst) {
			row, c := i/width, i%width
			want := float64(sum) * float64(before[i])
			size := math.Abs(want)
			for j := range taken {
				if routes[row*2*taken+j] >= 0 {
					p := float64(routes[(row*2+1)*taken+j]) * float64(results[(row*taken+j)*width+c])
					want, size = want+p, size+math.Abs(p)
				}
			}
			combined.check(got, want, (taken+2)*u*size+1e-30, "row %d, element %d", row, c)
		}
	}
	for _, gated := range []bool{false, true} {
		y, x, before, gate := normals(rng, rows*width), normals(rng, rows*width), normals(rng, rows*width), normals(rng, width)
		list, dst := make([]rowInfo, rows), filled(b, before)
		list[1].padding = 1
		p, weights := sharedParams{width: width}, []float64(nil)
		if gated {
			p.gated, weights = 1, wide(gate)
		}
		add(&b.commands, b.kernel("add_gated"), rowGrid(rows), p, filled(b, y).from(0), filled(b, x).from(0), filled(b, gate).from(0),
			filled(b, list).from(0), dst.from(0))
		b.run()
		for row := range rows {
			in, out, want := wide(y[row*width:(row+1)*width]), view[float32](dst)[row*width:(row+1)*width], wide(before[row*width:(row+1)*width])
			stray := 0.0 // of the gate's product, by SiLU's slope of a quarter
			for i, v := range gate {
				stray += (width + 2) * u * math.Abs(float64(v)*float64(x[row*width+i])) / 4
			}
			if row != 1 {
				oracle.AddGated(want, in, wide(x[row*width:(row+1)*width]), weights)
			}
			for i, v := range want {
				bound := stray*math.Abs(in[i]) + 8*u*(math.Abs(in[i])+math.Abs(v))
				shared.check(out[i], v, bound, "gated %v, row %d, element %d", gated, row, i)
			}
		}
	}
	combined.report(t, "moe_combine")
	shared.report(t, "add_gated")
}

// TestGatherF32 gathers rows of an F32 table.
func TestGatherF32(t *testing.T) {
	b := newBench(t)
	const width = 300
	x := normals(rand.New(rand.NewPCG(31, 5)), 6*width)
	list, dst := []rowInfo{{token: 5}, {token: 0}}, empty[float32](b, 2*width)
	add(&b.commands, b.kernel("gather_f32"), copyGrid(2, width), gatherParams{cols: width}, filled(b, x).from(0),
		filled(b, list).from(0), dst.from(0))
	b.run()
	if got := view[float32](dst); !slices.Equal(got[:width], x[5*width:]) || !slices.Equal(got[width:], x[:width]) {
		t.Error("the rows are others")
	}
}

// TestHadamard holds both directions to the oracle in F32, bit for bit: the order of its stages fixes them.
func TestHadamard(t *testing.T) {
	b := newBench(t)
	rng := rand.New(rand.NewPCG(31, 6))
	const rows, width = 3, 2048
	signs, floats := make([]int8, width), make([]float32, width)
	for i := range signs {
		signs[i] = int8(1 - 2*rng.IntN(2))
		floats[i] = float32(signs[i])
	}
	for _, inverse := range []bool{false, true} {
		x, dst := normals(rng, rows*width), empty[float32](b, rows*width)
		p := hadamardParams{width: width}
		if inverse {
			p.inverse = 1
		}
		add(&b.commands, b.kernel("hadamard"), grid{x: width / hadamardBlock, y: rows, threads: 256, shared: 4 * hadamardBlock}, p,
			filled(b, x).from(0), filled(b, floats).from(0), dst.from(0))
		b.run()
		want := slices.Clone(x)
		for at := 0; at < len(want); at += width {
			row := want[at : at+width]
			if !inverse {
				for i := range row {
					row[i] *= floats[i]
				}
			}
			oracle.Hadamard(row)
			if inverse {
				for i := range row {
					row[i] *= floats[i]
				}
			}
		}
		if !slices.Equal(want, view[float32](dst)) {
			t.Errorf("inverse %v: other bits", inverse)
		}
	}
}
