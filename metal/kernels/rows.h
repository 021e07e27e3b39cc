#ifndef SPLASH_ROWS_H
#define SPLASH_ROWS_H
#include "params.h"

typedef struct {
	unsigned width;
} CopyParams;
SPLASH_SIZE(CopyParams, 4);

#endif
