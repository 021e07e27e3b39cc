// The checks of every memory access of a kernel. The compiler calls the functions at the end before an access
// (-fsanitize=kernel-address, with no runtime of its own); this is the runtime: bounds of the bound buffers, threadgroup
// memory that is read before any thread wrote it, and races of threadgroup memory.
#pragma once

// The linker's names for the program or library that this is part of: its first byte, and what is behind its last.
extern "C" __attribute__((visibility("hidden"))) char __ehdr_start, _end;

namespace splash_host { namespace {

// apart reports whether an access of lane `by` in those intervals is not ordered before one of `me` now.
SPLASH_UNCHECKED bool apart(Worker *w, int by, int me, uint64_t interval, uint32_t simdInterval) {
	if (by == 0 || by == me || interval != w->interval) return false;
	int mine = (me - 1) / simdLanes;
	return (by - 1) / simdLanes != mine || simdInterval == w->simdInterval[mine];
}

SPLASH_UNCHECKED void checkWord(Worker *w, Word &x, int me, size_t at, bool write) {
	uint32_t simd = w->simdInterval[(me - 1) / simdLanes];
	int other = apart(w, x.writer, me, x.written, x.writtenSimd) ? x.writer : 0;
	if (write && other == 0 && apart(w, x.reader, me, x.read, x.readSimd)) other = x.reader;
	if (write && other == 0 && apart(w, x.other, me, x.read, x.readSimd)) other = x.other;
	if (other != 0 && (x.group == w->serial || write)) {
		fail(w, "a race of threads %d and %d for byte %zu of threadgroup memory: no barrier stands between", other - 1, me - 1,
		     at);
		return;
	}
	if (write) {
		x.group = w->serial;
		x.writer = uint16_t(me), x.written = w->interval, x.writtenSimd = simd;
		return;
	}
	if (x.group != w->serial) {
		fail(w, "thread %d reads byte %zu of threadgroup memory, which no thread wrote", me - 1, at);
		return;
	}
	if (x.read != w->interval || x.readSimd != simd) x.other = 0;
	else if (x.reader != me) x.other = x.reader;
	x.reader = uint16_t(me), x.read = w->interval, x.readSimd = simd;
}

SPLASH_UNCHECKED void checkAccess(const char *p, size_t size, bool write) {
	Worker *w = worker;
	if (w == nullptr || !w->inside) return;
	const char *stack = w->fibers[w->current].stack;
	if (p >= stack && p + size <= stack + stackBytes) return;
	int me = w->current + 1;
	const char *shared = reinterpret_cast<const char *>(w->shared);
	if (p >= shared && p < shared + SPLASH_SHARED) {
		size_t at = size_t(p - shared);
		if (at + size > w->sharedBytes)
			fail(w, "thread %d is at byte %zu of threadgroup memory of %u bytes", me - 1, at, w->sharedBytes);
		for (size_t i = at / 4; i <= (at + size - 1) / 4 && !w->failed; i++) checkWord(w, w->words[i], me, 4 * i, write);
	} else {
		for (unsigned i = 0; i < w->running->buffers; i++) {
			const Range &r = w->bound[i];
			if (p >= r.base && p + size <= r.base + r.size) return;
		}
		const char *params = static_cast<const char *>(w->call.params);
		if (!write && p >= params && p + size <= params + w->running->params_size) return;
		if (!write && p >= &__ehdr_start && p + size <= &_end) return; // tables of the kernels
		// Name the binding whose end, or start, is nearest.
		unsigned near = 0;
		uint64_t best = ~uint64_t(0);
		for (unsigned i = 0; i < w->running->buffers; i++) {
			const Range &r = w->bound[i];
			uint64_t d = p < r.base ? uint64_t(r.base - p) : uint64_t(p - r.base) - r.size;
			if (d < best) best = d, near = i;
		}
		fail(w, "thread %d %s %zu bytes at byte %lld of buffer %u, which has %llu", me - 1, write ? "writes" : "reads", size,
		     static_cast<long long>(p - w->bound[near].base), near, static_cast<unsigned long long>(w->bound[near].size));
	}
	if (w->failed) leave(w);
}

} } // namespace splash_host

#define SPLASH_CHECK(n)                                                                                                \
	extern "C" SPLASH_UNCHECKED void __asan_load##n##_noabort(void *p) {                                               \
		splash_host::checkAccess(static_cast<const char *>(p), n, false);                                              \
	}                                                                                                                  \
	extern "C" SPLASH_UNCHECKED void __asan_store##n##_noabort(void *p) {                                              \
		splash_host::checkAccess(static_cast<const char *>(p), n, true);                                               \
	}
SPLASH_CHECK(1)
SPLASH_CHECK(2)
SPLASH_CHECK(4)
SPLASH_CHECK(8)
SPLASH_CHECK(16)
extern "C" SPLASH_UNCHECKED void __asan_loadN_noabort(void *p, size_t n) {
	splash_host::checkAccess(static_cast<const char *>(p), n, false);
}
extern "C" SPLASH_UNCHECKED void __asan_storeN_noabort(void *p, size_t n) {
	splash_host::checkAccess(static_cast<const char *>(p), n, true);
}
extern "C" void __asan_handle_no_return() {}
extern "C" void __asan_before_dynamic_init(const char *) {}
extern "C" void __asan_after_dynamic_init() {}
