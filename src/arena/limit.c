/* Limits: see limit.h. The states of the soft limit form a cycle:
 *
 *   CALM     -> WAITING   more than the limit is mapped; a notice waits           arena's lock
 *   WAITING  -> CALLING   a thread has taken the notice and is in the callback    compare-and-swap
 *   CALLING  -> TOLD      the callback has returned                               that thread
 *   CALLING  -> CALM      there was no callback: the next growth asks again       that thread
 *   TOLD     -> CALM      less than 7/8 of the limit is mapped                    arena's lock
 *
 * Only one side leaves each state, so the callback runs once per crossing and never inside itself. */
#include "arena/limit.h"

#include <errno.h>

#include "base/bits.h"
#include "base/lock.h"
#include "diag/options.h"
#include "os/os.h"

enum { NOTICE_PRESSURE = 1, NOTICE_WATCH = 2 };
enum pressure { CALM, WAITING, CALLING, TOLD };

/* With no more address space or data than this, SuperSlabs are mapped in pieces (runs.h). */
enum { LITTLE_ROOM = 64 << 20 };

_Atomic uint32_t hak__limit_notices;
static _Atomic uint32_t pressure; /* enum pressure */
static _Atomic size_t noted_bytes; /* mapped bytes, when last noted */
static size_t noted_paged; /* of these, that may have pages; under the arena's lock */
static _Atomic size_t used_bytes; /* those, and all that have been used again so far */
static _Atomic size_t *const watched_bytes[HAK_WATCHERS] = { &noted_bytes, &used_bytes }; /* each watcher's (limit.h) */
static struct {
    _Atomic size_t beyond; /* 0: no watch */
    void (*_Atomic function)(size_t mapped);
} watchers[HAK_WATCHERS];
static _Atomic size_t group_room;
static _Atomic bool limit_followed, grouped, near_now;
static _Atomic uint64_t pressed_used, pressed_limit; /* of the callback; 0: those of the soft limit */
static struct hak_lock callback_lock = HAK_LOCK_INIT(HAK_RANK_CALLBACK);
static hak_pressure_function *on_pressure;
static void *on_pressure_argument;

enum { MAPPINGS_USUAL = 65530 };
static _Atomic size_t mappings_allowed; /* 0: not known */
static _Atomic bool addresses_limited;
static _Atomic size_t address_room = SIZE_MAX; /* the bytes of addresses or data that may be mapped, as far as is known */
static _Atomic bool thrifty, crowded;
static _Atomic bool ahead_at_once; /* memory mapped ahead was resident at once */

size_t hak__limit_mappings(void)
{
    size_t allowed = hak_load(&mappings_allowed, HAK_RELAXED);
    return allowed != 0 ? allowed : MAPPINGS_USUAL;
}

bool hak__limit_allows(size_t mapped, size_t more)
{
    size_t limit = hak__option(HAK_OPTION_limit);
    return limit == 0 || (more <= limit && mapped <= limit - more);
}

static bool limit_exists(void)
{
    return hak__option(HAK_OPTION_limit) != 0 || hak__option(HAK_OPTION_soft_limit) != 0 || hak__option(HAK_OPTION_unmap) != 0;
}

bool hak__limit_unmaps(void) { return limit_exists() || hak_load(&address_room, HAK_RELAXED) != SIZE_MAX; }

bool hak__limit_is_near(void)
{
    return limit_exists() || hak_load(&near_now, HAK_RELAXED)
        || hak_load(&noted_bytes, HAK_RELAXED) > hak_load(&address_room, HAK_RELAXED) / 2;
}

bool hak__limit_is_grouped(void) { return hak_load(&grouped, HAK_RELAXED); }

/* An eighth more, since a shorter mapping may still succeed. */
void hak__limit_refused(size_t mapped)
{
    size_t room = hak_load(&address_room, HAK_RELAXED);
    hak_assert(mapped <= SIZE_MAX / 2, "memory mapped fits addresses");
    hak_store(&address_room, hak_min(room, mapped + mapped / 8), HAK_RELAXED);
}

/* --- memory ahead of its use ------------------------------------------------------------------------------------------ */

bool hak__is_thrifty(void) { return hak_load(&thrifty, HAK_RELAXED); }

void hak__thrift_begin(void) { hak_store(&thrifty, true, HAK_RELAXED); }

void hak__ahead_end(void) { hak_store(&ahead_at_once, true, HAK_RELAXED); }

bool hak__ahead_counts(void)
{
    return hak__option(HAK_OPTION_unmap) != 0 || hak_load(&ahead_at_once, HAK_RELAXED) || hak__is_thrifty();
}

