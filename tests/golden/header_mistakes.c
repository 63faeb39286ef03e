/* Mistakes that compilers and their analysers can see. The test has them made with the C library's functions as well, up to the line of
 * heaps, and compares what is said of each line. */
#include <stdlib.h>
#include <string.h>

#include "hakmem.h"

void frees_twice(void);
void frees_twice(void)
{
    char *p = hak_malloc(10);
    hak_free(p);
    hak_free(p);
}

void frees_a_part(void);
void frees_a_part(void)
{
    char *p = hak_malloc(10);
    hak_free(p + 1);
}

void frees_an_array(void);
void frees_an_array(void)
{
    static char array[10];
    hak_free(array);
}

char reads_what_is_freed(void);
char reads_what_is_freed(void)
{
    char *p = hak_calloc(1, 10);
    if (p == NULL)
        return 0;
    hak_free(p);
    return p[1];
}

void loses_a_block(int x);
void loses_a_block(int x)
{
    char *p = hak_malloc(10);
    if (p != NULL)
        p[0] = (char)x;
}

void loses_an_aligned_block(int x);
void loses_an_aligned_block(int x)
{
    char *p = hak_aligned_alloc(64, 64);
    if (p != NULL)
        p[0] = (char)x;
}

void writes_beyond(void);
void writes_beyond(void)
{
    char *p = hak_malloc(10);
    if (p != NULL)
        memset(p, 1, 11);
    hak_free(p);
}

void writes_beyond_an_array(void);
void writes_beyond_an_array(void)
{
    char *p = hak_calloc(5, 2);
    if (p != NULL)
        memset(p, 1, 11);
    hak_free(p);
}

void writes_beyond_what_it_resized(char *old);
void writes_beyond_what_it_resized(char *old)
{
    char *p = hak_realloc(old, 10);
    if (p != NULL)
        memset(p, 1, 11);
    hak_free(p);
}

void asks_for_too_much(void **out);
void asks_for_too_much(void **out)
{
    *out = hak_malloc((size_t)-1);
}

/* Heaps: the C library has none. A remark names what each tool says. */
void of_heaps(hak_heap_t *heap);
void of_heaps(hak_heap_t *heap)
{
    hak_heap_malloc(heap, 10); /* gcc: unused-result */
    char *p = hak_heap_aligned_calloc(heap, 64, 5, 2);
    if (p != NULL)
        memset(p, 1, 11); /* gcc: array-bounds */
    hak_free(p);
    hak_free(p); /* gcc: use-after-free; analyzer: double-free; clang: Malloc */
    char *q = hak_heap_malloc(heap, 10);
    hak_heap_free(heap, q);
    hak_heap_free(heap, q); /* clang: Malloc */
    char *text = hak_heap_asprintf(heap, "%d", "text"); /* gcc: format= */
    if (text != NULL)
        text[0] = 'x';
}

/* All right: the functions belong together, and a heap ends what is left in it. */
void all_is_right(hak_heap_t *heap, char *other);
void all_is_right(hak_heap_t *heap, char *other)
{
    char *blocks[] = { hak_malloc(10), hak_malloc(10), hak_malloc(10), hak_malloc(10) };
    free(blocks[0]);
    hak_free_sized(blocks[1], 10);
    hak_free(hak_realloc(blocks[2], 20));
    char *longer = realloc(blocks[3], 30);
    free(longer != NULL ? longer : blocks[3]);
    hak_free(hak_heap_realloc(heap, other, 100));
    char *p = hak_heap_malloc(heap, 10);
    if (p != NULL)
        p[0] = 1;
    hak_heap_free(heap, hak_heap_malloc(heap, 20));
    hak_free(hak_heap_strdup(heap, "text"));
    hak_heap_destroy(heap);
}
