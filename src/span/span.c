/* The arithmetic of spans. See span.h for the model and the invariants. */
#include "span/span.h"

#include <string.h>

#include "arena/runs.h"
#include "base/assert.h"

struct hak_span *hak__spans;
uint64_t hak__freed_key;

/* Writes the owner words of a span's slabs. */
static void set_words(struct hak_span *span, uint32_t owner, uint32_t generation)
{
    size_t slab = hak__span_slab(span);
    uint32_t own = (owner & HAK_SPAN_OWN) != 0 ? HAK_CLASS_OFFSET_OWN : 0, id = owner & ~HAK_SPAN_OWN;
    uint32_t word = hak__owner_aged(own != 0 ? 0 : generation, id, span->class) | own;
    uint32_t inner = span->blocks == 1 ? hak__owner_inner(id) | own : word;
    for (uint32_t i = span->slabs - 1u; i > 0; i--)
        hak__owner_set(slab + i, inner);
    /* Last: a thread that has read it may end a single-block span. release: pairs with the acquires in hak__heap_end_foreign and
     * give.c, since a merge hands over blocks that are just being freed. */
    hak_store(&hak__window.map[slab].owner, word, HAK_RELEASE);
}

/* A single-block span is never queued: another thread may end it at any moment, and its owner must not read it as a collector
 * does. */
static void set_owner(struct hak_span *span, uint32_t owner)
{
    if ((owner & HAK_SPAN_OWN) != 0) /* frees of a share's blocks take its lock */
        owner = 0;
    hak_store(&span->owner, span->single ? 0 : owner, HAK_RELAXED);
}

/* The slabs in which blocks may begin. In a single-block span only the first one counts; the others' owner words name no block. */
static uint32_t placed_slabs(const struct hak_span *span) { return span->blocks == 1 ? 1 : span->slabs; }

/* Publishes the frontier's progress. */
static void map_limit(struct hak_span *span)
{
    size_t slab = hak__span_slab(span);
    bool verify = span->keys || (hak_load(&span->shielded, HAK_RELAXED) & HAK_SHIELD_SPAN) != 0;
    uint32_t limit = verify ? 0 : span->frontier * hak__class_places[span->class].step;
    for (uint32_t i = 0; i < placed_slabs(span); i++)
        hak__map_start_bound(&hak__window.map[slab + i], limit);
}

/* In the large pool the start of block i, the only one in its slab, gives i there; any other offset 2^15 at least. */
static uint32_t large_phase(const struct hak_span *span, uint32_t slab)
{
    size_t size = hak__classes[span->class].size, from = slab * HAK_SLAB_SIZE, index = hak_div_up(from, size);
    size_t offset = index * size - from;
    return offset < HAK_SLAB_SIZE ? (uint32_t)(index - offset * HAK_LARGE_MULTIPLIER) : HAK_LARGE_MULTIPLIER / 2;
}

void hak__span_map_places(struct hak_span *span)
{
    size_t slab = hak__span_slab(span);
    uint32_t multiplier = hak__class_places[span->class].multiplier;
    for (uint32_t i = 0; i < placed_slabs(span); i++)
        hak__map_place(&hak__window.map[slab + i], multiplier,
                       hak__is_large(span->class) ? large_phase(span, i) : i * HAK_SLAB_SIZE * multiplier);
    map_limit(span);
}

void hak__span_lose_keys(struct hak_span *span)
{
    if (span->keys != HAK_SPAN_KEYS_WHOLE)
        return;
    span->keys = HAK_SPAN_KEYS_LOST;
    map_limit(span);
}

void hak__span_shield(struct hak_span *span)
{
    hak_fetch_or(&span->shielded, HAK_SHIELD_SPAN, HAK_RELAXED);
    map_limit(span);
}

void hak__span_unshield(struct hak_span *span)
{
    for (uint32_t i = 0; i < span->slabs; i++)
        hak_store(&span[i].shielded, 0, HAK_RELAXED);
    map_limit(span);
}

void hak__span_change_owner(struct hak_span *span, uint32_t owner)
{
    hak_assert(owner != 0, "a span always has an owner");
    set_owner(span, owner);
    set_words(span, owner, hak__owner_generation(hak__owner_at(hak__span_slab(span))));
}

