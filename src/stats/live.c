/* Tells another process where the library keeps its counters (include/hakmem_live.h).
 *
 * Everything known at compile time is in read-only tables without pointers, which need no relocation; the addresses are written
 * once at start. Figures and columns follow diag/stats.def: a new one does not compile until stats.h says where it comes from. */
#include "stats/stats.h"

#include "arena/mapping.h"
#include "arena/returned.h"
#include "arena/runs.h"
#include "arena/window.h"
#include "cache/cache.h"
#include "diag/options.h"
#include "hakmem_live.h"
#include "hakmem_stats.h"
#include "harden/harden.h"
#include "harden/quarantine.h"
#include "huge/huge.h"
#include "os/os.h"
#include "profile/sites.h"
#include "sample/sample.h"
#include "size/size.h"
#include "span/pool.h"
#include "upkeep/upkeep.h"
#include "userheap/userheap.h"

/* X(name, address) */
#define LIVE_ROOTS(X) \
    X(tables, &live_tables) \
    X(version, version)                     /* text */ \
    X(classes, hak__classes) \
    X(window, (void *)hak__window.base)     /* the first slab */ \
    X(map, hak__window.map)                 /* by slab; map_owner: owner words, 32 bits each */ \
    X(metadata, (void *)hak__meta_begin()) /* from here to the window: the library's tables */ \
    X(supers, hak__supers)                  /* by SuperSlab */ \
    X(spans, hak__spans)                    /* by slab; valid only where a span begins, except span_back */ \
    X(frontier, &hak__arena_frontier)       /* SuperSlabs reached so far */ \
    X(arena, &hak__arena_published) \
    X(pieces_missing, &hak__pieces_missing) /* bytes of spans that are not mapped */ \
    X(pool, &hak__pool_counts) \
    X(tiers, &hak__tier_counts) \
    X(huge, &hak__huge_counts) \
    X(huge_allocated, &hak__huge_counts.allocated) \
    X(huge_freed, &hak__huge_counts.freed) \
    X(huge_bytes, &hak__huge_counts.live_bytes) \
    X(thp, &hak__thp_counts) \
    X(upkeep, &hak__upkeep_counts) \
    X(returns, &hak__return_counts) \
    X(heaps, hak__heap_address(0))          /* heap i at i * heap_stride, i from 1 */ \
    X(heap_last, &hak__heap_last)           /* 32 bits: the last i */ \
    X(os_calls, hak__os_calls) \
    X(os_failures, &hak__os_failures) \
    X(lock_waits, &hak__lock_wait_count) \
    X(misuse, &hak__misuse_counts) \
    X(latencies, hak__latencies)            /* of malloc, of free */ \
    X(option_words, hak__option_words)      /* 64 bits each: origin << origin_shift | value */ \
    X(option_rows, hak__option_rows) \
    X(option_text, &hak__option_text)       /* rows have offsets into it for names and helps */ \
    X(stats_file, hak__stats_file)          /* text */ \
    X(layout, live_layout)                  /* a number that identifies the numbers and classes */ \
    X(sentinel, &hak__sentinel)             /* a thread's heap is here + its word; ... */ \
    X(thread_word, (const char *)&hak__thread_word - hak__os_thread_pointer()) /* ... bytes from its thread pointer to that */ \
    X(freed_key, &hak__freed_key)           /* the first word of free blocks; 0: they have none */ \
    X(hardened, &hak__hardened) \
    X(sample, &hak__sample) \
    X(sampled, &hak__sampled)               /* live blocks among these, and their bytes: 64 bits each */ \
    X(zero_size, &hak__zero_size) \
    X(owns, &hak__owns_first)               /* the first user heap */ \
    X(regions, &hak__regions)               /* the address of libhakmem-region's struct hak_regions; 0: it is not loaded */ \
    X(profile, &hak__profile) \
    X(profile_sites, &hak__profile_buckets) /* the address of site_buckets lists of sites, linked by site_next */ \
    X(profile_bins, &hak__bins)             /* bins_exchanged offsets, 16 bits each, that lead to empty_bin during a profile */

