/* Where the compiler puts one counter per edge when it instruments for libFuzzer; see fuzz.h. Compiled without
 * instrumentation: a source that names these symbols itself would not have its own counters registered. */
#include <stddef.h>
#include <stdint.h>

extern uint8_t counters_begin[] __asm__("__start___sancov_cntrs") __attribute__((weak, visibility("hidden")));
extern uint8_t counters_end[] __asm__("__stop___sancov_cntrs") __attribute__((weak, visibility("hidden")));

uint8_t *fuzz_counters(size_t *size);

uint8_t *fuzz_counters(size_t *size)
{
    *size = (size_t)((uintptr_t)counters_end - (uintptr_t)counters_begin);
    return counters_begin;
}
