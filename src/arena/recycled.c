/* Freed memory that huge blocks use again. See retained.h. */
#include "arena/retained.h"

#include "arena/limit.h"
#include "arena/mapping.h"
#include "arena/returned.h"
#include "diag/options.h"

enum { DRAWN_AT_ONCE = 4 << 20 }; /* bytes; a line seldom comes back for more */

hak_rare_data struct hak_waiting_line hak__waiting[HAK_WAITING_LINES];
struct hak_waiting_rules hak__waiting_rules = { .any = true }; /* makes the first request ask the policy */

bool hak__waiting_draw(struct hak_waiting_line *line, size_t bytes)
{
    size_t left = hak_load(&hak__waiting_rules.left, HAK_RELAXED), want;
    do {
        size_t lacks = bytes - hak_min(bytes, hak_load(&line->room, HAK_RELAXED));
        if (lacks > left) {
            hak_store(&hak__waiting_rules.any, true, HAK_RELAXED); /* the policy may allow more by now */
            return false;
        }
        want = hak_min(hak_max(lacks, DRAWN_AT_ONCE), left);
    } while (!hak_cas_weak(&hak__waiting_rules.left, &left, left - want, HAK_RELAXED, HAK_RELAXED));
    hak_assert(want <= left, "no more is drawn than is left");
    hak_fetch_add(&line->room, want, HAK_RELAXED);
    return true;
}

static void ask_policy(void)
{
    struct hak_retained may =
        hak__return_ask((struct hak_retention){ .pressure = hak__limit_is_near() || hak__ahead_counts() }, hak__os->now_ms());
    hak_store(&hak__waiting_rules.page, hak__page_size(), HAK_RELAXED);
    hak_store(&hak__waiting_rules.left, may.delay_ms[HAK_UNUSED_SUPERS] != 0 ? may.waiting : 0, HAK_RELAXED);
}

/* Gives back a run that has waited until now. */
static void give_waiting(uint64_t run, uint64_t now_ms)
{
    size_t first = run & ((1u << HAK_WAITING_BITS) - 1), bytes = hak__waiting_bytes(run);
    size_t count = hak_div_up(bytes + hak_load(&hak__supers[first].guard, HAK_RELAXED), HAK_SUPER_SIZE);
    hak_assert(count != 0 && hak_load(&hak__supers[first].kind, HAK_RELAXED) == HAK_SUPER_HUGE, "a huge block's run waits");
    hak_store(&hak__supers[first].guard, 0, HAK_RELAXED);
    hak__retained_add_run(first, count, now_ms);
}

static void release_line(struct hak_waiting_line *line, uint64_t now_ms)
{
    for (uint32_t i = 0; i < HAK_WAITING_RUNS; i++) {
        uint64_t run = hak_load(&line->run[i], HAK_SEQ_CST);
        /* acquire: pairs with the put. */
        if (run != 0 && (run = hak_exchange(&line->run[i], 0, HAK_ACQUIRE)) != 0)
            give_waiting(run, now_ms);
    }
    if (hak_load(&line->room, HAK_RELAXED) != 0) /* else the page stays untouched */
        hak_store(&line->room, 0, HAK_RELAXED); /* bytes drawn now are drawn twice, or lost, until the next end */
}

static void give_all_waiting(void)
{
    hak_assert(hak__arena_is_mine(), "the caller holds the arena's lock");
    uint64_t now = hak__os->now_ms();
    hak__retained_note(now); /* the runs count as in use until now */
    hak_store(&hak__waiting_rules.any, false, HAK_SEQ_CST); /* first: see hak__waiting_put */
    for (uint32_t i = 0; i < HAK_WAITING_LINES; i++)
        release_line(&hak__waiting[i], now);
    ask_policy();
    hak__retained_due(now);
}

void hak__waiting_end_locked(void)
{
    if (hak_unlikely(hak_load(&hak__waiting_rules.any, HAK_RELAXED)))
        give_all_waiting();
}

void hak__waiting_end(void)
{
    if (!hak_load(&hak__waiting_rules.any, HAK_RELAXED)) {
        ask_policy(); /* an option may have changed */
        return;
    }
    hak__arena_lock();
    hak__waiting_end_locked();
    hak__arena_unlock();
}

/* --- lent pages -------------------------------------------------------------------------------------------------------- */

/* LOOKS_PER_GAP: emptied SuperSlabs compared for each gap. MAPPINGS_PER_MOVED: the share of the allowed mappings that may be moved
 * pieces (512 by default). PIECE_LEAST: below this size a call costs as much as the faults. */
enum { LOOKS_PER_GAP = 64, MAPPINGS_PER_MOVED = 128, PIECE_LEAST = 16 << 10 };

