/* What test_strained.py runs, with the library preloaded: programs that come near the limits of the system, and measure
 * what the library takes. An ordinary program: it only knows malloc and free. Each prints a line of figures per state.
 *   strained commit MB   memory that the kernel has promised (as overcommit_memory=2 counts it) and resident memory, while
 *                        8 times MB MiB of all sizes are allocated, three quarters of the blocks freed, then all
 *   strained locked      resident memory under mlockall(MCL_CURRENT | MCL_FUTURE), and what is live
 *   strained maps        uses up the mappings that a process may have; goes on after relief
 *   strained churn N     mappings after N random operations, and executable ones that belong to no file
 *   strained threads N   resident memory and mappings before and after N threads, one after the other
 *   strained residue MS  resident memory after 365 MB of small blocks were freed: at once, after MS of light use, trimmed
 *   strained cut FROM TO MS   resident memory and live bytes after blocks were cut by realloc, and MS of calls that all hit
 *   strained slope N     resident memory at 20 moments of the second half of N operations, sizes and lives long-tailed
 *   strained robson      the largest resident memory that Robson's adversary can force, what it has live, and the bound
 *   strained address     where the first block lies */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { SKIPPED = 77, SLOTS = 4096 };

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static unsigned long long seed = 1;

static size_t below(size_t limit)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (size_t)(seed >> 33) % limit;
}

static size_t mixed_size(void)
{
    static const size_t sizes[] = { 64, 400, 4000, 40 << 10, 400 << 10, 3 << 20 };
    size_t most = sizes[below(sizeof sizes / sizeof *sizes)];
    return 16 + below(most);
}

/* --- figures of the process ---------------------------------------------------------------------------------------- */

static size_t resident(void)
{
    unsigned long total, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu %lu", &total, &pages) != 2)
        fail("/proc/self/statm");
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The sizes of all mappings that count towards the limit of promised memory ("ac" among their flags). */
static size_t promised(void)
{
    char line[512];
    size_t size = 0, sum = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    if (file == NULL)
        fail("/proc/self/smaps");
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "Size: %zu kB", &size) == 1)
            continue;
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " ac") != NULL)
            sum += size << 10;
    }
    fclose(file);
    return sum;
}

/* The number of mappings; *bare: of those that are executable, writable or not, and belong to no file. */
static size_t mappings(size_t *bare)
{
    char line[512], rights[8], name[256];
    size_t count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    if (file == NULL)
        fail("/proc/self/maps");
    *bare = 0;
    for (; fgets(line, sizeof line, file) != NULL; count++) {
        name[0] = 0;
        if (sscanf(line, "%*s %7s %*s %*s %*s %255s", rights, name) >= 1 && rights[2] == 'x')
            *bare += name[0] != '/' && strcmp(name, "[vdso]") != 0 && strcmp(name, "[vsyscall]") != 0;
    }
    fclose(file);
    return count;
}

/* --- use ------------------------------------------------------------------------------------------------------------ */

struct node { struct node *next; size_t size; };

static size_t fill(struct node **list, size_t most)
{
    size_t total = 0;
    while (total < most) {
        size_t size = mixed_size();
        errno = 0;
        struct node *node = malloc(size);
        if (node == NULL && errno != ENOMEM)
            fail("refused otherwise than by ENOMEM");
        if (node == NULL)
            break;
        memset(node, 1, size);
        *node = (struct node){ *list, size };
        *list = node;
        total += size;
    }
    return total;
}

/* Frees all but every `keep`-th (0: all); the bytes that are left. errno must not change. */
static size_t thin(struct node **list, size_t keep)
{
    size_t i = 0, left = 0;
    for (struct node **at = list; *at != NULL; i++) {
        struct node *node = *at;
        if (keep != 0 && i % keep == 0) {
            left += node->size;
            at = &node->next;
            continue;
        }
        *at = node->next;
        errno = 55;
        free(node);
        if (errno != 55)
            fail("free changed errno");
    }
    return left;
}

static void light_use(unsigned ms)
{
    for (unsigned i = 0; i < ms; i++) {
        struct timespec moment = { 0, 1000000 };
        nanosleep(&moment, NULL);
        for (unsigned k = 0; k < 200; k++) {
            char *p = malloc(16 + k * 7 % 113), *q = malloc(20000);
            *p = *q = 1;
            free(p);
            free(q);
        }
    }
}

