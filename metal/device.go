//go:build cgo

package metal

/*
#include <stdlib.h>
#include "bridge.h"

static char *open_device(const splash_bridge *b, splash_device **d, char **name) { return b->open(d, name); }
static void close_device(const splash_bridge *b, splash_device *d) { b->close(d); }
static char *compile_source(const splash_bridge *b, splash_device *d, const char *name, const char *source) {
	return b->compile(d, name, source);
}
static char *find_kernel(const splash_bridge *b, splash_device *d, const char *name, const char *archive, const char *fresh,
                         splash_kernel **k) {
	return b->kernel(d, name, archive, fresh, k);
}
static char *new_buffer(const splash_bridge *b, splash_device *d, uint64_t size, splash_buffer **out) {
	return b->buffer(d, size, out);
}
static char *wrap_memory(const splash_bridge *b, splash_device *d, const void *p, uint64_t size, splash_buffer **out) {
	return b->wrap(d, p, size, out);
}
static void *buffer_contents(const splash_bridge *b, splash_buffer *x) { return b->contents(x); }
static void free_buffer(const splash_bridge *b, splash_device *d, splash_buffer *x) { b->free_buffer(d, x); }
static char *keep_dispatches(const splash_bridge *b, splash_device *d, const splash_dispatch *x, size_t n, splash_graph **out) {
	return b->graph(d, x, n, out);
}
static void free_graph(const splash_bridge *b, splash_device *d, splash_graph *g) { b->free_graph(d, g); }
static char *encode_graph(const splash_bridge *b, splash_device *d, splash_graph *g) { return b->encode(d, g); }
static char *encode_dispatches(const splash_bridge *b, splash_device *d, const splash_dispatch *x, size_t n) {
	splash_graph *g;
	char *error = b->graph(d, x, n, &g);
	if (error != NULL) return error;
	error = b->encode(d, g);
	b->free_graph(d, g);
	return error;
}
static char *commit_device(const splash_bridge *b, splash_device *d) { return b->commit(d); }
static char *wait_device(const splash_bridge *b, splash_device *d) { return b->wait(d); }
static void read_counters(const splash_bridge *b, splash_device *d, splash_counters *out) { b->counters(d, out); }
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

// A Device runs kernels. It is used by one goroutine at a time.
type Device struct {
	// Name says what it is: "Apple M4 Max", "host, 8 threads".
	Name string

	table   *C.splash_bridge // nil: a device that records and runs nothing
	handle  *C.splash_device
	kernels map[string]*Kernel
	held    int64 // bytes of buffers, on a device that runs nothing
	codes   codeCache
}

// dry is a device that takes commands and runs nothing, to count what a pass would take.
func dry() *Device { return &Device{Name: "dry", kernels: make(map[string]*Kernel)} }

func (d *Device) isDry() bool { return d.table == nil }

// Devices names the kinds of devices that this build can open, the preferred first: "metal" is the GPU of a Mac, "host" the
// CPU, "checked" the CPU with every memory access of the kernels checked.
func Devices() []string {
	var names []string
	for _, b := range bridges {
		names = append(names, b.kind)
	}
	return names
}

// A bridge is a device's table of calls.
type bridge struct {
	kind  string
	table func() unsafe.Pointer
}

// Describe returns the name of the device of a kind.
func Describe(kind string) (string, error) {
	d, err := connect(kind)
	if err != nil {
		return "", err
	}
	defer d.Close()
	return d.Name, nil
}

// Open opens the device of a kind and compiles the kernels.
func Open(kind string) (*Device, error) { return openCached(kind, "") }

// openCached opens a device that keeps what it makes of kernels for its GPU below a directory; empty: it keeps nothing.
func openCached(kind, dir string) (*Device, error) {
	d, err := connect(kind)
	if err != nil {
		return nil, err
	}
	if kind != gpu {
		dir = "" // the host's are compiled in
	}
	if err := d.compile(dir); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// connect opens the device of a kind, without kernels.
func connect(kind string) (*Device, error) {
	at := slices.IndexFunc(bridges, func(b bridge) bool { return b.kind == kind })
	if at < 0 {
		return nil, fmt.Errorf("metal: no device %q in this build; it has %s", kind, orNone(Devices()))
	}
	return connectTo(bridges[at])
}

func connectTo(b bridge) (*Device, error) {
	d := &Device{table: (*C.splash_bridge)(b.table()), kernels: make(map[string]*Kernel)}
	var name *C.char
	if err := take(C.open_device(d.table, &d.handle, &name)); err != nil {
		return nil, fmt.Errorf("metal: open %s: %w", b.kind, err)
	}
	d.Name = C.GoString(name)
	C.free(unsafe.Pointer(name))
	return d, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// compile gives the device every kernel source, its includes in place.
func (d *Device) compile(dir string) error {
	all, err := sources()
	if err != nil {
		return err
	}
	d.codes = newCodeCache(dir, all, d.Name, systemVersion())
	for _, s := range all {
		name, text := C.CString(s.name), C.CString(s.text)
		err := take(C.compile_source(d.table, d.handle, name, text))
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(text))
		if err != nil {
			return fmt.Errorf("metal: compile %s: %w", s.name, err)
		}
	}
	return nil
}

// take makes an error of a text that is the caller's.
func take(text *C.char) error {
	if text == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(text))
	return errors.New(C.GoString(text))
}

// Close waits for the device's work and lets go of it. Its buffers are freed before.
func (d *Device) Close() {
	if d.isDry() {
		return
	}
	C.close_device(d.table, d.handle)
	d.handle = nil
}

// A Kernel is a compiled kernel.
type Kernel struct {
	Name   string
	handle *C.splash_kernel
	used   int // dispatches that were recorded
}

// Used says how often each kernel that was asked for has been recorded.
func (d *Device) Used() map[string]int {
	used := make(map[string]int)
	for name, k := range d.kernels {
		used[name] = k.used
	}
	return used
}

// Kernel returns the kernel of that name.
func (d *Device) Kernel(name string) (*Kernel, error) {
	if k := d.kernels[name]; k != nil {
		return k, nil
	}
	k := &Kernel{Name: name}
	if d.isDry() {
		d.kernels[name] = k
		return k, nil
	}
	err := d.codes.use(name, func(archive, fresh string) error {
		text, from, to := C.CString(name), optional(archive), optional(fresh)
		defer C.free(unsafe.Pointer(text))
		defer C.free(unsafe.Pointer(from))
		defer C.free(unsafe.Pointer(to))
		return take(C.find_kernel(d.table, d.handle, text, from, to, &k.handle))
	})
	if err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	d.kernels[name] = k
	return k, nil
}

// optional is a text of C's, or NULL for an empty one.
func optional(text string) *C.char {
	if text == "" {
		return nil
	}
	return C.CString(text)
}

// A Buffer is memory that the CPU and the device share.
type Buffer struct {
	device *Device
	handle *C.splash_buffer
	bytes  []byte
	pin    runtime.Pinner

	counted bool // in a dry device's held
}

// NewBuffer allocates size bytes, which hold anything.
func (d *Device) NewBuffer(size int) (*Buffer, error) {
	if size <= 0 {
		return nil, fmt.Errorf("metal: a buffer of %d bytes", size)
	}
	b := &Buffer{device: d}
	if d.isDry() {
		b.bytes = make([]byte, size)
		d.held += int64(size)
		b.counted = true
		return b, nil
	}
	if err := take(C.new_buffer(d.table, d.handle, C.uint64_t(size), &b.handle)); err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	b.bytes = unsafe.Slice((*byte)(C.buffer_contents(d.table, b.handle)), size)
	return b, nil
}

// Wrap makes a buffer of memory that stays the caller's, without a copy. It begins on a page, is kept until Free, and
// kernels only read it.
func (d *Device) Wrap(memory []byte) (*Buffer, error) {
	if d.isDry() {
		return &Buffer{device: d, bytes: memory}, nil
	}
	if len(memory) == 0 {
		return nil, errors.New("metal: a buffer of 0 bytes")
	}
	b := &Buffer{device: d, bytes: memory}
	b.pin.Pin(&memory[0])
	err := take(C.wrap_memory(d.table, d.handle, unsafe.Pointer(&memory[0]), C.uint64_t(len(memory)), &b.handle))
	if err != nil {
		b.pin.Unpin()
		return nil, fmt.Errorf("metal: %w", err)
	}
	return b, nil
}

// Free gives the memory back. No work that uses it may be under way.
func (b *Buffer) Free() {
	if !b.device.isDry() {
		C.free_buffer(b.device.table, b.device.handle, b.handle)
		b.pin.Unpin()
	} else if b.counted {
		b.device.held -= int64(len(b.bytes))
	}
	b.handle, b.bytes = nil, nil
}

// Size is the buffer's bytes.
func (b *Buffer) Size() int { return len(b.bytes) }

// view is a buffer's memory as values of a type of C's.
func view[T any](b *Buffer) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.bytes))), len(b.bytes)/int(sizeOf[T]()))
}

// A binding is a buffer from a byte on.
type binding struct {
	buffer *Buffer
	offset int64
}

func (b *Buffer) from(offset int64) binding { return binding{b, offset} }

// A grid is how many threadgroups a dispatch has, of how many threads, with how much memory in bytes.
type grid struct {
	x, y, z         int
	threads, shared int
}

// A dispatch is one run of a kernel, as the device is told of it.
type dispatch = C.splash_dispatch

// Commands are dispatches in order, in memory of their own.
type Commands struct{ list []dispatch }

// Reset forgets the dispatches and keeps the memory.
func (c *Commands) Reset() { c.list = c.list[:0] }

// Len is the number of dispatches.
func (c *Commands) Len() int { return len(c.list) }

// add records a run of a kernel. P is the structure of its parameters.
func add[P any](c *Commands, k *Kernel, g grid, params P, bindings ...binding) {
	if len(c.list) == cap(c.list) {
		c.list = slices.Grow(c.list, 64)
	}
	c.list = c.list[:len(c.list)+1]
	x := &c.list[len(c.list)-1]
	k.used++
	x.kernel = k.handle
	for i, b := range bindings {
		x.bindings[i] = C.splash_binding{buffer: b.buffer.handle, offset: C.uint64_t(b.offset)}
	}
	x.buffers = C.uint32_t(len(bindings))
	x.params_size = C.uint32_t(unsafe.Sizeof(params))
	*(*P)(unsafe.Pointer(&x.params)) = params
	x.groups = [3]C.uint32_t{C.uint32_t(g.x), C.uint32_t(g.y), C.uint32_t(max(1, g.z))}
	x.threads, x.shared = C.uint32_t(g.threads), C.uint32_t(g.shared)
}

// Run starts the commands, which may go on after it returns. What is run runs one after another.
func (d *Device) Run(c *Commands) error {
	if c.Len() == 0 {
		return nil
	}
	if err := d.encode(c.list); err != nil {
		return err
	}
	return d.commit()
}

// encode adds dispatches to what the next commit starts.
func (d *Device) encode(list []dispatch) error {
	if len(list) == 0 || d.isDry() {
		return nil
	}
	return said(C.encode_dispatches(d.table, d.handle, unsafe.SliceData(list), C.size_t(len(list))))
}

// commit starts what was encoded.
func (d *Device) commit() error {
	if d.isDry() {
		return nil
	}
	return said(C.commit_device(d.table, d.handle))
}

// said is the error that a device gave, with whose it is.
func said(text *C.char) error {
	if err := take(text); err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	return nil
}

// A Graph is commands that the device has checked and keeps, to be run any number of times. It is bound to buffers as they were
// when it was made, which stay until it is freed.
type Graph struct {
	device *Device
	handle *C.splash_graph
	count  int
}

// Keep makes a graph of the first n commands.
func (d *Device) Keep(c *Commands, n int) (*Graph, error) {
	g := &Graph{device: d, count: n}
	if d.isDry() {
		return g, nil
	}
	if err := said(C.keep_dispatches(d.table, d.handle, unsafe.SliceData(c.list), C.size_t(n), &g.handle)); err != nil {
		return nil, err
	}
	return g, nil
}

// Len is the number of dispatches.
func (g *Graph) Len() int { return g.count }

// encode adds the graph to what the next commit starts.
func (g *Graph) encode() error {
	d := g.device
	if d.isDry() || g.count == 0 {
		return nil
	}
	return said(C.encode_graph(d.table, d.handle, g.handle))
}

// Free lets go of the graph, which may still run.
func (g *Graph) Free() {
	if !g.device.isDry() {
		C.free_graph(g.device.table, g.device.handle, g.handle)
	}
	g.handle = nil
}

// Wait returns when all that was run is done, with the first error of it.
func (d *Device) Wait() error {
	if d.isDry() {
		return nil
	}
	if err := take(C.wait_device(d.table, d.handle)); err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	return nil
}

// Counters are a device's sums since it was opened, and the memory it holds now.
type Counters struct {
	Dispatches, Commits uint64
	Buffers, Wrapped    int64   // bytes
	Graphs              int64   // bytes that kept dispatches take
	Seconds             float64 // of the device's work
}

// Counters reads the device's counters.
func (d *Device) Counters() Counters {
	if d.isDry() {
		return Counters{Buffers: d.held}
	}
	var c C.splash_counters
	C.read_counters(d.table, d.handle, &c)
	return Counters{
		Dispatches: uint64(c.dispatches), Commits: uint64(c.commits), Buffers: int64(c.buffer_bytes),
		Wrapped: int64(c.wrapped_bytes), Graphs: int64(c.graph_bytes), Seconds: float64(c.seconds),
	}
}

func sizeOf[T any]() uintptr { return unsafe.Sizeof(*new(T)) }
