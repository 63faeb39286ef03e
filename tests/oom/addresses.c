/* What test_addresses.py runs, with the library preloaded: a program whose address space is out of the ordinary. It only knows
 * malloc and free; page faults are what it can count exactly.
 *   addresses print       prints the addresses of some blocks
 *   addresses hole GIB    somebody else's reservation of so many GiB lies just above the heap: no malloc fails, a block on each
 *                         side keeps its content, and a forked child's first requests fault in few pages
 *   addresses wide BITS   the same after a block at a multiple of 2^BITS
 *   addresses reserved GIB   somebody else reserves all addresses that there are in pieces of so many GiB before the first malloc;
 *                         256 MiB in small blocks are served from what is left
 *   addresses full        no page of addresses is left: malloc says ENOMEM, whatever lies on the stack */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 200, MIB = 1 << 20, FAULTS_MOST = 64, SKIPPED = 77 };

static void fail(const char *what, long number)
{
    fprintf(stderr, "%s %ld\n", what, number);
    exit(1);
}

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* Huge blocks, each with a page that is touched, and small ones. */
static void use(char **blocks)
{
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(i % 4 == 0 ? 100 : MIB + 1);
        if (blocks[i] == NULL)
            fail("NULL at block", i);
        blocks[i][0] = (char)i;
    }
}

static void give_back(char **blocks)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i][0] != (char)i)
            fail("a block has lost its content:", i);
        free(blocks[i]);
    }
}

static void *in_a_thread(void *argument)
{
    free(malloc(100));
    return argument;
}

/* The page of the block alone, and what a request touches anyway. */
static void expect_cheap(const char *who)
{
    long before = faults();
    free(malloc(3 * MIB));
    free(malloc(3000));
    if (faults() - before > FAULTS_MOST) {
        fprintf(stderr, "%s: %ld page faults for two requests\n", who, faults() - before);
        _exit(1);
    }
}

static void expect_cheap_in_child(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        expect_cheap("a child");
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fail("the child ended with", status);
}

static int run_print(void)
{
    for (size_t n = 16; n < 64 * (size_t)MIB; n *= 7)
        printf("%p ", malloc(n));
    putchar('\n');
    return 0;
}

static int run_hole(size_t bytes)
{
    static char *below[BLOCKS], *above[BLOCKS];
    char *p = malloc(3 * MIB);
    use(below);
    uintptr_t place = ((uintptr_t)p + 1024 * (uintptr_t)MIB) & ~(uintptr_t)(2 * MIB - 1);
    void *got = mmap((void *)place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return SKIPPED;
    while (malloc(64 * MIB) < got)   /* up to the hole */
        continue;
    long before = faults();
    use(above);
    if (faults() - before > 4 * BLOCKS)
        fail("page faults behind the hole:", faults() - before);
    expect_cheap("behind a hole");
    expect_cheap_in_child();
    give_back(above);
    give_back(below);
    return 0;
}

static int run_wide(unsigned bits)
{
    static char *blocks[BLOCKS];
    char *wide = aligned_alloc((size_t)1 << bits, 1);
    if (wide == NULL || (uintptr_t)wide % ((size_t)1 << bits) != 0)
        fail("no block at a multiple of 2 to the", bits);
    wide[0] = 1;
    use(blocks);
    expect_cheap("after a wide alignment");
    expect_cheap_in_child();
    give_back(blocks);
    free(wide);
    expect_cheap_in_child();
    return 0;
}

static bool reserve(size_t bytes)
{
    return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static int run_reserved(size_t piece)
{
    while (reserve(piece))
        continue;
    for (size_t got = 0; got < 256 * (size_t)MIB; got += 1024) {
        char *p = malloc(1024);
        if (p == NULL)
            fail("NULL after bytes:", (long)got);
        *p = 1;
    }
    return 0;
}

static void dirty_stack(int value)
{
    volatile char room[2000];
    for (size_t i = 0; i < sizeof room; i++)
        room[i] = (char)value;
}

static int run_full(void)
{
    for (size_t n = (size_t)1 << 46; n >= 4096;)
        if (!reserve(n))
            n = n / 2 & ~(size_t)4095;
    for (int i = 0; i < 64; i++) {
        dirty_stack(0x11 * (i % 16));
        errno = 0;
        char *p = malloc((size_t)16 << i % 20);
        if (p == NULL && errno != ENOMEM)
            fail("malloc failed with", errno);
    }
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    if (argc > 2 && strcmp(argv[1], "reserved") == 0)
        return run_reserved(strtoull(argv[2], NULL, 10) << 30);
    if (argc > 1 && strcmp(argv[1], "full") == 0)
        return run_full();
    if (pthread_create(&thread, NULL, in_a_thread, NULL) != 0 || pthread_join(thread, NULL) != 0)
        fail("pthread_create", 0);
    if (argc > 1 && strcmp(argv[1], "print") == 0)
        return run_print();
    if (argc > 2 && strcmp(argv[1], "hole") == 0)
        return run_hole(strtoull(argv[2], NULL, 10) << 30);
    if (argc > 2 && strcmp(argv[1], "wide") == 0)
        return run_wide((unsigned)atoi(argv[2]));
    return 2;
}
