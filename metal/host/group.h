// A threadgroup on the host: its lanes are fibers of one thread of the CPU, run in turn until they meet.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "../bridge.h"

namespace splash_host { namespace {

Kernel *kernels;

enum State : uint8_t { Ready, AtSimd, AtGroup, Done };
enum Op : uint8_t { Nothing, Order, Sum, Max, MaxUint, Multiply };

constexpr size_t stackBytes = 64 << 10;
constexpr int simdLanes = 32;

constexpr int maxProducts = 64; // that a lane has waiting

// Products are those of 8x8 matrices that a SIMD-group's lanes have waiting: each lane puts its elements in their places, and
// where its elements of the sum are.
struct Products {
	float a[maxProducts][8][8], b[maxProducts][8][8];
	float *d[maxProducts][simdLanes];
};

struct Fiber {
	void *sp;
	char *stack; // its lowest byte, above a guard page
	State state;
	Op op;
	bool memory;
	float value;
	unsigned epoch; // of the products, from 1
	int waiting; // products
};

struct Range {
	const char *base;
	uint64_t size;
};

// A word of threadgroup memory as the checks see it. Lanes are counted from 1.
struct Word {
	uint64_t group; // in which it was written
	uint64_t written, read; // intervals between barriers of the threadgroup
	uint32_t writtenSimd, readSimd; // and of the SIMD-group
	uint16_t writer, reader, other;
};

// A Worker runs threadgroups of one dispatch after another on one thread.
struct Worker {
	Fiber fibers[SPLASH_THREADS];
	int stacks; // fibers that have one
	Fiber main;
	int current;
	bool inside; // a lane is running
	bool failed;
	char error[512];

	const Kernel *running;
	Call call;
	metal::uint3 group;
	Range bound[SPLASH_BUFFERS];
	alignas(64) unsigned char shared[SPLASH_SHARED];
	uint32_t sharedBytes;