struct hak_span *hak__span_around(size_t slab)
{
    hak_assert(slab < hak_read_mostly(&hak__window.slabs), "a slab of the window");
    for (unsigned left = HAK_SPAN_SLABS_MAX; left > 1 && slab > 0; left--, slab--)
        if (!hak__owner_is_inner(hak__owner_at(slab)))
            break;
    return hak__span_at(slab);
}

static uint16_t blocks_in(uint32_t class_index, uint32_t slabs)
{
    const struct hak_class *class = &hak__classes[class_index];
    if (slabs == class->slabs)
        return class->blocks;
    return class_index >= HAK_CLASS_FIRST_LARGE ? 1 : (uint16_t)(slabs * HAK_SLAB_SIZE / class->size);
}

/* --- memory in pieces ---------------------------------------------------------------------------------------------- */

/* The part of the reached memory that is mapped ahead of need: a compromise between calls and unused memory. */
enum { REACH_SHARE = 8, REACH_MORE = 16 << 10 };

/* Set when pieces of an ended span could not be unmapped. They stay; each slab's descriptor has the bytes of its piece. */
static _Atomic bool pieces_left;

static size_t left_in(const struct hak_span *slab) { return slab->reach == HAK_REACH_ALL ? 0 : slab->reach; }

/* The end of a piece that begins at `reach`: pieces left behind are not mapped again. */
static size_t piece_end(struct hak_span *span, size_t reach, size_t end)
{
    if (hak_likely(!hak_load(&pieces_left, HAK_RELAXED)))
        return end;
    size_t slab = reach >> HAK_SLAB_SHIFT;
    if (slab != 0 && reach % HAK_SLAB_SIZE == 0) {
        span->reach += (uint32_t)left_in(&span[slab]);
        span[slab].reach = 0;
    }
    return span->reach != reach ? span->reach : hak_min(end, (slab + 1) << HAK_SLAB_SHIFT);
}

static bool reach_piece(struct hak_span *span, size_t end)
{
    hak_assert(end > span->reach, "there is something to map");
    size_t page = hak__page_size(), reach = span->reach, ahead = hak_min(reach / REACH_SHARE, REACH_MORE);
    size_t least = piece_end(span, reach, end), whole = (size_t)span->slabs << HAK_SLAB_SHIFT;
    if (least <= span->reach)
        return true;
    size_t more = piece_end(span, reach, hak_min(hak_align_up(hak_max(least, reach + ahead), page), whole));
    int code = hak__piece_map(hak__span_start(span) + reach, more - reach);
    if (code != 0 && more > least)
        code = hak__piece_map(hak__span_start(span) + reach, (more = least) - reach);
    if (code == 0)
        span->reach = (uint32_t)more;
    return code == 0;
}

bool hak__span_reach(struct hak_span *span, size_t end)
{
    bool done = true;
    for (end = hak_min(hak_align_up(end, hak__page_size()), (size_t)span->slabs << HAK_SLAB_SHIFT); done && end > span->reach;)
        done = reach_piece(span, end);
    return done;
}

void hak__span_retreat(struct hak_span *span)
{
    size_t keep = hak_align_up(span->frontier * hak__classes[span->class].size, hak__page_size());
    if (span->reach == HAK_REACH_ALL || span->reach <= keep || span->keys == HAK_SPAN_HARDENED)
        return;
    if (hak__piece_unmap(hak__span_start(span) + keep, span->reach - keep))
        span->reach = (uint32_t)keep;
}

static hak_cold void leave_pieces(struct hak_span *span)
{
    size_t reach = span->reach;
    bool gone = reach == 0 || hak__piece_unmap(hak__span_start(span), reach);
    if (!gone)
        hak_store(&pieces_left, true, HAK_RELAXED);
    for (size_t i = 0, at = 0; at < reach; i++, at += HAK_SLAB_SIZE)
        span[i].reach = gone ? 0 : (uint32_t)hak_min(reach - at, HAK_SLAB_SIZE);
}

/* For an assertion. */
hak_inline bool are_unowned(size_t slab, uint32_t slabs)
{
    bool unowned = true;
    for (uint32_t i = 0; i < slabs; i++)
        unowned &= hak__owner_at(slab + i) == 0;
    return unowned;
}

