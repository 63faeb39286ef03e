/* See waiting.h. */
#include "arena/waiting.h"

#include "arena/limit.h"
#include "arena/lru.h"
#include "arena/state.h"
#include "base/bits.h"
#include "diag/options.h"
#include "os/os.h"

struct hak_waiting_place hak__waiting[HAK_WAITING_PLACES];
struct hak_waiting_rules hak__waiting_rules = { .any = true };   /* so that the first request asks the policy */

static void ask_policy(void)
{
    const struct hak_retention state = {
        .dirty_limit = hak__option(HAK_OPTION_purge_delay) != 0 ? hak__option(HAK_OPTION_dirty_limit) : 0,
        .pressure = hak__limit_exists() || hak__ahead_counts(),
    };
    struct hak_retained may;
    hak__retain(&state, &may);
    hak_store(&hak__waiting_rules.page, hak__page_size(), HAK_RELAXED);
    hak_store(&hak__waiting_rules.most, may.waiting, HAK_RELAXED);
}

/* The run lay in a place until just now. */
static void give_waiting(uint64_t run, uint64_t now_ms)
{
    size_t first = run & ((1u << HAK_WAITING_BITS) - 1), bytes = run >> HAK_WAITING_BITS << 12;
    size_t count = hak_div_up(bytes + hak__supers[first].guard, HAK_SUPER_SIZE);
    hak__supers[first].guard = 0;
    hak__lru_add_run(first, count, now_ms);
}

static void give_all_waiting(void)
{
    uint64_t now = hak__os->now_ms();
    hak__lru_note(now);   /* they count as in use until now */
    hak_store(&hak__waiting_rules.any, false, HAK_SEQ_CST);   /* first: see hak__waiting_put */
    for (uint32_t i = 0; i < HAK_WAITING_PLACES; i++) {
        uint64_t run = hak_load(&hak__waiting[i].run, HAK_SEQ_CST);
        /* acquire: pairs with the put. */
        if (run != 0 && (run = hak_exchange(&hak__waiting[i].run, 0, HAK_ACQUIRE)) != 0)
            give_waiting(run, now);
    }
    hak__lru_due(now);
}

void hak__waiting_end_locked(void)
{
    if (hak_likely(!hak_load(&hak__waiting_rules.any, HAK_RELAXED)))
        return;
    ask_policy();
    give_all_waiting();
}

void hak__waiting_end(void)
{
    ask_policy();
    if (!hak_load(&hak__waiting_rules.any, HAK_RELAXED))
        return;
    hak__arena_lock();
    hak__waiting_end_locked();
    hak__arena_unlock();
}
