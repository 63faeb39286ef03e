/* The rest of the public interface: sizes, collection, statistics, options. */
#include <errno.h>
#include <string.h>

#include "arena/limit.h"
#include "base/limits.h"
#include "diag/options.h"
#include "diag/report.h"
#include "guard/check.h"
#include "hakmem.h"
#include "hakmem_stats.h"
#include "harden/harden.h"
#include "kinds/kind.h"
#include "os/os.h"
#include "process/process.h"
#include "process/request.h"
#include "profile/profile.h"
#include "sample/sample.h"
#include "stats/stats.h"
#include "upkeep/nearness.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

static hak_noinline size_t usable_slow(const void *p)
{
    size_t usable = p == NULL ? 0 : hak__usable(p, "malloc_usable_size");
    return usable == HAK_NO_BLOCK ? 0 : usable;
}

hak_export size_t hak_usable_size(const void *p)
{
    const struct hak_class *class = hak__class_at(p);
    return hak_likely(class != NULL) ? class->size : usable_slow(p);
}

hak_export size_t hak_good_size(size_t n)
{
    if (n > PTRDIFF_MAX)
        return 0;
    if (hak__guarded_wanted() || hak__is_hardened()) /* a block may end at a guard page or a canary */
        return n;
    return n <= HAK_LARGE_MAX ? hak__classes[hak__class_of(n)].size : hak_align_up(n, hak__page_size());
}

hak_export int hak_is_sparse(const void *p, unsigned percent)
{
    hak__fork_check();
    const struct hak_kind *kind = hak__kind_at(p);
    return kind->sparse != NULL && kind->live(p) && kind->sparse(p, (uint32_t)hak_min(percent, 100));
}

hak_export size_t hak_are_sparse(const void *const *blocks, size_t count, unsigned percent, unsigned char *sparse)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += sparse[i] = (unsigned char)hak_is_sparse(blocks[i], percent);
    return found;
}

hak_export size_t hak_collect(void)
{
    hak__request_heap();
    return hak__start() ? hak__request_collect() : 0;
}

hak_export int hak_check_heap(void) { return !hak__start() || hak__check_report("hak_check_heap()"); }

hak_export void hak_set_pressure_callback(void (*callback)(size_t mapped, size_t limit, void *argument), void *argument)
{
    hak__limit_set_callback(callback, argument);
    hak__near_call(callback != NULL);
}

hak_export void hak_system_seen(struct hak_system *out)
{
    struct hak_os_seen seen;
    hak__os->seen(&seen);
    *out = (struct hak_system){ seen.memory_max, seen.memory_high, seen.address_space, hak__os->processors() };
}

hak_export void hak_stats_print(int fd)
{
    if (hak__start())
        hak__dump_text(fd);
}

static int give_stats(struct hak_stats *out, size_t size, bool with_ledger)
{
    if (out == NULL || size < offsetof(struct hak_stats, remote_frees))
        return EINVAL;
    struct hak_stats *stats = hak__start() ? hak__snapshot_take() : NULL;
    if (stats == NULL)
        return ENOMEM;
    int code = with_ledger && !hak__ledger(stats) ? ENOSYS : 0;
    memset(out, 0, size);
    stats->size = hak_min(size, sizeof *stats);
    memcpy(out, stats, stats->size);
    hak__snapshot_give(stats);
    return code;
}

hak_export int hak_stats_snapshot(struct hak_stats *out, size_t size) { return give_stats(out, size, false); }
hak_export int hak_stats_ledger(struct hak_stats *out, size_t size) { return give_stats(out, size, true); }

hak_export int hak_profile_start(size_t interval) { return hak__start() ? hak__profile_start(interval) : ENOMEM; }
hak_export void hak_profile_stop(void) { hak__profile_stop(); }
hak_export int hak_profile_dump(const char *path) { return hak__profile_dump(path, 'm'); }

/* A thread that cannot have labels keeps those it has, none. */
hak_export const hak_labels_t *hak_label_set(const char *key, const char *value)
{
    const hak_labels_t *former = hak__thread_notes.labels;
    if (hak__start())
        hak__thread_notes.labels = hak__labels_with(former, key, value);
    return former;
}

hak_export const hak_labels_t *hak_label_switch(const hak_labels_t *labels)
{
    const hak_labels_t *former = hak__thread_notes.labels;
    hak__thread_notes.labels = labels;
    return former;
}

hak_export const hak_labels_t *hak_label_get(void) { return hak__thread_notes.labels; }

_Static_assert(HAK_OPTION_IN_BYTES == HAK_EVERY_BYTES, "the public bit is the one of the options");
hak_export int hak_option_set(const char *name, const char *value) { return hak__option_set(name, value); }
hak_export int hak_option_get(const char *name, uint64_t *value) { return hak__option_get(name, value); }

hak_export const char *hak_option_origin(const char *name)
{
    int option = hak__option_find(name);
    return option < 0 ? NULL : hak__option_origin_name(hak__option_origin((enum hak_option)option));
}

hak_export int hak_option_next(size_t *cursor, struct hak_option_info *info)
{
    if (*cursor >= HAK_OPTIONS)
        return 0;
    enum hak_option option = (enum hak_option)(*cursor)++;
    const struct hak_option_row *row = &hak__option_rows[option];
    *info = (struct hak_option_info){
        .name = hak__option_name((int)option),
        .help = hak__option_help((int)option),
        .kind = hak__option_kind_name((enum hak_option_kind)row->kind),
        .takes_effect = hak__option_when_name((enum hak_option_when)row->when),
        .origin = hak__option_origin_name(hak__option_origin(option)),
        .value = hak__option(option),
        .standard = row->value,
        .least = row->least,
        .most = row->most,
    };
    info->word = hak__option_word(option, info->value);
    return 1;
}

hak_export const char *hak_version(void) { return HAK_VERSION_STRING; }

hak_export const char hakmem_allocator_version[] = "HAKMEM " HAK_VERSION_STRING;
