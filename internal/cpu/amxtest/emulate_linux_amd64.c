//go:build cgo

// The instructions of tiles as the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, has them
// (LDTILECFG, STTILECFG, TILELOADD, TILERELEASE, TILESTORED, TILEZERO, TDPBSSD and its kin, TDPBF16PS), and chapter 18 of
// volume 1. What the manual has raise #UD is left to the handler of SIGILL that was there before.
//
// One thing differs: nothing faults half way, so start_row is always 0, and a configuration that starts elsewhere is refused.

#define _GNU_SOURCE
#include "emulate.h"

#include <immintrin.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

// A thread's tiles. palette is 0 until they are configured.
typedef struct {
    int palette;
    uint16_t bytes[TILES];
    uint8_t rows[TILES];
    uint8_t data[TILES][ROWS][ROW_BYTES] __attribute__((aligned(64)));
} tile_state;

static __thread tile_state state;
static struct sigaction before;
static atomic_ullong count;

unsigned long long amx_count(void) { return atomic_load(&count); }

// An instruction, decoded.
typedef struct {
    int length;
    int prefix;   // the two bits of VEX that stand for none, 66, F3 and F2
    int opcode;
    int mod, reg, rm, vvvv;
    uint8_t *address; // of memory, without an index, which is the stride of a tile's rows
    int64_t stride;
    int indexed;
} instruction;

// numbers of a ucontext's general registers, by their numbers in instructions.
static const int registers[16] = {
    REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
    REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
};

// decode reads an instruction of map 0F38 with VEX of three bytes, 128 bits and W0, which all of tiles have. It returns 0
// for another.
static int decode(const uint8_t *code, const greg_t *r, instruction *i) {
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return 0;
    int high = ~code[1]; // R, X and B, inverted
    i->vvvv = (~code[2] >> 3) & 15;
    i->prefix = code[2] & 3;
    i->opcode = code[3];
    i->mod = code[4] >> 6;
    i->reg = ((code[4] >> 3) & 7) | (high >> 7 & 1) << 3;
    i->rm = (code[4] & 7) | (high >> 5 & 1) << 3;
    i->length = 5;
    if (i->mod == 3) return 1;
    const uint8_t *p = code + 5;
    uint8_t *address = 0;
    int base = i->rm, none = 0;
    i->stride = 0;
    i->indexed = 0;
    if ((code[4] & 7) == 4) {
        uint8_t sib = *p++;
        int index = ((sib >> 3) & 7) | (high >> 6 & 1) << 3;
        base = (sib & 7) | (high >> 5 & 1) << 3;
        none = (sib & 7) == 5 && i->mod == 0;
        i->indexed = 1;
        if (index != 4) i->stride = (int64_t)((uint64_t)r[registers[index]] << (sib >> 6));
    } else if ((code[4] & 7) == 5 && i->mod == 0) {
        return 0; // relative to the instruction's end: no kernel does that
    }
    if (!none) address = (uint8_t *)r[registers[base]];
    if (i->mod == 1) {
        address += (int8_t)*p++;
    } else if (i->mod == 2 || none) {
        int32_t displacement;
        memcpy(&displacement, p, 4);
        address += displacement;
        p += 4;
    }
    i->address = address;
    i->length = (int)(p - code);
    return 1;
}

static int usable(int t) { return state.palette == 1 && t < TILES && state.rows[t] != 0 && state.bytes[t] % 4 == 0; }

static void clear_tiles(void) { memset(&state, 0, sizeof state); }

// configure is LDTILECFG.
static int configure(const uint8_t *m) {
    if (m[0] == 0) {
        clear_tiles();
        return 1;
    }
    if (m[0] != 1 || m[1] != 0) return 0;
    for (int i = 2; i < 16; i++)
        if (m[i] != 0) return 0;
    for (int i = 32; i < 48; i++)
        if (m[i] != 0) return 0;
    for (int i = 56; i < 64; i++)
        if (m[i] != 0) return 0;
    uint16_t bytes[TILES];
    memcpy(bytes, m + 16, sizeof bytes);
    const uint8_t *rows = m + 48;
    for (int t = 0; t < TILES; t++)
        if (bytes[t] > ROW_BYTES || rows[t] > ROWS || (bytes[t] == 0) != (rows[t] == 0)) return 0;
    clear_tiles();
    state.palette = 1;
    memcpy(state.bytes, bytes, sizeof bytes);
    memcpy(state.rows, rows, TILES);
    return 1;
}

