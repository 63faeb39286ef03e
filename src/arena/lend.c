/* Emptied SuperSlabs lend their pages to huge blocks. A run is found by its addresses, and parts of it may have no
 * pages while others lie unused elsewhere. Moving those costs a hundredth of faulting new ones in, and nothing is resident twice
 * (docs/decisions/0049). A piece that has moved is a mapping of its own until it is unmapped (hak_super.moved), so there is a limit.
 * Called by huge/ for a run that it has just taken.
 *
 * A child forked in between finds the run taken, which nobody gives back there, and the lender shorter: its state changes before its
 * pages go, so the child may at worst take mapped memory for unmapped. */
#include "arena/lend.h"

#include "arena/crowd.h"
#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/mapping.h"
#include "arena/state.h"
#include "os/os.h"

/* How many emptied SuperSlabs are compared for each gap; one in so many of the mappings that the kernel allows may be a moved piece
 * (512 by default); and the size below which a call costs as much as the faults. */
enum { LOOKS_PER_GAP = 64, MAPPINGS_PER_MOVED = 128, PIECE_LEAST = 64 << 10 };

/* Among the newest, the one with the fewest pages that suffice, else the one with most; HAK_NO_SUPER if there is none. */
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

static void shorten_loan(size_t lender, size_t bytes)
{
    hak__arena_state.mapped -= hak__supers[lender].mapped - bytes;
    hak__super_set_mapped(lender, (uint32_t)bytes);
    hak__lru_cut(lender, (uint32_t)bytes);   /* later: what is mapped and not dirty is zero */
    if (bytes == 0)
        hak__super_set_moved(lender, 0);
}

/* The system would neither move the lender's pages nor take them. */
static void lengthen_loan(size_t lender, size_t bytes)
{
    hak__lru_remove(lender);
    hak__lru_add(lender, (uint32_t)bytes, hak__os->now_ms());
    hak__arena_state.mapped += bytes - hak__supers[lender].mapped;
    hak__super_set_mapped(lender, (uint32_t)bytes);   /* not before: what is mapped and not dirty is zero */
}

enum lent { LENT, NOT_LENT, PLACE_LOST };

/* Moves the last `bytes` bytes of a lender to an offset in a SuperSlab. If the kernel refuses, unmaps them. */
static enum lent lend_piece(size_t lender, size_t bytes, size_t super, size_t offset)
{
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
    return hak__arena_state.moved < hak_div_up(hak__limit_mappings(), MAPPINGS_PER_MOVED) && !hak__is_crowded();
}

/* Gives a SuperSlab without pages all those of a whole one, though the block may need fewer: the rest becomes its tail. Pieces would
 * split mappings, and their pieces again, until moving one costs more than faults. False: there is no whole one. */
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
    if (hak__ahead_counts())
        return true;
    hak__arena_lock();
    for (size_t i = 0; i << HAK_SUPER_SHIFT < bytes && done == LENT; i++)
        done = lend_fill(first + i, hak_min(bytes - (i << HAK_SUPER_SHIFT), HAK_SUPER_SIZE));
    hak__arena_unlock();
    return done != PLACE_LOST;
}
