/* Blocks of which the program has made pages read-only or inaccessible. Expects: each can be freed and its memory used again,
 * in every size, by any thread; realloc keeps what can be read; asking for a size changes no rights, nor does the free of a
 * neighbour; misuse of such a block is found as ever; and mprotect is what it was. Large blocks at a multiple of a page may also be
 * freed with guards, keys, advice for forks and rights that no function of the C library has changed. (glibc's frees end in SIGSEGV, or the next
 * use does, but for blocks that it has mapped one by one.) */
// test: interposed
#include "cases.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>

#define MIB ((size_t)1 << 20)
enum { AGAIN = 4 };

enum part { FIRST_PAGE, SECOND_PAGE, LAST_PAGE, WHOLE, PARTS };
static const size_t sizes[] = { 4096, 8192, 20000, 56 << 10, 64 << 10, 100000, 128 << 10, 1000000, 1300000, 5 * MIB };
static const int rights[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC };
enum { SIZES = sizeof sizes / sizeof *sizes, RIGHTS = sizeof rights / sizeof *rights };

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Takes rights from a part of the whole pages of a block; false if it has no such part. */
static bool protect(char *p, size_t n, enum part part, int right)
{
    size_t page = page_size();
    uintptr_t from = ((uintptr_t)p + page - 1) / page * page, to = ((uintptr_t)p + n) / page * page;
    if (part == SECOND_PAGE)
        from += page;
    if (part == LAST_PAGE && from < to)
        from = to - page;
    if (from >= to)
        return false;
    expect(mprotect((void *)from, part == WHOLE ? to - from : page, right) == 0);
    return true;
}

static char *make(size_t n, bool aligned)
{
    void *p = aligned ? memalign(page_size(), n) : malloc(n);
    expect(p != NULL);
    memset(p, 1, n);
    return p;
}

static void use_again(size_t n)
{
    char *blocks[AGAIN];
    for (unsigned i = 0; i < AGAIN; i++)
        blocks[i] = make(n, i % 2 == 0);
    for (unsigned i = 0; i < AGAIN; i++)
        free(blocks[i]);
}

static void *free_it(void *p)
{
    errno = 55;
    free(p);
    expect(errno == 55);
    return NULL;
}

static void free_elsewhere(void *p)
{
    pthread_t thread;
    expect(pthread_create(&thread, NULL, free_it, p) == 0);
    expect(pthread_join(thread, NULL) == 0);
}

static void each(void (*end)(void *))
{
    for (unsigned s = 0; s < SIZES; s++)
        for (unsigned r = 0; r < RIGHTS; r++)
            for (unsigned part = 0; part < PARTS; part++)
                for (unsigned k = 0; k < 4; k++) {
                    char *p = make(sizes[s], k % 2 == 0), *neighbour = k / 2 == 0 ? make(sizes[s], true) : NULL;
                    protect(p, sizes[s], (enum part)part, rights[r]);
                    end(p);
                    use_again(sizes[s]);
                    free(neighbour);
                    use_again(sizes[s] / 2);
                }
}

static void free_here(void *p) { free_it(p); }
static void every_size_and_part(void) { each(free_here); }
static void freed_by_another_thread(void) { each(free_elsewhere); }

static void *make_protected(void *n)
{
    char *p = make((size_t)(uintptr_t)n, true);
    protect(p, (size_t)(uintptr_t)n, WHOLE, PROT_NONE);
    return p;
}

/* The thread has ended when its blocks are freed. */
static void of_another_thread(void)
{
    for (unsigned s = 0; s < SIZES; s++) {
        pthread_t thread;
        void *p;
        expect(pthread_create(&thread, NULL, make_protected, (void *)(uintptr_t)sizes[s]) == 0);
        expect(pthread_join(thread, &p) == 0);
        free(p);
        use_again(sizes[s]);
    }
}

/* Longer, a little shorter, much shorter: what could be read is there, and all of it can be written. */
static void realloc_keeps_what_can_be_read(void)
{
    for (unsigned s = 0; s < SIZES; s++)
        for (unsigned part = 0; part < PARTS; part++) {
            const size_t targets[] = { 3 * sizes[s], sizes[s] / 3, 16 };
            for (unsigned t = 0; t < sizeof targets / sizeof *targets; t++) {
                char *p = make(sizes[s], true);
                protect(p, sizes[s], (enum part)part, PROT_READ);
                char *q = realloc(p, targets[t]);
                expect(q != NULL);
                for (size_t i = 0; i < targets[t] && i < sizes[s]; i++)
                    expect(q[i] == 1);
                memset(q, 2, targets[t]);
                free(q);
                use_again(sizes[s]);
            }
        }
}

/* By the kernel's word: it reads for us. */
static bool can_be_read(const char *p)
{
    int ends[2];
    expect(pipe(ends) == 0);
    bool done = write(ends[1], p, 1) == 1;
    expect(done || errno == EFAULT);
    close(ends[0]);
    close(ends[1]);
    return done;
}