struct hak_span *hak__span_create(size_t slab, uint32_t slabs, uint32_t class_index, uint32_t owner, void *bitmaps, bool fresh)
{
    const struct hak_class *class = &hak__classes[class_index];
    struct hak_span *span = &hak__spans[slab];
    size_t bytes = hak__span_bitmap_bytes(class);
    hak_assert(slabs != 0 && slab % HAK_SUPER_SLABS + slabs <= HAK_SUPER_SLABS, "a span lies in one SuperSlab");
    hak_assert(owner != 0, "a span has an owner");
    hak_assert(are_unowned(slab, slabs), "no span stands there");
    hak_assert(bytes == 0 || bitmaps != NULL, "a span of many blocks has bitmaps elsewhere");
    hak_assert(hak_load(&span->shielded, HAK_RELAXED) == 0, "memory comes back into use with its rights");
    span->free = bytes != 0 ? bitmaps : &span->only_word;
    span->remote = bytes != 0 ? (_Atomic uint64_t *)((char *)bitmaps + bytes / 2) : &span->only_remote;
    if (bytes != 0)
        memset(bitmaps, 0, bytes);
    span->only_word = 0;
    hak_store(&span->only_remote, 0, HAK_RELAXED);
    span->summary = 0;
    span->next = span->prev = NULL;
    span->class = (uint16_t)class_index;
    span->blocks = blocks_in(class_index, slabs);
    span->single = span->blocks == 1;
    span->frontier = span->free_count = 0;
    span->slabs = (uint8_t)slabs;
    span->words = (uint8_t)hak_div_up(class->blocks, 64);
    span->fresh = fresh;
    span->keys = HAK_SPAN_KEYS_WHOLE;
    span->listed = false;
    span->warm = 0;
    span->changes++;
    span->purged = false;
    span->reach = hak__super_is_bare(slab / HAK_SUPER_SLABS) ? (uint32_t)left_in(span) : HAK_REACH_ALL;
    /* `queued` is left alone: a late publisher of the span that was here before may have put it on a stack. */
    set_owner(span, owner);
    for (uint32_t i = 0; i < placed_slabs(span); i++) {
        hak_store(&hak__spans[slab + i].back, (uint8_t)i, HAK_RELAXED);
        hak__spans[slab + i].account = NULL;
    }
    hak__span_map_places(span);
    set_words(span, owner, hak_read_mostly(&hak__window.generation));
    return span;
}

void *hak__span_take_single(struct hak_span *span)
{
    hak_assert(span->blocks == 1 && span->frontier == 0, "a new span of one block");
    span->frontier = 1;
    span->changes++;
    map_limit(span);
    return hak__span_start(span);
}

enum hak_span_fault hak__span_give_single(struct hak_span *span, const void *block)
{
    hak_assert(span->blocks == 1, "the span has a single block");
    if (hak_unlikely(block != hak__span_start(span)))
        return HAK_SPAN_NOT_A_BLOCK;
    if (hak_unlikely(hak__span_allocated(span) != 1))
        return HAK_SPAN_DOUBLE_FREE;
    span->free_count = 1;
    span->changes++;
    return HAK_SPAN_OK;
}

void *hak__span_destroy(struct hak_span *span)
{
    hak_assert(hak__span_allocated(span) == 0, "a span is destroyed while blocks are allocated");
    hak_assert(!span->listed && span->warm == 0, "a span has left its heap's lists when it ends");
    if (hak_unlikely(span->reach != HAK_REACH_ALL))
        leave_pieces(span);
    if (hak_unlikely(hak_load(&span->shielded, HAK_RELAXED) != 0))
        hak__span_unshield(span);
    size_t slab = hak__span_slab(span);
    void *bitmaps = span->free == &span->only_word ? NULL : span->free;
    span->account = NULL; /* a huge block may begin here next */
    for (uint32_t i = 0; i < span->slabs; i++)
        hak__owner_set(slab + i, 0);
    hak_store(&span->owner, 0, HAK_RELAXED);
    return bitmaps;
}

/* --- taking ----------------------------------------------------------------------------------------------------- */

/* Stores the lowest blocks of one word of bits downwards from `out` as far as `end`; returns the remaining bits. If memory was
 * freed in one go, the bits of a word are one run, in which the next address is one addition away. */
