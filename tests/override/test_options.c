/* The symbol hak_conf configures the program that defines it, in each way of linking; the public functions say what is in
 * force and where it comes from; the hard limit ends in ENOMEM, the soft one in a callback that may allocate. */
#include "expect.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"

const char *hak_conf = "preset:graduated,purge_delay:2s,soft_limit:100M";

static void expect_origin(const char *name, const char *origin) { expect(strcmp(hak_option_origin(name), origin) == 0); }

static void origins(void)
{
    expect_origin("preset", "symbol");
    expect_origin("HAKMEM_PURGE_DELAY", "symbol");
    expect_origin("tiny_unified_c2", "preset");
    expect_origin("refill_count", "default");
    expect(hak_option_set("refill_count", "16") == 0);
    expect_origin("refill_count", "api");
    expect(hak_option_origin("nothing") == NULL);
}

static void walk(void)
{
    struct hak_option_info info;
    size_t cursor = 0, count = 0;
    while (hak_option_next(&cursor, &info)) {
        uint64_t value = ~info.value;
        count++;
        expect(hak_option_get(info.name, &value) == 0 && value == info.value);
        expect(info.value >= info.least && info.value <= info.most);
        expect(info.standard >= info.least && info.standard <= info.most);
        expect(*info.help != 0 && *info.kind != 0 && *info.takes_effect != 0);
        expect(strcmp(info.origin, hak_option_origin(info.name)) == 0);
        if (strcmp(info.name, "preset") == 0)
            expect(strcmp(info.word, "graduated") == 0);
        if (strcmp(info.name, "tiny_unified_c2") == 0)
            expect(info.value == 512 && strcmp(info.origin, "preset") == 0);
    }
    expect(count > 20 && !hak_option_next(&cursor, &info));
}

static unsigned calls;

static void pressed(size_t mapped, size_t limit, void *argument)
{
    expect(argument == &calls && mapped > limit && limit == (size_t)100 << 20);
    calls++;
    for (size_t n = 1; n < (size_t)4 << 20; n *= 3)
        free(malloc(n));
}

static void limits(void)
{
    struct hak_system system;
    hak_system_seen(&system);
    expect(system.cpus >= 1 && system.memory_max != 0);
    hak_set_pressure_callback(pressed, &calls);
    void *p = malloc((size_t)90 << 20), *q = malloc((size_t)20 << 20);
    expect(p != NULL && q != NULL && calls == 1);
    free(malloc((size_t)30 << 20));
    expect(calls == 1);
    expect(hak_option_set("limit", "200M") == 0);
    errno = 0;
    expect(malloc((size_t)150 << 20) == NULL && errno == ENOMEM);
    errno = 0;
    expect(realloc(p, (size_t)190 << 20) == NULL && errno == ENOMEM);
    free(p);   /* is unmapped, as far as it is beyond dirty_limit: well below the limit again */
    p = malloc((size_t)150 << 20);
    expect(p != NULL && calls == 2);
    free(p);
    free(q);
    hak_collect();
    p = malloc((size_t)110 << 20);
    expect(p != NULL && calls == 3);
    free(p);
    hak_set_pressure_callback(NULL, NULL);
}

int main(void)
{
    origins();
    walk();
    limits();
    return 0;
}