	uint64_t serial, interval;
	uint32_t simdInterval[SPLASH_THREADS / simdLanes];
	Products products[SPLASH_THREADS / simdLanes];
	Word words[SPLASH_SHARED / 4];
};

thread_local Worker *worker;

// switchFiber keeps the registers that a callee keeps, and goes on where `to` was left.
__attribute__((naked, noinline)) void switchFiber(void **, void *) {
	asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
	    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
	    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
SPLASH_UNCHECKED inline void switchTo(Fiber &from, Fiber &to) { switchFiber(&from.sp, to.sp); }

// leave gives the thread back to the loop of runGroup.
SPLASH_UNCHECKED void leave(Worker *w) {
	w->inside = false;
	switchTo(w->fibers[w->current], w->main);
	w->inside = true;
}

// fail ends the threadgroup with an error. The lanes' stacks are left as they are: kernels own nothing.
SPLASH_UNCHECKED __attribute__((format(printf, 2, 3))) void fail(Worker *w, const char *format, ...) {
	if (!w->failed) {
		int n = snprintf(w->error, sizeof w->error, "kernel %s, threadgroup %u %u %u: ", w->running->name, w->group.x,
		                 w->group.y, w->group.z);
		va_list args;
		va_start(args, format);
		vsnprintf(w->error + n, sizeof w->error - n, format, args);
		va_end(args);
	}
	w->failed = true;
}

SPLASH_UNCHECKED void laneMain() {
	Worker *w = worker;
	w->inside = true;
	Call call = w->call;
	call.index = unsigned(w->current);
	call.simd = call.index / simdLanes;
	call.lane = call.index % simdLanes;
	w->running->call(w->running->function, call);
	w->inside = false;
	w->fibers[w->current].state = Done;
	for (;;) leave(w);
}

SPLASH_UNCHECKED void prepare(Worker *w, int i) {
	Fiber &f = w->fibers[i];
	f.state = Ready;
	f.epoch = 1;
	f.waiting = 0;
	void **top = reinterpret_cast<void **>(f.stack + stackBytes);
	*--top = nullptr; // keeps the stack aligned as after a call
	*--top = reinterpret_cast<void *>(laneMain);
	for (int r = 0; r < 6; r++) *--top = nullptr;
	f.sp = top;
}

void giveStacks(Worker *w, int n) {
	size_t page = size_t(sysconf(_SC_PAGESIZE));
	for (; w->stacks < n; w->stacks++) {
		void *p = mmap(nullptr, page + stackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED || mprotect(p, page, PROT_NONE) != 0) {
			fail(w, "no memory for the stacks of %d threads", n);
			return;
		}
		w->fibers[w->stacks].stack = static_cast<char *>(p) + page;
	}
}

SPLASH_UNCHECKED void meet(State s, Op op, bool memory) {
	Worker *w = worker;
	Fiber &f = w->fibers[w->current];
	f.state = s;
	f.op = op;
	f.memory = memory;
	leave(w);
}

SPLASH_UNCHECKED void meet_group(bool memory) { meet(AtGroup, Nothing, memory); }
SPLASH_UNCHECKED void meet_simd(bool memory) { meet(AtSimd, memory ? Order : Nothing, memory); }

SPLASH_UNCHECKED float reduce(Op op, float x) {
	Fiber &f = worker->fibers[worker->current];
	f.value = x;
	meet(AtSimd, op, false);
	return f.value;
}
SPLASH_UNCHECKED float reduce_sum(float x) { return reduce(Sum, x); }
SPLASH_UNCHECKED float reduce_max(float x) { return reduce(Max, x); }
SPLASH_UNCHECKED uint32_t reduce_max_uint(uint32_t x) {
	float f;
	memcpy(&f, &x, sizeof f);
	f = reduce(MaxUint, f);
	memcpy(&x, &f, sizeof x);
	return x;
}

SPLASH_UNCHECKED unsigned epoch() { return worker->fibers[worker->current].epoch; }

SPLASH_UNCHECKED void settle() { meet(AtSimd, Multiply, false); }

SPLASH_UNCHECKED void multiply(float *d, const float *a, const float *b) {
	Fiber &f = worker->fibers[worker->current];
	if (f.waiting == maxProducts) settle();
	Products &p = worker->products[worker->current / simdLanes];
	int lane = worker->current % simdLanes, k = f.waiting++;
	memcpy(&p.a[k][metal::matrix_row(lane)][metal::matrix_col(lane)], a, 8);
	memcpy(&p.b[k][metal::matrix_row(lane)][metal::matrix_col(lane)], b, 8);
	p.d[k][lane] = d;
}

SPLASH_UNCHECKED int lane() { return worker->current % simdLanes; }

SPLASH_UNCHECKED void combineMaxUint(Fiber *f) {
	uint32_t most = 0, x;
	for (int i = 0; i < simdLanes; i++) {
		memcpy(&x, &f[i].value, sizeof x);
		most = x > most ? x : most;
	}
	for (int i = 0; i < simdLanes; i++) memcpy(&f[i].value, &most, sizeof most);
}

SPLASH_UNCHECKED void combineReduce(Fiber *f, Op op) {
	float v[simdLanes], t[simdLanes];
	for (int i = 0; i < simdLanes; i++) v[i] = f[i].value;
	for (int bit = 1; bit < simdLanes; bit *= 2) {
		memcpy(t, v, sizeof v);
		for (int i = 0; i < simdLanes; i++) v[i] = op == Sum ? t[i] + t[i ^ bit] : (t[i] < t[i ^ bit] ? t[i ^ bit] : t[i]);
	}
	for (int i = 0; i < simdLanes; i++) f[i].value = v[i];
}

typedef float Row8 __attribute__((vector_size(32)));

// An Accumulator is a matrix that products are being added to; product k says where its elements are.
struct Accumulator {
	Row8 rows[8];
	int k;
};

SPLASH_UNCHECKED void readSum(const Products &p, Accumulator &s, int k) {
	s.k = k;
	for (int i = 0; i < simdLanes; i++)
		memcpy(reinterpret_cast<float *>(&s.rows[metal::matrix_row(i)]) + metal::matrix_col(i), p.d[k][i], 8);
}

SPLASH_UNCHECKED void writeSum(const Products &p, const Accumulator &s) {
	for (int i = 0; i < simdLanes; i++)
		memcpy(p.d[s.k][i], reinterpret_cast<const float *>(&s.rows[metal::matrix_row(i)]) + metal::matrix_col(i), 8);
}

// add adds n products to their sums, in their order, each in the order of the inner index. Lanes whose products have one sum
// are those of all.
SPLASH_UNCHECKED void add(const Products &p, int n) {
	Accumulator sums[16];
	int count = 0;
	for (int k = 0; k < n; k++) {
		int at = 0;
		while (at < count && p.d[sums[at].k][0] != p.d[k][0]) at++;
		if (at == 16) {
			for (int i = 0; i < count; i++) writeSum(p, sums[i]);
			at = count = 0;
		}
		if (at == count) readSum(p, sums[count++], k);
		for (int r = 0; r < 8; r++) {
			Row8 row = sums[at].rows[r];
			for (int j = 0; j < 8; j++) {
				Row8 b;
				memcpy(&b, p.b[k][j], sizeof b);
				row += p.a[k][r][j] * b;
			}
			sums[at].rows[r] = row;
		}
	}
	for (int i = 0; i < count; i++) writeSum(p, sums[i]);
}

// addProducts adds the products that the lanes who settle have waiting. The others have made them too, and maybe more.
SPLASH_UNCHECKED void addProducts(Worker *w, int first) {
	Fiber *f = w->fibers + first;
	Products &p = w->products[first / simdLanes];
	int n = 0, at = 0;
	for (int i = 0; i < simdLanes; i++)
		if (f[i].state == AtSimd && f[i].op == Multiply && f[i].waiting >= n) n = f[i].waiting, at = i;
	for (int i = 0; i < simdLanes; i++) {
		if (f[i].waiting < n) {
			fail(w, "the lanes of SIMD-group %d part: lane %d is at simdgroup_multiply_accumulate, lane %d is not", first / simdLanes, at, i);
			return;
		}
	}
	add(p, n);
	for (int i = 0; i < simdLanes; i++) {
		int r = metal::matrix_row(i), c = metal::matrix_col(i);
		for (int k = n; k < f[i].waiting; k++) {
			memcpy(&p.a[k - n][r][c], &p.a[k][r][c], 8);
			memcpy(&p.b[k - n][r][c], &p.b[k][r][c], 8);
			p.d[k - n][i] = p.d[k][i];
		}
		if ((f[i].waiting -= n) == 0) f[i].epoch++;
		if (f[i].state == AtSimd && f[i].op == Multiply) f[i].state = Ready;
	}
}

const char *const opNames[] = {"simdgroup_barrier(mem_none)", "simdgroup_barrier", "simd_sum", "simd_max", "simd_max",
                               "simdgroup_multiply_accumulate"};

// runSimd runs the lanes of a SIMD-group until all of them wait for the threadgroup or are done.
SPLASH_UNCHECKED void runSimd(Worker *w, int first) {
	for (;;) {
		Fiber *f = w->fibers + first;
		for (int i = 0; i < simdLanes && !w->failed; i++) {
			if (f[i].state == Ready) {
				w->current = first + i;
				switchTo(w->main, f[i]);
			}
		}
		if (w->failed) return;
		int waiting = 0, settling = 0;
		for (int i = 0; i < simdLanes; i++) {
			waiting += f[i].state == AtSimd;
			settling += f[i].state == AtSimd && f[i].op == Multiply;
		}
		if (settling > 0) {
			addProducts(w, first);
			if (w->failed) return;
			continue;
		}
		if (waiting == 0) return;
		for (int i = 0; i < simdLanes; i++) {
			if (waiting != simdLanes || f[i].op != f[0].op) {
				int at = 0;
				while (f[at].state != AtSimd) at++;
				fail(w, "the lanes of SIMD-group %d part: lane %d is at %s, lane %d is not", first / simdLanes, at,
				     opNames[f[at].op], waiting != simdLanes && f[i].state == AtSimd ? waiting % simdLanes : i);
				return;
			}
		}
		switch (f[0].op) {
		case Order: w->simdInterval[first / simdLanes]++; break;
		case Sum:
		case Max: combineReduce(f, f[0].op); break;
		case MaxUint: combineMaxUint(f); break;
		case Multiply:
		case Nothing: break;
		}
		for (int i = 0; i < simdLanes; i++) f[i].state = Ready;
	}
}

// runGroup runs one threadgroup of the worker's dispatch.
SPLASH_UNCHECKED void runGroup(Worker *w, int threads) {
	w->serial++;
	w->interval++;
	// What no thread wrote is NaN.
	memset(w->shared, 0xff, w->sharedBytes);
	for (int i = 0; i < threads; i++) prepare(w, i);
	for (;;) {
		for (int first = 0; first < threads && !w->failed; first += simdLanes) runSimd(w, first);
		if (w->failed) return;
		int done = 0;
		bool memory = true;
		for (int i = 0; i < threads; i++) {
			done += w->fibers[i].state == Done;
			memory = memory && w->fibers[i].memory;
		}
		if (done == threads) return;
		if (done != 0) {
			fail(w, "%d of %d threads ended before a threadgroup_barrier that the others wait at", done, threads);
			return;
		}
		if (memory) w->interval++;
		for (int i = 0; i < threads; i++) w->fibers[i].state = Ready;
	}
}

template <class F, class P, class... B, size_t... I>
SPLASH_UNCHECKED void apply(F f, const P &params, const Call &c, std::index_sequence<I...>, std::tuple<B...> *) {
	f(static_cast<B>(c.buffers[I])..., params, *c.group, c.index, c.simd, c.lane, c.shared);
}

template <class T, class... A> struct Split;

// Split parts a kernel's arguments into buffers and parameters.
template <class... B, class P, class... Rest> struct Split<std::tuple<B...>, const P &, Rest...> {
	typedef std::tuple<B...> Buffers;
	typedef P Params;
};
template <class... B, class T, class... Rest> struct Split<std::tuple<B...>, T *, Rest...>
    : Split<std::tuple<B..., T *>, Rest...> {};

template <class... A> Register::Register(const char *name, void (*f)(A...)) {
	typedef Split<std::tuple<>, A...> S;
	typedef typename S::Buffers Buffers;
	constexpr size_t buffers = std::tuple_size<Buffers>::value;
	static_assert(buffers <= SPLASH_BUFFERS && sizeof(typename S::Params) <= SPLASH_PARAMS, "a dispatch has room for it");
	entry.name = name;
	entry.function = reinterpret_cast<void (*)()>(f);
	entry.call = [](void (*function)(), const Call &c) {
		apply(reinterpret_cast<void (*)(A...)>(function), *static_cast<const typename S::Params *>(c.params), c,
		      std::make_index_sequence<buffers>{}, static_cast<Buffers *>(nullptr));
	};
	entry.buffers = buffers;
	entry.params_size = sizeof(typename S::Params);
	entry.next = kernels;
	kernels = &entry;
}

} } // namespace splash_host
