// The qualifiers of Metal's language as the host reads them. It stands after every header of the host, whose words it takes.
#pragma once

// Qualifiers: every pointer is a plain one here. (clang holds the kernels to their address spaces: lint/.)
#define device
#define constant const
#define thread
#define threadgroup
#define kernel static

// A kernel's trailing arguments, and its registration.
#define THREADS uint3 group, uint index, uint simd, uint lane, uchar *shared
#define KERNEL(name) INSTANCE(name, name)
#define INSTANCE(name, ...) static splash_host::Register splash_register_##name(#name, &__VA_ARGS__)
