/* What puts a forked child in order. */
#ifndef HAK_FORK_H
#define HAK_FORK_H

#include "base/lock.h"

/* At the library's start, which runs under the lock `starting`. */
void hak__fork_init(struct hak_lock *starting);

#endif
