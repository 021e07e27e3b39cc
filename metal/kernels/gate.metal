#include "prelude.h"
#include "planes.h"
#include "gate.h"

// silu(G x) * (U x) of two matrices of one format, for up to 8 rows of x a threadgroup and 64 outputs, 8 a SIMD-group: as project
// does it with one, but the inputs are read for both at once, and nothing goes to memory in between. The bits are those of
// project with what becomes of a gate and then of what it gates. Grid: outputs / 64, rows / 8, rounded up. Threads: 256. Threadgroup
// memory: 32 bytes a column of a block (oracle/ffn.go, SwiGLU).
template <class F>
kernel void gate_up(device const float *x [[buffer(0)]], device const uchar *gate0 [[buffer(1)]],
                    device const uchar *gate1 [[buffer(2)]], device const uchar *gateMeta [[buffer(3)]],
                    device const uchar *up0 [[buffer(4)]], device const uchar *up1 [[buffer(5)]],
                    device const uchar *upMeta [[buffer(6)]], device float *dst [[buffer(7)]],
                    constant GateParams &p [[buffer(8)]], THREADS) {
	threadgroup float *inputs = (threadgroup float *)shared; // [slot][row]
	const uint row0 = group.y * 8, out0 = group.x * tileRows + simd * 8;
	const uint r = matrixRow(lane), pair = matrixPair(lane), groups = p.cols / 32;
	// An output past the last repeats the last; it is not stored.
	const uint n = min(out0 + r, p.outputs - 1);
	simdgroup_float8x8 gates[1], gateTotal = simdgroup_float8x8(0), ups[1], upTotal = simdgroup_float8x8(0);
	gates[0] = simdgroup_float8x8(0);
	ups[0] = simdgroup_float8x8(0);
	for (uint from = 0; from < p.cols; from += blockCols) {
		if (from % partCols == 0) {
			addPart(gateTotal, gates[0]);
			addPart(upTotal, ups[0]);
		}
		const uint span = min(blockCols, p.cols - from);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = index; i < span * 8; i += projectThreads) {
			const uint row = i / span, c = i % span;
			inputs[(c / 32 * 32 + slotOf(c)) * 8 + row] = row0 + row < p.rows ? x[ulong(row0 + row) * p.cols + from + c] : 0.0f;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		multiplyBlock<F, 1>(gates, inputs, gate0, gate1, gateMeta, p.gateFirst + n, groups, from, span, pair, 1);
		multiplyBlock<F, 1>(ups, inputs, up0, up1, upMeta, p.upFirst + n, groups, from, span, pair, 1);
	}
	addPart(gateTotal, gates[0]);
	addPart(upTotal, ups[0]);
	if (out0 + r >= p.outputs) return;
	for (uint i = 0; i < 2; i++) {
		const uint row = row0 + 2 * pair + i;
		if (row >= p.rows) continue;
		dst[ulong(row) * p.outputs + out0 + r] = silu(gateTotal.thread_elements()[i]) * upTotal.thread_elements()[i];
	}
}

#define SPLASH_INSTANCES(suffix, F) INSTANCE(gate_up_##suffix, gate_up<F>);
SPLASH_FORMATS(SPLASH_INSTANCES)
#undef SPLASH_INSTANCES
