/* What begins and ends a request, whichever function it came by. */
#ifndef HAK_REQUEST_H
#define HAK_REQUEST_H

#include "base/compiler.h"

/* Sets errno to ENOMEM and gives NULL. */
void *hak__no_memory(void);

/* At the end of requests: a huge block has come or gone. */
void hak__tick_huge(size_t given, size_t taken);

#endif
