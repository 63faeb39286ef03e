/* Printing the statistics: one list of figures (diag/stats.def), three formats. Nothing here allocates or locks. */
#pragma once

#include "stats/snapshot.h"

/* The table that HAKMEM_STATS=1 prints. */
hak_cold void hak__dump_text(int fd);

/* Prints a snapshot on a descriptor; 0, or the errno code of the write that failed. */
hak_cold int hak__print_text(int fd, const struct hak_stats *stats);
hak_cold int hak__print_json(int fd, const struct hak_stats *stats);
hak_cold int hak__print_openmetrics(int fd, const struct hak_stats *stats);

/* The tables of HAKMEM_WARM_POOL_STATS=1 and HAKMEM_SHARED_POOL_STATS=1. */
hak_cold int hak__print_warm_pool(int fd, const struct hak_stats *stats);
hak_cold int hak__print_shared_pool(int fd, const struct hak_stats *stats);
