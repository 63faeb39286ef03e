// expect: hakmem: option refill_count: '1000' is not a number from 1 to 256; 32 is kept
// env: HAKMEM_REFILL_COUNT=1000
// survives
// A value out of bounds: one line, and the default.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

int main(void)
{
    int (*get)(const char *, uint64_t *) = dlsym(RTLD_DEFAULT, "hak_option_get");
    uint64_t value = 0;
    return get("refill_count", &value) != 0 || value != 32;
}
