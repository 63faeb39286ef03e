/* The beginning of the two units of the release build: everything of the library that is not exported is hidden, also where one unit
 * only declares what the other defines, so that neither goes by way of a table of addresses. What the C library and the public
 * headers declare is not ours to hide, and comes first. */
#pragma once

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/atomic.h"
#include "hakmem.h"
#include "hakmem_live.h"
#include "hakmem_stats.h"

#pragma GCC visibility push(hidden)
