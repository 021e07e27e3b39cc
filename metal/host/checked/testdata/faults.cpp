// Kernels with one fault each, run on the checked device: what it says of each is printed, one line a kernel.
#define SPLASH_BRIDGE splash_checked_bridge
#define SPLASH_NAME "faults"
#define SPLASH_UNCHECKED __attribute__((no_sanitize("kernel-address"), noinline))

#include "../../metal_stdlib.h"
#include "../../group.h"
#include "../check.h"
#include "../../device.h"

struct Params {
	unsigned n;
};

#include "../../qualifiers.h"
using namespace metal;
namespace {

#define FAULT(name) kernel void name(device float *x, constant Params &p, THREADS)

FAULT(sound) {
	threadgroup float *s = (threadgroup float *)shared;
	s[index] = float(index);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	x[index] = s[(index + 1) % p.n] + simd_sum(1.0f) + float(simd + lane + group.x);
}
KERNEL(sound);
FAULT(sound_simd) {
	threadgroup float *s = (threadgroup float *)shared;
	s[index] = float(index);
	simdgroup_barrier(mem_flags::mem_threadgroup);
	x[index] = s[index ^ 1] + float(simd + lane + group.x + p.n);
}
KERNEL(sound_simd);
FAULT(writes_past) { x[index + (index == 40 ? p.n : 0)] = float(simd + lane + group.x + shared[0] * 0); }
KERNEL(writes_past);
FAULT(reads_before) { x[index] = index == 3 ? x[-1] : float(simd + lane + group.x + p.n + (shared == nullptr)); }
KERNEL(reads_before);
FAULT(reads_unwritten) {
	threadgroup float *s = (threadgroup float *)shared;
	if (index != 5) s[index] = 1;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	x[index] = s[index] + float(simd + lane + group.x + p.n);
}
KERNEL(reads_unwritten);
FAULT(races_read) {
	threadgroup float *s = (threadgroup float *)shared;
	s[index] = float(index);
	x[index] = s[index == 33 ? 2 : index] + float(simd + lane + group.x + p.n);
}
KERNEL(races_read);
FAULT(races_write) {
	threadgroup float *s = (threadgroup float *)shared;
	s[0] = float(index + simd + lane + group.x + p.n);
	x[index] = 0;
}
KERNEL(races_write);
FAULT(crosses_simd_barrier) {
	threadgroup float *s = (threadgroup float *)shared;
	s[index] = float(index);
	simdgroup_barrier(mem_flags::mem_threadgroup);
	x[index] = s[simd == 1 ? index - 32 : index] + float(simd + lane + group.x + p.n);
}
KERNEL(crosses_simd_barrier);
FAULT(races_past_no_fence) {
	threadgroup float *s = (threadgroup float *)shared;
	s[index] = float(index);
	threadgroup_barrier(mem_flags::mem_none);
	x[index] = s[(index + 1) % p.n] + float(simd + lane + group.x);
}
KERNEL(races_past_no_fence);
FAULT(past_shared) {
	threadgroup float *s = (threadgroup float *)shared;
	s[index + (index == 7 ? p.n : 0)] = 1;
	x[index] = float(simd + lane + group.x);
}
KERNEL(past_shared);
FAULT(parts_at_sum) {
	x[index] = lane < 31 ? simd_sum(1.0f) : float(simd + group.x + p.n + (shared == nullptr));
}
KERNEL(parts_at_sum);
FAULT(leaves_barrier) {
	if (simd == 1) return;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	x[index] = float(lane + group.x + p.n + (shared == nullptr));
}
KERNEL(leaves_barrier);

} // namespace

#undef kernel

int main() {
	const splash_bridge *b = splash_checked_bridge();
	splash_device *d;
	char *name;
	if (b->open(&d, &name) != nullptr) return 1;
	const char *const all[] = {"sound", "sound_simd", "writes_past", "reads_before", "reads_unwritten", "races_read", "races_write",
	                           "crosses_simd_barrier", "races_past_no_fence", "past_shared", "parts_at_sum", "leaves_barrier"};
	for (const char *kernel_name : all) {
		splash_buffer *x;
		splash_kernel *k;
		if (b->buffer(d, 64 * sizeof(float), &x) != nullptr || b->kernel(d, kernel_name, nullptr, nullptr, &k) != nullptr) return 1;
		splash_dispatch run = {};
		run.kernel = k;
		run.bindings[0] = {x, 0};
		run.buffers = 1;
		run.params_size = sizeof(Params);
		run.params[0] = 64;
		run.groups[0] = run.groups[1] = run.groups[2] = 1;
		run.threads = 64;
		run.shared = 256;
		splash_graph *g;
		char *error = b->graph(d, &run, 1, &g);
		if (error == nullptr) error = b->encode(d, g);
		if (error == nullptr) error = b->commit(d);
		b->free_graph(d, g);
		if (error == nullptr) error = b->wait(d);
		printf("%s: %s\n", kernel_name, error == nullptr ? "sound" : error);
		b->free_buffer(d, x);
	}
	b->close(d);
	return 0;
}
