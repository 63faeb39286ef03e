/* See waiting.h. */
#include "arena/waiting.h"

#include <errno.h>

#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/state.h"
#include "base/bits.h"
#include "diag/options.h"
#include "os/os.h"

enum { DRAWN_AT_ONCE = 4 << 20 };   /* bytes; a line seldom comes back for more */

struct hak_waiting_line hak__waiting[HAK_WAITING_LINES];
struct hak_waiting_rules hak__waiting_rules = { .any = true };   /* so that the first request asks the policy */

bool hak__waiting_draw(struct hak_waiting_line *line, size_t bytes)
{
    size_t left = hak_load(&hak__waiting_rules.left, HAK_RELAXED), want;
    do {
        size_t lacks = bytes - hak_min(bytes, hak_load(&line->room, HAK_RELAXED));
        if (lacks > left) {
            hak_store(&hak__waiting_rules.any, true, HAK_RELAXED);   /* the policy may allow more by now */
            return false;
        }
        want = hak_min(hak_max(lacks, DRAWN_AT_ONCE), left);
    } while (!hak_cas_weak(&hak__waiting_rules.left, &left, left - want, HAK_RELAXED, HAK_RELAXED));
    hak_fetch_add(&line->room, want, HAK_RELAXED);
    return true;
}

static void ask_policy(void)
{
    struct hak_retention state = {
        .dirty_limit = hak__option(HAK_OPTION_purge_delay) != 0 ? hak__option(HAK_OPTION_dirty_limit) : 0,
        .pressure = hak__limit_is_near() || hak__ahead_counts(),
    };
    hak_store(&hak__waiting_rules.page, hak__page_size(), HAK_RELAXED);
    hak_store(&hak__waiting_rules.left, hak__retain(state).waiting, HAK_RELAXED);
}

/* The run waited until just now. */
static void give_waiting(uint64_t run, uint64_t now_ms)
{
    size_t first = run & ((1u << HAK_WAITING_BITS) - 1), bytes = hak__waiting_bytes(run);
    size_t count = hak_div_up(bytes + hak__supers[first].guard, HAK_SUPER_SIZE);
    hak__supers[first].guard = 0;
    hak__lru_add_run(first, count, now_ms);
}

static void give_line(struct hak_waiting_line *line, uint64_t now_ms)
{
    for (uint32_t i = 0; i < HAK_WAITING_RUNS; i++) {
        uint64_t run = hak_load(&line->run[i], HAK_SEQ_CST);
        /* acquire: pairs with the put. */
        if (run != 0 && (run = hak_exchange(&line->run[i], 0, HAK_ACQUIRE)) != 0)
            give_waiting(run, now_ms);
    }
    hak_store(&line->room, 0, HAK_RELAXED);   /* what is drawn at this moment is drawn twice, or lost, until the next end */
}

static void give_all_waiting(void)
{
    uint64_t now = hak__os->now_ms();
    hak__lru_note(now);   /* they count as in use until now */
    hak_store(&hak__waiting_rules.any, false, HAK_SEQ_CST);   /* first: see hak__waiting_put */
    for (uint32_t i = 0; i < HAK_WAITING_LINES; i++)
        give_line(&hak__waiting[i], now);
    ask_policy();
    hak__lru_due(now);
}

void hak__waiting_end_locked(void)
{
    if (hak_unlikely(hak_load(&hak__waiting_rules.any, HAK_RELAXED)))
        give_all_waiting();
}

void hak__waiting_end(void)
{
    if (!hak_load(&hak__waiting_rules.any, HAK_RELAXED)) {
        ask_policy();   /* an option may have changed */
        return;
    }
    hak__arena_lock();
    hak__waiting_end_locked();
    hak__arena_unlock();
}

bool hak__arena_gives_up(int code)
{
    if (code <= 0 || code == EEXIST)   /* not the system: opening.h */
        return false;
    hak__limit_refused(hak__arena_state.mapped);
    hak__waiting_end_locked();
    return hak__lru_unmap_all();
}
