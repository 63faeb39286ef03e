/* See nearness.h. One thread looks at a time; a second one leaves it to the first. */
#include "upkeep/nearness.h"

#include "arena/arena.h"
#include "arena/limit.h"
#include "arena/mapping.h"
#include "base/assert.h"
#include "base/bits.h"
#include "base/lock.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "os/os.h"
#include "profile/profile.h"
#include "upkeep/upkeep.h"

enum { LOOK_MS = 1000, NEAR_MS = 50, VAIN_MS = 3200, CALLED_AGAIN = 800, ROOM_PART = 8, GAIN_PART = 64 };
#define WATCH_LEAST ((size_t)1 << 20)
#define WATCH_UNKNOWN ((size_t)64 << 20) /* mapped bytes at which the first look is due at the latest */
#define SMALL_PROCESS ((size_t)4 << 20) /* bytes up to which a process opens no file */

_Atomic uint64_t hak__near_next_ms = UINT64_MAX;
static void (*near_seen)(const struct hak_nearness *now, uint64_t now_ms);
static _Atomic bool near_looking;
static _Atomic uint32_t near_met; /* enum met */
static _Atomic bool near_calls; /* the program has a callback */
/* Of the thread that looks. */
static size_t near_watched; /* bytes at the last look */
static uint64_t near_give_ms; /* not to give back before this time: it was in vain */
static uint32_t near_pause_ms;
static bool near_called; /* the callback was called, and memory has not become less since */

/* --- looking ---------------------------------------------------------------------------------------------------------- */

static void near_consider(struct hak_nearness *out, enum hak_near_limit kind, uint64_t used, uint64_t limit)
{
    uint64_t part = used / hak_max(limit / HAK_NEAR_WHOLE, 1);
    if (limit == 0 || limit == HAK_GROUP_UNLIMITED || (out->kind != HAK_NEAR_NONE && part <= out->permille))
        return;
    out->kind = kind;
    out->used = used;
    out->limit = limit;
    out->permille = (uint32_t)hak_min(part, UINT32_MAX);
}

void hak__near_look(struct hak_nearness *out)
{
    *out = (struct hak_nearness){ .group = { .max = HAK_GROUP_UNLIMITED, .high = HAK_GROUP_UNLIMITED },
                                  .limit = HAK_GROUP_UNLIMITED,
                                  .mapped = hak_counted(&hak__arena_published.mapped),
                                  .option_limit = hak__option(HAK_OPTION_limit) };
    hak__os_group_look(&out->group, near_seen != NULL);
    hak__os_process_look(&out->process);
    near_consider(out, HAK_NEAR_GROUP_MAX, out->group.used, out->group.max);
    near_consider(out, HAK_NEAR_GROUP_HIGH, out->group.used, out->group.high);
    near_consider(out, HAK_NEAR_ADDRESSES, out->process.addresses, out->process.address_limit);
    near_consider(out, HAK_NEAR_OPTION, out->mapped, out->option_limit);
    if (out->kind == HAK_NEAR_NONE)
        out->used = out->process.resident;
}

/* --- acting ------------------------------------------------------------------------------------------------------------- */

static bool near_in_group(const struct hak_nearness *now)
{
    return now->kind == HAK_NEAR_GROUP_MAX || now->kind == HAK_NEAR_GROUP_HIGH;
}

/* Beyond a control group's limit the kernel ends the process. Beyond the others only a request fails, after it has tried to free memory
 * itself, so they matter to a program with a callback alone. */
static bool near_gives(const struct hak_nearness *now)
{
    return now->permille >= HAK_NEAR_GIVE && (near_in_group(now) || hak_load(&near_calls, HAK_RELAXED));
}

static void near_follow(const struct hak_nearness *now)
{
    uint64_t group = hak_min(now->group.max, now->group.high);
    size_t room = hak__limit_part(group, now->group.used - hak_min(now->group.used, now->mapped));
    hak__limit_follow(hak_min(group, now->process.address_limit), room, near_gives(now) && near_in_group(now));
}

static size_t near_give(struct hak_heap *heap, uint64_t now_ms)
{
    if (heap != NULL && hak__heap_lock(heap)) {
        hak__cache_flush(heap);
        hak__heap_unlock(heap);
    }
    return hak__upkeep_step(now_ms, HAK_UPKEEP_ALL);
}

/* The more often it was in vain, the later the next try. */
static void near_relieve(struct hak_heap *heap, bool may_call, struct hak_nearness *now, uint64_t now_ms)
{
    if (now_ms >= near_give_ms) {
        bool vain = near_give(heap, now_ms) < now->limit / GAIN_PART;
        near_pause_ms = vain ? (uint32_t)hak_min(2 * near_pause_ms + NEAR_MS, VAIN_MS) : 0;
        near_give_ms = now_ms + near_pause_ms;
        hak__near_look(now);
    }
    if (now->permille >= HAK_NEAR_CALL && may_call && !near_called) {
        near_called = true;
        hak__limit_press(now->used, now->limit);
    }
}

static void near_watch(size_t mapped);
static bool near_is_asked(void)
{
    return near_seen != NULL || hak_load(&near_calls, HAK_RELAXED) || hak__option(HAK_OPTION_profile) == HAK_PROFILING_AUTO;
}

