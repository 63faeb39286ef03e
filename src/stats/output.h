/* When and where the statistics are printed: HAKMEM_STATS at exit, HAKMEM_STATS_SIGNAL on a signal. Called by init.c. */
#pragma once

#include "base/compiler.h"

/* Prints what HAKMEM_STATS asks for, where it asks, then what HAKMEM_WARM_POOL_STATS and HAKMEM_SHARED_POOL_STATS ask for,
 * on stderr. A file that cannot be written costs one warning. */
void hak__output_at_exit(void);

/* Installs the handler of HAKMEM_STATS_SIGNAL, unless the program has one for that signal already. */
void hak__output_signal_init(void);
