//go:build linux && amd64

#define SPLASH_BRIDGE splash_host_bridge
#define SPLASH_NAME "host"
#include "metal_stdlib.h"
#include "device.h"
#include "kernels.h"
