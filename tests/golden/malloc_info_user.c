/* Prints malloc_info's XML at several moments of a program's life, each after a line with mallinfo2's figures of the same
 * moment. Run by test_malloc_info.py.
 *   moment NAME arena uordblks fordblks hblks hblkhd ordblks */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3000, HUGE = 3, HUGE_BYTES = 5000000 };

static void *blocks[COUNT], *huge[HUGE];
static char output[1 << 16];

static void moment(const char *name)
{
    struct mallinfo2 info = mallinfo2();
    printf("moment %s %zu %zu %zu %zu %zu %zu\n", name, info.arena, info.uordblks, info.fordblks, info.hblks,
           info.hblkhd, info.ordblks);
    if (malloc_info(0, stdout) != 0)
        exit(3);
}

static void *allocate(void *argument)
{
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = malloc((size_t)(i * 37) % 3000 + 1);
        if (blocks[i] == NULL)
            exit(4);
    }
    return argument;
}

int main(void)
{
    pthread_t thread;
    setvbuf(stdout, output, _IOFBF, sizeof output);   /* so that printing allocates nothing */
    moment("start");
    allocate(NULL);
    moment("small");
    for (int i = 0; i < HUGE; i++)
        huge[i] = memset(malloc(HUGE_BYTES), 1, HUGE_BYTES);
    moment("huge");
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    for (int i = 0; i < HUGE; i++)
        free(huge[i]);
    moment("freed");
    if (pthread_create(&thread, NULL, allocate, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 5;
    moment("thread");
    malloc_trim(0);
    moment("trimmed");
    return 0;
}