enum live_root {
#define X(name, address) LIVE_ROOT_##name,
    LIVE_ROOTS(X)
#undef X
        LIVE_ROOT_COUNT
};
_Static_assert(LIVE_ROOT_tables == 0 && LIVE_ROOT_COUNT <= HAK_LIVE_ROOTS_MAX, "roots fit the public structure");

/* X(name, value): counts, and sizes, strides and offsets in bytes. */
#define LIVE_NUMBERS(X) \
    X(class_count, HAK_CLASSES) X(class_stride, sizeof(struct hak_class)) \
    X(class_size, AT(hak_class, size)) X(class_slabs, AT(hak_class, slabs)) X(class_blocks, AT(hak_class, blocks)) \
    X(slab_shift, HAK_SLAB_SHIFT) X(super_shift, HAK_SUPER_SHIFT) \
    X(class_offset_bits, HAK_CLASS_OFFSET_BITS) X(class_offset_unit, HAK_BIN_SIZE) X(huge_id, HAK_HEAP_ID_HUGE) \
    X(heap_id_mask, HAK_HEAPS_MAX - 1)                  /* behind the class offset; above it, the generation of a forked child */ \
    X(super_stride, sizeof(struct hak_super)) X(super_kind, AT(hak_super, kind)) \
    X(super_slabs, AT(hak_super, slabs)) \
    X(map_stride, sizeof(struct hak_slab)) X(map_owner, AT(hak_slab, owner)) \
    X(span_stride, sizeof(struct hak_span)) X(span_slabs, AT(hak_span, slabs)) X(span_blocks, AT(hak_span, blocks)) \
    X(span_frontier, AT(hak_span, frontier)) X(span_free_count, AT(hak_span, free_count)) X(span_back, AT(hak_span, back)) \
    X(kind_free, HAK_SUPER_FREE) X(kind_in_slabs, HAK_SUPER_IN_SLABS) X(kind_huge, HAK_SUPER_HUGE) \
    X(kind_huge_tail, HAK_SUPER_HUGE_TAIL) X(kind_hole, HAK_SUPER_HOLE) \
    X(heap_stride, HAK_HEAP_STRIDE) X(heap_size, sizeof(struct hak_heap)) \
    X(heap_state, AT(hak_heap, state)) X(state_parked, HAK_HEAP_PARKED) X(heap_slab_count, AT(hak_heap, counts.slabs)) \
    X(heap_bins, AT(hak_heap, bins)) X(bin_stride, sizeof(struct hak_bin)) \
    X(bin_top, AT(hak_bin, top)) \
    X(heap_classes, AT(hak_heap, classes)) X(heap_class_stride, sizeof(struct hak_heap_class)) \
    X(heap_class_hidden, AT(hak_heap_class, hidden)) X(heap_class_bottom, AT(hak_heap_class, bottom)) \
    X(heap_class_capacity, AT(hak_heap_class, capacity)) X(heap_class_ceiling, AT(hak_heap_class, ceiling)) \
    X(heap_closed, AT(hak_heap, closed_reasons)) \
    X(heap_outbox, AT(hak_heap, outbox_buckets)) X(bucket_count, HAK_OUTBOX_BUCKETS) \
    X(bucket_stride, sizeof(struct hak_outbox_bucket)) X(bucket_slab, AT(hak_outbox_bucket, slab)) \
    X(bucket_blocks, AT(hak_outbox_bucket, count)) X(bucket_taken, AT(hak_outbox_bucket, taken)) \
    X(latency_buckets, HAK_LATENCY_BUCKETS) X(latency_stride, sizeof(struct hak_latency)) \
    X(option_count, HAK_OPTIONS) X(option_stride, sizeof(struct hak_option_row)) X(origin_shift, HAK_ORIGIN_SHIFT) \
    X(option_value, AT(hak_option_row, value)) X(option_least, AT(hak_option_row, least)) \
    X(option_most, AT(hak_option_row, most)) X(option_name, AT(hak_option_row, name)) \
    X(option_help, AT(hak_option_row, help)) X(option_kind, AT(hak_option_row, kind)) \
    X(option_when, AT(hak_option_row, when)) \
    LIVE_BLOCK_NUMBERS(X) LIVE_GUARD_NUMBERS(X) LIVE_PROFILE_NUMBERS(X) LIVE_OWN_NUMBERS(X)

