/* Stacks as reports print them: a line that says what, then one for each return address, as module+offset for addr2line. For
 * signal handlers too: nothing is allocated. Called by the reports of guard/. */
#pragma once

#include "base/compiler.h"

enum { HAK_FRAMES_SAID = 12 }; /* most lines of one stack */

/* `thread` is the kernel's number of the thread, 0 where it is not known. */
hak_cold void hak__frames_say(const char *what, uint32_t thread, const uintptr_t *frames, uint32_t count);

/* The same of the calling thread's own stack, from where it called into the library. */
hak_cold void hak__frames_say_here(const char *what);

/* The same of where a signal has interrupted the calling thread; `context` is the handler's third argument. */
hak_cold void hak__frames_say_signal(const char *what, const void *context);
