/* HAKMEM's statistics for programs: one structure, filled by one call. docs/statistics.md explains every figure.
 *
 * Compatible growth: new fields take reserved room at the end of a structure. A program built with an older
 * header gets the fields that it knows (it passes its own size); one built with a newer header sees in `size` how much
 * the library has filled; the rest is 0. `version` changes only when an existing field changes its meaning. */
#ifndef HAKMEM_STATS_H
#define HAKMEM_STATS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAK_STATS_MAGIC 0x534b4148u      /* "HAKS" in memory order on little-endian machines */
#define HAK_STATS_VERSION 1u
#define HAK_STATS_CLASSES 64
#define HAK_STATS_BUCKETS 32

/* Bits of `flags`: which optional figures are meaningful. */
#define HAK_STATS_HAS_CALLS 1u           /* HAKMEM_STATS=exact: calls_*, and mallocs, frees and hits of classes */
#define HAK_STATS_HAS_LEDGER 2u          /* hak_stats_ledger(): ledger_*, and pinned of classes */
#define HAK_STATS_HAS_LATENCY 4u         /* HAKMEM_LATENCY=1: latency */

/* One size class; the first `class_count` elements of `classes`, by ascending size. Counts are blocks. */
struct hak_stats_class {
    uint64_t size;          /* bytes of a block */
    uint64_t spans;         /* runs of slabs that hold such blocks now */
    uint64_t live;          /* in the program's hands */
    uint64_t cached;        /* ready in the bins of all threads */
    uint64_t refilled;      /* moved from spans into bins so far */
    uint64_t drained;       /* moved back from bins into spans so far */
    uint64_t collected;     /* freed by other threads and collected by their owner so far */
    uint64_t misses;        /* calls that found the bin empty so far */
    uint64_t outbox;        /* freed by other threads, not yet published */
    uint64_t mallocs;       /* calls so far, HAK_STATS_HAS_CALLS only */
    uint64_t frees;         /* by the blocks' owner, HAK_STATS_HAS_CALLS only */
    uint64_t hits;          /* mallocs that needed no refill, HAK_STATS_HAS_CALLS only */
    uint64_t pinned;        /* resident bytes of free blocks in partly used spans, HAK_STATS_HAS_LEDGER only */
    uint64_t warm_hits;     /* refills served from the warm pool without a search; the other misses searched */
    uint64_t warm_prefilled;   /* spans put into the warm pool by refills that found it empty */
    uint64_t reserved[1];
};

/* Durations of slow paths. Bucket i counts those below 2^i ns that are in no smaller bucket; the last one also counts
 * longer ones. */
struct hak_stats_latency {
    uint64_t sum;           /* ns, the sum of all durations */
    uint64_t buckets[HAK_STATS_BUCKETS];
    uint64_t reserved[3];
};

struct hak_stats {
    uint32_t magic;                   /* HAK_STATS_MAGIC */
    uint32_t version;                 /* HAK_STATS_VERSION of the library */
    uint64_t size;                    /* bytes of this structure that the library has filled */
    uint64_t flags;                   /* HAK_STATS_HAS_... */
    uint64_t class_count;

    /* frees of blocks that belong to another thread's heap, and the heaps */
    uint64_t remote_frees;            /* such frees, counted when published */
    uint64_t remote_published;        /* atomic operations that published them */
    uint64_t remote_forwarded;        /* spans met on the wrong pending stack and sent on */
    uint64_t remote_adopted_spans;    /* spans taken over from heaps whose thread has ended */
    uint64_t remote_common_taken;     /* first blocks of threads that came from the common heaps */
    uint64_t remote_heaps;            /* heaps that exist */
    uint64_t remote_parked;           /* heaps without a thread */
    uint64_t remote_lock_waits;       /* how often a lock was found held */

    /* system calls made by the library */
    uint64_t system_mmap;
    uint64_t system_munmap;
    uint64_t system_madvise;
    uint64_t system_mremap;
    uint64_t system_probe;            /* searches for room after the random window was refused */
    uint64_t system_mincore;          /* queries of residency, including those of hak_stats_ledger() */
    uint64_t system_failed;           /* calls that the system refused */

    /* calls of the library, HAK_STATS_HAS_CALLS only */
    uint64_t calls_malloc;
    uint64_t calls_free;

    /* bytes as the library counts them; touched or not */
    uint64_t bytes_live;              /* in the program's hands, in whole blocks, sampled ones included, without huge ones */
    uint64_t bytes_cached;            /* in bins and outboxes */
    uint64_t bytes_spans;             /* all spans, as mapped */
    uint64_t bytes_huge;              /* huge blocks, as mapped */
    uint64_t bytes_free_dirty;        /* free SuperSlabs that may still be resident */
    uint64_t bytes_mapped;            /* everything mapped for blocks */
    uint64_t bytes_metadata;          /* mapped for the library's tables */

    /* pieces of 2 MiB */
    uint64_t superslabs_taken;        /* in use: in slabs, part of a huge block, or a hole */
    uint64_t superslabs_below_top;    /* reached so far, in use or free */
    uint64_t superslabs_opened;       /* put in slabs so far */
    uint64_t superslabs_closed;       /* returned whole so far */
    uint64_t superslabs_holes;        /* skipped because of a foreign mapping */
    uint64_t superslabs_slab_runs_claimed;   /* runs found without a lock in one that was in slabs already */
    uint64_t superslabs_collapsed;    /* made one huge page so far */
    uint64_t superslabs_collapse_refused;
    uint64_t superslabs_split;        /* huge pages split to return parts, at most half of each in use */
    uint64_t superslabs_lock_takes;   /* acquisitions of the lock over all SuperSlabs so far */

