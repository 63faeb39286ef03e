// One mistake of the matrix:
//
//     matrix HISTORY CALL SIZE      a call on a block of SIZE bytes that was freed already
//     matrix POINTER CALL SIZE      a call on a pointer that is no block, made from a block of SIZE bytes
//     matrix size-as CALL SIZE:GIVEN   a sized free of a block of SIZE bytes as one of GIVEN bytes; ALIGN@SIZE: aligned
//
// Prints "calling with <pointer>" before the call and "still here" after it; run.py knows what must happen.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>

static const size_t MANY_BYTES = 1ull << 30;
static char a_static[64];
static size_t n, given, align;

[[noreturn]] static void give_up(const char *why)
{
    fprintf(stderr, "matrix: %s\n", why);
    exit(3);
}

static void say(const char *text, const void *p)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %#zx\n", text, (size_t)(uintptr_t)p);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        give_up("stdout refuses");
}

/* --- the calls ------------------------------------------------------------------------------------------------- */

typedef void (*call)(void *p);
struct named_call {
    const char *name;
    call make;
};

static void call_free(void *p) { free(p); }
static void call_realloc(void *p) { a_static[0] = realloc(p, 3 * n) != NULL; }
static void call_realloc_same(void *p) { a_static[0] = realloc(p, n) != NULL; }
static void call_usable(void *p) { a_static[0] = malloc_usable_size(p) != 0; }
static void call_free_sized(void *p)   /* not in every C library */
{
    void *function = dlsym(RTLD_DEFAULT, align ? "free_aligned_sized" : "free_sized");
    if (align)
        reinterpret_cast<void (*)(void *, size_t, size_t)>(function)(p, align, given);
    else
        reinterpret_cast<void (*)(void *, size_t)>(function)(p, given);
}
/* Of a conditional expression with two deletes zig's clang calls both. */
static void call_delete(void *p)
{
    if (align)
        operator delete(p, std::align_val_t(align));
    else
        operator delete(p);
}
static void call_delete_sized(void *p)
{
    if (align)
        operator delete(p, given, std::align_val_t(align));
    else
        operator delete(p, given);
}
static void call_delete_array(void *p)
{
    if (align)
        operator delete[](p, given, std::align_val_t(align));
    else
        operator delete[](p, given);
}

/* Not one of the C library's. */
static void call_check(void *)
{
    if (!reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "hak_check_heap"))())
        abort();
}

static const named_call calls[] = {
    { "check", call_check },
    { "free", call_free },
    { "realloc", call_realloc },
    { "realloc-same", call_realloc_same },
    { "usable", call_usable },
    { "free_sized", call_free_sized },
    { "delete", call_delete },
    { "delete-sized", call_delete_sized },
    { "delete-array", call_delete_array },
};

static call wanted;
static bool by_another;   /* another thread takes part in the double free */

static void make_call(void *p)
{
    say("calling with", p);
    wanted(p);
    if (by_another)
        malloc_trim(0);   /* collects what threads have freed for others */
    say("still here", p);
}

/* --- threads ---------------------------------------------------------------------------------------------------- */

/* Does one thing and then either ends, or stays alive until the process ends. */
struct helper {
    void *(*work)(void *);
    void *argument, *result;
    bool stays;
    sem_t done;
};

static void *run_helper(void *argument)
{
    helper *h = static_cast<helper *>(argument);
    h->result = h->work(h->argument);
    sem_post(&h->done);
    while (h->stays)
        pause();
    return NULL;
}

static void *in_thread(void *(*work)(void *), void *argument, bool stays)
{
    static helper helpers[4];
    static int used;
    helper *h = &helpers[used++];
    pthread_t thread;
    h->work = work;
    h->argument = argument;
    h->stays = stays;
    sem_init(&h->done, 0, 0);
    if (pthread_create(&thread, NULL, run_helper, h) != 0)
        give_up("no thread");
    sem_wait(&h->done);
    if (!stays)
        pthread_join(thread, NULL);
    return h->result;
}

static void *work_nothing(void *p) { return p; }

static void *work_free(void *p)
{
    free(p);
    return NULL;
}

/* A thread that allocates from the class too keeps the block for itself. */
static void *work_absorb(void *p)
{
    void *own = malloc(n);
    free(p);
    return own;
}

static void *work_call(void *p)
{
    make_call(p);
    return NULL;
}

static void *work_call_twice(void *p)
{
    free(p);
    make_call(p);
    return NULL;
}

static void *work_malloc(void *) { return malloc(n); }

/* --- histories: what came before the call ---------------------------------------------------------------------- */

static void *others[1 << 16];
static volatile void *keep, *kept;

/* A freed block whose address has become another block's again can be freed again: nobody can tell. So that this does
 * not happen by chance, the class has another block, and what the first thread needs is there. */
static void prepare()
{
    kept = malloc(n);
    in_thread(work_nothing, NULL, false);
}

static size_t how_many(size_t most)
{
    size_t fits = MANY_BYTES / n;
    return most < fits ? most : fits;
}

