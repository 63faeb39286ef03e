/* Prints stacks for reports: a heading line, then one line per return address, as module+offset for addr2line. Safe in signal
 * handlers: allocates nothing. Called by the reports of guard/. */
#pragma once

#include "base/compiler.h"

enum { HAK_FRAMES_SAID = 12 }; /* the most lines per stack */

/* `thread` is the kernel's thread number, 0 if unknown. */
hak_cold void hak__frames_say(const char *what, uint32_t thread, const uintptr_t *frames, uint32_t count);

/* The same for the calling thread's stack, from its call into the library on. */
hak_cold void hak__frames_say_here(const char *what);

/* The same from where a signal interrupted the calling thread; `context` is the handler's third argument. */
hak_cold void hak__frames_say_signal(const char *what, const void *context);