static void sizes_are_asked_without_a_touch(void)
{
    for (unsigned s = 0; s < SIZES; s++) {
        char *p = make(sizes[s], true);
        size_t usable = malloc_usable_size(p);
        if (protect(p, sizes[s], WHOLE, PROT_NONE)) {
            expect(malloc_usable_size(p) == usable);
            expect(!can_be_read(p));
        }
        free(p);
    }
}

static void neighbours_keep_their_rights(void)
{
    for (unsigned s = 0; s < SIZES; s++) {
        char *blocks[AGAIN];
        for (unsigned i = 0; i < AGAIN; i++)
            blocks[i] = make(sizes[s], true);
        for (unsigned i = 0; i < AGAIN; i += 2)
            protect(blocks[i], sizes[s], WHOLE, PROT_NONE);
        for (unsigned i = 1; i < AGAIN; i += 2)
            free(blocks[i]);
        for (unsigned i = 0; i < AGAIN; i += 2)
            expect(sizes[s] < page_size() || !can_be_read(blocks[i]));
        for (unsigned i = 0; i < AGAIN; i += 2)
            free(blocks[i]);
        use_again(sizes[s]);
    }
}

/* The memory of a block that had a note serves one of less than half its size; a sized free of that is right. */
__attribute__((weak)) void free_sized(void *p, size_t n);

static void sized_frees_are_right_afterwards(void)
{
    for (size_t size = 64 << 10; size <= MIB; size += 64 << 10)
        for (size_t n = size / 3; n < size; n += size / 20) {
            char *p = make(size, true), *neighbour = make(size, false);
            protect(p, size, WHOLE, PROT_READ);
            free(p);
            char *q = realloc(malloc(104), n);
            expect(q != NULL && malloc_usable_size(q) <= 2 * n);
            if (free_sized != NULL)
                free_sized(q, n);
            else
                free(q);
            free(neighbour);
        }
}

/* --- what nobody sees ---------------------------------------------------------------------------------------------------- */

#if !defined(PKEY_DISABLE_ACCESS)   /* a C library without these functions */
enum { PKEY_DISABLE_ACCESS = 1 };
static int pkey_alloc(unsigned flags, unsigned mask) { return (int)syscall(SYS_pkey_alloc, flags, mask); }
static int pkey_mprotect(void *start, size_t bytes, int mask, int key)
{
    return (int)syscall(SYS_pkey_mprotect, start, bytes, mask, key);
}
#endif

enum { GUARD_INSTALL = 102 };
enum way { GUARD, KEY, NO_KEY, BARE, NOT_IN_CHILDREN, EMPTY_IN_CHILDREN, WAYS };
static const size_t long_sizes[] = { 64 << 10, 100000, 200 << 10, 600 << 10, 1300000, 5 * MIB };
enum { LONG_SIZES = sizeof long_sizes / sizeof *long_sizes };

/* False: the kernel does not know it. */
static bool change_unseen(char *p, size_t n, enum way way)
{
    int key;
    switch (way) {
    case GUARD: return madvise(p, page_size(), GUARD_INSTALL) == 0;
    case KEY: return (key = pkey_alloc(0, PKEY_DISABLE_ACCESS)) >= 0 && pkey_mprotect(p, n / 4096 * 4096, PROT_READ | PROT_WRITE, key) == 0;
    case NO_KEY: return pkey_mprotect(p, page_size(), PROT_NONE, -1) == 0;
    case BARE: return syscall(SYS_mprotect, p, page_size(), PROT_NONE) == 0;
    case NOT_IN_CHILDREN: return madvise(p, n / 4096 * 4096, MADV_DONTFORK) == 0;
    case EMPTY_IN_CHILDREN: return madvise(p, n / 4096 * 4096, MADV_WIPEONFORK) == 0;
    default: return false;
    }
}

/* A child has the content of all blocks, and can free them. */
static void look_in_child(size_t n)
{
    enum { PIECES = 600 };
    char *blocks[PIECES];
    size_t each = n / PIECES + 64;
    for (unsigned i = 0; i < PIECES; i++)
        blocks[i] = make(each, false);
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        for (unsigned i = 0; i < PIECES; i++)
            if (blocks[i][0] != 1 || blocks[i][each - 1] != 1)
                _exit(1);
        for (unsigned i = 0; i < PIECES; i++)
            free(blocks[i]);
        _exit(0);
    }
    expect(end_of_child(child) == 0);
    for (unsigned i = 0; i < PIECES; i++)
        free(blocks[i]);
}

