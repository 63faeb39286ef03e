/* HAKMEM's figures for another process: how a program that cannot call hak_stats_snapshot in here, because it is outside,
 * reads the same figures while this one runs (process_vm_readv(2), /proc/PID/mem). Nothing has to be switched on, and
 * nothing is done here for it: the structure says where the library's own counters lie.
 *
 * Reading. Find the symbol `hak_live` in the symbol table of the library's file (of the program's, if it was linked with
 * the archive) and add the address at which the file is mapped. Check `magic` and `version`. All addresses in it hold
 * until the process calls exec; a forked child has its own copy. Integers are in the machine's format. Then read
 * `struct hak_live_tables` at root 0; its lists pair names with numbers, so a reader needs no knowledge of the
 * library's internals:
 *
 *   HAK_LIVE_LIST_ROOTS     names of the elements of hak_live.roots, in order
 *   HAK_LIVE_LIST_NUMBERS   sizes, strides and offsets in the library's structures (src/stats/live.c explains each)
 *   HAK_LIVE_LIST_FIGURES   where each figure of struct hak_stats comes from ("remote_frees", ...), as below
 *   HAK_LIVE_LIST_COLUMNS   the same for struct hak_stats_class ("refilled", ...)
 *   HAK_LIVE_LIST_PRESETS   names of the values of the option preset
 *   HAK_LIVE_LIST_ORIGINS   names of the origins of an option's value
 *   HAK_LIVE_LIST_KINDS, HAK_LIVE_LIST_WHEN, HAK_LIVE_LIST_STATS   kinds of options, when one takes effect, values of the
 *                           option stats; a name may be empty
 *
 * One number says where a figure comes from: kind << 28 | root << 20 | offset, HAK_LIVE_KIND and so on.
 *
 *   HAK_LIVE_WORD     the 64-bit word at roots[root] + offset
 *   HAK_LIVE_HEAPS    the sum, over all heaps whose state is not 0, of the 64-bit word at heap + offset
 *   HAK_LIVE_ALL      the same plus the 64-bit word at roots[root], modulo 2^64
 *   HAK_LIVE_CLASS    of a column: the sum over the same heaps at heap + heap_classes + class * heap_class_stride + offset
 *   HAK_LIVE_TABLE    of a column: the 32-bit word at roots[classes] + class * class_stride + offset
 *   HAK_LIVE_RULE     follows from the others, as docs/statistics.md says
 *   HAK_LIVE_KERNEL   from the kernel: /proc/PID
 *   HAK_LIVE_PAGES    takes a look at every page (hak_stats_ledger)
 *
 * Read a core dump in the same way: find the structure by its magic among the writable data of the program's and the
 * libraries' files, which every core has. Data compiled into the library (root tables, and those of classes and options)
 * is in the core only if /proc/PID/coredump_filter had bit 2 set; otherwise it is in the file that was mapped there.
 * Root layout tells whether such a file is the build that ran: it is the sum, modulo 2^64, of mix(mix(value + i << 32)) over
 * all numbers of HAK_LIVE_LIST_NUMBERS, i from 0, and over all classes c with value = size | blocks << 32 | slabs << 56 and
 * i = 2^16 + c, where mix(x) = y ^ y >> 32 with y = x * HAK_LIVE_MIX modulo 2^64.
 *
 * No thread is stopped, so figures are from different moments. Names are only added; `version` changes when anything
 * described here changes its meaning. */
#ifndef HAKMEM_LIVE_H
#define HAKMEM_LIVE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAK_LIVE_MAGIC 0x4c4b4148u   /* "HAKL" in memory order on little-endian machines */
#define HAK_LIVE_VERSION 1u
#define HAK_LIVE_MIX 0x9e3779b97f4a7c15ull
#define HAK_LIVE_ROOTS_MAX 48

enum { HAK_LIVE_LIST_ROOTS, HAK_LIVE_LIST_NUMBERS, HAK_LIVE_LIST_FIGURES, HAK_LIVE_LIST_COLUMNS, HAK_LIVE_LIST_PRESETS,
       HAK_LIVE_LIST_ORIGINS, HAK_LIVE_LIST_KINDS, HAK_LIVE_LIST_WHEN, HAK_LIVE_LIST_STATS, HAK_LIVE_LISTS };

enum { HAK_LIVE_WORD = 1, HAK_LIVE_HEAPS, HAK_LIVE_CLASS, HAK_LIVE_TABLE, HAK_LIVE_RULE, HAK_LIVE_KERNEL,
       HAK_LIVE_PAGES, HAK_LIVE_ALL };

#define HAK_LIVE_KIND(where) ((where) >> 28)
#define HAK_LIVE_ROOT(where) ((where) >> 20 & 255)
#define HAK_LIVE_OFFSET(where) ((where) & 0xfffff)

/* The list's `count` names, each with its terminating 0, begin `names` bytes after the tables' start, and their 32-bit
 * numbers `values` bytes after it; values = 0: a name's number is its index. */
struct hak_live_list {
    uint32_t count, names, values;
};

struct hak_live_tables {
    uint32_t size;         /* bytes from the start of this structure to the end of the lists' data */
    uint32_t list_count;
    struct hak_live_list lists[HAK_LIVE_LISTS];
};

struct hak_live {
    uint32_t magic;        /* HAK_LIVE_MAGIC, written last; 0: the library has not started yet */
    uint32_t version;
    uint32_t size;         /* bytes of this structure */
    uint32_t root_count;
    uint64_t roots[HAK_LIVE_ROOTS_MAX];   /* addresses in this process; the first is the tables' */
};

/* For other processes; a program calls hak_stats_snapshot. */
extern struct hak_live hak_live;

#ifdef __cplusplus
}
#endif

#endif