// configuration is STTILECFG.
static void configuration(uint8_t *m) {
    memset(m, 0, 64);
    m[0] = (uint8_t)state.palette;
    for (int t = 0; t < TILES; t++) {
        memcpy(m + 16 + 2 * t, &state.bytes[t], 2);
        m[48 + t] = state.rows[t];
    }
}

static int load(int t, const uint8_t *from, int64_t stride) {
    if (!usable(t)) return 0;
    memset(state.data[t], 0, sizeof state.data[t]);
    for (int row = 0; row < state.rows[t]; row++) memcpy(state.data[t][row], from + row * stride, state.bytes[t]);
    return 1;
}

static int store(int t, uint8_t *to, int64_t stride) {
    if (!usable(t)) return 0;
    for (int row = 0; row < state.rows[t]; row++) memcpy(to + row * stride, state.data[t][row], state.bytes[t]);
    return 1;
}

// fits says whether tiles have the shapes of a product: c is rows of a's by columns of b's.
static int fits(int c, int a, int b) {
    return usable(c) && usable(a) && usable(b) && c != a && c != b && a != b && state.bytes[c] == state.bytes[b] &&
           state.rows[c] == state.rows[a] && state.bytes[a] / 4 == state.rows[b];
}

#define WIDE __attribute__((target("avx512f,avx512bw")))

// words widens half of a vector of bytes to words.
WIDE static __m512i words(__m256i bytes, int is_signed) {
    return is_signed ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes);
}

// multiply_bytes is TDPB: every dword of c has the products of four bytes added. Sums of words' products are exact.
WIDE static void multiply_bytes(int c, int a, int b, int a_signed, int b_signed) {
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    for (int m = 0; m < state.rows[c]; m++) {
        __m512i sum = _mm512_load_si512(state.data[c][m]);
        for (int k = 0; k < state.rows[b]; k++) {
            uint32_t four;
            memcpy(&four, &state.data[a][m][4 * k], 4);
            __m512i x = words(_mm256_set1_epi32((int)four), a_signed);
            __m512i row = _mm512_load_si512(state.data[b][k]);
            __m512i low = _mm512_madd_epi16(x, words(_mm512_castsi512_si256(row), b_signed));
            __m512i high = _mm512_madd_epi16(x, words(_mm512_extracti64x4_epi64(row, 1), b_signed));
            sum = _mm512_add_epi32(sum, _mm512_permutex2var_epi32(low, even, high));
            sum = _mm512_add_epi32(sum, _mm512_permutex2var_epi32(low, odd, high));
        }
        _mm512_store_si512(state.data[c][m], sum);
    }
}

// multiply_bf16 is TDPBF16PS: the products of a pair's first numbers and those of its second are summed apart, by fused
// operations, and the two sums' sum is added to c. Numbers too small to be normal are zeros, before and after, and rounding
// is to nearest even, whatever MXCSR says.
WIDE static void multiply_bf16(int c, int a, int b) {
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(0x9fc0); // exceptions masked, DAZ, FTZ, nearest
    const __m512i top = _mm512_set1_epi32((int)0xffff0000);
    for (int m = 0; m < state.rows[c]; m++) {
        __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
        for (int k = 0; k < state.rows[b]; k++) {
            uint32_t two;
            memcpy(&two, &state.data[a][m][4 * k], 4);
            __m512i x = _mm512_set1_epi32((int)two), row = _mm512_load_si512(state.data[b][k]);
            first = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                                    _mm512_castsi512_ps(_mm512_slli_epi32(row, 16)), first);
            second = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, top)),
                                     _mm512_castsi512_ps(_mm512_and_si512(row, top)), second);
        }
        __m512 sum = _mm512_add_ps(_mm512_load_ps(state.data[c][m]), _mm512_add_ps(first, second));
        // What is beyond the tile's columns stays zero.
        __mmask16 columns = (__mmask16)((1u << state.bytes[c] / 4) - 1);
        _mm512_store_ps(state.data[c][m], _mm512_maskz_mov_ps(columns, sum));
    }
    _mm_setcsr(mode);
}