static void rights_that_nobody_saw_change(void)
{
    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned s = 0; s < LONG_SIZES; s++)
            for (unsigned k = 0; k < 4; k++) {
                char *p = make(long_sizes[s], true), *neighbour = k / 2 == 0 ? make(long_sizes[s], true) : NULL;
                if (!change_unseen(p, long_sizes[s], (enum way)way))
                    printf("way %u: the kernel does not know it\n", way);
                if (k % 2 == 0)
                    free_it(p);
                else
                    free_elsewhere(p);
                use_again(long_sizes[s]);
                free(neighbour);
                use_again(long_sizes[s] / 2);
                if (k == 0 && way >= NOT_IN_CHILDREN)
                    look_in_child(2 * long_sizes[s]);
            }
}

/* --- other modes --------------------------------------------------------------------------------------------------------- */

static void blocks_that_come_and_go(void)
{
    for (unsigned i = 0; i < 1000; i++) {
        size_t n = page_size() * (2 + i % 12);
        char *p = make(n, true), *q;
        protect(p, n, WHOLE, rights[i % RIGHTS]);
        free(p);
        q = calloc(1, n + 100);
        p = make(n, false);
        memset(q, 1, n + 100);
        free(q);
        free(p);
    }
}

static void sampled(void)
{
    setenv("HAKMEM_PROFILE_INTERVAL", "4096", 1);
    pass_with("HAKMEM_PROFILE", "1", "blocks_that_come_and_go");
    pass_with("HAKMEM_PROFILE", "1", "rights_that_nobody_saw_change");
}

static void sampled_for_guards(void) { pass_with("HAKMEM_SAMPLE_GUARDS", "2", "blocks_that_come_and_go"); }

static void parts_of_hardened_mode(void)
{
    static const char *const parts[] = { "canary", "zero", "guards", "zero,random,guards,regions" };
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        pass_with("HAKMEM_HARDEN", parts[i], "sizes_are_asked_without_a_touch");
        pass_with("HAKMEM_HARDEN", parts[i], "blocks_that_come_and_go");
        pass_with("HAKMEM_HARDEN", parts[i], "realloc_keeps_what_can_be_read");
    }
}

/* --- misuse ------------------------------------------------------------------------------------------------------------- */

static char *victim;
static void free_victim(void) { free(victim); }

static void misuse_is_found(void)
{
    for (unsigned s = 0; s < SIZES; s++) {
        if (sizes[s] < page_size())
            continue;
        char *block = make(sizes[s], true), *other = make(sizes[s], true);
        protect(block, sizes[s], WHOLE, PROT_NONE);
        victim = block + 64;
        expect_abort(free_victim, "hakmem: free(): invalid pointer");
        free(block);
        victim = block;
        expect_abort(free_victim, "hakmem: free(): ");
        free(other);
    }
}

/* --- mprotect ------------------------------------------------------------------------------------------------------------ */

static void the_call_is_what_it_was(void)
{
    size_t page = page_size();
    char *p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(p != MAP_FAILED && munmap(p + 2 * page, page) == 0);
    errno = 0;
    expect(mprotect(p + 1, page, PROT_READ) == -1 && errno == EINVAL);
    errno = 0;
    expect(mprotect(p, 3 * page, PROT_NONE) == -1 && errno == ENOMEM);
    errno = 77;
    expect(mprotect(p, page, PROT_NONE) == 0 && errno == 77);
    expect(!can_be_read(p));
    expect(mprotect(p, page, PROT_READ | PROT_WRITE) == 0);
    p[0] = 1;
    expect(mprotect(p, 0, PROT_NONE) == 0 || not_emulated("mprotect of nothing"));
    expect(mprotect((void *)0, (size_t)-1 / page * page, PROT_NONE) == -1);
    use_again(5000);
}

/* One call takes the rights from many blocks. With no mapping left the kernel gives none back to one of them, which would
 * split that mapping: such a block is lost, and nothing else. */
static void no_mapping_left(void)
{
    enum { MOST = 2 << 20, BLOCKS = 15 };
    size_t page = page_size(), size = 64 << 10, count = 0;
    char *blocks[BLOCKS];
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = memalign(size, size);
    for (unsigned i = 0; i < BLOCKS; i++)
        protect(blocks[i], size, WHOLE, PROT_NONE);
    while (count < MOST && mmap(NULL, page, count % 2 == 0 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                               != MAP_FAILED)
        count++;
    for (unsigned i = 0; i < BLOCKS; i++)
        free_it(blocks[(i * 7 + 5) % BLOCKS]);
    use_again(size);
    use_again(5000);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(every_size_and_part),
        CASE(freed_by_another_thread),
        CASE(of_another_thread),
        CASE(realloc_keeps_what_can_be_read),
        CASE(sizes_are_asked_without_a_touch),
        CASE(neighbours_keep_their_rights),
        CASE(sized_frees_are_right_afterwards),
        CASE(rights_that_nobody_saw_change),
        CASE(blocks_that_come_and_go),
        CASE(sampled),
        CASE(sampled_for_guards),
        CASE(parts_of_hardened_mode),
        CASE(misuse_is_found),
        CASE(the_call_is_what_it_was),
        CASE(no_mapping_left),
    };
    return RUN_CASES(cases);
}