/* The state of a block follows from these. */
#define LIVE_BLOCK_NUMBERS(X) \
    X(class_offset_inner, HAK_CLASS_OFFSET_INNER) X(class_offset_huge, HAK_CLASS_OFFSET_HUGE) X(first_large, HAK_CLASS_FIRST_LARGE) \
    X(block_align, HAK_ALIGN) X(window_shift, HAK_WINDOW_SHIFT) \
    X(map_start_bound, HAK_START_BOUND_AT)              /* 0: the build has no checks of frees */ \
    X(super_mapped, AT(hak_super, mapped)) X(super_dirty, AT(hak_super, dirty)) \
    X(super_huge_bytes, AT(hak_super, huge_bytes)) X(super_guard, AT(hak_super, guard)) \
    X(span_free, AT(hak_span, free)) X(span_remote, AT(hak_span, remote)) X(span_class, AT(hak_span, class)) \
    X(span_purged, AT(hak_span, purged)) X(span_keys, AT(hak_span, keys)) X(keys_hardened, HAK_SPAN_HARDENED) \
    X(heap_mode, AT(hak_heap, mode)) X(heap_lock, AT(hak_heap, lock)) \
    X(state_active, HAK_HEAP_ACTIVE) X(state_unusable, HAK_HEAP_UNUSABLE) \
    X(lock_sweeper, HAK_SWEEPER) X(lock_lost, HAK_LOCK_LOST) \
    X(bucket_list, AT(hak_outbox_bucket, blocks)) X(bucket_room, HAK_OUTBOX_BLOCKS) \
    X(heap_quarantine, AT(hak_heap, quarantine)) X(quarantine_mixed, AT(hak_quarantine, mixed)) \
    X(quarantine_mixed_count, HAK_QUARANTINE_MIXED) X(quarantine_queue, AT(hak_quarantine, queue)) \
    X(quarantine_queue_count, HAK_QUARANTINE_QUEUE)

/* Hardened mode, sampled blocks, blocks of no bytes. */
#define LIVE_GUARD_NUMBERS(X) \
    X(hardened_on, AT(hak_hardened, on)) X(hardened_canary, AT(hak_hardened, canary)) \
    X(hardened_zero, AT(hak_hardened, zero)) X(hardened_guards, AT(hak_hardened, guards)) \
    X(hardened_keys, AT(hak_hardened, keys)) \
    X(hardened_fill, AT(hak_hardened, fill)) X(hardened_never_key, AT(hak_hardened, never_key)) \
    X(hardened_room, AT(hak_hardened, room)) \
    X(seal_size, HAK_SEAL) X(seal_shift, HAK_SLACK_SHIFT) X(seal_checked, HAK_SLACK_CHECKED) \
    X(seal_huge, HAK_HUGE_SEAL) \
    X(sample_start, AT(hak_sample, start)) X(sample_bytes, AT(hak_sample, bytes)) \
    X(sample_slots, AT(hak_sample, guarded)) X(sample_step, HAK_GUARDED_STRIDE) \
    X(sample_slack, HAK_SAMPLE_SLACK_BYTE) X(sample_slack_most, HAK_SAMPLE_SLACK_MOST) \
    X(slot_stride, sizeof(struct hak_guarded_slot)) X(slot_state, AT(hak_guarded_slot, record.state)) \
    X(slot_size, AT(hak_guarded_slot, record.counted)) X(slot_block, AT(hak_guarded_slot, record.block)) \
    X(slot_pages, AT(hak_guarded_slot, pages)) X(slot_page_bytes, AT(hak_guarded_slot, page_bytes)) \
    X(slot_allocated, AT(hak_guarded_slot, allocated)) X(slot_freed, AT(hak_guarded_slot, freed)) \
    X(slots_start, AT(hak_sample, slots)) X(slots_bytes, AT(hak_sample, slots_bytes)) /* the records follow, ... */ \
    X(store_end, AT(hak_sample, store_end)) /* ... and other tables, to here */ \
    X(record_stride, sizeof(struct hak_record)) X(record_site, AT(hak_record, site)) X(record_bytes, AT(hak_record, bytes)) \
    X(record_born, AT(hak_record, born_ms)) X(site_interval, AT(hak_profile_site, interval)) \
    X(site_frame_count, AT(hak_profile_site, frame_count)) X(site_frames, sizeof(struct hak_profile_site)) \
    X(slot_live, HAK_SAMPLE_LIVE) X(slot_freeing, HAK_SAMPLE_ENDING) X(slot_is_freed, HAK_SAMPLE_FREE) \
    X(event_thread, AT(hak_sample_event, thread)) X(event_frames, AT(hak_sample_event, frames)) \
    X(event_trace, AT(hak_sample_event, trace)) X(event_frames_most, HAK_SAMPLE_FRAMES) \
    X(zero_size_range, AT(hak_zero_size, range)) X(zero_size_in_use, AT(hak_zero_size, in_use)) \
    X(zero_size_ever_used, AT(hak_zero_size, ever_used)) X(zero_size_most, HAK_ZERO_SIZE_MOST)

