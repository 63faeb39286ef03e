// expect: hakmem: option harden: 'zeros' is not known; the nearest one is zero; 0 is kept
// env: HAKMEM_HARDEN=canary,zeros,guards
// survives
// A list with a word that is no part of hardened mode: nothing of it is taken.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

int main(void)
{
    int (*get)(const char *, uint64_t *) = dlsym(RTLD_DEFAULT, "hak_option_get");
    uint64_t value = 42;
    return get("harden", &value) != 0 || value != 0;
}
