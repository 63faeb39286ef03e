/* What test_places.py runs where a program seldom runs: it only knows malloc and free, keeps every block's content, and says at the end
 * how many heaps HAKMEM has, as a proof of service.
 *   places_user WORD...   in order, of these:
 *     limit NAME N        sets a limit of resources to N
 *     most N              blocks have at most N bytes from now on
 *     work                blocks of every kind in three threads and, unless no process may be made, in a forked child
 *     alone               the same in this thread
 *     until FILE          in three threads, with a forked child now and then, until there is such a file
 *     threads N           so many threads at once, each with a block that it frees at its end
 *     mappings N          so many mappings of the program's own; they stay
 *     vast GIB            so many GiB in blocks of 64 MiB and more, touched at both ends; all are freed, and once more allocated
 *     again               frees a block twice */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hakmem_stats.h"

enum { BLOCKS = 300, ROUNDS = 6000, THREADS = 3, STACK = 64 << 10 };
#define GIB ((size_t)1 << 30)

struct block {
    unsigned char *p;
    size_t n;
};

static size_t size_most = SIZE_MAX;
static const char *end_file;

static void fail(const char *what, long number)
{
    fprintf(stderr, "%s %ld: %s\n", what, number, strerror(errno));
    _exit(1);
}

static uint64_t next(uint64_t *seed) { return *seed = *seed * 6364136223846793005u + 1442695040888963407u; }

/* Mostly small, up to 2 MiB. */
static size_t some_size(uint64_t *seed)
{
    size_t bits = next(seed) >> 33 & 31, n = 1 + (next(seed) >> 33) % ((size_t)64 << (bits < 16 ? 0 : bits < 28 ? bits - 16 : 15));
    return n < size_most ? n : size_most;
}

static void fill(struct block *block, size_t n)
{
    block->n = n;
    memset(block->p, (int)(n & 0xff), n < 64 ? n : 64);
    block->p[n - 1] = (unsigned char)n;
}

static void look(const struct block *block)
{
    if (block->p != NULL && (block->p[0] != (unsigned char)block->n || block->p[block->n - 1] != (unsigned char)block->n))
        fail("a block has lost its content:", (long)block->n);
}

static void step(struct block *block, uint64_t *seed)
{
    size_t n = some_size(seed);
    look(block);
    switch (next(seed) >> 33 & 3) {
    case 0:
        free(block->p);
        block->p = NULL;
        return;
    case 1: block->p = realloc(block->p, n); break;
    case 2: free(block->p), block->p = calloc(1, n); break;
    default: free(block->p), block->p = malloc(n); break;
    }
    if (block->p == NULL)
        fail("no memory for", (long)n);
    fill(block, n);
}

static void *work(void *argument)
{
    struct block blocks[BLOCKS] = { { NULL, 0 } };
    uint64_t seed = (uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++)
        step(&blocks[(next(&seed) >> 33) % BLOCKS], &seed);
    for (int i = 0; i < BLOCKS; i++) {
        look(&blocks[i]);
        free(blocks[i].p);
    }
    return NULL;
}

static void work_in_child(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        work((void *)7);
        _exit(0);
    }
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        fail("the child ended with", status);
}

static int has_end(void) { return access(end_file, F_OK) == 0; }

static void *work_until(void *argument)
{
    while (!has_end())
        work(argument);
    return NULL;
}

static void *work_until_with_children(void *argument)
{
    while (!has_end()) {
        work_in_child();
        usleep(20000);
    }
    return argument;
}

static void *wait_with_a_block(void *barrier)
{
    char *p = malloc(100);
    if (p == NULL)
        fail("no memory in a thread", 0);
    *p = 1;
    pthread_barrier_wait(barrier);
    free(p);
    return NULL;
}

static void *one_of_some(void *number) { return (uintptr_t)number == 1 ? work_until_with_children(number) : work_until(number); }

