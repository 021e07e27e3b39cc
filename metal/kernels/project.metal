#include "prelude.h"
#include "math.h"
#include "project.h"
#include "formats.h"

constant uint tileRows = 64;      // rows of a tile of the planes
constant uint blockCols = 128;    // inputs that stand in threadgroup memory at a time
constant uint projectThreads = 256;

// Where unit b, of units a row, of row n stands among a plane's units.
inline ulong unitAt(uint n, uint b, uint units) {
	return (ulong(n / tileRows) * units + b) * tileRows + n % tileRows;
}

// The input that column c reads.
inline uint inputOf(constant ProjectParams &p, uint c) {
	if (p.head == 0) return c;
	uint h = c / p.head;
	return (h % p.keyHeads * p.perKey + h / p.keyHeads) * p.head + c % p.head;
}

inline uint slotOf(uint e) { return 8 * (e / 4 & 3) + 4 * (e / 16 & 1) + (e & 3); }

// W x for 8 Tiles rows of x a threadgroup and 64 outputs, 8 a SIMD-group. A lane decodes two weights of each 8x8 matrix
// right into its elements: the pair of a chunk is what it holds. Inputs stand in chunk order, F32; products and sums are
// F32. Grid: outputs / 64, rows / (8 Tiles), rounded up. Threads: 256. Threadgroup memory: 4096 Tiles bytes
// (oracle/matrix.go).
template <class F, uint Tiles>
kernel void project(device const float *x [[buffer(0)]], device const uchar *plane0 [[buffer(1)]],
                    device const uchar *plane1 [[buffer(2)]], device const uchar *meta [[buffer(3)]],
                    device float *dst [[buffer(4)]], constant ProjectParams &p [[buffer(5)]], THREADS) {
	threadgroup float *inputs = (threadgroup float *)shared; // [slot][row]
	const uint rows = 8 * Tiles, row0 = group.y * rows, out0 = group.x * tileRows + simd * 8;
	// Of the 8x8 matrix the lane holds columns 2 pair and 2 pair + 1 of row r.
	const uint r = (lane / 4 & 4) + lane / 2 % 4, pair = (lane / 8 & 1) * 2 + lane % 2;
	// An output past the last repeats the last; it is not stored.
	const uint n = p.first + min(out0 + r, p.outputs - 1);
	const uint groups = p.cols / 32, units = groups / F::groups;
	simdgroup_float8x8 sums[Tiles];
	for (uint t = 0; t < Tiles; t++) sums[t] = simdgroup_float8x8(0);
	for (uint from = 0; from < p.cols; from += blockCols) {
		const uint span = min(blockCols, p.cols - from);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = index; i < span * rows; i += projectThreads) {
			uint row = i / span, c = i % span;
			float v = row0 + row < p.rows ? x[ulong(row0 + row) * p.cols + inputOf(p, from + c)] : 0.0f;
			inputs[(c / 32 * 32 + slotOf(c)) * rows + row] = v;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint g = from / 32; g < (from + span) / 32; g++) {
			const ulong at = unitAt(n, g, groups);
			device const uchar *a = plane0 + at * F::plane0, *b = plane1 + at * F::plane1;
			device const uchar *m = meta + unitAt(n, g / F::groups, units) * F::metaBytes;
			for (uint c = 0; c < 4; c++) {
				float2 w = F::pair(a, b, m, g % F::groups, c, pair);
				simdgroup_float8x8 weights, in;
				weights.thread_elements()[0] = w.x;
				weights.thread_elements()[1] = w.y;
				for (uint t = 0; t < Tiles; t++) {
					simdgroup_load(in, inputs + (g * 32 - from + 8 * c) * rows + 8 * t, rows);
					simdgroup_multiply_accumulate(sums[t], weights, in, sums[t]);
				}
			}
		}
	}
	if (out0 + r >= p.outputs) return;
	for (uint t = 0; t < Tiles; t++) {
		for (uint i = 0; i < 2; i++) {
			uint row = row0 + 8 * t + 2 * pair + i;
			if (row >= p.rows) continue;
			device float *to = dst + ulong(row) * p.outputs + out0 + r;
			float y = sums[t].thread_elements()[i];
			switch (p.epilogue) {
			case EpilogueStore: *to = y; break;
			case EpilogueAdd: *to = *to + y; break;
			case EpilogueSiLU: *to = silu(y); break;
			case EpilogueMultiply: *to = *to * y; break;
			}
		}
	}
}

// Rows of a matrix by number: dst row i is row numbers[i], decoded. One SIMD-group a group of 32 weights. Grid: cols / 256
// rounded up, rows. Threads: 256.
template <class F>
kernel void gather(device const uchar *plane0 [[buffer(0)]], device const uchar *plane1 [[buffer(1)]],
                   device const uchar *meta [[buffer(2)]], device const Row *list [[buffer(3)]],
                   device float *dst [[buffer(4)]], constant GatherParams &p [[buffer(5)]], THREADS) {
	const uint groups = p.cols / 32, g = group.x * 8 + simd, n = list[group.y].token;
	if (g >= groups || lane >= 16) return;
	const ulong at = unitAt(n, g, groups);
	device const uchar *m = meta + unitAt(n, g / F::groups, groups / F::groups) * F::metaBytes;
	const uint c = lane / 4, pair = lane % 4;
	float2 w = F::pair(plane0 + at * F::plane0, plane1 + at * F::plane1, m, g % F::groups, c, pair);
	device float *to = dst + ulong(group.y) * p.cols + 32 * g + 16 * (pair / 2) + 4 * c + 2 * (pair % 2);
	to[0] = w.x;
	to[1] = w.y;
}

#define SPLASH_INSTANCES(suffix, F)                                                                                    \
	INSTANCE(project_##suffix, project<F, 1>);                                                                         \
	INSTANCE(project_wide_##suffix, project<F, 4>);                                                                    \
	INSTANCE(gather_##suffix, gather<F>);
SPLASH_FORMATS(SPLASH_INSTANCES)

// W x of a matrix of F32 rows, one output of one row a SIMD-group. Grid: outputs / 8 rounded up, rows. Threads: 256.
kernel void project_f32(device const float *x [[buffer(0)]], device const float *w [[buffer(1)]],
                        device float *dst [[buffer(2)]], constant ProjectParams &p [[buffer(3)]], THREADS) {
	const uint n = group.x * 8 + simd;
	if (n >= p.outputs) return;
	device const float *in = x + ulong(group.y) * p.cols, *row = w + ulong(p.first + n) * p.cols;
	float sum = 0;
	for (uint i = lane; i < p.cols; i += 32) sum += row[i] * in[inputOf(p, i)];
	sum = simd_sum(sum);
	if (lane != 0) return;
	device float *to = dst + ulong(group.y) * p.outputs + n;
	*to = p.epilogue == EpilogueAdd ? *to + sum : sum;
}
KERNEL(project_f32);
