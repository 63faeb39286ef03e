/* An operating system that tests steer. Memory is Linux's, so blocks can be written and a mapping that must not be
 * there is found by the processor; on top of it the test sets the clock and the random numbers, puts foreign mappings
 * in the way, limits how much may be mapped, refuses single kinds of calls, and counts what is asked for. Every range
 * is checked to be what the contract in os/os.h allows. One instance, to be used in a fresh process per test. */
#ifndef HAK_TESTS_SUPPORT_FAKE_OS_H
#define HAK_TESTS_SUPPORT_FAKE_OS_H

#include "os/os.h"
#include "support/check.h"
#include "support/memory.h"

enum { FAKE_FOREIGN = 64 };

struct fake_range {
    uintptr_t start;
    size_t size;
};

static struct {
    uint64_t now; /* ms */
    size_t limit; /* bytes that may be mapped in all */
    size_t largest_probe; /* longer ones are refused */
    bool refuse_map; /* mappings are used up: those that there are may still grow */
    bool refuse_purge, refuse_unmap, refuse_extend;
    int refuse_move; /* what moving fails with; 0: it does not */
    bool move_unmaps; /* ... and has unmapped the place by then, as kernels before 6.17 have */
    bool unmaps_lost; /* ... and what was lost so may be unmapped once more */
    int refuse_advise; /* what advice fails with; 0: it does not */
    enum hak_os_huge_setting huge_setting;
    bool huge_pages; /* what wants huge pages is resident at once: a touch is not seen here */
    struct fake_range foreign[FAKE_FOREIGN];
    size_t foreign_count;
    uint64_t randoms; /* random numbers given out; number n is n * random_step */
    uint64_t random_step;
    bool populate; /* what is mapped is there at once, as under mlockall(MCL_FUTURE) */
    bool fixed; /* addresses are not to be random */
    uintptr_t map_refused_from, map_refused_to; /* addresses at which map fails with EEXIST, as in a foreign range */
    size_t mapped; /* bytes, by the fake's own account */
    unsigned maps, extends, unmaps, purges, moves, probes;
    size_t purged_bytes;
    unsigned advices[HAK_OS_ADVICES]; /* by kind */
    bool guards; /* there are guard pages, as far as the kernel has them */
    bool refuse_guard, refuse_unguard;
    unsigned guarded; /* pages that are guarded now */
    uintptr_t advised; /* where the last one was for */
    struct hak_os_seen seen; /* what the system allows */
    unsigned looks; /* how often it was asked */
    void (*on_look)(void); /* called then; or NULL */
    uint64_t purge_ns, spent_ns; /* what giving a MiB back takes; what that has taken */
} fake;

static inline void fake_check_range(uintptr_t address, size_t size)
{
    size_t page = hak__os_linux.page_size();
    expect(size != 0 && address % page == 0 && size % page == 0);
}

static inline bool fake_overlaps(uintptr_t address, size_t size, uintptr_t from, uintptr_t to)
{
    return address < to && from < address + size;
}

static int fake_map(uintptr_t address, size_t size)
{
    fake_check_range(address, size);
    fake.maps++;
    bool occupied = fake_overlaps(address, size, fake.map_refused_from, fake.map_refused_to);
    for (size_t i = 0; i < fake.foreign_count; i++)
        occupied |= fake_overlaps(address, size, fake.foreign[i].start, fake.foreign[i].start + fake.foreign[i].size);
    if (occupied)
        return EEXIST;
    if (fake.refuse_map || size > fake.limit || fake.mapped > fake.limit - size)
        return ENOMEM;
    int code = hak__os_linux.map(address, size);
    fake.mapped += code == 0 ? size : 0;
    for (size_t at = 0; code == 0 && fake.populate && at < size; at += hak__os_linux.page_size())
        *(volatile char *)(address + at) = 0;
    return code;
}

/* Refused where the fake says so, and by Linux where nothing ends at the address. */
static int fake_extend(uintptr_t address, size_t size)
{
    fake_check_range(address, size);
    fake.extends++;
    if (fake.refuse_extend || size > fake.limit || fake.mapped > fake.limit - size)
        return ENOMEM;
    int code = hak__os_linux.extend(address, size);
    fake.mapped += code == 0 ? size : 0;
    return code;
}

static int fake_unmap(uintptr_t address, size_t size)
{
    fake_check_range(address, size);
    fake.unmaps++;
    bool there = is_mapped((void *)address) && is_mapped((void *)(address + size - 1));
    expect(there || fake.unmaps_lost);
    if (fake.refuse_unmap)
        return ENOMEM;
    fake.mapped -= there ? size : 0;
    return hak__os_linux.unmap(address, size);
}

