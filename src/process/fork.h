/* The repair of a forked child. */
#pragma once

#include "base/lock.h"

/* At the library's start, under the lock `starting`. */
void hak__fork_init(struct hak_lock *starting);