/* The heap profiler; a reader with the right to do so writes request, interval and path (lab, hakmem profile). */
#define LIVE_PROFILE_NUMBERS(X) \
    X(profile_counts, AT(hak_profile, counts)) X(profile_session, AT(hak_profile, session)) \
    X(profile_request, AT(hak_profile, request)) X(profile_answered, AT(hak_profile, answered)) \
    X(profile_result, AT(hak_profile, result)) X(profile_signal, AT(hak_profile, signal)) \
    X(profile_interval, AT(hak_profile, interval)) X(profile_path, AT(hak_profile, path)) \
    X(profile_path_size, HAK_PROFILE_PATH) X(profile_samples, AT(hak_profile, samples)) \
    X(profile_missed, AT(hak_profile, missed)) X(profile_start, HAK_PROFILE_START) \
    X(profile_stop, HAK_PROFILE_STOP) X(profile_dump, HAK_PROFILE_DUMP) \
    X(profile_malloc_counts, AT(hak_profile, malloc_counts)) X(profile_bins_exchanged, HAK_BINS_FOUND) \
    X(profile_empty_bin, HAK_EMPTY_BIN) X(profile_started, AT(hak_profile, started)) X(profile_asked, HAK_PROFILE_ASKED) \
    X(site_buckets, HAK_PROFILE_BUCKETS) X(site_traced, HAK_PROFILE_TRACED_SITE) X(site_next, AT(hak_profile_site, next)) \
    X(site_labels, AT(hak_profile_site, labels)) X(site_group, AT(hak_profile_site, group)) \
    X(site_allocated, AT(hak_profile_site, allocated))  /* then its bytes, the freed ones, and theirs */ \
    X(site_lifetimes, AT(hak_profile_site, lifetimes)) X(site_lifetimes_most, HAK_PROFILE_LIFETIMES) \
    X(labels_of, AT(hak_labels, of)) X(labels_under, AT(hak_labels, under)) X(labels_text, AT(hak_labels, text))

/* User heaps; a heap's first word says whether it has ended. */
#define LIVE_OWN_NUMBERS(X) \
    X(own_size, sizeof(struct hak_uheap)) X(own_alive, HAK_OWN_ALIVE & UINT32_MAX) X(own_next, AT(hak_uheap, next)) \
    X(own_shares, AT(hak_uheap, shares)) X(own_serial, AT(hak_uheap, serial)) X(own_name, AT(hak_uheap, name)) \
    X(own_used, AT(hak_uheap, account.used)) X(own_peak, AT(hak_uheap, account.peak)) X(own_limit, AT(hak_uheap, account.limit)) \
    X(own_refused, AT(hak_uheap, account.refused)) X(own_huge_count, AT(hak_uheap, huge_count)) \
    X(own_huge_bytes, AT(hak_uheap, huge_bytes)) X(heap_next_share, AT(hak_heap, share.next)) \
    X(own_in_region, HAK_OWN_IN_REGION & UINT32_MAX) X(regions_rows, AT(hak_regions, rows)) \
    X(regions_numbers, AT(hak_regions, numbers)) X(regions_size, sizeof(struct hak_regions))

