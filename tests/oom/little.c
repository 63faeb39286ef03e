/* What test_little_room.py runs, with the library preloaded and without. An ordinary program: it only knows malloc and free.
 *   little fill SIZE         allocates blocks of SIZE bytes (0: 100 to 3100 in turn) until there are no more; prints the bytes
 *                            that it got, then frees all, and does it again
 *   little locked KIB SIZE   the same, with memory locked now and in future (mlockall), of which KIB may be; as an ordinary
 *                            user, since root may lock all
 *   little populated         of blocks of several sizes, some in memory that was used before, all pages are resident after
 *                            mlockall(MCL_CURRENT) */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 80 << 20, MIB = 1 << 20, NOBODY = 65534, SKIPPED = 77 };

struct node { struct node *next; };

static size_t fill(struct node **list, size_t size)
{
    size_t total = 0;
    for (unsigned i = 0; total < MOST; i++) {
        size_t n = size != 0 ? size : 100 + i * 37 % 3000;
        struct node *node = malloc(n);
        if (node == NULL)
            break;
        node->next = *list;
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

static int run_fill(size_t size)
{
    struct node *list = NULL;
    char text[64];
    size_t first = fill(&list, size);
    empty(&list);
    size_t second = fill(&list, size);
    int length = snprintf(text, sizeof text, "%zu %zu\n", first, second);   /* printf would want a buffer */
    return write(1, text, (size_t)length) == length ? 0 : 1;
}

static int run_locked(size_t bytes, size_t size)
{
    struct rlimit limit = { bytes, bytes };
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(NOBODY) != 0))
        return SKIPPED;
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)   /* what there is already is more: nothing is locked */
        fputs("mlockall refused\n", stderr);
    return run_fill(size);
}

static size_t absent(char *block, size_t bytes)
{
    static unsigned char pages[1 << 14];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = bytes / page - 1, missing = 0;
    char *first = (char *)(((size_t)block + page - 1) & ~(page - 1));
    if (mincore(first, count * page, pages) != 0)
        return count;
    for (size_t i = 0; i < count; i++)
        missing += (pages[i] & 1) == 0;
    return missing;
}

static int run_populated(void)
{
    static const size_t sizes[] = { 40 << 20, 1200000, 6 << 20, 2 << 20, 3000000 };
    char *blocks[5];
    free(malloc(64 << 20));
    for (unsigned i = 0; i < 5; i++)
        blocks[i] = malloc(sizes[i]);
    if (mlockall(MCL_CURRENT) != 0)
        return SKIPPED;
    for (unsigned i = 0; i < 5; i++) {
        size_t missing = absent(blocks[i], sizes[i]);
        if (missing != 0) {
            fprintf(stderr, "%zu pages of a block of %zu bytes are not resident\n", missing, sizes[i]);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "fill") == 0)
        return run_fill(strtoull(argv[2], NULL, 10));
    if (argc > 3 && strcmp(argv[1], "locked") == 0)
        return run_locked(strtoull(argv[2], NULL, 10) << 10, strtoull(argv[3], NULL, 10));
    if (argc > 1 && strcmp(argv[1], "populated") == 0)
        return run_populated();
    return 2;
}
