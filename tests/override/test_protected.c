/* Blocks of which the program has made pages read-only or inaccessible. Expects: each can be freed and its memory used again,
 * in every size, by any thread; realloc keeps what can be read; asking for a size changes no rights, nor does the free of a
 * neighbour; misuse of such a block is found as ever; and mprotect is what it was. (glibc's frees end in SIGSEGV, or the next
 * use does, but for blocks that it has mapped one by one.) */
#include "cases.h"

#include <malloc.h>
#include <pthread.h>

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
        if (getenv("HAKMEM_HARDEN") == NULL && protect(p, sizes[s], WHOLE, PROT_NONE)) {
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
    expect(mprotect(p, 0, PROT_NONE) == 0);
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
        CASE(misuse_is_found),
        CASE(the_call_is_what_it_was),
        CASE(no_mapping_left),
    };
    return RUN_CASES(cases);
}