static void threads(unsigned count, void *body(void *))
{
    pthread_t *all = calloc(count, sizeof *all);
    pthread_barrier_t barrier;
    pthread_attr_t attributes;
    pthread_barrier_init(&barrier, NULL, count);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    for (unsigned i = 0; i < count; i++)
        if ((errno = pthread_create(&all[i], &attributes, body, body != wait_with_a_block ? (void *)(uintptr_t)(i + 1) : &barrier))
            != 0)
            fail("no thread", i);
    for (unsigned i = 0; i < count; i++)
        pthread_join(all[i], NULL);
    free(all);
}

/* Neighbours with different rights are not merged. */
static void mappings(long count)
{
    for (long i = 0; i < count; i++)
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            fail("mapping", i);
}

static size_t allocate_vast(struct block *blocks, size_t bytes)
{
    size_t got = 0, count = 0;
    for (size_t n = GIB / 16; got < bytes; n = n < 4 * GIB ? 2 * n : GIB / 16, got += blocks[count++].n) {
        blocks[count].p = malloc(n);
        if (blocks[count].p == NULL)
            fail("no memory after GiB:", (long)(got / GIB));
        fill(&blocks[count], n);
    }
    return count;
}

static void vast(size_t gib)
{
    struct block *blocks = calloc(16 * gib, sizeof *blocks);
    for (int round = 0; round < 2; round++) {
        size_t count = allocate_vast(blocks, gib * GIB);
        for (size_t i = 0; i < count; i++) {
            look(&blocks[i]);
            free(blocks[i].p);
        }
    }
    free(blocks);
}

static void limit(const char *name, rlim_t most)
{
    static const struct {
        const char *name;
        int what;
    } all[] = { { "AS", RLIMIT_AS },
                { "CORE", RLIMIT_CORE },
                { "CPU", RLIMIT_CPU },
                { "DATA", RLIMIT_DATA },
                { "FSIZE", RLIMIT_FSIZE },
                { "LOCKS", 10 },
                { "MEMLOCK", RLIMIT_MEMLOCK },
                { "MSGQUEUE", 12 },
                { "NICE", 13 },
                { "NOFILE", RLIMIT_NOFILE },
                { "NPROC", RLIMIT_NPROC },
                { "RSS", RLIMIT_RSS },
                { "RTPRIO", 14 },
                { "RTTIME", 15 },
                { "SIGPENDING", 11 },
                { "STACK", RLIMIT_STACK } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0 && setrlimit(all[i].what, &(struct rlimit){ most, most }) == 0)
            return;
    fail(name, (long)most);
}

static void say_who_served(void)
{
    static struct hak_stats stats;
    int (*snapshot)(struct hak_stats *, size_t);
    *(void **)&snapshot = dlsym(RTLD_DEFAULT, "hak_stats_snapshot");
    if (snapshot != NULL)
        snapshot(&stats, sizeof stats);
    printf("done heaps=%llu\n", (unsigned long long)stats.remote_heaps);
}

int main(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        long number = i + 1 < count ? atol(words[i + 1]) : 0;
        if (strcmp(words[i], "limit") == 0 && i + 2 < count)
            limit(words[i + 1], strtoull(words[i + 2], NULL, 10)), i += 2;
        else if (strcmp(words[i], "alone") == 0)
            work((void *)9);
        else if (strcmp(words[i], "work") == 0)
            threads(THREADS, work), work_in_child();
        else if (strcmp(words[i], "threads") == 0)
            threads((unsigned)number, wait_with_a_block), i++;
        else if (strcmp(words[i], "until") == 0)
            end_file = words[++i], threads(THREADS, one_of_some);
        else if (strcmp(words[i], "most") == 0)
            size_most = (size_t)number, i++;
        else if (strcmp(words[i], "mappings") == 0)
            mappings(number), i++;
        else if (strcmp(words[i], "vast") == 0)
            vast((size_t)number), i++;
        else if (strcmp(words[i], "again") == 0) {
            char *volatile p = malloc(100);
            free(p);
            free(p);
        } else {
            return 2;
        }
    }
    say_who_served();
    return 0;
}
