// expect: hakmem: option dirty_limt is not known; the nearest one is dirty_limit
// env: HAKMEM_CONF=refill_count:16,dirty_limt:1M,purge_delay:2s
// survives
// One bad key among good ones: those are taken.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

int main(void)
{
    int (*get)(const char *, uint64_t *) = dlsym(RTLD_DEFAULT, "hak_option_get");
    uint64_t refill = 0, delay = 0;
    get("refill_count", &refill);
    get("purge_delay", &delay);
    return refill != 16 || delay != 2000;
}
