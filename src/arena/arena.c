/* Runs of SuperSlabs: search, growth, return, purge. The window's choice is in window.c, metadata in meta.c.
 * Called by shared/ (single SuperSlabs) and huge/ (runs), by upkeep/ to purge. Everything runs under one lock, whose
 * sections keep the data valid at each step (see arena.h). */
#include "arena/arena.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/meta.h"
#include "arena/thp.h"
#include "arena/window.h"
#include "base/assert.h"
#include "base/bits.h"
#include "diag/options.h"
#include "os/os.h"

struct hak_super *hak__supers;
struct hak_super_word *hak__super_words;

static struct hak_lock lock = HAK_LOCK_INIT(HAK_RANK_ARENA);
_Atomic size_t hak__arena_frontier;   /* SuperSlabs below the frontier; all state below it is valid */
static size_t mapped_bytes, mapped_peak, dirty_bytes, taken_count, hole_count;
static uint64_t purge_checked_ms;
static _Atomic size_t pool_used;        /* bytes handed out of the metadata pool */

enum { HOLES_PER_CALL = 4096 };

struct hak_arena_books hak__arena_books;

static void arena_unlock(void)
{
    hak__limit_note(mapped_bytes);
    hak_store(&hak__arena_books.mapped, mapped_bytes, HAK_RELAXED);
    hak_store(&hak__arena_books.taken, taken_count, HAK_RELAXED);
    hak_store(&hak__arena_books.dirty, dirty_bytes, HAK_RELAXED);
    hak_store(&hak__arena_books.holes, hole_count, HAK_RELAXED);
    hak_store(&hak__arena_books.peak, mapped_peak, HAK_RELAXED);
    hak__lock_release(&lock);
}

/* --- bits of SuperSlabs -------------------------------------------------------------------------------------- */

enum which { WHICH_FREE, WHICH_DIRTY };

static uint64_t eligible(enum which which, size_t word)
{
    return which == WHICH_DIRTY ? hak__super_words[word].dirty : ~hak__super_words[word].taken;
}

/* The first SuperSlab at or after `from`, below the top, whose eligibility is `value`; the top if there is none. */
static size_t next(enum which which, size_t from, bool value)
{
    size_t end = hak__arena_top();
    for (size_t word = from / 64; word * 64 < end; word++) {
        uint64_t bits = eligible(which, word) ^ (value ? 0 : ~0ull);
        if (word == from / 64)
            bits &= ~0ull << from % 64;
        if (bits != 0)
            return hak_min(word * 64 + hak_ctz64(bits), end);
    }
    return end;
}

static void mark(uint64_t *word, size_t super, bool value)
{
    uint64_t bit = 1ull << super % 64;
    *word = value ? *word | bit : *word & ~bit;
}
static void mark_taken(size_t super, bool value) { mark(&hak__super_words[super / 64].taken, super, value); }
static void mark_dirty(size_t super, bool value) { mark(&hak__super_words[super / 64].dirty, super, value); }

/* The bytes of the run's i-th SuperSlab that a block of `bytes` bytes needs. */
static size_t need_of(size_t i, size_t bytes)
{
    size_t before = i << HAK_SUPER_SHIFT;
    return bytes <= before ? 0 : hak_min(bytes - before, HAK_SUPER_SIZE);
}

/* --- mapping --------------------------------------------------------------------------------------------------- */

/* Maps what is missing of the run with as few calls as there are gaps. On failure *at is the SuperSlab that failed;
 * what has been mapped before it stays mapped and is accounted for. */
static int ensure_mapped(size_t first, size_t count, size_t bytes, bool one_by_one, size_t *at)
{
    for (size_t i = 0; i < count;) {
        struct hak_super *super = &hak__supers[first + i];
        size_t need = need_of(i, bytes);
        *at = first + i;
        if (super->mapped >= need) {
            i++;
            continue;
        }
        size_t length = need - super->mapped, j = i + 1;
        for (; !one_by_one && j < count && hak__supers[first + j].mapped == 0 && need_of(j, bytes) != 0; j++)
            length += need_of(j, bytes);
        if (!hak__limit_allows(mapped_bytes, length))
            return ENOMEM;
        int code = hak__os_map((uintptr_t)hak__super_start(first + i) + super->mapped, length);
        if (code != 0)
            return code;
        hak__thp_mapped((uintptr_t)hak__super_start(first + i) + super->mapped, length);
        mapped_bytes += length;
        mapped_peak = hak_max(mapped_peak, mapped_bytes);
        for (; i < j; i++)
            hak__supers[first + i].mapped = (uint32_t)need_of(i, bytes);
    }
    return 0;
}

