#include "prelude.h"
#include "planes.h"
#include "ternary.h"

// Rotated inputs as codes of 8 bits, the largest of a block 127, and the blocks' scales: scale = max / 127, code =
// round(x / scale), ties to even. Codes stand in the slots of their groups of 32. Grid: width / 1024, rows. Threads: 256.
// Threadgroup memory: 4 bytes a SIMD-group (oracle/hadamard.go, HadamardInt8).
kernel void quantize_rows(device const float *x [[buffer(0)]], device char *codes [[buffer(1)]],
                          device float *scales [[buffer(2)]], constant QuantizeParams &p [[buffer(3)]], THREADS) {
	threadgroup float *parts = (threadgroup float *)shared;
	const ulong at = ulong(group.y) * p.width + group.x * codeBlock;
	float most = 0;
	for (uint i = index; i < codeBlock; i += 256) most = max(most, fabs(x[at + i]));
	most = simd_max(most);
	if (lane == 0) parts[simd] = most;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = 0; i < 8; i++) most = max(most, parts[i]);
	const float scale = most / 127.0f;
	for (uint i = index; i < codeBlock; i += 256) {
		const float code = scale > 0 ? rint(x[at + i] / scale) : 0.0f;
		codes[at + i / 32 * 32 + slotOf(i)] = char(int(min(max(code, -127.0f), 127.0f)));
	}
	if (index == 0) scales[group.y * (p.width / codeBlock) + group.x] = scale;
}
KERNEL(quantize_rows);

// W x of PQ2_0's weights and inputs in codes, for 8 rows of x a threadgroup and 64 outputs: a group's sum of (code - 1) q is an
// integer, times the scales of the group and of the block in F32. A thread has one output and every fourth group. Grid:
// outputs / 64, rows / 8, rounded up. Threads: 256. Threadgroup memory: 8192 bytes (oracle/hadamard.go, HadamardInt8Dot).
kernel void project_int8(device const char *codes [[buffer(0)]], device const float *scales [[buffer(1)]],
                         device const uchar *plane0 [[buffer(2)]], device const uchar *meta [[buffer(3)]],
                         device float *dst [[buffer(4)]], constant ProjectParams &p [[buffer(5)]], THREADS) {
	threadgroup float *parts = (threadgroup float *)shared; // [quarter][row][output]
	const uint out0 = group.x * tileRows, row0 = group.y * ternaryRows, live = min(p.rows - row0, uint(ternaryRows));
	const uint output = index % tileRows, quarter = index / tileRows;
	const uint n = p.first + min(out0 + output, p.outputs - 1);
	const uint groups = p.cols / 32, units = p.cols / ternaryGroup, blocks = p.cols / codeBlock;
	float sums[ternaryRows];
	for (uint r = 0; r < ternaryRows; r++) sums[r] = 0;
	for (uint unit = quarter; unit < units; unit += 4) {
		int totals[ternaryRows];
		for (uint r = 0; r < ternaryRows; r++) totals[r] = 0;
		for (uint g = unit * 4; g < unit * 4 + 4; g++) {
			device const uchar *a = plane0 + unitAt(n, g, groups) * PQ20::plane0;
			for (uint c = 0; c < 4; c++) {
				for (uint pair = 0; pair < 4; pair++) {
					const Codes w = bits2(a, c, pair);
					device const char *q = codes + ulong(row0) * p.cols + 32 * g + 8 * c + 2 * pair;
					for (uint r = 0; r < ternaryRows; r++) {
						if (r >= live) break;
						totals[r] += (int(w.x) - 1) * int(q[r * p.cols]) + (int(w.y) - 1) * int(q[r * p.cols + 1]);
					}
				}
			}
		}
		const float d = f16(meta + unitAt(n, unit, units) * PQ20::metaBytes);
		for (uint r = 0; r < ternaryRows; r++) {
			if (r >= live) break;
			sums[r] += d * float(totals[r]) * scales[(row0 + r) * blocks + unit / (codeBlock / ternaryGroup)];
		}
	}
	for (uint r = 0; r < live; r++) parts[(quarter * ternaryRows + r) * tileRows + output] = sums[r];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = index; i < live * tileRows; i += projectThreads) {
		const uint r = i / tileRows, o = i % tileRows;
		if (out0 + o >= p.outputs) continue;
		float sum = 0;
		for (uint part = 0; part < 4; part++) sum += parts[(part * ternaryRows + r) * tileRows + o];
		conclude(dst + ulong(row0 + r) * p.outputs + out0 + o, sum, p.epilogue);
	}
}
KERNEL(project_int8);