/* --- mappings --------------------------------------------------------------------------------------------------------- */

bool hak__limit_is_crowded(size_t mappings)
{
    size_t most = hak__limit_mappings();
    if (mappings <= most / 4)
        return false;
    bool addresses_count = hak__ahead_counts() || limit_exists() || hak_load(&addresses_limited, HAK_RELAXED);
    return !addresses_count || mappings > most / 4 * 3;
}

bool hak__limit_was_crowded(void) { return hak_load(&crowded, HAK_RELAXED); }

/* --- notices ------------------------------------------------------------------------------------------------------- */

static void notify_limit(uint32_t notice) { hak_fetch_or(&hak__limit_notices, notice, HAK_RELAXED); }

size_t hak__limit_watched(enum hak_watcher watcher) { return hak_load(watched_bytes[watcher], HAK_RELAXED); }

void hak__limit_regrew(size_t bytes)
{
    size_t now = hak_fetch_add(&used_bytes, bytes, HAK_RELAXED) + bytes;
    if (now > hak_load(&watchers[HAK_WATCHER_NEARNESS].beyond, HAK_RELAXED) - 1)
        notify_limit(NOTICE_WATCH);
}

/* `crowded` is never cleared: when a gap between two mappings is filled, the kernel does not merge them if both have had pages, so
 * the count falls below the real number. */
void hak__limit_note(size_t mapped, size_t clean, size_t mappings)
{
    size_t limit = hak__option(HAK_OPTION_soft_limit);
    if (hak_unlikely(hak__limit_is_crowded(mappings)))
        hak_store(&crowded, true, HAK_RELAXED);
    uint32_t state = hak_load(&pressure, HAK_RELAXED);
    hak_store(&noted_bytes, mapped, HAK_RELAXED);
    hak_fetch_add(&used_bytes, mapped - clean - noted_paged, HAK_RELAXED);
    noted_paged = mapped - clean;
    if (hak_unlikely(mapped > hak_load(&address_room, HAK_RELAXED))) /* the limit has been raised */
        hak_store(&address_room, SIZE_MAX, HAK_RELAXED);
    for (unsigned i = 0; i < HAK_WATCHERS; i++)
        if (hak_unlikely(hak_load(watched_bytes[i], HAK_RELAXED) > hak_load(&watchers[i].beyond, HAK_RELAXED) - 1))
            notify_limit(NOTICE_WATCH);
    if (state == CALM && limit != 0 && mapped > limit) {
        hak_store(&pressure, WAITING, HAK_RELAXED);
        notify_limit(NOTICE_PRESSURE);
    } else if (state == TOLD && (limit == 0 || mapped < limit - limit / 8)) {
        hak_store(&pressure, CALM, HAK_RELAXED);
    }
}

enum { DIRTY_PART = 16, CACHED_PART = 8, NEAR_PART = 4, SPARE_PART = 8 };

size_t hak__limit_part(uint64_t limit, uint64_t others)
{
    uint64_t most = limit - limit / SPARE_PART;
    return limit == HAK_OS_UNLIMITED ? 0 : hak_max(most - hak_min(most, others), 1);
}

/* Where memory is scarce: lowers the dirty limit and bounds the threads' caches, the more the nearer the limit is. */
void hak__limit_follow(uint64_t allowed, size_t room, bool near)
{
    uint64_t part = near ? allowed / NEAR_PART : allowed;
    bool bound = allowed != HAK_OS_UNLIMITED;
    if (!bound && !hak_load(&limit_followed, HAK_RELAXED))
        return;
    hak_store(&limit_followed, true, HAK_RELAXED);
    hak_store(&near_now, near, HAK_RELAXED);
    hak_store(&group_room, room, HAK_RELAXED);
    hak__option_suggest(HAK_OPTION_dirty_limit, hak_min(part / DIRTY_PART, hak__option_rows[HAK_OPTION_dirty_limit].value));
    hak__option_suggest(HAK_OPTION_process_budget, bound ? hak_max(part / CACHED_PART, 1) : 0);
}

size_t hak__limit_room(void) { return hak_load(&group_room, HAK_RELAXED); }

void hak__limit_press(uint64_t used, uint64_t limit)
{
    uint32_t calm = CALM;
    hak_assert(limit != 0, "a limit is near");
    if (!hak_cas_strong(&pressure, &calm, WAITING, HAK_RELAXED, HAK_RELAXED))
        return;
    hak_store(&pressed_used, used, HAK_RELAXED);
    hak_store(&pressed_limit, limit, HAK_RELAXED);
    notify_limit(NOTICE_PRESSURE);
}