static void near_act(struct hak_heap *heap, bool may_call, uint64_t now_ms)
{
    struct hak_nearness now;
    hak__near_look(&now);
    size_t watched = hak__limit_watched(HAK_WATCHER_NEARNESS);
    now.coming = watched - hak_min(near_watched, watched);
    near_watched = watched;
    near_follow(&now);
    if (near_seen != NULL)
        near_seen(&now, now_ms);
    if (near_gives(&now))
        near_relieve(heap, may_call, &now, now_ms);
    near_called &= now.permille >= CALLED_AGAIN;
    if (now.permille >= HAK_NEAR_PROFILE && hak__option(HAK_OPTION_profile) == HAK_PROFILING_AUTO && !hak__profile_was_asked())
        hak__profile_start(0);
    if (now.kind == HAK_NEAR_NONE && !near_is_asked()) { /* nor is there one that could change */
        hak_store(&hak__near_next_ms, UINT64_MAX, HAK_RELAXED);
        return;
    }
    uint64_t left = now.limit - hak_min(now.limit, now.used);
    if (now.kind != HAK_NEAR_NONE)
        hak__limit_watch(HAK_WATCHER_NEARNESS, watched + hak_max(left / ROOM_PART, WATCH_LEAST), near_watch);
    uint64_t pause = near_seen != NULL ? hak_min(hak__option(HAK_OPTION_blackbox_every), LOOK_MS) : LOOK_MS;
    hak_store(&hak__near_next_ms, now_ms + (near_gives(&now) ? NEAR_MS : pause), HAK_RELAXED);
}

/* A vfork child runs in its parent's memory, whose limits it must not replace by its own. */
static void near_try(struct hak_heap *heap, bool may_call, uint64_t now_ms)
{
    /* acquire, release: a look sees the previous one's state. */
    if (hak__os_is_filtered() || !hak__fork_is_home() || hak_exchange(&near_looking, true, HAK_ACQUIRE))
        return;
    near_act(heap, may_call, now_ms);
    hak_store(&near_looking, false, HAK_RELEASE);
}

void hak__near_poll_slow(struct hak_heap *heap, uint64_t now_ms) { near_try(heap, heap != NULL, now_ms); }

/* In a thread of the program's, which may have no heap. */
static void near_watch(size_t mapped)
{
    struct hak_heap *heap = hak__heap_mine();
    (void)mapped;
    near_try((heap->mode & HAK_MODE_SENTINEL) != 0 ? NULL : heap, true, hak__os->now_ms());
}

enum met { UNMET, MEETING, MET };

/* Whether the caller is to read. A child that another thread's reading was copied to begins anew. */
static bool near_begins(bool waits)
{
    for (unsigned tries = 0;; tries++) {
        uint32_t state = UNMET;
        /* acquire, release: a thread that finds it done finds what was seen. */
        if (hak_cas_strong(&near_met, &state, MEETING, HAK_ACQUIRE, HAK_ACQUIRE))
            return true;
        if (state == MET || !waits)
            return false;
        if (hak__fork_is_new())
            hak_cas_strong(&near_met, &state, UNMET, HAK_RELAXED, HAK_RELAXED);
        else
            hak__nap(tries);
    }
}

static void near_grown(size_t mapped)
{
    (void)mapped;
    hak__near_meet(false);
}

static void near_await_more(size_t bytes) { hak__limit_watch(HAK_WATCHER_NEARNESS, bytes + SMALL_PROCESS, near_grown); }
void hak__near_await(void) { near_await_more(0); }

static void near_follow_group(void)
{
    if (near_is_asked() || !hak__limit_is_grouped())
        return;
    hak_store(&hak__near_next_ms, hak__os->now_ms() + LOOK_MS, HAK_RELAXED);
    size_t room = hak__limit_room();
    hak__limit_watch(HAK_WATCHER_NEARNESS, room != 0 ? hak_min(room / 2, WATCH_UNKNOWN) : WATCH_UNKNOWN, near_watch);
}

/* The files could not be opened: no descriptor was free, or the process has changed its root. When it has doubled, they are tried
 * again. */
static void near_meet_later(void)
{
    hak_store(&near_met, UNMET, HAK_RELAXED);
    near_await_more(2 * hak__limit_watched(HAK_WATCHER_NEARNESS));
}

static bool near_asks(void)
{
    hak__limit_ask_system();
    return hak__thp_look();
}

/* Without signals: a handler that announces a filter would return into the middle of the reading. */
void hak__near_meet(bool last)
{
    if (hak__os_is_filtered() || hak_load(&near_met, HAK_RELAXED) == MET)
        return;
    uint64_t signals = hak__os_block_signals();
    bool mine = near_begins(last),
         met = mine && (hak__os_is_filtered() || near_asks() || last); /* a filter may have come meanwhile */
    if (met)
        hak_store(&near_met, MET, HAK_RELEASE);
    else if (mine)
        near_meet_later();
    hak__os_restore_signals(signals);
    if (met)
        near_follow_group();
}

static void near_follow_closely(void)
{
    hak__near_meet(false);
    hak_store(&hak__near_next_ms, 0, HAK_RELAXED);
    hak__limit_watch(HAK_WATCHER_NEARNESS, WATCH_LEAST, near_watch);
}

void hak__near_begin(void (*seen)(const struct hak_nearness *now, uint64_t now_ms))
{
    near_seen = seen;
    if (near_is_asked())
        near_follow_closely();
    else if (&hak__is_interposed == NULL)
        hak__near_meet(true);
}

void hak__near_call(bool calls)
{
    hak_store(&near_calls, calls, HAK_RELAXED);
    if (calls)
        near_follow_closely();
}

void hak__near_fork_child(void)
{
    hak__os_group_fork_child();
    hak_store(&near_looking, false, HAK_RELAXED);
    if (hak_load(&near_met, HAK_RELAXED) == MEETING)
        near_meet_later();
}
