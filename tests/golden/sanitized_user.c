/* A program for test_places.py to build with a sanitizer, which has to find its mistakes with the library preloaded.
 *   sanitized_user work | behind | after | leak | race | unset */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 1000, BLOCKS = 100 };

static char *volatile shared;
static void *volatile lost;

static void check(const void *p, size_t align)
{
    if (p == NULL || (uintptr_t)p % align != 0)
        abort();
}

static void *aligned(size_t align, size_t n)
{
    void *p = NULL;
    return posix_memalign(&p, align, n) == 0 ? p : NULL;
}

static void *work(void *argument)
{
    char *blocks[BLOCKS] = { NULL };
    for (size_t i = 0; i < ROUNDS; i++) {
        char **block = &blocks[i * 7919 % BLOCKS];
        size_t n = 1 + i * 104729 % (i % 50 == 0 ? 3 << 20 : i % 10 == 0 ? 90000 : 700), align = (size_t)16 << i % 10;
        if (i % 4 == 0) {
            *block = realloc(*block, n);
        } else {
            free(*block);
            *block = i % 4 == 1 ? malloc(n) : i % 4 == 2 ? calloc(1, n) : aligned(align, n);
        }
        check(*block, i % 4 == 3 ? align : 16);
        memset(*block, 1, n);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return argument;
}

static void *write_shared(void *argument)
{
    for (int i = 0; i < ROUNDS; i++)
        shared[0]++;
    return argument;
}

static void in_two_threads(void *body(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, NULL) != 0)
        abort();
    body(NULL);
    pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    shared = malloc(100);
    if (strcmp(what, "work") == 0)
        in_two_threads(work);
    else if (strcmp(what, "behind") == 0)
        shared[100] = 1;
    else if (strcmp(what, "leak") == 0)
        lost = malloc(5000), lost = NULL;
    else if (strcmp(what, "race") == 0)
        in_two_threads(write_shared);
    else if (strcmp(what, "unset") == 0 && shared[50] == 7)
        puts("seven");
    free(shared);
    if (strcmp(what, "after") == 0)
        shared[1] = 1;
    puts("done");
    return 0;
}
