/* Collapsing SuperSlabs into huge pages, with HAKMEM_THP=auto: those that have been nearly full for a while and are
 * resident nearly whole, so that neither pages come to life that nobody uses nor one is collapsed that is about to empty.
 * Only the background thread does it: a collapse copies 2 MiB. */
#pragma once

#include "base/compiler.h"

/* Looks at some SuperSlabs, going round from call to call; collapses one at most. One caller at a time (step.c). */
hak_cold void hak__collapse_walk(uint64_t now_ms);