static uint64_t take_word(uint64_t bits, char *base, size_t size, void ***out, void **end)
{
    void **at = *out;
    if ((bits & (bits + (bits & (0 - bits)))) == 0) {
        unsigned first = hak_ctz64(bits);
        size_t run = bits >> first == ~0ull ? 64 : hak_ctz64(~(bits >> first)), room = (size_t)(at - end);
        char *block = base + first * size;
        run = run < room ? run : room;
        for (void **stop = at - run; at > stop; block += size)
            *--at = block;
        bits &= ~(hak_ones64((unsigned)run) << first);
    } else {
        do {
            *--at = base + hak_ctz64(bits) * size;
            bits &= bits - 1;
            if (at == end)
                break;
        } while (bits != 0);
    }
    *out = at;
    return bits;
}

/* Takes freed blocks, lowest addresses first. */
static uint32_t take_freed(struct hak_span *span, void **out, uint32_t want)
{
    char *start = hak__span_start(span);
    size_t size = hak__classes[span->class].size;
    uint64_t summary = span->summary;
    void **at = out + want;
    while (summary != 0 && at > out) {
        unsigned w = hak_ctz64(summary);
        uint64_t bits = take_word(span->free[w], start + w * 64 * size, size, &at, out);
        span->free[w] = bits;
        if (bits == 0)
            summary &= summary - 1;
    }
    uint32_t taken = want - (uint32_t)(at - out);
    span->summary = summary;
    hak_slot_store(&span->free_count, (uint16_t)(span->free_count - taken));
    return taken;
}

/* Takes blocks never used, no further than the page of the frontier. They bear the key until malloc hands them out, so that a
 * pointer to one of them does not look like a block in use. A single block to be handed out at once gets none, so its page need not
 * be touched. */
static uint32_t take_frontier(struct hak_span *span, void **out, uint32_t want, bool first)
{
    size_t size = hak__classes[span->class].size, page = hak__page_size();
    size_t at = span->frontier * size, end = hak_align_up(at + size, page);
    if (hak_unlikely(span->account != NULL))
        end = (size_t)span->slabs << HAK_SLAB_SHIFT;
    uint32_t room = (uint32_t)hak_min((end - at) / size, (size_t)(span->blocks - span->frontier));
    uint32_t count = (uint32_t)hak_min(room, want);
    char *block = hak__span_start(span) + at;
    if (hak_unlikely(at + count * size > span->reach) && !hak__span_reach(span, at + count * size))
        return 0;
    if (first && count == 1)
        out[want - 1] = block;
    else
        for (void **slot = out + want, **last = slot - count; slot > last; block += size) {
            *--slot = block;
            hak__mark_freed(block);
        }
    hak_slot_store(&span->frontier, (uint16_t)(span->frontier + count));
    map_limit(span);
    return count;
}

static hak_cold void write_keys(const struct hak_span *span)
{
    size_t size = hak__classes[span->class].size;
    for (uint32_t w = 0; w < span->words; w++)
        for (uint64_t bits = span->free[w]; bits != 0; bits &= bits - 1)
            hak__mark_freed(hak__span_start(span) + (w * 64 + hak_ctz64(bits)) * size);
}

/* Blocks that are taken get their keys back. Once no free block can lack its key, the start bound is set again. The pages of an
 * inherited span that gives blocks will be written to anyway: all its free blocks get keys, and frees take the fast path again. */
static hak_cold void settle_keys(struct hak_span *span, void *const *blocks, uint32_t count)
{
    bool inherited = hak__span_is_inherited(span);
    for (uint32_t i = 0; i < count; i++)
        hak__mark_freed(blocks[i]);
    if (inherited)
        write_keys(span);
    span->keys = span->free_count != 0 && !inherited ? HAK_SPAN_KEYS_LOST : HAK_SPAN_KEYS_WHOLE;
    map_limit(span);
    if (inherited)
        set_words(span, hak__owner_id(hak__owner_at(hak__span_slab(span))), hak_read_mostly(&hak__window.generation));
}

uint32_t hak__span_take(struct hak_span *span, void **out, uint32_t want)
{
    hak_assert(want != 0, "blocks are asked for");
    hak_assert(span->keys != HAK_SPAN_HARDENED, "hardened spans give in random order (harden/spans.h)");
    uint32_t taken = take_freed(span, out, want);
    if (taken < want && span->frontier < span->blocks)
        taken += take_frontier(span, out, want - taken, taken == 0);
    if (hak_unlikely(span->keys))
        settle_keys(span, out + want - taken, taken);
    span->changes++;
    return taken;
}

