/* The library's names that the C library does not have, for programs that are linked without the library and get it by
 * LD_PRELOAD, whose definitions come first. To arrive here is a failed test. */
#include <stdio.h>
#include <stdlib.h>

#define NAME(name) \
    void name(void); \
    void name(void) \
    { \
        fputs(#name " is not the preloaded library's\n", stderr); \
        abort(); \
    }

NAME(cfree)
NAME(free_sized)
NAME(free_aligned_sized)
NAME(hak_aligned_alloc)
NAME(hak_are_sparse)
NAME(hak_calloc)
NAME(hak_check_heap)
NAME(hak_collect)
NAME(hak_free)
NAME(hak_free_aligned_sized)
NAME(hak_free_sized)
NAME(hak_good_size)
NAME(hak_heap_aligned_alloc)
NAME(hak_heap_at_end)
NAME(hak_heap_at_end_cancel)
NAME(hak_heap_calloc)
NAME(hak_heap_data)
NAME(hak_heap_destroy)
NAME(hak_heap_free)
NAME(hak_heap_get_default)
NAME(hak_heap_malloc)
NAME(hak_heap_merge_into_default)
NAME(hak_heap_new)
NAME(hak_heap_next)
NAME(hak_heap_of)
NAME(hak_heap_realloc)
NAME(hak_heap_reset)
NAME(hak_heap_set_data)
NAME(hak_heap_set_default)
NAME(hak_heap_set_default_of_new_threads)
NAME(hak_heap_set_limit)
NAME(hak_heap_set_name)
NAME(hak_heap_stats)
NAME(hak_heap_visit)
NAME(hak_is_sparse)
NAME(hak_malloc)
NAME(hak_memalign)
NAME(hak_option_get)
NAME(hak_option_next)
NAME(hak_option_origin)
NAME(hak_option_set)
NAME(hak_posix_memalign)
NAME(hak_pvalloc)
NAME(hak_realloc)
NAME(hak_reallocarray)
NAME(hak_set_pressure_callback)
NAME(hak_stats_ledger)
NAME(hak_stats_print)
NAME(hak_stats_snapshot)
NAME(hak_system_seen)
NAME(hak_usable_size)
NAME(hak_valloc)
NAME(hak_version)
