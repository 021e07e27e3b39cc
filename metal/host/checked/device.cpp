//go:build linux && amd64

#define SPLASH_BRIDGE splash_checked_bridge
#define SPLASH_NAME "host, checked"
#define SPLASH_UNCHECKED __attribute__((no_sanitize("kernel-address"), noinline))

// The types behind the handles differ from those of the unchecked device, which is linked into the same program.
#define splash_device splash_checked_device
#define splash_buffer splash_checked_buffer
#define splash_kernel splash_checked_kernel
#define splash_graph splash_checked_graph

#include "../metal_stdlib.h"
#include "../group.h"
#include "check.h"
#include "../device.h"
#include "../kernels.h"
