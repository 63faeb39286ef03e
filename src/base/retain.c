/* The policy of retain.h. */
#include "base/retain.h"

enum { RECENT_TIMES = 4, EMPTIED_SHARE = 3, UNUSED_SHARE = 8, USED_PER_RESERVED = 4 };

static size_t retain_above(size_t peak, size_t taken) { return peak > taken ? peak - taken : 0; }

static size_t retain_most(const struct hak_retention *in)
{
    if (in->pressure)
        return 0;
    return in->dirty_limit > SIZE_MAX / RECENT_TIMES ? SIZE_MAX : in->dirty_limit * RECENT_TIMES;
}

struct hak_retained hak__retain(struct hak_retention in)
{
    hak_assert(in.used <= in.taken || in.taken == 0, "tails are taken memory too");
    size_t unused = in.dirty_limit + in.used / UNUSED_SHARE, recent = retain_above(in.recent_peak, in.taken),
           most = retain_most(&in);
    return (struct hak_retained){
        .emptied = hak_max(in.emptied_limit + in.used / EMPTIED_SHARE, hak_min(recent, most)),
        /* An eighth more, so that a heap that oscillates around the limit is not purged all the time. */
        .unused = unused + unused / 8,
        .growth = in.dirty_limit + recent,
        .reserve = in.taken / USED_PER_RESERVED,
        .waiting = most,
    };
}

size_t hak__recent_peak(struct hak_recent *recent, size_t used, uint64_t now_ms, uint64_t period_ms)
{
    size_t most = hak_load(&recent->most, HAK_RELAXED);
    uint64_t gone = now_ms - hak_load(&recent->begun_ms, HAK_RELAXED);
    if (gone >= period_ms) {
        hak_store(&recent->begun_ms, now_ms, HAK_RELAXED);
        hak_store(&recent->most_before, gone - period_ms >= period_ms ? 0 : most, HAK_RELAXED);
        most = 0;
    }
    if (used >= most)
        hak_store(&recent->most, used, HAK_RELAXED);
    return hak_max(hak_max(most, used), hak_load(&recent->most_before, HAK_RELAXED));
}