    /* blocks above 1 MiB */
    uint64_t huge_live;
    uint64_t huge_allocated;
    uint64_t huge_freed;
    uint64_t huge_grown_in_place;
    uint64_t huge_moved;              /* resized by letting the kernel move their pages */

    /* upkeep's work so far */
    uint64_t upkeep_steps;
    uint64_t upkeep_collected_heaps;  /* heaps collected for, counted each time */
    uint64_t upkeep_outbox_blocks;    /* published from other threads' outboxes */
    uint64_t upkeep_spans_ended;      /* spans that were idle and wholly free */
    uint64_t upkeep_span_purges;      /* runs of pages returned from idle spans that are in use */
    uint64_t upkeep_span_purged;      /* their resident bytes */
    uint64_t upkeep_armings;          /* times that a heap began to poll */
    uint64_t upkeep_background;       /* 1 while there is a background thread */
    uint64_t upkeep_background_starts;
    uint64_t upkeep_background_wakeups;

    /* the whole process, by the kernel's account */
    uint64_t process_peak_rss_bytes;
    uint64_t process_minor_faults;

    /* resident bytes by state, HAK_STATS_HAS_LEDGER only; their sum is `ledger_sum` */
    uint64_t ledger_live;             /* in the program's hands */
    uint64_t ledger_cached;           /* in bins and outboxes */
    uint64_t ledger_free_in_slabs;    /* free blocks of spans */
    uint64_t ledger_frontier_slack;   /* resident beyond a span's frontier, and the ends of slabs */
    uint64_t ledger_empty;            /* unused slabs, free SuperSlabs, tails of huge blocks: waiting for reuse or purge */
    uint64_t ledger_huge;             /* huge blocks */
    uint64_t ledger_metadata;         /* the library's tables */
    uint64_t ledger_not_ours;         /* code, stacks and all other mappings, from /proc/self/smaps */
    uint64_t ledger_sum;              /* the eight above */
    uint64_t ledger_rss;              /* the kernel's figure: Rss of all mappings */
    uint64_t ledger_unread_spans;     /* spans in use during the walk; counted as wholly live and cached */
    uint64_t ledger_huge_pages;       /* resident in huge pages, of the heap; not a state of its own */

    /* sums over all classes */
    uint64_t total_refilled;
    uint64_t total_drained;           /* including collected */
    uint64_t total_misses;
    uint64_t total_live;
    uint64_t total_peak_bytes;        /* the largest value of bytes_mapped */

    /* spans obtained by heaps that had none with free blocks, by stage of the shared pool, cheapest first */
    uint64_t stages_own_hint;         /* previously used slabs of the SuperSlab taken from last */
    uint64_t stages_own_empty;        /* an empty span of the heap's own, of another class */
    uint64_t stages_adopted;          /* adoptions from heaps whose thread has ended; each may bring several spans */
    uint64_t stages_claimed;          /* unused slabs of any SuperSlab, claimed without a lock */
    uint64_t stages_locked;           /* a new SuperSlab, under the arena's lock */

    /* tiers of SuperSlabs in slabs */
    uint64_t tiers_hot;               /* serve first */
    uint64_t tiers_draining;          /* are left to empty */
    uint64_t tiers_to_draining;       /* began to drain so far */
    uint64_t tiers_to_hot;            /* draining ones that refilled so far */
    uint64_t tiers_emptied;           /* draining ones that emptied so far */
    uint64_t tiers_drawn;             /* runs of slabs that draining ones still served */

    /* emptied SuperSlabs */
    uint64_t lru_kept;
    uint64_t lru_returned_by_age;     /* bytes returned to the system so far because of their age */
    uint64_t lru_returned_by_bytes;   /* because too many bytes were kept */

    /* memory mapped ahead of need */
    uint64_t reserve_mapped;          /* SuperSlabs so far */
    uint64_t reserve_missed;          /* requests that still had to map memory */
    uint64_t reserve_prefaulted;      /* SuperSlabs made one huge page when they were opened */

    /* memory returned to the system so far, in bytes */
    uint64_t returns_supers;          /* emptied SuperSlabs and tails of huge blocks */
    uint64_t returns_slabs;           /* unused slabs */
    uint64_t returns_pages;           /* pages in free blocks */
    uint64_t returns_regretted_supers;/* of these, used again soon */
    uint64_t returns_regretted_slabs;
    uint64_t returns_regretted_pages; /* at most */
    uint64_t returns_cost;            /* nanoseconds that returning has taken */
    uint64_t returns_regret;          /* nanoseconds that the faults on regretted memory have taken, as estimated */

    /* misuse survived so far (HAKMEM_MISUSE=report) */
    uint64_t misuse_invalid;          /* a pointer or heap that is none */
    uint64_t misuse_double_frees;
    uint64_t misuse_sizes;            /* sized frees with a wrong size */
    uint64_t misuse_written;          /* blocks written past their end or after their free */
    uint64_t misuse_reported;         /* reports, one per place in the program */

    uint64_t reserved[19];

    struct hak_stats_class classes[HAK_STATS_CLASSES];
    struct hak_stats_latency latency_malloc, latency_free;
};

/* Fills the first `size` bytes of *out; pass sizeof(struct hak_stats). Stops no thread: if others allocate meanwhile,
 * figures are from different moments. Does not allocate. Returns 0; EINVAL if out is NULL or size has no room for the
 * first four fields; ENOMEM if the library could not start. */
int hak_stats_snapshot(struct hak_stats *out, size_t size);

/* The same with the ledger of resident memory, which asks the kernel about every page of the heap and reads
 * /proc/self/smaps: milliseconds rather than microseconds. ENOSYS if smaps cannot be read; *out then has the rest. */
int hak_stats_ledger(struct hak_stats *out, size_t size);

#ifdef __cplusplus
}
#endif

#endif
