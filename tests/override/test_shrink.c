/* A realloc that makes a block smaller never fails. Each case uses up the address space (RLIMIT_AS), down to the last block of
 * 16 bytes, and then shrinks blocks of one kind to a size of every smaller pool. Expects: not NULL, errno as it was, the
 * content kept; room for a smaller block where a huge one gave up pages; and a sized free that names the new size. */
#include "cases.h"

#include <malloc.h>
#include <pthread.h>

void free_sized(void *p, size_t n);

#define MIB ((size_t)1 << 20)
enum { BLOCKS = 4, KINDS = 6, ROOM_MIB = 64 };

struct node { struct node *next; };

static struct node *filling;
static unsigned char *blocks[BLOCKS];

static void limit_address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    expect(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ROOM_MIB * MIB;
    struct rlimit limit = { bytes, bytes };
    expect(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void use_up(void)
{
    static const size_t sizes[] = { 4 * MIB, 3 * MIB / 2, 600000, 200000, 100000, 60000, 30000, 10000, 3000, 500, 100, 16 };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (struct node *node; (node = malloc(sizes[i])) != NULL; filling = node)
            node->next = filling;
}

static void *make_blocks(void *kind)
{
    static const struct { size_t align, size; } kinds[KINDS] = {
        { 16, 5 * MIB }, { 16, 700000 }, { 16, 50000 }, { 16, 1000 }, { 4 * MIB, 3 * MIB }, { 4096, 300000 } };
    size_t which = (size_t)(uintptr_t)kind;
    for (unsigned i = 0; i < BLOCKS; i++) {
        void *p = NULL;
        expect(posix_memalign(&p, kinds[which].align, kinds[which].size) == 0);
        blocks[i] = p;
        memset(p, 0xa0 + (int)i, kinds[which].size);
    }
    return (void *)kinds[which].size;
}

/* Halving, so that every block goes through all pools below its own. */
static void shrink_all(size_t size)
{
    static const size_t targets[BLOCKS] = { 40000, 2000, 90, 1 };
    for (unsigned i = 0; i < BLOCKS; i++) {
        size_t n = targets[i] < size ? targets[i] : 1;
        for (size_t step = size / 3; step > n; step /= 3) {
            errno = 77;
            blocks[i] = realloc(blocks[i], step);
            expect(blocks[i] != NULL && errno == 77);
            use_up();
        }
        errno = 77;
        blocks[i] = realloc(blocks[i], n);
        expect(blocks[i] != NULL && errno == 77);
        expect(malloc_usable_size(blocks[i]) >= n);
        for (size_t at = 0; at < n; at++)
            expect(blocks[i][at] == 0xa0 + i);
        free_sized(blocks[i], n);
    }
}

static void shrink(unsigned kind, bool others)
{
    size_t size;
    pthread_t thread;
    void *result = NULL;
    limit_address_space();
    if (others) {
        expect(pthread_create(&thread, NULL, make_blocks, (void *)(uintptr_t)kind) == 0);
        expect(pthread_join(thread, &result) == 0);
    } else {
        result = make_blocks((void *)(uintptr_t)kind);
    }
    size = (size_t)(uintptr_t)result;
    use_up();
    shrink_all(size);
    while (filling != NULL) {
        struct node *next = filling->next;
        free(filling);
        filling = next;
    }
    expect_block(malloc(10 * MIB), 10 * MIB);
}

static void huge(void) { shrink(0, false); }
static void large(void) { shrink(1, false); }
static void mid(void) { shrink(2, false); }
static void tiny(void) { shrink(3, false); }
static void aligned_huge(void) { shrink(4, false); }
static void aligned_large(void) { shrink(5, false); }
static void huge_of_another(void) { shrink(0, true); }
static void large_of_another(void) { shrink(1, true); }
static void mid_of_another(void) { shrink(2, true); }

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(huge),
        CASE(large),
        CASE(mid),
        CASE(tiny),
        CASE(aligned_huge),
        CASE(aligned_large),
        CASE(huge_of_another),
        CASE(large_of_another),
        CASE(mid_of_another),
    };
    return not_emulated("RLIMIT_AS") ? LEFT_OUT : RUN_CASES(cases);
}
