/* What test_crowded.py runs, with the library preloaded: programs that would need more mappings than the kernel allows a
 * process. Ordinary programs: they only know malloc and free. Each prints a line of figures.
 *   crowded many N SIZE ALIGN NEW   allocates N blocks of SIZE bytes, at multiples of ALIGN, and changes each to NEW bytes
 *                  (0: does not); the number that it got, the mappings and the resident bytes then, and whether a thread can
 *                  be made; frees all and does it again
 *   crowded full   uses up the mappings that a process may have, and goes on with blocks of all sizes: the number of requests
 *                  that were refused */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SKIPPED = 77, MAPS_MOST = 2 << 20, EACH = 20 };

/* By the kernel's word, without malloc, which may have nothing left. */
static int open_own(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        exit(SKIPPED);
    return file;
}

static size_t mappings(void)
{
    char chunk[4096];
    size_t count = 0;
    int file = open_own("/proc/self/maps");
    for (ssize_t got; (got = read(file, chunk, sizeof chunk)) > 0;)
        for (ssize_t i = 0; i < got; i++)
            count += chunk[i] == '\n';
    close(file);
    return count;
}

static size_t resident(void)
{
    char text[128] = "";
    unsigned long total, pages = 0;
    int file = open_own("/proc/self/statm");
    if (read(file, text, sizeof text - 1) <= 0 || sscanf(text, "%lu %lu", &total, &pages) != 2)
        exit(SKIPPED);
    close(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void *nothing(void *argument) { return argument; }

static bool makes_a_thread(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

static char *make(size_t size, size_t align, size_t new_size)
{
    char *p = align > 16 ? memalign(align, size) : malloc(size);
    if (p != NULL && new_size != 0) {
        p[0] = 1;
        char *q = realloc(p, new_size);
        if (q == NULL)
            free(p);
        p = q;
    }
    if (p != NULL)
        p[0] = p[(new_size != 0 ? new_size : size) - 1] = 1;
    return p;
}

static int run_many(size_t count, size_t size, size_t align, size_t new_size)
{
    char **blocks = mmap(NULL, count * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (blocks == MAP_FAILED)
        return SKIPPED;
    for (unsigned round = 0; round < 2; round++) {
        size_t got = 0;
        while (got < count && (blocks[got] = make(size, align, new_size)) != NULL)
            got++;
        dprintf(1, "%zu %zu %zu %d\n", got, mappings(), resident(), makes_a_thread());
        while (got > 0)
            free(blocks[--got]);
    }
    return 0;
}

/* --- no mapping left --------------------------------------------------------------------------------------------------- */

/* Neighbours differ in their rights, so that none are joined. */
static size_t use_up(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    while (count < MAPS_MOST && mmap(NULL, page, count % 2 == 0 ? PROT_READ : PROT_NONE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        count++;
    return count;
}

/* Blocks that grow, are shrunk and freed; how many requests were refused. */
static size_t use(size_t size, size_t align)
{
    char *blocks[EACH];
    size_t refused = 0;
    for (unsigned i = 0; i < EACH; i++) {
        blocks[i] = memalign(align, size);
        refused += blocks[i] == NULL;
        if (blocks[i] != NULL)
            memset(blocks[i], 1, size);
    }
    for (unsigned i = 0; i < EACH; i++) {
        char *p = realloc(blocks[i], i % 2 == 0 ? 3 * size : size / 3 + 1);
        refused += p == NULL;
        blocks[i] = p != NULL ? p : blocks[i];
    }
    for (unsigned i = 0; i < EACH; i++)
        free(blocks[i]);
    return refused;
}

static int run_full(void)
{
    static const size_t sizes[] = { 16, 100, 1000, 5000, 40000, 100000, 900000, 1200000, 3000000, 10000000 };
    size_t refused = 0;
    free(malloc(100));
    if (use_up() == MAPS_MOST)
        return SKIPPED;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
            refused += use(sizes[i], 16) + use(sizes[i], 4096);
        malloc_trim(0);
    }
    printf("%zu\n", refused);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "many") == 0)
        return run_many(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                        strtoull(argv[5], NULL, 10));
    if (argc == 2 && strcmp(argv[1], "full") == 0)
        return run_full();
    return 2;
}
