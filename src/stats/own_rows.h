/* The rows of heaps of one's own in printed statistics. Called by dump.c; prints nothing where there is none. */
#pragma once

#include "diag/emitter.h"
#include "hakmem.h"

void hak__own_rows_text(struct hak_emitter *out);
void hak__own_rows_json(struct hak_emitter *out);
void hak__own_rows_openmetrics(struct hak_emitter *out);


/* The figures of malloc: those of the process less those of its heaps. */
hak_cold void hak__process_figures(struct hak_heap_figures *out);
