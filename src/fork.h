/* What puts a forked child in order. */
#pragma once

#include "base/lock.h"

/* At the library's start, which runs under the lock `starting`. */
void hak__fork_init(struct hak_lock *starting);
