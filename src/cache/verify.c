/* Whether a block that looks freed is: in the heaps' own state (heap/give.c), or in a quarantine. Called by kinds/block.c before a
 * double free is reported: see span/span.h. */
#include "cache/verify.h"

#include "cache/quarantine.h"
#include "heap/heap.h"

static hak_cold bool has_freed(struct hak_heap *heap, uint32_t class, const void *p)
{
    return hak__heap_has_free(heap, class, p) || hak__quarantine_has(heap, p);
}

/* Searches the span alone. */
static hak_cold bool has_in_span(struct hak_heap *heap, uint32_t class, const void *p)
{
    return hak__heap_has_in_span(heap, class, p);
}

/* If the span changes hands before the search, repeats it. */
static hak_cold bool owner_has(hak_heap_question *question, uint32_t class, const void *p)
{
    for (;;) {
        uint32_t word = hak__owner_of(p), id = hak__owner_id(word);
        if (id - 1 >= HAK_HEAPS_MAX || hak__owner_class(word) != class)
            return true;   /* the span has ended, so no block of it is in use */
        if (hak__heap_ask(hak__heap_by_id(id), question, class, p, HAK_HEAP_ASK_TRIES))
            return true;
        if (hak__owner_of(p) == word)
            return false;
    }
}

hak_cold bool hak__cache_has_freed(struct hak_heap *mine, uint32_t class, const void *p)
{
    return (mine != NULL && hak__heap_ask(mine, has_freed, class, p, HAK_HEAP_ASK_TRIES)) || owner_has(has_freed, class, p)
           || hak__heaps_ask(mine, has_freed, class, p, HAK_HEAP_ASK_TRIES);
}

hak_cold bool hak__cache_has_purged(uint32_t class, const void *p) { return owner_has(has_in_span, class, p); }