void *hak__span_take_fresh(struct hak_span *span)
{
    size_t size = hak__classes[span->class].size, end = (span->frontier + (size_t)1) * size;
    if (span->frontier == span->blocks || (hak_unlikely(end > span->reach) && !hak__span_reach(span, end)))
        return NULL;
    span->changes++;
    char *block = hak__span_start(span) + span->frontier * size;
    hak_slot_store(&span->frontier, (uint16_t)(span->frontier + 1));
    map_limit(span);
    return block;
}

/* --- giving ------------------------------------------------------------------------------------------------------ */

enum hak_span_fault hak__span_index(const struct hak_span *span, const void *p, uint32_t *index)
{
    const struct hak_class *class = &hak__classes[span->class];
    struct hak_place place = hak__place_of(class->reciprocal, (size_t)((const char *)p - hak__span_start(span)));
    *index = (uint32_t)place.index;
    return hak__place_is_block(place, class->reciprocal, span->blocks) ? HAK_SPAN_OK : HAK_SPAN_NOT_A_BLOCK;
}

static void give_bits(struct hak_span *span, uint32_t w, uint64_t bits)
{
    span->free[w] |= bits;
    span->summary |= 1ull << w;
}

/* Why giving stopped before the last block: at a block of another span, or at a faulty one. */
static hak_noinline enum hak_span_fault fault_of(const struct hak_span *span, const void *p)
{
    size_t offset = (size_t)((const char *)p - hak__span_start(span));
    uint64_t reciprocal = hak__classes[span->class].reciprocal;
    if (offset >= (size_t)span->slabs << HAK_SLAB_SHIFT)
        return HAK_SPAN_OK;
    bool block = hak__place_is_block(hak__place_of(reciprocal, offset), reciprocal, span->frontier);
    return block ? HAK_SPAN_DOUBLE_FREE : HAK_SPAN_NOT_A_BLOCK;
}

/* The bits of one word are gathered in a register while consecutive blocks share it, as they mostly do. */
enum hak_span_fault hak__span_give_owner(struct hak_span *span, void *const *blocks, uint32_t count, uint32_t *given)
{
    const char *start = hak__span_start(span);
    const uint64_t reciprocal = hak__classes[span->class].reciprocal, frontier = span->frontier;
    void *const *at = blocks, *const *end = blocks + count;
    uint64_t w = 0, bits = span->free[0];
    for (; at < end; at++) {
        struct hak_place place = hak__place_of(reciprocal, (size_t)((const char *)*at - start));
        if (hak_unlikely(!hak__place_is_block(place, reciprocal, frontier)))
            break;
        if (hak_unlikely(place.index / 64 != w)) {
            span->free[w] = bits;
            span->summary |= (uint64_t)(bits != 0) << w;
            w = place.index / 64;
            bits = span->free[w];
        }
        uint64_t bit = 1ull << place.index % 64;
        if (hak_unlikely((bits & bit) != 0))
            break;
        bits |= bit;
    }
    span->free[w] = bits;
    span->summary |= (uint64_t)(bits != 0) << w;
    *given = (uint32_t)(at - blocks);
    hak_slot_store(&span->free_count, (uint16_t)(span->free_count + *given));
    span->changes++;
    return hak_likely(at == end) ? HAK_SPAN_OK : fault_of(span, *at);
}

uint64_t hak__span_set_remote(struct hak_span *span, uint32_t word, uint64_t bits)
{
    hak_assert(word < span->words, "a word of the span's bitmap");
    /* release: pairs with the acquire in hak__span_collect_owner. */
    return hak_fetch_or(&span->remote[word], bits, HAK_RELEASE) & bits;
}

/* The bits of a word for blocks below the frontier. */
static uint64_t handed_out(const struct hak_span *span, uint32_t w)
{
    return span->frontier > w * 64 ? hak_ones64(span->frontier - w * 64) : 0;
}

/* Marks the blocks whose bits are set in a word, unless the span is inherited. Returns the bits of those that are free already.
 * Prefetches their lines together, since another processor has them. */
static uint64_t mark_freed(const struct hak_span *span, uint32_t w, uint64_t bits, bool spare, hak_span_question *is_free)
{
    size_t size = hak__classes[span->class].size;
    uint64_t twice = 0;
    char *start = hak__span_start(span) + w * 64 * size;
    for (uint64_t rest = spare ? 0 : bits; rest != 0; rest &= rest - 1)
        hak__prefetch_mark(start + hak_ctz64(rest) * size);
    for (; bits != 0; bits &= bits - 1) {
        char *block = start + hak_ctz64(bits) * size;
        if (hak_unlikely(hak__looks_freed(block)) && is_free(span, block))
            twice |= bits & (0 - bits);
        else if (!spare)
            hak__mark_freed(block);
    }
    return twice;
}

