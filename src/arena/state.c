/* The arena's state and its lock, the sums that each change of a SuperSlab goes into, and what is published of them. */
#include "arena/state.h"

#include "arena/crowd.h"
#include "arena/limit.h"
#include "os/os.h"

struct hak_super *hak__supers;
struct hak_super_word *hak__super_words;

static struct hak_lock arena_lock = HAK_LOCK_INIT(HAK_RANK_ARENA);
struct hak_arena_state hak__arena_state;
struct hak_arena_published hak__arena_published;
_Atomic size_t hak__arena_frontier;   /* SuperSlabs below the frontier; all state of open regions below it is valid */

void hak__arena_lock(void) { hak__lock_acquire(&arena_lock); }
bool hak__arena_is_locked(void) { return hak__lock_is_held(&arena_lock); }
bool hak__arena_is_left(void) { return hak__lock_word_is_left(&arena_lock.held); }

static void state_publish(void)
{
#define X(name) hak_store(&hak__arena_published.name, hak__arena_state.name, HAK_RELAXED);
    HAK_ARENA_COUNTS(X)
#undef X
}

int hak__arena_map(uintptr_t address, size_t bytes)
{
    hak_assert(hak__arena_is_locked(), "the arena's lock is held");
    hak__arena_state.mapping = address;
    hak__arena_state.mapping_bytes = bytes;
    return hak__os_map(address, bytes);
}

void hak__arena_unlock(void)
{
    hak__arena_state.mapping_bytes = 0;
    hak__limit_note(hak__arena_state.mapped);
    hak__arena_state.lock_takes++;
    hak__crowd_publish();
    state_publish();
    hak__lock_release(&arena_lock);
}

void hak__arena_lock_reset(void)
{
    hak__arena_state.mapping_bytes = 0;
    state_publish();
    hak__lock_fork_child(&arena_lock);
}

size_t hak__arena_top(void) { return hak_load(&hak__arena_frontier, HAK_ACQUIRE); }   /* pairs with raise_top's release */

size_t hak__page_size(void)
{
    static _Atomic size_t known;
    size_t size = hak_load(&known, HAK_RELAXED);
    if (hak_unlikely(size == 0)) {
        size = hak__os->page_size();
        hak_store(&known, size, HAK_RELAXED);
    }
    return size;
}

/* --- a SuperSlab's part of the sums ------------------------------------------------------------------------------------ */

void hak__super_set_taken(size_t super, bool taken)
{
    if (taken != hak__super_is_taken(super))
        hak__arena_state.spare += taken ? -(size_t)hak__supers[super].mapped : hak__supers[super].mapped;
    hak__mark(&hak__super_words[super / 64].taken, super, taken);
}

bool hak__super_is_end(size_t super)
{
    uint32_t mapped = hak__supers[super].mapped;
    bool last = super + 1 >= hak__arena_top();
    return mapped != 0 && (mapped != HAK_SUPER_SIZE || last || hak__supers[super + 1].mapped == 0);
}

static size_t state_ends_at(size_t super) { return hak__super_is_end(super) + (super > 0 && hak__super_is_end(super - 1)); }

void hak__super_set_mapped(size_t super, uint32_t bytes)
{
    size_t before = state_ends_at(super);
    if (!hak__super_is_taken(super))
        hak__arena_state.spare += (size_t)bytes - hak__supers[super].mapped;
    hak__supers[super].mapped = bytes;
    hak__arena_state.ends += state_ends_at(super) - before;
}
