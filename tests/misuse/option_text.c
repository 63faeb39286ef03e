// expect: hakmem: option purge_delay: 'soon' is not a time in ms \(or with s\) from 0 to 3600000; [0-9]+ is kept
// env: HAKMEM_PURGE_DELAY=soon
// survives
// A value of the wrong kind.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

int main(void)
{
    int (*get)(const char *, uint64_t *) = dlsym(RTLD_DEFAULT, "hak_option_get");
    uint64_t value = 0;
    return get("purge_delay", &value) != 0 || value == 0;
}