/* Raises the frontier: the metadata of all SuperSlabs below it exists afterwards. */
static int raise_top(size_t new_top)
{
    if (new_top > hak__window_supers())
        return ENOMEM;
    int code = hak__meta_ensure(HAK_META_MAP, new_top * HAK_SUPER_SLABS * sizeof(struct hak_slab));
    if (code == 0)
        code = hak__meta_ensure(HAK_META_SUPERS, new_top * sizeof(struct hak_super));
    if (code == 0)
        code = hak__meta_ensure(HAK_META_WORDS, hak_div_up(new_top, 64) * sizeof(struct hak_super_word));
    if (code == 0)
        code = hak__meta_ensure(HAK_META_SPANS, new_top * HAK_SUPER_SLABS * 128);
    if (code != 0)
        return code;
    /* release: whoever reads the new mark may read the metadata below it. */
    hak_store(&hak__arena_frontier, new_top, HAK_RELEASE);
    hak_owner_store(&hak__window.slabs, new_top * HAK_SUPER_SLABS);
    return 0;
}

/* Maps a few SuperSlabs above a new one, an eighth of what there is, so that growth takes few system calls. */
static void map_ahead(void)
{
    size_t from = hak__arena_top(), at;
    size_t count = hak_min(mapped_bytes / 8, HAK_GROW_MAX) >> HAK_SUPER_SHIFT;
    if (count > 0 && raise_top(from + count) == 0)
        ensure_mapped(from, count, count << HAK_SUPER_SHIFT, false, &at);
}

/* --- purging ------------------------------------------------------------------------------------------------------ */

/* What a SuperSlab was before its pages went, should they have to stay after all. */
struct extent {
    uint32_t mapped, dirty;
};

static struct extent forget(size_t i)
{
    struct hak_super *super = &hak__supers[i];
    struct extent former = { super->mapped, super->dirty };
    bool is_dirty = hak__super_words[i / 64].dirty >> i % 64 & 1;
    mapped_bytes -= former.mapped;
    dirty_bytes -= is_dirty ? former.dirty : 0;
    super->mapped = super->dirty = 0;
    mark_dirty(i, false);
    return former;
}

/* Unmaps a free SuperSlab. Its state says so beforehand: a child forked in between may at worst believe that mapped
 * memory is not, which it finds out when it maps there. */
static bool unmap_super(size_t i)
{
    struct extent former = forget(i);
    if (former.mapped == 0 || hak__os_unmap((uintptr_t)hak__super_start(i), former.mapped) == 0) {
        hak__supers[i].moved = 0;
        return true;
    }
    hak__supers[i].mapped = former.mapped;
    hak__supers[i].dirty = former.mapped;
    mapped_bytes += former.mapped;
    dirty_bytes += former.mapped;
    mark_dirty(i, true);
    return false;
}

/* Gives the pages of adjacent dirty SuperSlabs back; all but the last are wholly mapped. Where the kernel will not
 * (locked pages), pages came by mremap and keep mappings apart, or what is mapped counts, they are unmapped one by one. */
static size_t purge_range(size_t first, size_t count, bool moved)
{
    size_t length = ((count - 1) << HAK_SUPER_SHIFT) + hak__supers[first + count - 1].dirty, before = dirty_bytes;
    bool stay = !moved && !hak__limit_exists();
    bool purged = stay && hak__os_purge((uintptr_t)hak__super_start(first), length) == 0;
    for (size_t i = first; i < first + count; i++) {
        if (!purged) {
            unmap_super(i);
            continue;
        }
        dirty_bytes -= hak__supers[i].dirty;
        hak__supers[i].dirty = 0;
        mark_dirty(i, false);
    }
    return before - dirty_bytes;
}

/* Purges the dirty SuperSlabs given back at or before `before_ms`, from the top of the heap down (searches begin at
 * the bottom), until no more than `keep` dirty bytes are left. */
static size_t purge_older(uint64_t before_ms, size_t keep)
{
    size_t freed = 0;
    for (size_t word = hak_div_up(hak__arena_top(), 64); word-- > 0;) {
        uint64_t bits = hak__super_words[word].dirty;
        while (bits != 0 && dirty_bytes > keep) {
            size_t last = word * 64 + hak_msb64(bits), first = last;
            bits &= ~(1ull << last % 64);
            if (hak_load(&hak__supers[last].freed_ms, HAK_RELAXED) > before_ms)
                continue;
            bool moved = hak__supers[last].moved;
            size_t group = hak__supers[last].dirty;
            while (!moved && first % 64 != 0 && bits >> (first - 1) % 64 & 1 && dirty_bytes - group > keep) {
                struct hak_super *below = &hak__supers[first - 1];
                if (below->mapped != HAK_SUPER_SIZE || below->moved
                    || hak_load(&below->freed_ms, HAK_RELAXED) > before_ms)
                    break;
                first--;
                group += HAK_SUPER_SIZE;
                bits &= ~(1ull << first % 64);
            }
            freed += purge_range(first, last - first + 1, moved);
        }
    }
    return freed;
}

