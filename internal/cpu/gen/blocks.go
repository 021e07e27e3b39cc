package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A blockKernel takes blocks of as many rows as the isa has lanes, one after another: it unpacks them to a tile, or, in the
// wide isa, multiplies them by one row of activations as they are unpacked, with the very operations of the product of a
// tile (product.go). On its way it fetches, line by line, as many bytes as it reads, from where ahead points: all at once
// they would wait for each other.
type blockKernel struct {
	s                   isa
	codes, scales, mins reg.GPVirtual
	rows                *rows
	blocks              reg.GPVirtual
	ahead, near         reg.GPVirtual // what is fetched: once, or also what is multiplied sooner

	bytes, columns, group int // of a block
	minima                bool
	bias                  uint32 // of the codes that are put
	stored                int    // dwords of codes of a block, so far
	fetched               int    // lines

	fused        bool
	x, dx        reg.GPVirtual
	sums, biases reg.GPVirtual
	acc          reg.VecVirtual
	ints         map[int]reg.VecVirtual // of groups that are under way
	global       reg.VecVirtual         // the rows' tensor scales

	scalesFrom, minsFrom int  // of the pointers, of a piped kernel
	tight                bool // a piped one: few registers are left
	fetch                func(Op)
	between              func() // emits part of the product of the block before; nil: none
}

const (
	unpackSignature = "func(codes *byte, scales, mins *float32, src *byte, stride, blocks int, ahead uintptr)"
	fusedSignature  = "func(acc, scales, mins *float32, src *byte, stride, blocks int, near, ahead uintptr, x *int8, dx, sums *float32, biases *int32)"
)

// A blockFormat is a format that both kinds of kernels are made for.
type blockFormat struct {
	name                  string // of kernels
	title                 string
	bytes, columns, group int
	minima                bool
	bias                  uint32 // of the codes in tiles of the wide isa; the other's have none
	scaled                bool   // the rows' tensor scales are a parameter: mins, of a piped kernel sums
	fuse                  bool
	abreast               int  // groups that a piped kernel sums at once, those of a unit or more: four sums are a chain too few
	twice                 bool // beside a single row too lines are fetched twice: more of them are under way than a core has room for
	looksUp               bool // in tables: few integer registers are left, and lines are fetched once
	// body loads what blocks share and returns what unpacks one.
	body func(k *blockKernel) func()
}

// unpack makes the kernel that unpacks.
func (f *blockFormat) unpack(s isa) {
	TEXT("unpack"+f.name+s.name, 0, unpackSignature)
	Doc(label("Unpacks %s blocks of %d rows, and fetches as many bytes from ahead on.", f.title, s.lanes))
	k := f.kernel(s)
	k.codes = pointer("codes")
	k.begin(f)
}

// fused makes the one that multiplies.
func (f *blockFormat) fused() {
	TEXT("fused"+f.name+"512", 0, fusedSignature)
	Doc("The product of 16 rows of " + f.title + " blocks and one of activations. Scales and minima are room for a block's.")
	k := f.kernel(avx512)
	k.fused = true
	if f.twice {
		f.fetchTwice(k)
	}
	k.x, k.dx = pointer("x"), pointer("dx")
	if f.minima {
		k.sums = pointer("sums")
	}
	if k.bias != 0 {
		k.biases = pointer("biases")
	}
	k.acc = ZMM()
	VMOVUPS(at(pointer("acc"), 0), k.acc)
	k.begin(f)
}

func (f *blockFormat) kernel(s isa) *blockKernel {
	return &blockKernel{
		s: s, bytes: f.bytes, columns: f.columns, group: f.group, minima: f.minima, bias: f.bias,
		fetch: func(m Op) { PREFETCHT1(m) }, ints: map[int]reg.VecVirtual{},
	}
}

func (k *blockKernel) begin(f *blockFormat) {
	k.scales = pointer("scales")
	if f.minima {
		k.mins = pointer("mins")
	}
	k.rows = k.s.rowsAt(pointer("src"), pointer("stride"))
	k.blocks = pointer("blocks")
	if k.fused && k.near == nil {
		k.ahead = pointer("near")
	} else {
		k.ahead = pointer("ahead")
	}
	if f.scaled {
		k.global = k.s.load(at(pointer("mins"), 0))
	}
	block := f.body(k)
	Label("block")
	block()
	k.next()
}

// scaleAt and minAt are the places of a group's scales and minima.
func (k *blockKernel) scaleAt(group int) Mem { return at(k.scales, k.scalesFrom+k.s.bytes()*group) }
func (k *blockKernel) minAt(group int) Mem   { return at(k.mins, k.minsFrom+k.s.bytes()*group) }

// columns16 gives take the dwords of the next 64 bytes of all rows, with what is emitted between.
func (k *blockKernel) columns16(disp int, take func(dword int, v reg.VecVirtual)) {
	k.rows.columns16(disp, disp+32, take, k.between)
}

// fetchTwice has lines fetched from ahead on to the second cache and from near on to the first.
func (f *blockFormat) fetchTwice(k *blockKernel) {
	if f.looksUp {
		return
	}
	k.near = pointer("near")
	k.fetch = func(m Op) {
		PREFETCHT1(m)
		n := m.(Mem)
		n.Base = k.near
		PREFETCHT0(n)
	}
}

