/* See world.h. */
#include <errno.h>

#include "world.h"

#include <sys/mman.h>

#include <string.h>

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "harden/quarantine.h"
#include "harden/spans.h"
#include "os/os.h"
#include "profile/profile.h"
#include "userheap/userheap.h"

static hak_line_aligned struct hak_super supers[WORLD_SUPERS];
static hak_line_aligned struct hak_super_word words[1];
static hak_line_aligned struct hak_span spans[WORLD_SUPERS * HAK_SUPER_SLABS];
static hak_heap_aligned struct hak_heap heaps[WORLD_HEAPS + 1];
static struct hak_slab map[WORLD_SUPERS * HAK_SUPER_SLABS];
static _Atomic uint32_t free_supers;

struct hak_super *hak__supers = supers;
struct hak_super_word *hak__super_words = words;
hak_counter hak__pieces_missing;
struct hak_window hak__window;
__attribute__((weak)) struct hak_span *hak__spans;   /* span/span.c has it where it is linked */

extern uint64_t hak__freed_key __attribute__((weak));   /* the same */

static uintptr_t block_memory(void)
{
    static uintptr_t at;
    if (at == 0)
        at = (uintptr_t)mmap(NULL, (WORLD_SUPERS + 1) * HAK_SUPER_SIZE, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return (at + HAK_SUPER_SIZE - 1) & ~(uintptr_t)(HAK_SUPER_SIZE - 1);
}

void world_reset(void)
{
    memset(supers, 0, sizeof supers);
    memset(words, 0, sizeof words);
    memset(spans, 0, sizeof spans);
    for (uint32_t i = 0; i <= WORLD_HEAPS; i++) {
        memset(heaps[i].classes, 0, sizeof heaps[i].classes);
        memset(heaps[i].bins, 0, sizeof heaps[i].bins);
        heaps[i].sources.home = 0;
        memset(&heaps[i].assigned, 0, sizeof heaps[i].assigned);
        atomic_store(&heaps[i].lock, HAK_LOCK_FREE);
        heaps[i].id = i;
        heaps[i].tag = hak__owner_word(i, 0);
        atomic_store(&heaps[i].pending, NULL);
        atomic_store(&heaps[i].state, HAK_HEAP_ACTIVE);
    }
    for (size_t i = 0; i < WORLD_SUPERS * HAK_SUPER_SLABS; i++)
        atomic_store(&map[i].owner, 0);
    hak__window.base = block_memory();
    if (&hak__freed_key != NULL)
        hak__freed_key += 2;   /* what an earlier schedule has marked is marked no more */
    hak__window.map = map;
    hak__spans = spans;
    hak_owner_store(&hak__window.slabs, (size_t)WORLD_SUPERS * HAK_SUPER_SLABS);
    hak__window_show();
    atomic_store(&free_supers, (1u << WORLD_SUPERS) - 1);
}

bool world_super_is_free(size_t super) { return atomic_load(&free_supers) >> super & 1; }
void world_take_super(size_t super) { atomic_fetch_and(&free_supers, ~(1u << super)); }

/* --- the arena's part -------------------------------------------------------------------------------------------------- */

size_t hak__supers_open(bool whole, bool *fresh)
{
    if (!whole)
        return HAK_NO_SUPER;
    uint32_t free_now = hak_load(&free_supers, HAK_ACQUIRE);
    while (free_now != 0) {
        uint32_t rest = free_now & (free_now - 1);
        if (hak_cas_weak(&free_supers, &free_now, rest, HAK_ACQ_REL, HAK_ACQUIRE)) {
            *fresh = false;
            return hak_ctz32(free_now);
        }
    }
    return HAK_NO_SUPER;
}

void hak__prefault(size_t super, size_t others) { (void)super, (void)others; }

void hak__supers_give(size_t first, size_t count)
{
    (void)count;
    uint32_t before = hak_fetch_or(&free_supers, 1u << first, HAK_ACQ_REL);
    EXPLORE_EXPECT((before >> first & 1) == 0, "a SuperSlab is given back twice");
}

/* What goes away with the pages of a range. Time does not matter to what is explored. */
__attribute__((weak)) void world_purged(size_t slab, size_t count) { (void)slab, (void)count; }

bool hak__arena_purge_range(void *start, size_t bytes, enum hak_unused kind)
{
    (void)kind;
    world_purged(hak__slab_of(start), bytes >> HAK_SLAB_SHIFT);
    return true;
}

size_t hak__arena_room(size_t idle, size_t used, uint64_t now_ms)
{
    (void)idle, (void)used, (void)now_ms;
    return 0;
}

/* What it costs does not either. */
void hak__return_regret(enum hak_unused kind, size_t bytes, uint64_t idle_ms) { (void)kind, (void)bytes, (void)idle_ms; }

__attribute__((weak)) void hak__waiting_end(void) {}   /* no run waits */

bool hak__thp_must_stay(size_t super)
{
    (void)super;
    return false;
}

static uint64_t no_time(void) { return 0; }
static const struct hak_os world_os = { .now_ms = no_time };
const struct hak_os *hak__os = &world_os;

size_t hak__arena_top(void) { return WORLD_SUPERS; }
size_t hak__part_next(size_t part, size_t top) { return (void)top, part; }   /* all of them are open */
size_t hak__super_before(size_t super) { return super > 0 ? super - 1 : HAK_NO_SUPER; }
size_t hak__page_size(void) { return 4096; }
__attribute__((weak)) _Atomic uint32_t hak__heap_last = WORLD_HEAPS;   /* heap/heap.c has it where linked */
__attribute__((weak)) bool hak__heaps_are_shared;
void *hak__heap_memory(uint32_t id, size_t *bytes)
{
    *bytes = sizeof heaps[0];
    return id <= WORLD_HEAPS ? &heaps[id] : NULL;
}
/* The pages go in one step; what others look at meanwhile is atomic, and the lock comes last. */
void hak__heap_forget(void *memory, size_t bytes)
{
    struct hak_heap *heap = memory;
    (void)bytes;
    heap->id = heap->tag = 0;
    memset(heap->classes, 0, sizeof heap->classes);
    hak_store(&heap->lock, HAK_LOCK_FREE, HAK_RELEASE);
}
bool hak__heap_extend(uint32_t id, size_t from, size_t bytes) { return (void)id, (void)from, (void)bytes, false; }
bool hak__is_thrifty(void) { return false; }
int hak__piece_map(void *start, size_t bytes) { return (void)start, (void)bytes, ENOMEM; }
bool hak__piece_unmap(void *start, size_t bytes) { return (void)start, (void)bytes, false; }
void *hak__span_memory(void) { return spans; }
void hak__nap(unsigned tries) { hak__yield(tries); }
void hak__yield(unsigned tries)
{
    uint32_t repairs = hak__fork_repairs();
    (void)tries;
    world_waits();
    hak__fork_check();
    if (hak__fork_repairs() == repairs)   /* a child has no other thread to wait for */
        explore_yield();
}
void hak__yield_on(_Atomic uint32_t *word, uint32_t value, unsigned tries) { (void)word, (void)value, hak__yield(tries); }
void hak__wake(_Atomic uint32_t *word) { (void)word; }
__attribute__((weak)) void world_waits(void) {}

/* Locks know the threads of a case by these numbers. No child is forked, but in the cases of forks. */
uint32_t hak__lock_me(void) { return 1 + explore_thread(); }
__attribute__((weak)) long hak__syscall_made(long number, long a, long b, long c, long d, long e, long f)
{
    (void)number, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    return -ENOSYS;
}

/* The classes of the cases need no bitmaps of their own. */
__attribute__((weak)) void *hak__meta_alloc(size_t bytes)
{
    (void)bytes;
    return NULL;
}

void *hak__heap_address(uint32_t id)
{
    EXPLORE_EXPECT(id >= 1 && id <= WORLD_HEAPS, "an id that no heap has");
    return &heaps[id];
}

/* --- hardened mode, which is off ------------------------------------------------------------------------------------------- */

struct hak_hardened hak__hardened;
static void not_hardened(void) { EXPLORE_EXPECT(false, "hardened mode is off"); }
void hak__span_harden(struct hak_span *span, uint32_t owner) { (void)span, (void)owner, not_hardened(); }
bool hak__span_sleep(struct hak_span *span) { return (void)span, not_hardened(), false; }
bool hak__span_wake(struct hak_span *span) { return (void)span, not_hardened(), false; }
void hak__span_end_guard(struct hak_span *span) { (void)span, not_hardened(); }
uint32_t hak__span_take_hardened(struct hak_span *span, void **out, uint32_t want)
{
    (void)span, (void)out, (void)want;
    not_hardened();
    return 0;
}
bool hak__quarantine_has(const struct hak_heap *heap, const void *p) { return (void)heap, (void)p, false; }
bool hak__quarantine_flush(struct hak_heap *heap, const char *function)
{
    (void)heap, (void)function;
    not_hardened();
    return false;
}

/* --- reports ------------------------------------------------------------------------------------------------------------- */

void (*hak__misuse_survive)(const struct hak_mistake *mistake, const char *line);   /* misuse ends the program */

__attribute__((weak)) void world_double_free(void) {}

void hak__misuse_double_free(const char *function, const void *p, size_t size)
{
    (void)function, (void)p, (void)size;
    world_double_free();
    explore_violation("a report of a double free that did not happen");
}

void hak__misuse_invalid(const char *function, const void *p, const char *why)
{
    (void)function, (void)p, (void)why;
    explore_violation("a report of an invalid pointer that was not there");
}

void hak__assert_failed(const char *condition, const char *what, const char *file, int line)
{
    (void)condition, (void)file, (void)line;
    explore_violation(what);
}

/* The options as they are by default, so far as the sources that are explored ask for them; heaps_world.h has more. */
__attribute__((weak)) _Atomic uint64_t hak__option_words[HAK_OPTIONS] = { [HAK_OPTION_tiers] = 1 };

bool world_is_not_free(const struct hak_span *span, const void *block) { return (void)span, (void)block, false; }

/* No profile is on, and nothing is sampled. */
__attribute__((weak)) struct hak_profile hak__profile;
#if HAK_HAS_PROBES
__attribute__((weak)) volatile uint16_t hak__profile_tracers;
#endif
__attribute__((weak)) struct hak_sample hak__sample;
__attribute__((weak)) void hak__profile_forget(const void *block) { (void)block; }
__attribute__((weak)) void hak__samples_end(struct hak_samples *s, bool close, const char *f) { (void)s, (void)close, (void)f; }
__attribute__((weak)) void hak__samples_open(struct hak_samples *s, struct hak_account *account) { (void)s, (void)account; }
__attribute__((weak)) void hak__samples_merge(struct hak_samples *samples) { (void)samples; }
__attribute__((weak)) void hak__samples_fork_child(struct hak_samples *samples) { (void)samples; }
__attribute__((weak)) void hak__profile_poll_slow(struct hak_heap *heap, uint64_t now_ms) { (void)heap, (void)now_ms; }
extern _Atomic bool hak__shields;
__attribute__((weak)) _Atomic bool hak__shields;   /* the program changes no rights */
void *hak__shield_note_aligned(void *block, size_t align, size_t n);
__attribute__((weak)) void *hak__shield_note_aligned(void *block, size_t align, size_t n) { return (void)align, (void)n, block; }