static void follow_seen(const struct hak_os_seen *seen)
{
    uint64_t room = hak_min(seen->address_space, seen->data), group = hak_min(seen->memory_max, seen->memory_high);
    hak_store(&mappings_allowed, seen->mappings, HAK_RELAXED);
    hak_store(&addresses_limited, seen->strict || room != HAK_OS_UNLIMITED, HAK_RELAXED);
    if (room != HAK_OS_UNLIMITED)
        hak_store(&address_room, room, HAK_RELAXED);
    if (seen->strict)
        hak__option_suggest(HAK_OPTION_unmap, 1);
    if (room <= LITTLE_ROOM)
        hak__thrift_begin();
    hak_store(&grouped, seen->group_unseen || group != HAK_OS_UNLIMITED, HAK_RELAXED);
    hak__limit_follow(hak_min(group, seen->address_space), hak__limit_part(group, 0), false);
}

static struct hak_os_seen room_seen = {
    .memory_max = HAK_OS_UNLIMITED, .memory_high = HAK_OS_UNLIMITED, .address_space = HAK_OS_UNLIMITED, .data = HAK_OS_UNLIMITED
};

void hak__limit_ask_room(void)
{
    hak__os->room(&room_seen);
    follow_seen(&room_seen);
}

/* A child of vfork may ask, whose own limits are not this process's. */
void hak__limit_ask_system(void)
{
    int saved = errno;
    struct hak_os_seen seen;
    hak__os->seen(&seen);
    seen.address_space = room_seen.address_space;
    seen.data = room_seen.data;
    follow_seen(&seen);
    errno = saved;
}

static void call_back(void)
{
    uint32_t waiting = WAITING;
    if (!hak_cas_strong(&pressure, &waiting, CALLING, HAK_RELAXED, HAK_RELAXED))
        return;
    hak__lock_acquire(&callback_lock);
    hak_pressure_function *function = on_pressure;
    void *argument = on_pressure_argument;
    hak__lock_release(&callback_lock);
    uint64_t limit = hak_exchange(&pressed_limit, 0, HAK_RELAXED);
    int former = hak__os_cancel_state(PTHREAD_CANCEL_DISABLE);
    if (function != NULL && limit != 0)
        function(hak_load(&pressed_used, HAK_RELAXED), limit, argument);
    else if (function != NULL)
        function(hak_load(&noted_bytes, HAK_RELAXED), hak__option(HAK_OPTION_soft_limit), argument);
    hak__os_cancel_state(former);
    hak_store(&pressure, function != NULL ? TOLD : CALM, HAK_RELAXED);
}

void hak__limit_watch(enum hak_watcher watcher, size_t beyond, void (*function)(size_t mapped))
{
    hak_assert(function != NULL || beyond == SIZE_MAX, "a watch calls a function");
    hak_store(&watchers[watcher].function, function, HAK_RELAXED);
    /* release: pairs with the acquire of limit_watched, which finds the function. */
    hak_store(&watchers[watcher].beyond, beyond + 1, HAK_RELEASE);
}

static void limit_watched(void)
{
    size_t mapped = hak_load(&noted_bytes, HAK_RELAXED);
    for (unsigned i = 0; i < HAK_WATCHERS; i++) {
        size_t beyond = hak_load(&watchers[i].beyond, HAK_RELAXED);
        /* acquire: the function was stored before. A watch that has replaced this one meanwhile stays. */
        if (hak__limit_watched(i) > beyond - 1 && hak_cas_strong(&watchers[i].beyond, &beyond, 0, HAK_ACQUIRE, HAK_RELAXED))
            hak_load(&watchers[i].function, HAK_RELAXED)(mapped);
    }
}

void hak__limit_deliver_slow(void)
{
    hak__lock_expect_order(HAK_RANK_BACKGROUND); /* a callback may allocate: no heap is locked */
    int saved = errno;
    uint32_t notices = hak_exchange(&hak__limit_notices, 0, HAK_RELAXED);
    if ((notices & NOTICE_PRESSURE) != 0)
        call_back();
    if ((notices & NOTICE_WATCH) != 0)
        limit_watched();
    errno = saved;
}

void hak__limit_set_callback(hak_pressure_function *function, void *argument)
{
    hak__lock_acquire(&callback_lock);
    on_pressure = function;
    on_pressure_argument = argument;
    hak__lock_release(&callback_lock);
}

/* A thread that was in the callback does not exist here, or it forked from inside the callback, which has then been called. */
void hak__limit_fork_child(void)
{
    hak__lock_fork_child(&callback_lock);
    uint32_t calling = CALLING;
    hak_cas_strong(&pressure, &calling, TOLD, HAK_RELAXED, HAK_RELAXED);
}
