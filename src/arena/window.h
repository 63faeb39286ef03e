/* The choice of the window of addresses, once at start. Internal to arena/. */
#ifndef HAK_ARENA_WINDOW_H
#define HAK_ARENA_WINDOW_H

#include "base/compiler.h"

/* Chooses a base and maps the first piece of each metadata window; sets hak__window. 0 or an errno code. */
int hak__window_choose(void);

/* The SuperSlabs that the window can hold. */
size_t hak__window_supers(void);

#endif
