/* What test_limits.py runs under limits, with the library preloaded. An ordinary program: it only knows malloc and free.
 *   limited fill SIZE    allocates blocks of SIZE bytes (0: a mixture) until there are no more; prints the bytes, then
 *                        frees all and does it again
 *   limited later        lowers its own limit in the middle of its life, then starts threads and allocates
 *   limited refill LIMIT MIB SIZE...   lowers a limit of its own (as, data, or none), then allocates blocks of one size until there
 *                        are no more, frees all, and does the same with the next size; prints the bytes of each
 *   limited threads LIMIT SIZE   of 1,000 MiB: 40 threads wait until others' blocks have used it up and are free again; each then
 *                        makes its first request; and so do 40 new threads
 *   limited back SIZE    750 of 1,000 MiB that a limit of its own allows are used and freed; prints after how many ms, in which it only
 *                        hits, the program can map 700 MiB itself
 *   limited emptied SIZE   in a hundred rounds uses a limit up by blocks of up to SIZE bytes, asks in vain, frees all, and asks for 20
 *                        blocks of up to ten times SIZE; prints how many of these were refused
 *   limited beside SIZE  two threads use a limit up by blocks of SIZE bytes; prints what one gets once the other has freed a hundred,
 *                        what the other then frees, every second block, and what the one gets of that
 *   limited ended        whether a request is refused after threads that took all have freed it and ended
 *   limited sizes        prints virtual and resident size while it holds 256 MiB of a mixture, and after freeing it */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 4, MIB = 1 << 20 };

/* Blocks are linked through themselves; the size says how much of the limit each has used. */
struct node {
    struct node *next;
    size_t size;
};

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

/* --- what one kind of request has used, another can have ------------------------------------------------------------- */

static void lower(const char *kind, size_t mib)
{
    struct rlimit limit = { mib * MIB, mib * MIB };
    if (strcmp(kind, "none") != 0 && setrlimit(strcmp(kind, "as") == 0 ? RLIMIT_AS : RLIMIT_DATA, &limit) != 0)
        fail("setrlimit");
}

/* Writes to every page, since some kinds of memory count only then. */
static size_t fill_touched(struct node **list, size_t size, size_t most)
{
    size_t total = 0;
    while (total < most) {
        struct node *node = malloc(size);
        if (node == NULL)
            break;
        *node = (struct node){ *list, size };
        memset(node + 1, 1, size - sizeof *node);
        *list = node;
        total += size;
    }
    return total;
}

static int run_refill(char **words)
{
    size_t mib = strtoull(words[1], NULL, 10);
    lower(words[0], mib);
    for (words += 2; *words != NULL; words++) {
        struct node *list = NULL;
        size_t got = fill_touched(&list, strtoull(*words, NULL, 10), 2 * mib * MIB);
        empty(&list);
        printf("%zu ", got);
    }
    putchar('\n');
    return 0;
}

enum { WAITING = 40 };

static pthread_barrier_t filled;
static _Atomic unsigned refused;

static void *first_request(void *waits)
{
    if (waits != NULL) {
        pthread_barrier_wait(&filled);
        pthread_barrier_wait(&filled);
    }
    void *p = malloc(100);
    refused += p == NULL;
    free(p);
    return NULL;
}

static unsigned start_threads(pthread_t *threads, void *argument)
{
    unsigned made = 0;
    while (made < WAITING && pthread_create(&threads[made], NULL, first_request, argument) == 0)
        made++;
    return made;
}

