// The host device: the calls of bridge.h on threads of the CPU. It is compiled twice: here as it is, and in checked/ with
// every memory access of the kernels checked. SPLASH_BRIDGE is the name of the table, SPLASH_NAME the device's.
#pragma once

#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "group.h"

struct splash_kernel {
	splash_host::Kernel *kernel;
};

struct splash_buffer {
	char *memory;
	uint64_t size;
	bool owned;
};

namespace splash_host { namespace {

// A Step is a dispatch that was checked. Its buffers and parameters stand in those of its graph, from a place on.
struct Step {
	Kernel *kernel;
	uint32_t buffers, params;
	uint32_t groups[3], threads, shared;
};

struct Steps {
	std::vector<Step> list;
	std::vector<Range> buffers;
	std::vector<uint64_t> params;

	uint64_t bytes() const {
		return sizeof *this + list.capacity() * sizeof list[0] + buffers.capacity() * sizeof buffers[0] +
		       params.capacity() * sizeof params[0];
	}
};

} } // namespace splash_host

struct splash_graph {
	std::shared_ptr<const splash_host::Steps> steps; // which work under way has too
};

struct splash_device {
	using Work = std::vector<std::shared_ptr<const splash_host::Steps>>;

	std::vector<std::unique_ptr<splash_kernel>> kernels;
	Work pending;

	std::mutex mutex;
	std::condition_variable changed;
	std::deque<Work> queue;
	bool busy = false, closing = false;
	std::string error;
	splash_counters counters = {};

	// The dispatch under way: threadgroups are handed out one by one.
	const splash_host::Steps *steps = nullptr;
	const splash_host::Step *running = nullptr;
	uint64_t generation = 0;
	int active = 0;
	std::atomic<uint64_t> next{0};
	std::atomic<bool> failed{false};
	std::vector<std::unique_ptr<splash_host::Worker>> workers;
	std::vector<std::thread> threads;
};