/* How much may stay dirty: a fixed amount and a share of what is in use. */
static size_t dirty_limit(void)
{
    size_t in_use = mapped_bytes - dirty_bytes;
    return hak__option(HAK_OPTION_dirty_limit) + in_use / 8;
}

/* The part of upkeep that every give and take does: cheap unless something is due. */
static void purge_due(void)
{
    uint64_t now = hak__os->now_ms(), delay = hak__option(HAK_OPTION_purge_delay);
    if (dirty_bytes > dirty_limit())
        purge_older(now, dirty_limit());
    if (dirty_bytes > 0 && now - purge_checked_ms > delay / 4) {
        purge_checked_ms = now;
        if (now >= delay)
            purge_older(now - delay, 0);
    }
}

/* Unmaps every free SuperSlab: the last resort before a request is refused. */
static bool unmap_free(void)
{
    size_t before = mapped_bytes;
    for (size_t i = next(WHICH_FREE, 0, true); i < hak__arena_top(); i = next(WHICH_FREE, i + 1, true)) {
        if (hak__supers[i].mapped != 0)
            unmap_super(i);
    }
    return mapped_bytes < before;
}

/* --- search ------------------------------------------------------------------------------------------------------- */

/* The tightest run among the eligible ones, the lowest of equals; HAK_NO_SUPER if none is long enough. */
static size_t find_run(enum which which, size_t count, size_t align)
{
    size_t best = HAK_NO_SUPER, best_length = (size_t)-1, end = hak__arena_top();
    for (size_t start = next(which, 0, true); start < end;) {
        size_t stop = next(which, start, false), at = hak_align_up(start, align);
        if (at + count <= stop && stop - start < best_length) {
            best = at;
            best_length = stop - start;
            if (best_length == count)
                break;
        }
        start = stop < end ? next(which, stop, true) : end;
    }
    return best;
}

/* A run at the frontier, joined with what is free just below it. The metadata for it exists afterwards. */
static int run_at_top(size_t count, size_t align, size_t *first)
{
    size_t at = hak__arena_top();
    while (at > 0 && eligible(WHICH_FREE, (at - 1) / 64) >> (at - 1) % 64 & 1)
        at--;
    *first = hak_align_up(at, align);
    return *first + count > hak__arena_top() ? raise_top(*first + count) : 0;
}

/* Somebody else's mapping lies in a SuperSlab: it is never used again, and what we had there goes. */
static void make_hole(size_t super)
{
    unmap_super(super);
    forget(super);
    hak_store(&hak__supers[super].kind, HAK_SUPER_HOLE, HAK_RELAXED);
    mark_taken(super, true);
    hole_count++;
}

/* Finds a run and maps it; the run is not yet marked. Holes met on the way are marked and passed over. */
static int find_and_map(size_t count, size_t align, size_t bytes, bool ahead, size_t *first)
{
    for (unsigned holes = 0; holes < HOLES_PER_CALL;) {
        size_t at;
        int code = 0;
        bool grown = false;
        *first = find_run(WHICH_DIRTY, count, align);
        if (*first == HAK_NO_SUPER)
            *first = find_run(WHICH_FREE, count, align);
        if (*first == HAK_NO_SUPER) {
            code = run_at_top(count, align, first);
            grown = true;
        }
        if (code != 0)
            return code;
        code = ensure_mapped(*first, count, bytes, false, &at);
        if (code == EEXIST)
            code = ensure_mapped(*first, count, bytes, true, &at);
        if (code != EEXIST) {
            if (code == 0 && grown && ahead)
                map_ahead();
            return code;
        }
        make_hole(at);
        holes++;
    }
    return ENOMEM;
}

/* A run that was used before may carry more old pages behind a huge block than the block is worth. */
static void purge_tail(size_t last, size_t need, size_t bytes)
{
    struct hak_super *super = &hak__supers[last];
    size_t from = hak_align_up(need, hak__page_size());
    bool is_dirty = hak__super_words[last / 64].dirty >> last % 64 & 1;
    if (!is_dirty || super->dirty <= from || super->dirty - from <= bytes / 8)
        return;
    if (hak__os_purge((uintptr_t)hak__super_start(last) + from, super->dirty - from) == 0) {
        dirty_bytes -= super->dirty - from;
        super->dirty = (uint32_t)from;
    }
}