static int run_threads(const char *kind, size_t size)
{
    pthread_t threads[WAITING];
    struct node *list = NULL;
    if (strcmp(kind, "data") == 0)
        lower(kind, 1000);
    pthread_barrier_init(&filled, NULL, WAITING + 1);
    if (start_threads(threads, &filled) != WAITING)
        fail("pthread_create before anything was used");
    pthread_barrier_wait(&filled);
    size_t got = fill_touched(&list, size, (size_t)2000 * MIB);
    empty(&list);
    pthread_barrier_wait(&filled);
    for (unsigned i = 0; i < WAITING; i++)
        pthread_join(threads[i], NULL);
    unsigned made = start_threads(threads, NULL);
    for (unsigned i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    printf("%zu %u %u\n", got, refused, made);
    return 0;
}

static int run_back(size_t size)
{
    struct node *list = NULL;
    unsigned ms = 0;
    lower("data", 1000);
    fill_touched(&list, size, (size_t)750 * MIB);
    empty(&list);
    for (; ms < 8000; ms += 50) {
        if (mmap(NULL, (size_t)700 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
            break;
        for (unsigned i = 0; i < 20000; i++)
            free(malloc(64));
        usleep(50000);
    }
    printf("%u\n", ms);
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

static int run_emptied(size_t most)
{
    enum { ROUNDS = 100, IN_VAIN = 7, ASKED = 20, BLOCKS = 60000 };
    static void *blocks[BLOCKS];
    srand(3);
    for (int round = 0; round < ROUNDS; round++) {
        size_t count = 0;
        for (size_t n; count < BLOCKS && (blocks[count] = malloc(n = 1 + (size_t)rand() % most)) != NULL; count++)
            memset(blocks[count], 1, n);
        for (int i = 0; i < IN_VAIN; i++)
            free(malloc(1 + (size_t)rand() % most));
        while (count > 0)
            free(blocks[--count]);
        for (int i = 0; i < ASKED; i++) {
            void *block = malloc(1 + (size_t)rand() % (10 * most));
            refused += block == NULL;
            free(block);
        }
    }
    printf("%u\n", refused);
    return 0;
}

/* --- what a living thread has freed, others can have ------------------------------------------------------------------ */

static size_t beside_size, beside_freed;

/* Leaves a block of each of many sizes in the thread's cache, and with it the memory around it. */
static void fill_bins(void)
{
    enum { SIZES = 40, EACH = 8, STEP = 100 };
    void *blocks[EACH];
    for (size_t n = STEP; n <= SIZES * STEP; n += STEP) {
        for (int i = 0; i < EACH; i++)
            blocks[i] = malloc(n);
        for (int i = 0; i < EACH; i++)
            free(blocks[i]);
    }
}

static void free_some(struct node *list, size_t step, size_t most)
{
    for (struct node *second; most > 0 && list != NULL && (second = list->next) != NULL; list = list->next)
        if (most-- % step == 0) {
            list->next = second->next;
            beside_freed += second->size;
            free(second);
        }
}

static void *beside(void *unused)
{
    struct node *list = NULL;
    fill_bins();
    fill(&list, beside_size, 4 * (size_t)MIB);
    pthread_barrier_wait(&filled); /* the other takes the rest, and asks for more */
    pthread_barrier_wait(&filled);
    free_some(list, 1, 100);
    pthread_barrier_wait(&filled); /* the other gets what was in this thread's cache */
    pthread_barrier_wait(&filled);
    beside_freed = 0;
    free_some(list, 2, (size_t)-1);
    pthread_barrier_wait(&filled); /* the other gets what has been freed between blocks in use */
    pthread_barrier_wait(&filled);
    return unused;
}

static int run_beside(size_t size)
{
    pthread_t thread;
    struct node *list = NULL;
    size_t got[3];
    beside_size = size;
    pthread_barrier_init(&filled, NULL, 2);
    if (pthread_create(&thread, NULL, beside, NULL) != 0)
        fail("pthread_create");
    for (int i = 0; i < 3; i++) {
        pthread_barrier_wait(&filled);
        got[i] = fill(&list, i == 2 ? size - size / 4 : size, 64 * (size_t)MIB);
        pthread_barrier_wait(&filled);
    }
    pthread_join(thread, NULL);
    printf("%zu %zu %zu\n", got[1], beside_freed, got[2]);
    return 0;
}

static void *fill_and_end(void *size)
{
    struct node *list = NULL;
    fill(&list, (size_t)size, SIZE_MAX);
    empty(&list);
    return NULL;
}

static int run_ended(void)
{
    static const size_t sizes[] = { 5000, 900000, 50000000, 1000 };
    enum { FILLING = sizeof sizes / sizeof *sizes };
    pthread_t threads[FILLING];
    for (int i = 0; i < FILLING; i++)
        if (pthread_create(&threads[i], NULL, fill_and_end, (void *)sizes[i]) != 0)
            fail("pthread_create");
    for (int i = 0; i < FILLING; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", malloc(1500000) == NULL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "fill") == 0)
        return run_fill(strtoull(argv[2], NULL, 10));
    if (argc > 1 && strcmp(argv[1], "later") == 0)
        return run_later();
    if (argc > 4 && strcmp(argv[1], "refill") == 0)
        return run_refill(argv + 2);
    if (argc > 3 && strcmp(argv[1], "threads") == 0)
        return run_threads(argv[2], strtoull(argv[3], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "back") == 0)
        return run_back(strtoull(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "emptied") == 0)
        return run_emptied(strtoull(argv[2], NULL, 10));
    if (argc > 2 && strcmp(argv[1], "beside") == 0)
        return run_beside(strtoull(argv[2], NULL, 10));
    if (argc > 1 && strcmp(argv[1], "ended") == 0)
        return run_ended();
    if (argc > 1 && strcmp(argv[1], "sizes") == 0)
        return run_sizes();
    return 2;
}