// further fetches the next block's bytes from here on.
func (k *blockKernel) further() {
	for _, p := range []reg.GPVirtual{k.ahead, k.near} {
		if p != nil {
			add(k.s.lanes*k.bytes, p)
		}
	}
}

// next ends the loop.
func (k *blockKernel) next() {
	groups := k.columns / k.group
	k.rows.advance(k.bytes)
	k.further()
	if !k.fused {
		add(k.s.lanes*k.columns, k.codes)
		add(k.s.bytes()*groups, k.scales)
		if k.minima {
			add(k.s.bytes()*groups, k.mins)
		}
	} else {
		add(k.columns, k.x)
		add(k.columns/8, k.dx)
		if k.minima {
			add(4*groups, k.sums)
		}
		if k.bias != 0 {
			add(4*groups, k.biases)
		}
	}
	DECQ(k.blocks)
	JNZ(LabelRef("block"))
	if k.fused {
		VMOVUPS(k.acc, at(pointer("acc"), 0))
	}
	VZEROUPPER()
	RET()
}

// put takes the codes of columns 4 dword and on, which have the bias unless that is 128 and the isa's codes have none
// (signed), and fetches what is due.
func (k *blockKernel) put(v reg.VecVirtual, dword int) {
	switch {
	case k.fused:
		k.multiply(v, dword)
	case !k.s.wide() && k.bias != 0 && k.bias != 0x80:
		VPSUBB(k.s.memory(k.bias*0x01010101), v, v)
		fallthrough
	default:
		k.s.move(v, at(k.codes, k.s.bytes()*dword))
	}
	k.stored++
	for lines := (k.s.lanes*k.bytes + 63) / 64; k.fetched*k.columns < 4*lines*k.stored; k.fetched++ {
		k.fetch(at(k.ahead, 64*k.fetched))
	}
	k.mix()
}

// mix emits what is due of the product of the block before.
func (k *blockKernel) mix() {
	if k.between != nil {
		k.between()
	}
}

// spill is room for n vectors on the stack, aligned to cache lines as the stack is not; nil for a tight kernel, which has no
// register for it.
func (k *blockKernel) spill(n int) func(i int) Mem {
	if k.tight {
		return nil
	}
	base := GP64()
	LEAQ(AllocLocal(n*k.s.bytes()+64).Offset(63), base)
	ANDQ(I8(-64), base)
	return func(i int) Mem { return at(base, k.s.bytes()*i) }
}

func (k *blockKernel) multiply(v reg.VecVirtual, dword int) {
	g := 4 * dword / k.group
	sum, ok := k.ints[g]
	if !ok {
		sum = ZMM()
		if k.bias == 0 {
			VPXORD(sum, sum, sum)
		} else {
			VPBROADCASTD(at(k.biases, 4*g), sum)
		}
		k.ints[g] = sum
	}
	dot(at(k.x, 4*dword), v, sum)
}

// units finishes units from first to last-1, all of whose codes have been put.
func (k *blockKernel) units(first, last int) {
	if !k.fused {
		return
	}
	groups := 32 / k.group
	for u := first; u < last; u++ {
		var v reg.VecVirtual
		for i := range groups {
			g := u*groups + i
			sum := k.ints[g]
			delete(k.ints, g)
			VCVTDQ2PS(sum, sum)
			if i == 0 {
				v = ZMM()
				VMULPS(k.scaleAt(g), sum, v)
			} else {
				VFMADD231PS(k.scaleAt(g), sum, v)
			}
		}
		VFMADD231PS_BCST(at(k.dx, 4*u), v, k.acc)
		if k.minima {
			for i := range groups {
				s := ZMM()
				VBROADCASTSS(at(k.sums, 4*(u*groups+i)), s)
				VFNMADD231PS(k.minAt(u*groups+i), s, k.acc)
			}
		}
	}
}

// putSigned takes signed codes.
func (k *blockKernel) putSigned(v reg.VecVirtual, dword int) {
	if k.s.wide() {
		k.s.xorDword(0x80808080, v, v)
	}
	k.put(v, dword)
}

// nibbles splits v, whose low nibbles are the dword low, the high ones the dword high.
func (k *blockKernel) nibbles(v reg.VecVirtual, mask Op, low, high int) {
	lo, hi := k.s.vec(), k.s.vec()
	k.s.and(mask, v, lo)
	k.put(lo, low)
	VPSRLD(Imm(4), v, hi)
	k.s.and(mask, hi, hi)
	k.put(hi, high)
}

// dword is one in memory, for instructions that broadcast it.
func dword(v uint32) Mem {
	m, ok := dwords[v]
	if !ok {
		m = GLOBL(label("dword%08x", v), RODATA|NOPTR)
		DATA(0, U32(v))
		dwords[v] = m
	}
	return m
}

var dwords = map[uint32]Mem{}

// bytes4 is a byte four times.
func bytes4(v uint32) Mem { return dword(v * 0x01010101) }