/* The checksum that identifies a layout, as include/hakmem_live.h defines it. */
enum {
#define X(name, value) LIVE_NUMBER_##name,
    LIVE_NUMBERS(X)
#undef X
        LIVE_CLASSES_FROM = 1 << 16
};
#define MIXED(x) ((x) * HAK_LIVE_MIX ^ ((x) * HAK_LIVE_MIX) >> 32)
#define MIXED_IN(value, i) MIXED(MIXED((uint64_t)(value) + ((uint64_t)(i) << 32)))
#define NUMBER_MIXED(name, value) + MIXED_IN(value, LIVE_NUMBER_##name)
static const uint64_t live_layout = 0 LIVE_NUMBERS(NUMBER_MIXED)
#define X(index, size, slabs, blocks, reciprocal, batch) \
    + MIXED_IN((size) | (uint64_t)(blocks) << 32 | (uint64_t)(slabs) << 56, LIVE_CLASSES_FROM + (index))
#include "size/classes.def"
#undef X
    ;

/* --- where figures come from ---------------------------------------------------------------------------------------- */

#define WHERE(kind, root, offset) ((uint32_t)(kind) << 28 | (uint32_t)(root) << 20 | (uint32_t)(offset))
#define WORD(root, offset) WHERE(HAK_LIVE_WORD, LIVE_ROOT_##root, offset)
#define HEAPS(field) WHERE(HAK_LIVE_HEAPS, 0, AT(hak_heap, field))
#define ALL(root, field) WHERE(HAK_LIVE_ALL, LIVE_ROOT_##root, AT(hak_heap, field))
#define CLASS(field) WHERE(HAK_LIVE_CLASS, 0, AT(hak_heap_class, field))
#define TABLE(field) WHERE(HAK_LIVE_TABLE, LIVE_ROOT_classes, AT(hak_class, field))
#define RULE WHERE(HAK_LIVE_RULE, 0, 0)
#define KERNEL WHERE(HAK_LIVE_KERNEL, 0, 0)
#define PAGES WHERE(HAK_LIVE_PAGES, 0, 0)

_Static_assert(sizeof(struct hak_heap) < 1u << 20, "offsets of fields fit 20 bits");
_Static_assert(LIVE_ROOT_COUNT < 256, "numbers of roots fit 8 bits");
_Static_assert(sizeof(hak_counter) == 8 && sizeof(hak__arena_frontier) == 8, "words of figures have 64 bits");

/* --- the tables ----------------------------------------------------------------------------------------------------- */

#define COUNT(...) +1
enum {
    LIVE_NUMBER_COUNT = 0 LIVE_NUMBERS(COUNT),
    LIVE_FIGURE_COUNT = 0
#define HAK_STATS_FIGURE COUNT
#include "diag/stats.def"
    ,
    LIVE_COLUMN_COUNT = 0
#define HAK_STATS_COLUMN COUNT
#include "diag/stats.def"
};

/* Names in sequence, as in options.h. */
#define ROOM(name, ...) char name##_[sizeof #name];
#define NAME(name, ...) #name,
struct live_root_names {
    LIVE_ROOTS(ROOM)
};
struct live_number_names {
    LIVE_NUMBERS(ROOM)
};
struct live_figure_names {
#define HAK_STATS_FIGURE(group, name, ...) char group##_##name[sizeof(#group "_" #name)];
#include "diag/stats.def"
};
struct live_column_names {
#define HAK_STATS_COLUMN ROOM
#include "diag/stats.def"
};
struct live_preset_names {
    ROOM(adaptive)
#define X ROOM
#include "diag/presets.def"
#undef X
};

/* The words of options.h. */
#define WORD_ROOM(member, word) char member##_[sizeof word];
#define WORD_OF(member, word) word,
struct live_origin_names {
    HAK_OPTION_ORIGINS(WORD_ROOM)
};
struct live_kind_names {
    HAK_OPTION_KINDS(WORD_ROOM)
};
struct live_when_names {
    HAK_OPTION_WHENS(WORD_ROOM)
};
struct live_stats_names {
    char off[1], on[1], exact[sizeof "exact"], json[sizeof "json"], prom[sizeof "prom"], text[sizeof "text"];
};

