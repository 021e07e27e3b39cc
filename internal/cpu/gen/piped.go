package main

import (
	"iter"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const pipedSignature = "func(acc *float32, buffers, src *byte, stride, tiles, blocks int, x *int8, dx, sums *float32, biases *int32, near, ahead uintptr, nearLeft, left int, then uintptr)"

// A piped kernel multiplies tile after tile of 16 rows by a whole panel of activations: while a block is multiplied, the
// next one is unpacked, so that the shuffles of the one fill the ports that the multiplications of the other leave free.
// Unpacked blocks lie in two buffers that change places. The operations are those of product.go, and so are the bits.
//
// After the last block of a tile the first of the next is unpacked; after the last of all, itself once more.

// pipedBuffer is the size of a buffer: the codes of a block, its scales and its minima.
func (f *blockFormat) pipedBuffer() (scales, mins, size int) {
	groups := f.columns / f.group
	return 16 * f.columns, 16*f.columns + 64*groups, 16*f.columns + 128*groups
}

// piped makes the kernel for panels of rows, a multiple of 4.
func (f *blockFormat) piped(rows int) {
	TEXT(label("piped%s512r%d", f.name, rows), 0, pipedSignature)
	Doc(label("Adds the products of tiles of 16 rows of %s blocks and %d rows of activations to acc, [tiles][%d][16].", f.title, rows, rows))
	scales, mins, size := f.pipedBuffer()
	k := &blockKernel{
		s: avx512, bytes: f.bytes, columns: f.columns, group: f.group, minima: f.minima, bias: f.bias,
		scalesFrom: scales, minsFrom: mins, tight: true,
		fetch: func(m Op) { PREFETCHT1(m) }, ahead: pointer("ahead"),
	}
	f.fetchTwice(k)
	put := pointer("buffers")
	get := GP64()
	LEAQ(at(put, size), get)
	k.codes, k.scales, k.mins = put, put, put
	k.rows = avx512.rowsAt(pointer("src"), pointer("stride"))
	p := &pipedProduct{f: f, rows: rows, codes: get, scales: scales, mins: mins, acc: pointer("acc"), abreast: max(f.abreast, 32/f.group)}
	p.x, p.dx = GP64(), GP64()
	if f.minima {
		p.sums = GP64()
	}
	if f.bias != 0 {
		p.biases = GP64()
	}
	if f.scaled {
		k.global = avx512.load(at(pointer("sums"), 0))
	}
	block := f.body(k)
	points := 0
	k.between = func() { points++ }
	block()
	k.stored, k.fetched = 0, 0

	left, tiles := AllocLocal(8), parameter("tiles")
	Label("tile")
	p.begin()
	step := GP64()
	MOVQ(parameter("blocks"), step)
	MOVQ(step, left)
	Label("block")
	XCHGQ(put, get)
	MOVQ(U32(uint32(f.bytes)), step)
	CMPQ(left, Imm(1))
	JNE(LabelRef("step"))
	IMUL3Q(Imm(15), k.rows.one, step)
	ADDQ(Imm(uint64(f.bytes)), step)
	CMPQ(tiles, Imm(1))
	JNE(LabelRef("step"))
	XORQ(step, step)
	Label("step")
	for _, base := range k.rows.base {
		ADDQ(step, base)
	}
	k.further()
	k.fetchThen(k.ahead, "left")
	if k.near != nil {
		k.fetchThen(k.near, "nearLeft")
	}

	total := 0
	for range p.instructions(false) {
		total++
	}
	next, stop := iter.Pull(p.instructions(true))
	defer stop()
	at := 0
	k.between = func() {
		for at++; total > 0 && p.done*points < at*total; {
			next()
		}
	}
	block()
	for _, more := next(); more; _, more = next() {
	}
	p.advance()
	DECQ(left)
	JNZ(LabelRef("block"))
	add(64*rows, p.acc)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

// fetchThen has blocks fetched from then on when so many have been from where p points.
func (k *blockKernel) fetchThen(p reg.GPVirtual, left string) {
	DECQ(parameter(left))
	JNZ(LabelRef("fetch" + left))
	MOVQ(parameter("then"), p)
	Label("fetch" + left)
}

// parameter is a parameter's place in memory.
func parameter(name string) Mem {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// A pipedProduct multiplies a block that lies in a buffer by a panel.
type pipedProduct struct {
	f            *blockFormat
	rows         int
	abreast      int           // groups that are summed at once
	codes        reg.GPVirtual // of the buffer, with scales and mins behind them
	scales, mins int
	acc, x, dx   reg.GPVirtual
	sums, biases reg.GPVirtual // nil: the format needs none

	done int // instructions
}

// begin points to the panel's first columns.
func (p *pipedProduct) begin() {
	Load(Param("x"), p.x)
	Load(Param("dx"), p.dx)
	if p.f.minima {
		Load(Param("sums"), p.sums)
	}
	if p.f.bias != 0 {
		Load(Param("biases"), p.biases)
	}
}

func (p *pipedProduct) advance() {
	add(p.f.columns*p.rows, p.x)
	add(p.f.columns/8*p.rows, p.dx)
	if p.f.minima {
		add(4*p.f.columns/p.f.group*p.rows, p.sums)
	}
	if p.f.bias != 0 {
		add(4*p.f.columns/p.f.group*p.rows, p.biases)
	}
}

// instructions emits the product of a block, instruction after instruction, or only counts them. Four rows are taken at
// once: more would need more registers than unpacking leaves.
func (p *pipedProduct) instructions(emit bool) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		do := func(f func()) {
			if emit {
				f()
				p.done++
			}
			yield(struct{}{})
		}
		for r := 0; r < p.rows; r += 4 {
			acc := zmms(4)
			for i := range acc {
				do(func() { VMOVUPS(at(p.acc, 64*(r+i)), acc[i]) })
			}
			for g := 0; g < p.f.columns/p.f.group; g += p.abreast {
				p.groups(g, r, acc, do)
			}
			for i := range acc {
				do(func() { VMOVUPS(acc[i], at(p.acc, 64*(r+i))) })
			}
		}
	}
}

// groups adds groups of columns, from group g on, to the sums of four rows.
func (p *pipedProduct) groups(g, first int, acc []reg.VecVirtual, do func(func())) {
	sums := make([][]reg.VecVirtual, p.abreast)
	for i := range sums {
		sums[i] = zmms(len(acc))
		for r, sum := range sums[i] {
			do(func() {
				if p.f.bias == 0 {
					clear(sum)
				} else {
					VPBROADCASTD(at(p.biases, 4*((g+i)*p.rows+first+r)), sum)
				}
			})
		}
	}
	n := p.f.group / 4
	for d := range n {
		for i := range sums {
			w, dword := ZMM(), (g+i)*n+d
			do(func() { VMOVDQU32(at(p.codes, 64*dword), w) })
			for r, sum := range sums[i] {
				do(func() { dot(at(p.x, 4*(dword*p.rows+first+r)), w, sum) })
			}
		}
	}
	perUnit := 32 / p.f.group
	for i, sum := range sums {
		scale := ZMM()
		do(func() { VMOVUPS(at(p.codes, p.scales+64*(g+i)), scale) })
		before := (g + i) % perUnit // groups of the unit
		for r := range sum {
			do(func() { VCVTDQ2PS(sum[r], sum[r]) })
			do(func() {
				if before == 0 {
					VMULPS(scale, sum[r], sum[r])
				} else {
					VFMADD231PS(scale, sum[r], sums[i-before][r])
				}
			})
		}
		if before == perUnit-1 {
			p.unit((g+i)/perUnit, first, acc, sums[i-before], do)
		}
	}
}

// unit adds what has been multiplied of a unit, v, to the sums of four rows.
func (p *pipedProduct) unit(u, first int, acc, v []reg.VecVirtual, do func(func())) {
	for r := range v {
		do(func() { VFMADD231PS_BCST(at(p.dx, 4*(u*p.rows+first+r)), v[r], acc[r]) })
	}
	if !p.f.minima {
		return
	}
	groups := 32 / p.f.group
	for g := u * groups; g < (u+1)*groups; g++ {
		least := ZMM()
		do(func() { VMOVUPS(at(p.codes, p.mins+64*g), least) })
		for r := range acc {
			do(func() { VFNMADD231PS_BCST(at(p.sums, 4*(g*p.rows+first+r)), least, acc[r]) })
		}
	}
}
