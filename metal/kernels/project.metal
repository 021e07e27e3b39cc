#include "prelude.h"
#include "planes.h"

// The input that column c reads.
inline uint inputOf(constant ProjectParams &p, uint c) {
	if (p.head == 0) return c;
	uint h = c / p.head;
	return (h % p.keyHeads * p.perKey + h / p.keyHeads) * p.head + c % p.head;
}

// W x for up to 8 Tiles rows of x a threadgroup and 64 outputs, 8 a SIMD-group. A lane decodes two weights of each 8x8 matrix
// right into its elements: the pair of a chunk is what it holds. Inputs stand in chunk order, F32; products and sums are
// F32. Grid: outputs / 64, rows / (8 Tiles), rounded up, and where the sums are split their parts. Threads: 256. Threadgroup
// memory: 32 Tiles bytes a column of a block (oracle/matrix.go).
template <class F, uint Tiles>
kernel void project(device const float *x [[buffer(0)]], device const uchar *plane0 [[buffer(1)]],
                    device const uchar *plane1 [[buffer(2)]], device const uchar *meta [[buffer(3)]],
                    device float *dst [[buffer(4)]], constant ProjectParams &p [[buffer(5)]], THREADS) {
	threadgroup float *inputs = (threadgroup float *)shared; // [slot][row]
	const uint rows = 8 * Tiles, row0 = group.y * rows, out0 = group.x * tileRows + simd * 8;
	const uint r = matrixRow(lane), pair = matrixPair(lane), live = (min(p.rows - row0, rows) + 7) / 8;
	// An output past the last repeats the last; it is not stored.
	const uint n = p.first + min(out0 + r, p.outputs - 1);
	const uint groups = p.cols / 32, block = Tiles > 4 ? blockCols / 2 : blockCols;
	const uint begin = p.split != 0 ? group.z * partCols : 0, end = p.split != 0 ? min(begin + partCols, p.cols) : p.cols;
	simdgroup_float8x8 sums[Tiles], totals[Tiles];
	for (uint t = 0; t < Tiles; t++) {
		sums[t] = simdgroup_float8x8(0);
		totals[t] = simdgroup_float8x8(0);
	}
	for (uint from = begin; from < end; from += block) {
		if (from % partCols == 0 && from != begin)
			for (uint t = 0; t < Tiles; t++) addPart(totals[t], sums[t]);
		const uint span = min(block, end - from);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = index; i < span * 8 * live; i += projectThreads) {
			uint row = i / span, c = i % span;
			float v = row0 + row < p.rows ? x[ulong(row0 + row) * p.cols + inputOf(p, from + c)] : 0.0f;
			inputs[(c / 32 * 32 + slotOf(c)) * rows + row] = v;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		multiplyBlock<F, Tiles>(sums, inputs, plane0, plane1, meta, n, groups, from, span, pair, live);
	}
	if (out0 + r >= p.outputs) return;
	for (uint t = 0; t < Tiles; t++) {
		addPart(totals[t], sums[t]);
		for (uint i = 0; i < 2; i++) {
			uint row = row0 + 8 * t + 2 * pair + i;
			if (row >= p.rows) continue;
			const uint epilogue = p.split != 0 ? EpilogueStore : p.epilogue;
			conclude(dst + ulong(group.z * p.rows + row) * p.outputs + out0 + r, totals[t].thread_elements()[i], epilogue);
		}
	}
}

// The sums of split projections, part after part. Grid: outputs / 256 rounded up, rows. Threads: 256.
kernel void project_sum(device const float *parts [[buffer(0)]], device float *dst [[buffer(1)]],
                        constant SumParams &p [[buffer(2)]], THREADS) {
	const uint n = group.x * 256 + index;
	if (n >= p.outputs) return;
	float sum = 0;
	for (uint i = 0; i < p.parts; i++) sum += parts[ulong(i * p.rows + group.y) * p.outputs + n];
	conclude(dst + ulong(group.y) * p.outputs + n, sum, p.epilogue);
}
KERNEL(project_sum);

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
	INSTANCE(project_wide_##suffix, project<F, 8>);                                                                    \
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
	conclude(dst + ulong(group.y) * p.outputs + n, sum, p.epilogue);
}
KERNEL(project_f32);

// Rows of a matrix of F32 rows by number. Grid: cols / 256 rounded up, rows. Threads: 256.
kernel void gather_f32(device const float *w [[buffer(0)]], device const Row *list [[buffer(1)]],
                       device float *dst [[buffer(2)]], constant GatherParams &p [[buffer(3)]], THREADS) {
	const uint i = group.x * 256 + index;
	if (i < p.cols) dst[ulong(group.y) * p.cols + i] = w[ulong(list[group.y].token) * p.cols + i];
}
KERNEL(gather_f32);
