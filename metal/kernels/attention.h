#ifndef SPLASH_ATTENTION_H
#define SPLASH_ATTENTION_H
#include "params.h"

// Tokens of a page of keys and values. A page is [KV heads][pageTokens][dim], of 8-bit codes with their scales behind it,
// [KV heads][pageTokens] F32; a lane's pages are named by its row of the table, [lanes][tablePages].
enum { pageTokens = 32, scaleBytes = 4 };

typedef struct {
	unsigned heads, kvHeads, dim;
	unsigned pairs; // that are rotated
	unsigned gated; // the query projection has a gate behind each head
	unsigned qNorm, kNorm;
	unsigned tablePages;
	float epsilon;
} PrepareParams;
SPLASH_SIZE(PrepareParams, 36);

typedef struct {
	unsigned heads, kvHeads, dim;
	unsigned gated;
	unsigned sinks;
	unsigned window; // tokens seen; 0: all
	unsigned tablePages;
	float scale;
	// Where block is not 0, a row of more than budget complete blocks of so many tokens sees the budget of them that blocks names,
	// and what is after the last complete one (qsa.metal).
	unsigned block, budget;
} AttentionParams;
SPLASH_SIZE(AttentionParams, 40);

#endif