static int fake_purge(uintptr_t address, size_t size)
{
    fake_check_range(address, size);
    fake.purges++;
    fake.purged_bytes += size;
    fake.spent_ns += (size >> 10) * fake.purge_ns >> 10;
    expect(is_mapped((void *)address) && is_mapped((void *)(address + size - 1)));
    return fake.refuse_purge ? EINVAL : hak__os_linux.purge(address, size);
}

/* The target is replaced: what was mapped there is gone, so it has to be the caller's own. */
static int fake_move(uintptr_t from, size_t size, uintptr_t to, size_t new_size)
{
    fake_check_range(from, size);
    fake_check_range(to, new_size);
    fake.moves++;
    expect(is_mapped((void *)from) && is_mapped((void *)(from + size - 1)));
    expect(is_mapped((void *)to) && is_mapped((void *)(to + new_size - 1)));
    if (fake.refuse_move && fake.move_unmaps)
        fake_unmap(to, new_size);
    if (fake.refuse_move)
        return fake.refuse_move;
    int code = hak__os_linux.move(from, size, to, new_size);
    fake.mapped -= code == 0 ? size : 0;
    return code;
}

static int fake_guard(uintptr_t address, size_t size, bool guard)
{
    if (!fake.guards)
        return EINVAL;
    if (guard ? fake.refuse_guard : fake.refuse_unguard)
        return ENOMEM;
    int code = hak__os_linux.advise(address, size, guard ? HAK_OS_GUARD : HAK_OS_UNGUARD);
    fake.guarded += code != 0 ? 0 : guard ? 1 : -1u;
    return code;
}

/* Only counted, but for guards: what the kernel of the moment makes of it is not for tests. */
static int fake_advise(uintptr_t address, size_t size, enum hak_os_advice what)
{
    fake_check_range(address, size);
    expect(is_mapped((void *)address) && is_mapped((void *)(address + size - 1)));
    fake.advices[what]++;
    fake.advised = address;
    for (size_t at = 0; what == HAK_OS_HUGE && fake.huge_pages && at < size; at += hak__os_linux.page_size())
        *(volatile char *)(address + at) = 0;
    if (what == HAK_OS_GUARD || what == HAK_OS_UNGUARD)
        return fake_guard(address, size, what == HAK_OS_GUARD);
    return what != HAK_OS_RESTORE || fake.refuse_advise == ENOMEM ? fake.refuse_advise : 0;
}

static enum hak_os_huge_setting fake_huge_setting(void) { return fake.huge_setting; }

static uintptr_t fake_probe(size_t size)
{
    fake.probes++;
    return size <= fake.largest_probe ? hak__os_linux.probe(size) : 0;
}

static uint64_t fake_now(void) { return fake.now; }
static uint64_t fake_now_ns(void) { return fake.now * 1000000 + fake.spent_ns; }
static uint64_t fake_random(void) { return fake.randoms++ * fake.random_step; }
static bool fake_fixed(void) { return fake.fixed; }
static size_t fake_page_size(void) { return hak__os_linux.page_size(); }

static void fake_room(struct hak_os_seen *out)
{
    out->address_space = fake.seen.address_space;
    out->data = fake.seen.data;
}

static uint32_t fake_processors(void) { return 2; }

static void fake_seen(struct hak_os_seen *out)
{
    fake.looks++;
    if (fake.on_look != NULL)
        fake.on_look();
    *out = fake.seen;
}

static const struct hak_os fake_table = {
    .map = fake_map,
    .extend = fake_extend,
    .unmap = fake_unmap,
    .purge = fake_purge,
    .move = fake_move,
    .probe = fake_probe,
    .now_ms = fake_now,
    .now_ns = fake_now_ns,
    .random = fake_random,
    .page_size = fake_page_size,
    .room = fake_room,
    .processors = fake_processors,
    .seen = fake_seen,
    .advise = fake_advise,
    .huge_setting = fake_huge_setting,
    .fixed = fake_fixed,
};

/* To be called before anything else of the library. */
static inline void fake_install(void)
{
    fake.limit = SIZE_MAX;
    fake.largest_probe = is_emulated() ? EMULATED_MOST : SIZE_MAX;
    fake.now = 1000000;
    fake.seen = (struct hak_os_seen){
        .memory_max = HAK_OS_UNLIMITED, .memory_high = HAK_OS_UNLIMITED, .address_space = HAK_OS_UNLIMITED, .data = HAK_OS_UNLIMITED
    };
    fake.huge_setting = HAK_OS_HUGE_NEVER;
    fake.random_step = 0x123456789abcdef1ull;
    hak__os = &fake_table;
}

static inline void fake_add_foreign(const void *start, size_t size)
{
    expect_op(fake.foreign_count, <, FAKE_FOREIGN);
    fake.foreign[fake.foreign_count++] = (struct fake_range){ (uintptr_t)start, size };
}

#endif