/* Marks a run as taken and says whether its first `bytes` bytes are zero. */
static bool claim_run(size_t first, size_t count, enum hak_super_kind kind, enum hak_super_kind tail)
{
    bool fresh = true;
    for (size_t i = first; i < first + count; i++) {
        struct hak_super *super = &hak__supers[i];
        fresh &= super->dirty == 0;
        if (super->dirty != HAK_SUPER_SIZE)
            hak_store(&super->collapsed, false, HAK_RELAXED);
        dirty_bytes -= super->dirty;
        hak_store(&super->kind, i == first ? kind : tail, HAK_RELAXED);
        mark_taken(i, true);
        mark_dirty(i, false);
    }
    taken_count += count;
    return fresh;
}

size_t hak__supers_take(size_t count, size_t align, size_t bytes, enum hak_super_kind kind, bool *fresh)
{
    size_t first;
    hak__lock_acquire(&lock);
    if (dirty_bytes > 0)
        purge_due();
    /* SuperSlabs for slabs will be followed by more; a huge block says nothing of the next one's size. */
    bool ahead = kind == HAK_SUPER_IN_SLABS;
    int code = find_and_map(count, align, bytes, ahead, &first);
    if (code != 0 && unmap_free())
        code = find_and_map(count, align, bytes, ahead, &first);
    if (code == 0) {
        purge_tail(first + count - 1, need_of(count - 1, bytes), bytes);
        *fresh = claim_run(first, count, kind, HAK_SUPER_HUGE_TAIL);
    }
    arena_unlock();
    return code == 0 ? first : HAK_NO_SUPER;
}

bool hak__supers_extend(size_t first, size_t count, size_t new_count, size_t bytes)
{
    size_t at;
    hak__lock_acquire(&lock);
    bool done = next(WHICH_FREE, first + count, false) >= hak_min(first + new_count, hak__arena_top());
    if (done && first + new_count > hak__arena_top())
        done = raise_top(first + new_count) == 0;
    /* The old end of the block may be followed by dirty SuperSlabs; their old data is of no concern to a realloc. */
    if (done) {
        int code = ensure_mapped(first, new_count, bytes, false, &at);
        done = code == 0 || (code == ENOMEM && unmap_free() && ensure_mapped(first, new_count, bytes, false, &at) == 0);
    }
    if (done && new_count > count)
        claim_run(first + count, new_count - count, HAK_SUPER_HUGE_TAIL, HAK_SUPER_HUGE_TAIL);
    arena_unlock();
    return done;
}

void hak__supers_give(size_t first, size_t count)
{
    hak__lock_acquire(&lock);
    uint64_t now = hak__os->now_ms();
    for (size_t i = first; i < first + count; i++) {
        struct hak_super *super = &hak__supers[i];
        super->dirty = super->mapped;
        hak_store(&super->freed_ms, now, HAK_RELAXED);
        dirty_bytes += super->dirty;
        hak_store(&super->kind, HAK_SUPER_FREE, HAK_RELAXED);
        mark_dirty(i, super->dirty != 0);
        mark_taken(i, false);
    }
    taken_count -= count;
    purge_due();
    arena_unlock();
}

/* Unmaps what of a taken run is mapped beyond the first `bytes` bytes; false if the system refuses. */
static bool trim(size_t first, size_t count, size_t bytes)
{
    for (size_t i = count; i-- > 0;) {
        struct hak_super *super = &hak__supers[first + i];
        uint32_t need = (uint32_t)need_of(i, bytes), have = super->mapped;
        if (have <= need)
            continue;
        super->mapped = need;
        if (hak__os_unmap((uintptr_t)hak__super_start(first + i) + need, have - need) != 0) {
            super->mapped = have;
            return false;
        }
        mapped_bytes -= have - need;
    }
    return true;
}

void hak__supers_trim(size_t first, size_t count, size_t bytes)
{
    hak__lock_acquire(&lock);
    trim(first, count, bytes);
    arena_unlock();
}

bool hak__supers_move(size_t from, size_t size, size_t to, size_t new_size)
{
    size_t count = hak_div_up(size, HAK_SUPER_SIZE);
    hak__lock_acquire(&lock);
    /* What is mapped beyond the block would stay behind without being a prefix of its SuperSlab any more. */
    bool done = trim(from, count, size)
        && hak__os_move((uintptr_t)hak__super_start(from), size, (uintptr_t)hak__super_start(to), new_size) == 0;
    if (done) {
        mapped_bytes -= size;
        for (size_t i = 0; i < count; i++)
            hak__supers[from + i].mapped = 0;
        for (size_t i = 0; need_of(i, new_size) != 0; i++)
            hak__supers[to + i].moved = 1;
    }
    arena_unlock();
    return done;
}

