/* The arena's state and its lock, the sums that each change of a SuperSlab updates, and the published figures. */
#include "arena/arena.h"

#include <errno.h>

#include "arena/limit.h"

/* Every slow path reads them, so they begin a line that call counters do not share. */
hak_line_aligned struct hak_super *hak__supers;
hak_line_aligned struct hak_super_word *hak__super_words;

static struct hak_lock arena_lock = HAK_LOCK_INIT(HAK_RANK_ARENA);
static bool (*arena_unmap_unused)(void);
struct hak_arena_state hak__arena_state;
struct hak_arena_published hak__arena_published;
_Atomic size_t hak__arena_frontier; /* SuperSlabs below the frontier; all state of open parts below it is valid */

/* --- the lock --------------------------------------------------------------------------------------------------------- */

void hak__arena_lock(void) { hak__lock_acquire(&arena_lock); }
bool hak__arena_is_locked(void) { return hak__lock_is_held(&arena_lock); }
bool hak__arena_is_mine(void) { return hak__lock_word_is_mine(&arena_lock.held); }

bool hak__arena_inherit(void) { return hak__lock_inherit(&arena_lock); }

static void state_publish(void)
{
#define X(name) hak_store(&hak__arena_published.name, hak__arena_state.name, HAK_RELAXED);
    HAK_ARENA_COUNTS(X)
#undef X
}

static size_t arena_mappings(void) { return hak__arena_state.ends + hak__arena_state.moved; }

void hak__arena_unlock(void)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(hak__arena_state.spare + hak__arena_state.pieces + hak__arena_state.samples + hak__arena_state.tails
                   <= hak__arena_state.mapped,
               "parts of the mapped memory are no larger than all of it");
    hak_assert(hak__arena_state.dirty <= hak__arena_state.spare, "dirty memory is mapped and free");
    hak__arena_state.mapping_bytes = 0;
    hak__limit_note(hak__arena_state.mapped, hak__arena_state.spare - hak__arena_state.dirty, arena_mappings());
    hak__arena_state.lock_takes++;
    state_publish();
    hak__lock_release(&arena_lock);
}

/* --- requests to the system -------------------------------------------------------------------------------------------- */

int hak__arena_map(uintptr_t address, size_t bytes)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(address >= hak__window.base && bytes != 0, "blocks lie in the window");
    hak__arena_state.mapping = address;
    hak__arena_state.mapping_bytes = bytes;
    return hak__os_map(address, bytes);
}

void hak__arena_count_samples(size_t difference)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak__arena_state.samples += difference;
    hak__arena_state.mapped += difference;
    hak__arena_state.peak = hak_max(hak__arena_state.peak, hak__arena_state.mapped);
}

bool hak__arena_is_crowded(void) { return hak__limit_is_crowded(arena_mappings()); }

void hak__arena_on_refusal(bool (*unmap_unused)(void)) { arena_unmap_unused = unmap_unused; }

bool hak__arena_gives_up(int code)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    if (code <= 0 || code == EEXIST || arena_unmap_unused == NULL) /* no refusal: window.h */
        return false;
    hak__limit_refused(hak__arena_state.mapped);
    return arena_unmap_unused();
}

size_t hak__arena_top(void) { return hak_load(&hak__arena_frontier, HAK_ACQUIRE); } /* pairs with raise_top's release */

size_t hak__page_size(void)
{
    static _Atomic size_t known;
    size_t size = hak_load(&known, HAK_RELAXED);
    if (hak_unlikely(size == 0)) {
        size = hak__os->page_size();
        hak_assert((size & (size - 1)) == 0 && size <= HAK_SLAB_SIZE, "a slab is whole pages");
        hak_store(&known, size, HAK_RELAXED);
    }
    return size;
}

/* --- a SuperSlab's part of the sums ------------------------------------------------------------------------------------ */

/* A bit for each part, so that a search in a heap of terabytes reads few words. */
static hak_rare_data uint64_t full_parts[(HAK_WINDOW_SUPERS / HAK_PART_SUPERS + 63) / 64];

uint64_t hak__parts_full(size_t part) { return full_parts[part / 64]; }

/* A child forked in between may at worst find the bit of a full part clear. */
void hak__super_set_taken(size_t super, bool taken)
{
    size_t part = super / HAK_PART_SUPERS;
    struct hak_super_word *word = hak__super_words - part;
    hak_assert(hak__arena_is_mine() && super < hak__arena_top(), "a SuperSlab changes under the lock, below the frontier");
    hak_assert(!taken || !hak__super_is_dirty(super), "what is taken is not in the list of emptied ones");
    if (taken != hak__super_is_taken(super))
        hak__arena_state.spare += taken ? -(size_t)hak__supers[super].mapped : hak__supers[super].mapped;
    if (!taken)
        hak__mark(&full_parts[part / 64], part, false);
    hak_signal_fence();
    hak__mark(&word->taken, super, taken);
    hak_signal_fence();
    if (word->taken == UINT64_MAX)
        hak__mark(&full_parts[part / 64], part, true);
}

bool hak__super_is_end(size_t super)
{
    uint32_t mapped = hak__supers[super].mapped;
    bool last = super + 1 >= hak__arena_top();
    return mapped != 0 && (mapped != HAK_SUPER_SIZE || last || hak__supers[super + 1].mapped == 0);
}

static size_t state_ends_at(size_t super) { return hak__super_is_end(super) + (super > 0 && hak__super_is_end(super - 1)); }

void hak__super_set_mapped(size_t super, size_t bytes)
{
    hak_assert(hak__arena_is_mine() && super < hak__arena_top(), "a SuperSlab changes under the lock, below the frontier");
    hak_assert(bytes <= HAK_SUPER_SIZE && bytes % hak__page_size() == 0, "whole pages of one SuperSlab are mapped");
    size_t before = state_ends_at(super);
    if (!hak__super_is_taken(super))
        hak__arena_state.spare += bytes - hak__supers[super].mapped;
    hak__supers[super].mapped = (uint32_t)bytes;
    hak__arena_state.ends += state_ends_at(super) - before;
}

void hak__super_count_mapped(size_t super, size_t bytes)
{
    hak__arena_state.mapped += bytes - hak__supers[super].mapped;
    hak__super_set_mapped(super, bytes);
}

void hak__super_set_moved(size_t super, size_t pieces)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    hak_assert(pieces <= UINT16_MAX, "a SuperSlab has fewer pages than that");
    hak__arena_state.moved += pieces - hak__supers[super].moved;
    hak__supers[super].moved = (uint16_t)pieces;
}
