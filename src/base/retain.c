/* The policy of retain.h. */
#include "base/retain.h"

#include "base/bits.h"

enum { RECENT_TIMES = 4, EMPTIED_SHARE = 3, UNUSED_SHARE = 8, USED_PER_RESERVED = 4 };

static size_t retain_most(const struct hak_retention *in)
{
    if (in->pressure)
        return 0;
    return in->dirty_limit > SIZE_MAX / RECENT_TIMES ? SIZE_MAX : in->dirty_limit * RECENT_TIMES;
}

static size_t retain_recent(const struct hak_retention *in)
{
    return in->recent_peak <= in->taken ? 0 : hak_min(in->recent_peak - in->taken, retain_most(in));
}

void hak__retain(const struct hak_retention *in, struct hak_retained *out)
{
    size_t unused = in->dirty_limit + in->used / UNUSED_SHARE;
    out->emptied = hak_max(in->emptied_limit + in->used / EMPTIED_SHARE, retain_recent(in));
    /* An eighth more, so that a heap that goes to and fro around the limit is not purged all the time. */
    out->unused = unused + unused / 8;
    out->growth = in->dirty_limit + (in->recent_peak > in->taken ? in->recent_peak - in->taken : 0);
    out->reserve = in->taken / USED_PER_RESERVED;
    out->waiting = retain_most(in);
}

size_t hak__recent_peak(struct hak_recent *recent, size_t used, uint64_t now_ms, uint64_t period_ms)
{
    uint64_t gone = now_ms - recent->begun_ms;
    if (gone >= period_ms) {
        recent->most_before = gone - period_ms >= period_ms ? 0 : recent->most;
        recent->most = used;
        recent->begun_ms = now_ms;
    }
    recent->most = hak_max(recent->most, used);
    return hak_max(recent->most, recent->most_before);
}