static void states(size_t (*figure)(void), unsigned ms, size_t step)
{
    struct node *list = NULL;
    size_t live = 0;
    for (unsigned i = 0; i < 8; i++) {
        live += fill(&list, step);
        printf("full %zu %zu %zu\n", live, figure(), resident());
    }
    live = thin(&list, 4);
    light_use(ms);
    printf("quarter %zu %zu %zu\n", live, figure(), resident());
    live = thin(&list, 0);
    light_use(ms);
    printf("empty %zu %zu %zu\n", live, figure(), resident());
}

static int run_locked(void)
{
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        perror("mlockall");
        return SKIPPED;
    }
    states(resident, 3000, 32 * MIB);
    return 0;
}

static int run_maps(void)
{
    enum { MOST = 2 << 20 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0, got = 0;
    struct node *list = NULL, *more = NULL;
    void **maps = mmap(NULL, MOST * sizeof *maps, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fill(&list, 64 * MIB);
    /* Neighbours differ in their rights, so that none are joined. */
    while (count < MOST && (maps[count] = mmap(NULL, page, count % 2 == 0 ? PROT_READ : PROT_NONE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED)
        count++;
    if (count == MOST)
        return SKIPPED;
    for (unsigned i = 0; i < 20; i++) {
        got += fill(&more, 8 * MIB);
        thin(&list, 2);
        thin(&more, 3);
        light_use(10);
        malloc_trim(0);
    }
    thin(&list, 0);
    thin(&more, 0);
    while (count > 0)
        munmap(maps[--count], page);
    size_t after = fill(&list, 64 * MIB);
    thin(&list, 0);
    printf("%zu %zu\n", got, after);
    return after >= 64 * MIB ? 0 : 1;
}

static int run_churn(size_t operations)
{
    static struct { char *p; size_t size; } slots[SLOTS];
    size_t bare, most = 0;
    for (size_t i = 0; i < operations; i++) {
        size_t slot = below(SLOTS), size = mixed_size() >> below(7);
        if (below(3) == 0 && slots[slot].p != NULL) {
            char *p = realloc(slots[slot].p, size + 1);
            if (p == NULL)
                fail("realloc");
            slots[slot].p = p;
        } else {
            free(slots[slot].p);
            slots[slot].p = malloc(size + 1);
            if (slots[slot].p == NULL)
                fail("malloc");
        }
        slots[slot].p[size] = 1;
        if (i % (operations / 50 + 1) == 0) {
            size_t now = mappings(&bare);
            most = now > most ? now : most;
        }
    }
    size_t last = mappings(&bare);
    printf("%zu %zu\n", last > most ? last : most, bare);
    return 0;
}

static void *short_life(void *argument)
{
    void *blocks[100];
    for (size_t i = 0; i < 100; i++)
        *(char *)(blocks[i] = malloc(1 + i * 37)) = 1;
    for (size_t i = 0; i < 100; i++)
        free(blocks[i]);
    return argument;
}

static void lives(size_t count)
{
    pthread_t thread;
    for (size_t i = 0; i < count; i++) {
        if ((errno = pthread_create(&thread, NULL, short_life, NULL)) != 0)
            fail("pthread_create");
        pthread_join(thread, NULL);
    }
}

static int run_threads(size_t count)
{
    size_t bare;
    lives(100);
    size_t resident_before = resident(), before = mappings(&bare);
    lives(count);
    size_t resident_after = resident(), after = mappings(&bare);
    printf("%zu %zu %zu %zu\n", resident_before, before, resident_after, after);
    return 0;
}

static int run_residue(unsigned ms)
{
    enum { BYTES = 365000000 };
    size_t bytes = 0, start = resident();
    struct node *list = NULL;
    while (bytes < BYTES) {
        size_t size = 16 + below(113);
        struct node *node = malloc(size);
        if (node == NULL)
            fail("malloc");
        node->next = list;
        list = node;
        bytes += size;
    }
    size_t peak = resident();
    for (struct node *next; list != NULL; list = next) {
        next = list->next;
        free(list);
    }
    light_use(ms);
    size_t later = resident();
    malloc_trim(0);
    printf("%zu %zu %zu %zu\n", start, peak, later, resident());
    return 0;
}

static int run_cut(size_t from, size_t to, unsigned ms)
{
    static char *blocks[400];
    size_t count = sizeof blocks / sizeof *blocks, start = resident();
    for (size_t i = 0; i < count; i++) {
        if ((blocks[i] = malloc(from)) == NULL)
            fail("malloc");
        memset(blocks[i], 1, from);
    }
    for (size_t i = 0; i < count; i++)
        if ((blocks[i] = realloc(blocks[i], to)) == NULL)
            fail("realloc");
    for (; ms > 0; ms -= ms < 10 ? ms : 10) {
        for (unsigned i = 0; i < 20000; i++) {
            char *volatile p = malloc(64);
            free(p);
        }
        usleep(10000);
    }
    printf("%zu %zu\n", resident() - start, count * to);
    return 0;
}

/* Half of the blocks are of 16 bytes, a quarter of 32, and so on up to 64 KiB; a few live very long. All places are taken at
 * first, so that what is live does not grow. */
static int run_slope(size_t operations)
{
    static char *slots[5 * SLOTS];
    size_t places = sizeof slots / sizeof *slots;
    for (size_t i = 1; i <= places + operations; i++) {
        size_t slot = i <= places ? i - 1 : below(below(places) + 1);
        size_t size = (size_t)16 << __builtin_ctzll(below(4096) | 4096);
        free(slots[slot]);
        slots[slot] = malloc(size);
        if (slots[slot] == NULL)
            fail("malloc");
        memset(slots[slot], 1, size);
        if (i > operations / 2 && i % (operations / 40) == 0)
            printf("%zu ", resident());
    }
    return printf("\n") < 0;
}

enum { UNIT = 16, DOUBLINGS = 12, UNITS_LIVE = 1 << 20 };
struct kept { size_t at, units; };   /* its address, in units */

/* Whether a block covers an address that leaves `rest` when divided by `step`, a power of two. */
static bool covers(struct kept block, size_t rest, size_t step)
{
    return ((rest - block.at) & (step - 1)) < block.units;
}

/* Each round frees all blocks that cover no address of a grid, whose step doubles, so that no hole is of use to the blocks of
 * the next round, which are as long as the step. */
static int run_robson(void)
{
    size_t bytes = UNITS_LIVE * sizeof(struct kept), rest = 0, count = 0, live = 0, most = 0, start = resident();
    struct kept *kept = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (kept == MAP_FAILED)
        fail("mmap");
    start = resident();
    for (unsigned round = 0; round <= DOUBLINGS; round++) {
        size_t step = (size_t)1 << round, covered[2] = { 0, 0 }, left = 0;
        for (size_t i = 0; i < count; i++)
            for (unsigned k = 0; k < 2; k++)
                covered[k] += covers(kept[i], rest + k * step / 2, step) ? kept[i].units : 0;
        rest += covered[1] > covered[0] ? step / 2 : 0;
        live = 0;
        for (size_t i = 0; i < count; i++) {
            if (round == 0 || !covers(kept[i], rest, step)) {
                free((void *)(kept[i].at * UNIT));
                continue;
            }
            live += kept[i].units;
            kept[left++] = kept[i];
        }
        for (count = left; live + step <= UNITS_LIVE; live += step) {
            char *p = malloc(step * UNIT);
            if (p == NULL)
                fail("malloc");
            memset(p, 1, step * UNIT);
            kept[count++] = (struct kept){ (size_t)p / UNIT, step };
        }
        size_t now = resident() - start;
        most = now > most ? now : most;
    }
    printf("%zu %d %d\n", most, UNITS_LIVE * UNIT, UNITS_LIVE * UNIT / 2 * (DOUBLINGS + 2));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    size_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (strcmp(mode, "address") == 0)
        return printf("%p\n", malloc(16)) < 0;
    if (strcmp(mode, "commit") == 0)
        return states(promised, 3000, number * MIB), 0;
    if (strcmp(mode, "locked") == 0)
        return run_locked();
    if (strcmp(mode, "maps") == 0)
        return run_maps();
    if (strcmp(mode, "churn") == 0)
        return run_churn(number);
    if (strcmp(mode, "threads") == 0)
        return run_threads(number);
    if (strcmp(mode, "slope") == 0)
        return run_slope(number);
    if (strcmp(mode, "robson") == 0)
        return run_robson();
    if (strcmp(mode, "cut") == 0 && argc > 4)
        return run_cut(number, strtoull(argv[3], NULL, 10), (unsigned)strtoull(argv[4], NULL, 10));
    if (strcmp(mode, "residue") == 0)
        return run_residue((unsigned)number);
    return 2;
}