static const struct live_tables {
    struct hak_live_tables head;
    uint32_t numbers[LIVE_NUMBER_COUNT], figures[LIVE_FIGURE_COUNT], columns[LIVE_COLUMN_COUNT];
    struct live_root_names root_names;
    struct live_number_names number_names;
    struct live_figure_names figure_names;
    struct live_column_names column_names;
    struct live_preset_names preset_names;
    struct live_origin_names origin_names;
    struct live_kind_names kind_names;
    struct live_when_names when_names;
    struct live_stats_names stats_names;
} live_tables hak_rare_table = {
#define PLACE_OF(member) offsetof(struct live_tables, member)
    .head = { sizeof(struct live_tables), HAK_LIVE_LISTS, {
        [HAK_LIVE_LIST_ROOTS] = { LIVE_ROOT_COUNT, PLACE_OF(root_names), 0 },
        [HAK_LIVE_LIST_NUMBERS] = { LIVE_NUMBER_COUNT, PLACE_OF(number_names), PLACE_OF(numbers) },
        [HAK_LIVE_LIST_FIGURES] = { LIVE_FIGURE_COUNT, PLACE_OF(figure_names), PLACE_OF(figures) },
        [HAK_LIVE_LIST_COLUMNS] = { LIVE_COLUMN_COUNT, PLACE_OF(column_names), PLACE_OF(columns) },
        [HAK_LIVE_LIST_PRESETS] = { HAK_PRESETS, PLACE_OF(preset_names), 0 },
        [HAK_LIVE_LIST_ORIGINS] = { HAK_OPTION_ORIGINS(COUNT), PLACE_OF(origin_names), 0 },
        [HAK_LIVE_LIST_KINDS] = { HAK_OPTION_KINDS(COUNT), PLACE_OF(kind_names), 0 },
        [HAK_LIVE_LIST_WHEN] = { HAK_OPTION_WHENS(COUNT), PLACE_OF(when_names), 0 },
        [HAK_LIVE_LIST_STATS] = { HAK_STATS_TEXT + 1, PLACE_OF(stats_names), 0 },
    } },
#define VALUE(name, value) value,
    .numbers = { LIVE_NUMBERS(VALUE) },
    .figures = {
#define HAK_STATS_FIGURE(group, name, ...) HAK_FIGURE_##group##_##name,
#include "diag/stats.def"
    },
    .columns = {
#define HAK_STATS_COLUMN(name, ...) HAK_COLUMN_##name,
#include "diag/stats.def"
    },
    .root_names = { LIVE_ROOTS(NAME) },
    .number_names = { LIVE_NUMBERS(NAME) },
    .figure_names = {
#define HAK_STATS_FIGURE(group, name, ...) #group "_" #name,
#include "diag/stats.def"
    },
    .column_names = {
#define HAK_STATS_COLUMN NAME
#include "diag/stats.def"
    },
    .preset_names = { "adaptive",
#define X NAME
#include "diag/presets.def"
#undef X
    },
    .origin_names = { HAK_OPTION_ORIGINS(WORD_OF) },
    .kind_names = { HAK_OPTION_KINDS(WORD_OF) },
    .when_names = { HAK_OPTION_WHENS(WORD_OF) },
    .stats_names = { "", "", "exact", "json", "prom", "text" },
};

#undef WORD
#undef HEAPS
#undef ALL
#undef CLASS
#undef TABLE
#undef RULE
#undef KERNEL
#undef PAGES

hak_export struct hak_live hak_live;

/* Of several copies of the library, which may share the symbol, the first keeps it. */
void hak__live_open(const char *version)
{
    if (hak_live.magic == HAK_LIVE_MAGIC)
        return;
#define X(name, address) hak_live.roots[LIVE_ROOT_##name] = (uint64_t)(uintptr_t)(address);
    LIVE_ROOTS(X)
#undef X
    hak_live.version = HAK_LIVE_VERSION;
    hak_live.size = sizeof hak_live;
    hak_live.root_count = LIVE_ROOT_COUNT;
    hak_owner_store(&hak_live.magic, HAK_LIVE_MAGIC); /* a reader that finds the magic finds the rest */
}