static void *freed_then_others(size_t most)
{
    size_t count = how_many(most);
    void *p = malloc(n);
    for (size_t i = 0; i < count; i++)
        others[i] = malloc(n);
    free(p);
    for (size_t i = 0; i < count; i++)
        free(others[i]);
    return p;
}

static void *freed()
{
    void *p = malloc(n);
    free(p);
    return p;
}

static void immediate() { make_call(freed()); }

static void interleaved()
{
    void *p = malloc(n), *q = malloc(n);
    free(p);
    free(q);
    make_call(p);
}

static void later() { make_call(freed_then_others(1024)); }
static void drained() { make_call(freed_then_others(1 << 16)); }

static void reused()
{
    void *p = freed(), *q = NULL;
    for (size_t i = 0; q != p && i < how_many(1024); i++)
        q = malloc(n);
    if (q != p)
        give_up("the block was not used again");
    free(q);
    make_call(p);
}

static void other_first_ended()
{
    by_another = true;
    void *p = malloc(n);
    in_thread(work_free, p, false);
    make_call(p);
}

static void other_first()
{
    by_another = true;
    void *p = malloc(n);
    in_thread(work_free, p, true);
    make_call(p);
}

static void other_absorbed()
{
    by_another = true;
    void *p = malloc(n);
    in_thread(work_absorb, p, true);
    make_call(p);
}

static void other_second()
{
    by_another = true;
    in_thread(work_call, freed(), true);
}

static void others_both()
{
    by_another = true;
    void *p = malloc(n);
    in_thread(work_free, p, true);
    in_thread(work_call, p, true);
}

static void other_twice()
{
    by_another = true;
    in_thread(work_call_twice, malloc(n), true);
}

static void owner_ended()
{
    by_another = true;
    void *p = in_thread(work_malloc, NULL, false);
    free(p);
    make_call(p);
}

static void aligned_block()
{
    align = 256;
    void *p = memalign(align, n);
    free(p);
    make_call(p);
}

static void cleared_block()
{
    void *p = calloc(1, n);
    free(p);
    make_call(p);
}

static void moved()
{
    void *p = malloc(n), *q = p;
    others[0] = malloc(n);
    for (size_t size = 4 * n; q == p; size *= 2) {
        if (size > MANY_BYTES * 4 || (q = realloc(q, size)) == NULL)
            give_up("the block does not move");
        others[1] = malloc(size);   /* stands in the way where there is none yet */
    }
    make_call(p);
}

static void collected()
{
    void *p = malloc(n);
    keep = malloc(n);
    free(p);
    malloc_trim(0);
    make_call(p);
}

/* A freed block whose page went back to the system while its span has others in use. */
static void *freed_and_purged()
{
    size_t count = how_many((256 << 10) / n + 64), step = (32 << 10) / n + 4;
    for (size_t i = 0; i < count; i++)
        others[i] = malloc(n);
    for (size_t i = 0; i < count; i++)
        if (i % step != 0)
            free(others[i]);
    malloc_trim(0);
    return others[step + step / 2];
}

static void purged() { make_call(freed_and_purged()); }

static void purged_then_taken()
{
    void *p = freed_and_purged();
    for (int i = 0; i < 3; i++)
        if (malloc(n) == p)
            give_up("the block is in use again");
    make_call(p);
}

static void deleted()
{
    void *p = operator new(n);
    operator delete(p);
    make_call(p);
}

/* --- pointers that are no block ---------------------------------------------------------------------------------- */

static char *block() { return static_cast<char *>(malloc(n)); }

