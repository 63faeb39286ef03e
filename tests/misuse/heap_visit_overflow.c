// expect: hakmem: hak_heap_visit_spans\(\): overflow of 0x[0-9a-f]+ \(\d+-byte block\): something was written past its end\n(?s:.*)
// env: HAKMEM_HARDEN=1
// A walk finds a write behind a huge block, and says which walk it was.
#include "hakmem.h"

static int go_on(const struct hak_heap_span *span, void *argument)
{
    (void)span, (void)argument;
    return 0;
}

int main(void)
{
    hak_heap_t *heap = hak_heap_new(NULL);
    char *volatile p = hak_heap_malloc(heap, (2 << 20) + 100);
    p[(2 << 20) + 100] = 'x';
    return hak_heap_visit_spans(heap, go_on, NULL);
}