uint32_t hak__span_collect_owner(struct hak_span *span, hak_span_question *is_free, enum hak_span_fault *fault, uint32_t *culprit)
{
    uint32_t count = 0;
    uint64_t twice;
    *fault = HAK_SPAN_OK;
    bool spare = hak__span_is_inherited(span);
    if (hak_unlikely(spare))
        hak__span_lose_keys(span);
    for (uint32_t w = 0; w < span->words; w++) {
        if (hak_load(&span->remote[w], HAK_RELAXED) == 0)
            continue;
        /* acquire: the freeing threads' accesses to the blocks precede those of their next users. */
        uint64_t bits = hak_exchange(&span->remote[w], 0, HAK_ACQUIRE);
        uint64_t never = bits & ~handed_out(span, w), wrong = never | (bits & span->free[w]);
        if (hak_unlikely(wrong != 0)) {
            *fault = never != 0 ? HAK_SPAN_NOT_A_BLOCK : HAK_SPAN_DOUBLE_FREE;
            *culprit = w * 64 + hak_ctz64(never != 0 ? never : wrong);
            bits &= ~wrong;
        } else if (HAK_PROTECT && hak_likely(span->keys != HAK_SPAN_HARDENED)
                   && hak_unlikely((twice = mark_freed(span, w, bits, spare, is_free)) != 0)) {
            *fault = HAK_SPAN_DOUBLE_FREE;
            *culprit = w * 64 + hak_ctz64(twice);
            bits &= ~twice;
        }
        give_bits(span, w, bits);
        count += hak_popcount64(bits);
    }
    hak_slot_store(&span->free_count, (uint16_t)(span->free_count + count));
    span->changes++;
    return count;
}

/* --- pages -------------------------------------------------------------------------------------------------------- */

/* Whether no block of [first, last] is allocated: each has its free bit or lies at or beyond the frontier. */
static bool all_inside(const struct hak_span *span, uint32_t first, uint32_t last)
{
    last = last < span->frontier ? last : span->frontier - 1u;
    for (uint32_t w = first / 64; first < span->frontier && w <= last / 64; w++) {
        uint64_t mask = w == first / 64 ? ~0ull << first % 64 : ~0ull;
        mask &= w == last / 64 ? hak_ones64(last % 64 + 1) : ~0ull;
        if ((span->free[w] & mask) != mask)
            return false;
    }
    return true;
}

size_t hak__span_idle_pages(const struct hak_span *span, size_t page, size_t *from)
{
    hak_assert(hak_is_power_of_two(page) && *from % page == 0, "a place in the span at a page");
    size_t size = hak__classes[span->class].size, end = (size_t)span->slabs << HAK_SLAB_SHIFT;
    /* Beyond the frontier of a fresh span all pages are untouched. */
    if (span->fresh)
        end = hak_min(end, hak_align_up(span->frontier * size, page));
    size_t at = hak_min(*from, end);
    for (*from = end; at < end; at += page) {
        bool idle = all_inside(span, (uint32_t)(at / size), (uint32_t)((at + page - 1) / size));
        if (idle && *from == end)
            *from = at;
        else if (!idle && *from != end)
            break;
    }
    return at - *from;
}

bool hak__span_is_valid(const struct hak_span *span)
{
    uint32_t count = 0;
    bool valid = hak__holds(span->frontier <= span->blocks && span->free_count <= span->frontier,
                            "a span's counts are within its blocks", span);
    for (uint32_t w = 0; w < span->words; w++) {
        uint64_t bits = span->free[w];
        count += hak_popcount64(bits);
        valid &= hak__holds((bits & ~handed_out(span, w)) == 0, "no block beyond the frontier is free", span);
        valid &= hak__holds((bits != 0) == (span->summary >> w & 1), "the summary says which words have free bits", span);
        valid &= hak__holds((bits & hak_load(&span->remote[w], HAK_RELAXED)) == 0, "no free block is freed remotely", span);
    }
    return hak__holds(count == span->free_count, "a span's free bits are as many as it says", span) && valid;
}
