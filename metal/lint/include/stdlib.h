// What bridge_darwin.m uses of the C library, so that it is checked for the system it is for.
#pragma once
#include <stddef.h>

void *malloc(size_t size);
void free(void *memory);
