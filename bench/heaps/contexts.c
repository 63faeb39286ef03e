/*
 * contexts aset|heap|bump WORK COUNT
 *
 * PostgreSQL's memory contexts, by its own aset.c and mcxt.c, and the same on user heaps, each the child of another. programs.py counts.
 *   tuple:   a context gets three blocks, one of which is freed, and is reset; COUNT times
 *   node:    a context is made, gets four blocks, and ends; COUNT times
 *   string:  a block grows from 1 to 64 KiB by doubling, and is freed; COUNT times
 *   query:   a query's context with six below it gets 400 blocks, 300 of a hash table, three arrays that grow, and 200 tuples through two
 *            contexts that are reset after each; then it ends; COUNT times
 *   bytes:   COUNT contexts with one block of 100 bytes at once; prints the resident bytes of each
 */
#include "postgres.h"

#include <unistd.h>

#include "hakmem.h"
#include "utils/memutils.h"

#undef printf /* PostgreSQL's own */

enum { NODES = 6, TUPLES = 200, PLAN = 400, HASHED = 300 };

static bool aset;
static uint32_t flags;

static void *make(void *parent)
{
    struct hak_heap_options options = {.size = sizeof options, .parent = parent, .flags = flags};
    return aset ? (void *)AllocSetContextCreateInternal(parent, "context", ALLOCSET_DEFAULT_SIZES) : (void *)hak_heap_new(&options);
}

static void *take(void *context, size_t n)
{
    char *block = aset ? MemoryContextAlloc(context, n) : hak_heap_malloc(context, n);
    *block = 1;
    return block;
}

static void *grow(void *context, void *block, size_t n) { return aset ? repalloc(block, n) : hak_heap_realloc(context, block, n); }

static void give(void *block)
{
    if (aset)
        pfree(block);
    else
        hak_free(block);
}

static void reset(void *context)
{
    if (aset)
        MemoryContextReset(context);
    else
        hak_heap_reset(context);
}

static void end(void *context)
{
    if (aset)
        MemoryContextDelete(context);
    else
        hak_heap_destroy(context);
}

static void tuple(void *context)
{
    take(context, 24);
    void *text = take(context, 100);
    take(context, 40);
    give(text);
    reset(context);
}

static void node(void *parent)
{
    void *context = make(parent);
    for (size_t n = 100; n <= 400; n += 100)
        take(context, n);
    end(context);
}

static void string(void *context, size_t first, size_t last)
{
    void *text = take(context, first);
    for (size_t n = 2 * first; n <= last; n *= 2)
        text = grow(context, text, n);
    give(text);
}

static void query(void *parent)
{
    void *context = make(parent), *below[NODES];
    for (size_t i = 0; i < NODES; i++)
        below[i] = make(context);
    for (size_t i = 0; i < PLAN; i++)
        take(context, 16 + i * 7919 % 285);
    for (size_t i = 0; i < HASHED; i++)
        take(below[2], 40 + i * 7919 % 60);
    for (size_t i = 3; i < NODES; i++)
        string(below[i], 64, 8192);
    for (size_t i = 0; i < TUPLES; i++) {
        tuple(below[0]);
        tuple(below[1]);
    }
    end(context);
}

static size_t resident(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %zu", &pages) != 1)
        exit(2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *work = argv[2];
    size_t count = strtoul(argv[3], NULL, 10), before = 0;
    aset = strcmp(argv[1], "aset") == 0;
    flags = strcmp(argv[1], "bump") == 0 ? HAK_HEAP_BUMP : 0;
    MemoryContextInit();
    void *top = aset ? (void *)TopMemoryContext : make(NULL), *context = make(top);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(work, "tuple") == 0)
            tuple(context);
        else if (strcmp(work, "node") == 0)
            node(top);
        else if (strcmp(work, "string") == 0)
            string(context, 1024, 65536);
        else if (strcmp(work, "query") == 0)
            query(top);
        else
            take(make(top), 100);
        before = i == 0 ? resident() : before;
    }
    printf("bytes=%zu\n", (resident() - before) / (count > 1 ? count - 1 : 1));
    return 0;
}