/* Among the newest, the SuperSlab with the fewest sufficient pages, else the one with the most; HAK_NO_SUPER if there is none. */
static size_t find_lender(size_t bytes)
{
    size_t best = HAK_NO_SUPER, least = 0;
    unsigned looks = LOOKS_PER_GAP;
    for (uint32_t at = hak__arena_state.newest; at != 0 && looks > 0 && least != bytes; at = hak__supers[at - 1].older, looks--) {
        size_t has = hak__supers[at - 1].dirty;
        bool better = has < bytes ? has > least : least < bytes || has < least;
        if (better && has >= PIECE_LEAST && has == hak__supers[at - 1].mapped) {
            best = at - 1;
            least = has;
        }
    }
    return best;
}

/* Leaves the lender its first `bytes` bytes. Its state changes before its pages go: a child forked in between finds the run taken,
 * which no thread gives back there, and may at worst take the lender's mapped memory for unmapped. */
static void shorten_loan(size_t lender, size_t bytes)
{
    hak_assert(!hak__super_is_taken(lender) && bytes < hak__supers[lender].mapped, "an emptied SuperSlab lends");
    hak__super_count_mapped(lender, bytes);
    hak__retained_cut(lender, bytes); /* later: mapped memory that is not dirty is zero */
    if (bytes == 0)
        hak__super_set_moved(lender, 0);
}

/* Undoes shorten_loan, if the system would neither move the lender's pages nor unmap them. */
static void lengthen_loan(size_t lender, size_t bytes)
{
    hak__retained_remove(lender);
    hak__retained_add(lender, bytes, hak__os->now_ms());
    hak__super_count_mapped(lender, bytes); /* not before: mapped memory that is not dirty is zero */
}

enum lent { LENT, NOT_LENT, PLACE_LOST };

/* Moves the last `bytes` bytes of a lender to an offset in a SuperSlab. If the kernel refuses, unmaps them. */
static enum lent lend_piece(size_t lender, size_t bytes, size_t super, size_t offset)
{
    hak_assert(lender != super && offset + bytes <= HAK_SUPER_SIZE, "pages move to another SuperSlab, and fit there");
    hak_assert(hak__super_is_taken(super), "the block's run is the caller's");
    size_t keeps = hak__supers[lender].mapped - bytes;
    uintptr_t from = (uintptr_t)hak__super_start(lender) + keeps, to = (uintptr_t)hak__super_start(super) + offset;
    shorten_loan(lender, keeps);
    if (hak__os_move(from, bytes, to, bytes) == 0) {
        hak__super_set_moved(super, hak__supers[super].moved + 1u);
        return LENT;
    }
    if (hak__os_unmap(from, bytes) != 0)
        lengthen_loan(lender, keeps + bytes);
    return hak__place_stays(to, bytes) ? NOT_LENT : PLACE_LOST;
}

static bool may_move(void)
{
    return hak__arena_state.moved < hak_div_up(hak__limit_mappings(), MAPPINGS_PER_MOVED) && !hak__arena_is_crowded();
}

/* Gives a SuperSlab without pages all pages of a whole one, though the block may need fewer: the rest becomes its tail. Pieces
 * would split mappings, and their pieces again, until moving one costs more than faults. False: there is no whole one. */
static bool lend_whole(size_t super, enum lent *done)
{
    size_t at, lender = may_move() ? find_lender(HAK_SUPER_SIZE) : HAK_NO_SUPER;
    if (lender == HAK_NO_SUPER || hak__supers[lender].dirty != HAK_SUPER_SIZE || hak__run_map(super, 1, HAK_SUPER_SIZE, &at) != 0)
        return false;
    *done = lend_piece(lender, HAK_SUPER_SIZE, super, 0);
    if (*done == LENT)
        hak_owner_store(&hak__supers[super].dirty, HAK_SUPER_SIZE);
    return true;
}

/* Gives the first `need` bytes of a SuperSlab pages, as far as others have some. */
static enum lent lend_fill(size_t super, size_t need)
{
    enum lent done = LENT;
    size_t has = hak__supers[super].dirty;
    if (has == 0 && need >= PIECE_LEAST && lend_whole(super, &done))
        return done;
    while (done == LENT && has + PIECE_LEAST <= need) {
        size_t lender = may_move() ? find_lender(need - has) : HAK_NO_SUPER;
        if (lender == HAK_NO_SUPER)
            return NOT_LENT;
        size_t bytes = hak_min(need - has, hak__supers[lender].dirty);
        done = lend_piece(lender, bytes, super, has);
        has += bytes;
    }
    return done;
}

bool hak__supers_fill(size_t first, size_t bytes)
{
    enum lent done = LENT;
    hak_assert(hak_load(&hak__supers[first].kind, HAK_RELAXED) == HAK_SUPER_HUGE, "huge blocks are filled");
    if (hak__ahead_counts())
        return true;
    hak__arena_lock();
    for (size_t i = 0; i << HAK_SUPER_SHIFT < bytes && done == LENT; i++)
        done = lend_fill(first + i, hak_min(bytes - (i << HAK_SUPER_SHIFT), HAK_SUPER_SIZE));
    hak__arena_unlock();
    return done != PLACE_LOST;
}