static void *mapped(int protection)
{
    void *p = mmap(NULL, 1 << 20, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? (give_up("no mapping"), nullptr) : static_cast<char *>(p) + 4096;
}

static void plus_1() { make_call(block() + 1); }
static void plus_8() { make_call(block() + 8); }
static void plus_16() { make_call(block() + 16); }
static void plus_4096() { make_call(block() + 4096); }
static void plus_1_gib() { make_call(block() + (1 << 30)); }
static void last_byte()
{
    char *p = block();
    make_call(p + malloc_usable_size(p) - 1);
}
static void before() { make_call(block() - 8); }
static void stack()
{
    char local[64];
    make_call(local + 16);
}
static void data() { make_call(a_static + 16); }
static void foreign_mapping() { make_call(mapped(PROT_READ | PROT_WRITE)); }
static void forbidden_mapping() { make_call(mapped(PROT_NONE)); }
static void small_number() { make_call(reinterpret_cast<void *>(1)); }
static void non_canonical() { make_call(reinterpret_cast<void *>(0x8000000000001000)); }
static void no_address() { make_call(reinterpret_cast<void *>(-16)); }

static void freed_span()
{
    void *p = freed_then_others(1 << 14);
    malloc_trim(0);
    make_call(p);
}

static void other_interior() { make_call(static_cast<char *>(in_thread(work_malloc, NULL, true)) + 8); }

static void *work_huge(void *) { return malloc(16 << 20); }
static void other_huge_interior()
{
    keep = malloc(n);
    make_call(static_cast<char *>(in_thread(work_huge, NULL, true)) + (6 << 20));
}

/* The next block of the same page, which waits in the thread's cache. */
static void never_next()
{
    char *p = block();
    make_call(p + malloc_usable_size(p));
}

/* A block far behind: nothing of its page was handed out. */
static void never_far()
{
    char *p = block();
    size_t size = malloc_usable_size(p), room = 65536 - (uintptr_t)p % 65536;
    make_call(p + size * (size < room / 2 ? room / size - 1 : 2));
}

/* --- hardened mode: what is written where nothing should be --------------------------------------------------------- */

/* The bytes are not 0: the first one behind a block is, and an overflow by just that is not noticed. Nor are they what stands
 * there, which is random: of single bytes further behind, one in 256 would not be noticed either. */
static void over(size_t from, size_t count)
{
    kept = malloc(n);
    char *p = block();
    for (size_t at = n + from; at < n + from + count; at++)
        p[at] = p[at] == 0x41 ? 0x42 : 0x41;
    make_call(p);
}

static void over_1() { over(0, 1); }
static void over_8() { over(0, 8); }
static void over_64() { over(0, n >= 1000 ? 64 : 8); }
static void over_far() { over(7, 1); }

/* Written while the block was longer. */
static void over_kept()
{
    char *p = static_cast<char *>(realloc(malloc(n + n / 8), n));
    p[n] = 1;
    make_call(p);
}

/* The block is freed, written to, and others are taken until it would be used again. */
static void after(size_t at)
{
    char *p = block();
    free(p);
    p[at] ^= 1;
    say("calling with", p);
    if (wanted == call_check)
        call_check(p);
    for (size_t i = 0; i < 100000; i++) {
        for (size_t k = 0; k < 4; k++)
            others[k] = malloc(n);
        for (size_t k = 0; k < 4; k++)
            free(others[k]);
    }
    say("still here", p);
}

static void after_first() { after(0); }
static void after_middle() { after(n / 2); }
static void after_last() { after(n - 1); }

struct named {
    const char *name;
    void (*run)();
};

static const named cases[] = {
    { "immediate", immediate },
    { "interleaved", interleaved },
    { "later", later },
    { "drained", drained },
    { "reused", reused },
    { "other-first", other_first },
    { "other-first-ended", other_first_ended },
    { "other-absorbed", other_absorbed },
    { "other-second", other_second },
    { "others-both", others_both },
    { "other-twice", other_twice },
    { "owner-ended", owner_ended },
    { "aligned", aligned_block },
    { "cleared", cleared_block },
    { "moved", moved },
    { "collected", collected },
    { "deleted", deleted },
    { "purged", purged },
    { "purged-taken", purged_then_taken },
    { "plus-1", plus_1 },
    { "plus-8", plus_8 },
    { "plus-16", plus_16 },
    { "plus-4096", plus_4096 },
    { "plus-1-gib", plus_1_gib },
    { "last-byte", last_byte },
    { "before", before },
    { "stack", stack },
    { "data", data },
    { "foreign-mapping", foreign_mapping },
    { "forbidden-mapping", forbidden_mapping },
    { "small-number", small_number },
    { "non-canonical", non_canonical },
    { "no-address", no_address },
    { "freed-span", freed_span },
    { "other-interior", other_interior },
    { "other-huge-interior", other_huge_interior },
    { "never-next", never_next },
    { "never-far", never_far },
    { "over-1", over_1 },
    { "over-8", over_8 },
    { "over-64", over_64 },
    { "over-far", over_far },
    { "over-kept", over_kept },
    { "after-first", after_first },
    { "after-middle", after_middle },
    { "after-last", after_last },
};

/* --- sized frees -------------------------------------------------------------------------------------------------- */

static void size_as() { make_call(align ? memalign(align, n) : malloc(n)); }

static void parse_sizes(const char *text)
{
    char *end;
    n = strtoull(text, &end, 0);
    if (*end == '@') {
        align = n;
        n = strtoull(end + 1, &end, 0);
    }
    given = *end == ':' ? strtoull(end + 1, &end, 0) : n;
    if (*end != 0)
        give_up("SIZE, SIZE:GIVEN or ALIGN@SIZE:GIVEN, in bytes");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        give_up("usage: matrix CASE CALL SIZE; the cases are listed in matrix.cpp");
    parse_sizes(argv[3]);
    for (const named_call &c : calls)
        if (strcmp(c.name, argv[2]) == 0)
            wanted = c.make;
    if (wanted == NULL)
        give_up("unknown call");
    if (strcmp(argv[1], "size-as") == 0) {
        size_as();
        return 0;
    }
    prepare();
    for (const named &c : cases)
        if (strcmp(c.name, argv[1]) == 0) {
            c.run();
            return 0;
        }
    give_up("unknown case");
}
