// The emulator of tiles, and instructions to try it with.

// amx_install puts the handler before the one of SIGILL. It returns 0, or -1.
int amx_install(void);

// amx_count is the number of instructions that were emulated.
unsigned long long amx_count(void);

// amx_multiply adds to c the product of kind (Go's Kind) of a and b.
void amx_multiply(int kind, int rows, int depth, int columns, unsigned char *c, const unsigned char *a, const unsigned char *b);

// amx_illegal is UD2.
void amx_illegal(void);
