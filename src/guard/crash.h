/* Crash report (HAKMEM_CRASH_REPORT=1): on SIGSEGV, SIGBUS and SIGABRT one line on stderr says what the faulting address
 * is to the allocator; then the signal proceeds as it would have without us. Called by init.c. */
#pragma once

#include "base/compiler.h"

/* Installs the handlers. */
void hak__crash_init(void);

/* Describes any address as the report does, NULL and foreign ones too. Takes no lock and writes nothing but `text`. */
hak_cold void hak__crash_describe(uintptr_t address, char *text, size_t size);