/* --- the rest of the contract ------------------------------------------------------------------------------------- */

int hak__arena_init(void)
{
    hak__lock_acquire(&lock);
    int code = hak__window.base != 0 ? 0 : hak__window_choose();
    hak__supers = (struct hak_super *)hak__meta_start(HAK_META_SUPERS);
    hak__super_words = (struct hak_super_word *)hak__meta_start(HAK_META_WORDS);
    arena_unlock();
    return code;
}

size_t hak__arena_purge(uint64_t now_ms, bool all)
{
    hak__lock_acquire(&lock);
    uint64_t delay = all ? 0 : hak__option(HAK_OPTION_purge_delay);
    size_t freed = now_ms >= delay ? purge_older(now_ms - delay, 0) : 0;
    arena_unlock();
    return freed;
}

size_t hak__arena_dirty_room(void)
{
    hak__lock_acquire(&lock);
    size_t limit = dirty_limit(), room = limit > dirty_bytes ? limit - dirty_bytes : 0;
    hak__lock_release(&lock);
    return room;
}

bool hak__arena_purge_range(void *start, size_t bytes) { return hak__os_purge((uintptr_t)start, bytes) == 0; }

void *hak__meta_alloc(size_t bytes)
{
    bytes = hak_align_up(bytes, 64);
    size_t offset = hak_fetch_add(&pool_used, bytes, HAK_RELAXED);
    if (offset + bytes > hak__meta_mapped(HAK_META_POOL)) {
        hak__lock_acquire(&lock);
        int code = hak__meta_ensure(HAK_META_POOL, offset + bytes);
        arena_unlock();
        if (code != 0) {
            /* Give the room back unless somebody has taken more in the meantime; then it is lost address space. */
            size_t expected = offset + bytes;
            hak_cas_strong(&pool_used, &expected, offset, HAK_RELAXED, HAK_RELAXED);
            return NULL;
        }
    }
    return (void *)(hak__meta_start(HAK_META_POOL) + offset);
}

void *hak__heap_address(uint32_t id)
{
    return (void *)(hak__meta_start(HAK_META_HEAPS) + id * HAK_HEAP_STRIDE);
}

void *hak__heap_memory(uint32_t id)
{
    hak__lock_acquire(&lock);
    int code = hak__meta_ensure(HAK_META_HEAPS, (id + 1) * HAK_HEAP_STRIDE);
    arena_unlock();
    return code == 0 ? hak__heap_address(id) : NULL;
}

void *hak__span_memory(void) { return (void *)hak__meta_start(HAK_META_SPANS); }

size_t hak__arena_top(void) { return hak_load(&hak__arena_frontier, HAK_ACQUIRE); }

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

void hak__arena_figures(struct hak_arena_figures *out)
{
    *out = (struct hak_arena_figures){
        .mapped = hak_counted(&hak__arena_books.mapped), .taken = hak_counted(&hak__arena_books.taken),
        .dirty = hak_counted(&hak__arena_books.dirty), .holes = hak_counted(&hak__arena_books.holes),
        .peak = hak_counted(&hak__arena_books.peak), .top = hak__arena_top(),
    };
    for (int w = 0; w < HAK_META_WINDOWS; w++)
        out->meta += hak__meta_mapped((enum hak_meta_window)w);
}

void hak__arena_fork_child(void)
{
    hak__lock_reset(&lock);
    hak__limit_fork_child();
    hak__meta_fork_child();
}

bool hak__arena_is_valid(void)
{
    size_t mapped = 0, dirty = 0;
    hak__lock_acquire(&lock);
    bool valid = true;
    for (size_t i = 0; i < hak__arena_top(); i++) {
        const struct hak_super *super = &hak__supers[i];
        bool taken = hak__super_words[i / 64].taken >> i % 64 & 1;
        bool is_dirty = hak__super_words[i / 64].dirty >> i % 64 & 1;
        mapped += super->mapped;
        valid &= super->mapped <= HAK_SUPER_SIZE && (!is_dirty || super->dirty <= super->mapped);
        valid &= !(taken && is_dirty) && taken == (hak_load(&super->kind, HAK_RELAXED) != HAK_SUPER_FREE);
        dirty += is_dirty ? super->dirty : 0;
    }
    valid &= mapped == mapped_bytes && dirty == dirty_bytes;
    arena_unlock();
    return valid;
}