// run carries out an instruction, or returns 0.
static int run(const instruction *i) {
    enum { NONE, P66, F3, F2 };
    switch (i->opcode) {
    case 0x49:
        if (i->vvvv != 0) return 0;
        if (i->mod == 3) {
            if (i->prefix == NONE && i->reg == 0 && i->rm == 0) {
                clear_tiles(); // TILERELEASE
                return 1;
            }
            if (i->prefix != F2 || i->rm != 0 || !usable(i->reg)) return 0;
            memset(state.data[i->reg], 0, sizeof state.data[i->reg]); // TILEZERO
            return 1;
        }
        if (i->reg != 0) return 0;
        if (i->prefix == NONE) return configure(i->address + i->stride);
        if (i->prefix != P66) return 0;
        configuration(i->address + i->stride);
        return 1;
    case 0x4b:
        if (i->vvvv != 0 || i->mod == 3 || !i->indexed) return 0;
        if (i->prefix == F2 || i->prefix == P66) return load(i->reg, i->address, i->stride); // TILELOADD, TILELOADDT1
        return i->prefix == F3 && store(i->reg, i->address, i->stride);
    case 0x5c:
        if (i->mod != 3 || i->prefix != F3 || !fits(i->reg, i->rm, i->vvvv)) return 0;
        multiply_bf16(i->reg, i->rm, i->vvvv);
        return 1;
    case 0x5e:
        if (i->mod != 3 || !fits(i->reg, i->rm, i->vvvv)) return 0;
        multiply_bytes(i->reg, i->rm, i->vvvv, i->prefix == F2 || i->prefix == F3, i->prefix == F2 || i->prefix == P66);
        return 1;
    }
    return 0;
}

static void handle(int number, siginfo_t *info, void *context) {
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    instruction i;
    int done = 0; // signals take longer than instructions, so those that follow at once are carried out too
    for (; decode((const uint8_t *)r[REG_RIP], r, &i) && run(&i); done++) r[REG_RIP] += i.length;
    atomic_fetch_add(&count, (unsigned)done);
    if (done > 0) return;
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL) {
        signal(number, SIG_DFL); // and the instruction raises it again
    } else if (before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    }
}

int amx_install(void) {
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigfillset(&action.sa_mask);
    return sigaction(SIGILL, &action, &before);
}

void amx_illegal(void) { __asm__ volatile("ud2"); }

void amx_multiply(int kind, int rows, int depth, int columns, unsigned char *c, const unsigned char *a, const unsigned char *b) {
    unsigned char config[64] __attribute__((aligned(64))) = {1};
    config[16] = config[20] = (unsigned char)(4 * columns);
    config[18] = (unsigned char)(4 * depth);
    config[48] = config[49] = (unsigned char)rows;
    config[50] = (unsigned char)depth;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    __asm__ volatile(
        "tileloadd (%0,%3,1), %%tmm0\n\t"
        "tileloadd (%1,%3,1), %%tmm1\n\t"
        "tileloadd (%2,%3,1), %%tmm2"
        : : "r"(c), "r"(a), "r"(b), "r"((int64_t)64) : "memory");
    switch (kind) {
    case 0: __asm__ volatile("tdpbssd %tmm2, %tmm1, %tmm0"); break;
    case 1: __asm__ volatile("tdpbsud %tmm2, %tmm1, %tmm0"); break;
    case 2: __asm__ volatile("tdpbusd %tmm2, %tmm1, %tmm0"); break;
    case 3: __asm__ volatile("tdpbuud %tmm2, %tmm1, %tmm0"); break;
    case 4: __asm__ volatile("tdpbf16ps %tmm2, %tmm1, %tmm0"); break;
    }
    __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n\ttilerelease" : : "r"(c), "r"((int64_t)64) : "memory");
}