namespace splash_host { namespace {

__attribute__((format(printf, 1, 2))) char *message(const char *format, ...) {
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	return strdup(text);
}

// runShare runs threadgroups of the dispatch until none is left.
void runShare(splash_device *d, const Steps &all, const Step &x, Worker *w) {
	void *buffers[SPLASH_BUFFERS];
	for (uint32_t i = 0; i < x.kernel->buffers; i++) {
		w->bound[i] = all.buffers[x.buffers + i];
		buffers[i] = const_cast<char *>(w->bound[i].base);
	}
	w->running = x.kernel;
	w->sharedBytes = x.shared;
	w->call = {buffers, all.params.data() + x.params, &w->group, 0, 0, 0, w->shared};
	w->failed = false;
	giveStacks(w, int(x.threads));
	uint64_t total = uint64_t(x.groups[0]) * x.groups[1] * x.groups[2];
	worker = w;
	while (!w->failed && !d->failed) {
		uint64_t n = d->next++;
		if (n >= total) break;
		w->group = {uint32_t(n % x.groups[0]), uint32_t(n / x.groups[0] % x.groups[1]),
		            uint32_t(n / x.groups[0] / x.groups[1])};
		runGroup(w, int(x.threads));
	}
	worker = nullptr;
	if (w->failed) {
		d->failed = true;
		std::lock_guard<std::mutex> lock(d->mutex);
		if (d->error.empty()) d->error = w->error;
	}
}

void helper(splash_device *d, Worker *w) {
	uint64_t seen = 0;
	std::unique_lock<std::mutex> lock(d->mutex);
	for (;;) {
		d->changed.wait(lock, [&] { return d->closing || (d->running != nullptr && d->generation != seen); });
		if (d->closing) return;
		seen = d->generation;
		const Steps &all = *d->steps;
		const Step &x = *d->running;
		d->active++;
		lock.unlock();
		runShare(d, all, x, w);
		lock.lock();
		if (--d->active == 0) d->changed.notify_all();
	}
}

// Waking the helpers takes longer than a few threadgroups.
constexpr uint64_t helpedGroups = 16;

void runStep(splash_device *d, const Steps &all, const Step &x) {
	bool helped = uint64_t(x.groups[0]) * x.groups[1] * x.groups[2] >= helpedGroups;
	d->next = 0;
	{
		std::lock_guard<std::mutex> lock(d->mutex);
		d->counters.dispatches++;
		if (helped) {
			d->steps = &all;
			d->running = &x;
			d->generation++;
		}
	}
	if (helped) d->changed.notify_all();
	runShare(d, all, x, d->workers[0].get());
	std::unique_lock<std::mutex> lock(d->mutex);
	d->running = nullptr;
	d->changed.wait(lock, [&] { return d->active == 0; });
}

// runQueue is the device's own thread: it runs what was committed, in order.
void runQueue(splash_device *d) {
	std::unique_lock<std::mutex> lock(d->mutex);
	for (;;) {
		d->changed.wait(lock, [&] { return d->closing || !d->queue.empty(); });
		if (d->closing) return;
		splash_device::Work work = std::move(d->queue.front());
		d->queue.pop_front();
		d->busy = true;
		lock.unlock();
		auto start = std::chrono::steady_clock::now();
		for (const auto &steps : work)
			for (const Step &x : steps->list)
				if (!d->failed) runStep(d, *steps, x);
		std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
		lock.lock();
		d->busy = false;
		d->counters.seconds += took.count();
		d->changed.notify_all();
	}
}

char *open(splash_device **out, char **name) {
	auto d = std::make_unique<splash_device>();
	unsigned n = std::thread::hardware_concurrency();
	n = n < 1 ? 1 : n > 8 ? 8 : n;
	for (unsigned i = 0; i < n; i++) d->workers.push_back(std::make_unique<Worker>());
	splash_device *p = d.get();
	// Signals are the program's, whose handlers take more stack than a fiber has.
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (unsigned i = 1; i < n; i++) p->threads.emplace_back(helper, p, p->workers[i].get());
	p->threads.emplace_back(runQueue, p);
	pthread_sigmask(SIG_SETMASK, &before, nullptr);
	*name = message(SPLASH_NAME ", %u threads", n);
	*out = d.release();
	return nullptr;
}

void close(splash_device *d) {
	{
		std::lock_guard<std::mutex> lock(d->mutex);
		d->closing = true;
	}
	d->changed.notify_all();
	for (std::thread &t : d->threads) t.join();
	size_t page = size_t(sysconf(_SC_PAGESIZE));
	for (auto &w : d->workers)
		for (int i = 0; i < w->stacks; i++) munmap(w->fibers[i].stack - page, page + stackBytes);
	delete d;
}

// The sources are compiled in already.
char *compile(splash_device *, const char *, const char *) { return nullptr; }

// So there is nothing to keep of them.
char *kernel(splash_device *d, const char *name, const char *, const char *, splash_kernel **out) {
	for (Kernel *k = kernels; k != nullptr; k = k->next) {
		if (strcmp(k->name, name) == 0) {
			d->kernels.push_back(std::make_unique<splash_kernel>(splash_kernel{k}));
			*out = d->kernels.back().get();
			return nullptr;
		}
	}
	return message("kernel %s: no source defines it", name);
}

char *buffer(splash_device *d, uint64_t size, splash_buffer **out) {
	void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) return message("no memory for a buffer of %llu bytes", static_cast<unsigned long long>(size));
	memset(p, 0xff, size); // NaN until it is written, as nothing promises zeros
	std::lock_guard<std::mutex> lock(d->mutex);
	d->counters.buffer_bytes += size;
	*out = new splash_buffer{static_cast<char *>(p), size, true};
	return nullptr;
}

char *wrap(splash_device *d, const void *memory, uint64_t size, splash_buffer **out) {
	std::lock_guard<std::mutex> lock(d->mutex);
	d->counters.wrapped_bytes += size;
	*out = new splash_buffer{static_cast<char *>(const_cast<void *>(memory)), size, false};
	return nullptr;
}

void *contents(splash_buffer *b) { return b->memory; }

void freeBuffer(splash_device *d, splash_buffer *b) {
	std::lock_guard<std::mutex> lock(d->mutex);
	(b->owned ? d->counters.buffer_bytes : d->counters.wrapped_bytes) -= b->size;
	if (b->owned) munmap(b->memory, b->size);
	delete b;
}

char *checkDispatch(const splash_dispatch &x) {
	const Kernel *k = x.kernel->kernel;
	if (x.buffers != k->buffers || x.params_size != k->params_size)
		return message("kernel %s: %u buffers and %u bytes of parameters, it takes %u and %u", k->name, x.buffers,
		               x.params_size, k->buffers, k->params_size);
	if (x.threads == 0 || x.threads > SPLASH_THREADS || x.threads % simdLanes != 0)
		return message("kernel %s: %u threads a threadgroup; up to %d in whole SIMD-groups are possible", k->name, x.threads,
		               SPLASH_THREADS);
	if (x.shared > SPLASH_SHARED || x.shared % 16 != 0)
		return message("kernel %s: %u bytes of threadgroup memory; up to %d in units of 16 are possible", k->name, x.shared,
		               SPLASH_SHARED);
	if (x.groups[0] == 0 || x.groups[1] == 0 || x.groups[2] == 0) return message("kernel %s: an empty grid", k->name);
	for (uint32_t i = 0; i < x.buffers; i++) {
		const splash_binding &b = x.bindings[i];
		if (b.offset >= b.buffer->size)
			return message("kernel %s: buffer %u begins at byte %llu of %llu", k->name, i,
			               static_cast<unsigned long long>(b.offset), static_cast<unsigned long long>(b.buffer->size));
	}
	return nullptr;
}

void addStep(Steps &to, const splash_dispatch &x) {
	Step step = {x.kernel->kernel, uint32_t(to.buffers.size()), uint32_t(to.params.size()),
	             {x.groups[0], x.groups[1], x.groups[2]}, x.threads, x.shared};
	for (uint32_t i = 0; i < x.buffers; i++) {
		const splash_binding &b = x.bindings[i];
		to.buffers.push_back({b.buffer->memory + b.offset, b.buffer->size - b.offset});
	}
	to.params.resize(to.params.size() + (x.params_size + 7) / 8);
	memcpy(to.params.data() + step.params, x.params, x.params_size);
	to.list.push_back(step);
}

char *graph(splash_device *d, const splash_dispatch *x, size_t n, splash_graph **out) {
	uint64_t buffers = 0, params = 0;
	for (size_t i = 0; i < n; i++) {
		if (char *error = checkDispatch(x[i])) return error;
		buffers += x[i].buffers;
		params += (x[i].params_size + 7) / 8;
	}
	auto steps = std::make_shared<Steps>();
	steps->list.reserve(n);
	steps->buffers.reserve(buffers);
	steps->params.reserve(params);
	for (size_t i = 0; i < n; i++) addStep(*steps, x[i]);
	std::lock_guard<std::mutex> lock(d->mutex);
	d->counters.graph_bytes += steps->bytes();
	*out = new splash_graph{std::move(steps)};
	return nullptr;
}

void freeGraph(splash_device *d, splash_graph *g) {
	std::lock_guard<std::mutex> lock(d->mutex);
	d->counters.graph_bytes -= g->steps->bytes();
	delete g;
}

char *encode(splash_device *d, splash_graph *g) {
	d->pending.push_back(g->steps);
	return nullptr;
}

char *commit(splash_device *d) {
	if (d->pending.empty()) return nullptr;
	{
		std::lock_guard<std::mutex> lock(d->mutex);
		d->queue.push_back(std::move(d->pending));
		d->counters.commits++;
	}
	d->pending.clear();
	d->changed.notify_all();
	return nullptr;
}

char *wait(splash_device *d) {
	std::unique_lock<std::mutex> lock(d->mutex);
	d->changed.wait(lock, [&] { return !d->busy && d->queue.empty(); });
	if (d->error.empty()) return nullptr;
	char *error = strdup(d->error.c_str());
	d->error.clear();
	d->failed = false;
	return error;
}

void counters(splash_device *d, splash_counters *out) {
	std::lock_guard<std::mutex> lock(d->mutex);
	*out = d->counters;
}

} } // namespace splash_host

extern "C" const splash_bridge *SPLASH_BRIDGE() {
	static const splash_bridge bridge = {
		splash_host::open,     splash_host::close,     splash_host::compile,    splash_host::kernel,
		splash_host::buffer,   splash_host::wrap,      splash_host::contents,   splash_host::freeBuffer,
		splash_host::graph,    splash_host::freeGraph, splash_host::encode,     splash_host::commit,
		splash_host::wait,     splash_host::counters,
	};
	return &bridge;
}
