/* What test_limits.py runs under limits, with the library preloaded. An ordinary program: it only knows malloc and free.
 *   limited fill SIZE    allocates blocks of SIZE bytes (0: a mixture) until there are no more; prints the bytes, then
 *                        frees all and does it again
 *   limited later        lowers its own limit in the middle of its life, then starts threads and allocates
 *   limited sizes        prints virtual and resident size while it holds 256 MiB of a mixture, and after freeing it */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { THREADS = 4, MIB = 1 << 20 };

/* Blocks are linked through themselves; the size says how much of the limit each has used. */
struct node { struct node *next; size_t size; };

static unsigned long long seed = 1;

static size_t mixed_size(void)
{
    static const size_t sizes[] = { 32, 100, 1000, 10 << 10, 100 << 10, 1536 << 10 };
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return sizes[(seed >> 33) % (sizeof sizes / sizeof sizes[0])];
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Allocates until `most` bytes are reached or malloc fails; the bytes. */
static size_t fill(struct node **list, size_t size, size_t most)
{
    size_t total = 0;
    while (total < most) {
        size_t n = size != 0 ? size : mixed_size();
        errno = 0;
        struct node *node = malloc(n);
        if (node == NULL && errno != ENOMEM)
            fail("malloc failed with another error than ENOMEM");
        if (node == NULL)
            break;
        *node = (struct node){ *list, n };
        *list = node;
        total += n;
    }
    return total;
}

static void empty(struct node **list)
{
    while (*list != NULL) {
        struct node *next = (*list)->next;
        free(*list);
        *list = next;
    }
}

static void memory(size_t *virtual_size, size_t *resident)
{
    char text[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL || sscanf(text, "%zu %zu", virtual_size, resident) != 2)
        fail("/proc/self/statm");
    fclose(file);
    *virtual_size *= 4096;
    *resident *= 4096;
}

static int run_fill(size_t size)
{
    struct node *list = NULL;
    size_t first = fill(&list, size, (size_t)-1);
    empty(&list);
    size_t second = fill(&list, size, (size_t)-1);
    empty(&list);
    printf("%zu %zu\n", first, second);
    return 0;
}

static void *in_a_thread(void *unused)
{
    struct node *list = NULL;
    (void)unused;
    size_t got = fill(&list, 200, MIB);
    empty(&list);
    return got >= MIB ? NULL : &seed;
}

static int run_later(void)
{
    pthread_t threads[THREADS];
    struct node *list = NULL, *kept = NULL;
    size_t now, resident;
    fill(&kept, 0, 100 * (size_t)MIB);
    fill(&list, 0, 100 * (size_t)MIB);
    empty(&list);
    memory(&now, &resident);
    struct rlimit limit = { now + 64 * (size_t)MIB, now + 64 * (size_t)MIB };
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        fail("setrlimit");
    for (int i = 0; i < THREADS; i++)
        if ((errno = pthread_create(&threads[i], NULL, in_a_thread, NULL)) != 0)
            fail("pthread_create under the new limit");
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        if (failed != NULL)
            fail("a thread got no memory under the new limit");
    }
    if (fill(&list, 0, 60 * (size_t)MIB) < 60 * (size_t)MIB)
        fail("60 MiB that were freed before cannot be had again");
    empty(&list);
    empty(&kept);
    return 0;
}

static int run_sizes(void)
{
    struct node *list = NULL;
    size_t virtual_before, virtual_full, virtual_empty, resident_before, resident_full, resident_empty;
    memory(&virtual_before, &resident_before);
    size_t live = fill(&list, 0, 256 * (size_t)MIB);
    for (struct node *node = list; node != NULL; node = node->next)
        if (node->size > sizeof *node)
            memset(node + 1, 1, node->size - sizeof *node);
    memory(&virtual_full, &resident_full);
    empty(&list);
    malloc_trim(0);
    memory(&virtual_empty, &resident_empty);
    printf("%zu %zu %zu %zu %zu\n", live, virtual_full - virtual_before, resident_full - resident_before,
           virtual_empty - virtual_before, resident_empty - resident_before);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "fill") == 0)
        return run_fill(strtoull(argv[2], NULL, 10));
    if (argc > 1 && strcmp(argv[1], "later") == 0)
        return run_later();
    if (argc > 1 && strcmp(argv[1], "sizes") == 0)
        return run_sizes();
    return 2;
}
