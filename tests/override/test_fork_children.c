/* What a forked child does with blocks that it has inherited: a free copies no page of the parent's, and whole free memory goes
 * back. All misuse is found as in the parent; and children of children, with threads of their own and with those of the parent
 * gone, keep what they hold. */
// test: ordinary timeout=300
#include "cases.h"
#include "churn.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/syscall.h>

enum { BLOCKS = 100000, DEPTH = 12, LARGE = 200 };

/* --- the accounts: exact figures of the kernel's, in bytes --------------------------------------------------------------- */

/* A field of /proc/self/smaps_rollup; 0 if the kernel has no such file. Allocates nothing. */
static size_t kernels(const char *field)
{
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    expect(length > 0 && close(file) == 0);
    text[length] = 0;
    const char *at = strstr(text, field);
    expect(at != NULL);
    return strtoul(at + strlen(field), NULL, 10) << 10;
}

static void *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static unsigned seed = 1;

static unsigned next_random(void) { return (seed = seed * 1103515245u + 12345u) >> 8; }

static void make(size_t i)
{
    sizes[i] = 16 + next_random() % 497;
    blocks[i] = memset(malloc(sizes[i]), 1, sizes[i]);
}

static void *make_some(void *from)
{
    for (size_t i = *(size_t *)from; i < BLOCKS; i += 2)
        make(i);
    return NULL;
}

/* 26 MB, of which each block has been freed and made again, so that the thread's bins are deep and scattered. */
static void make_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        make(i);
    for (unsigned round = 0; round < BLOCKS / 500; round++) {
        size_t some[500];
        for (unsigned i = 0; i < 500; i++)
            free(blocks[some[i] = next_random() % BLOCKS]), blocks[some[i]] = NULL;
        for (unsigned i = 0; i < 500; i++)
            if (blocks[some[i]] == NULL)
                make(some[i]);
    }
}

static void swap(size_t a, size_t b)
{
    void *block = blocks[a];
    size_t size = sizes[a];
    blocks[a] = blocks[b], sizes[a] = sizes[b];
    blocks[b] = block, sizes[b] = size;
}

static void shuffle(void)
{
    for (size_t i = BLOCKS; i > 1; i--)
        swap(i - 1, next_random() % i);
}

/* Frees blocks 0, step, 2 * step, ... in a child. At most `percent` of their bytes may be copied. Returns what of all memory is still
 * resident, in percent of what was. */
static unsigned child_frees(size_t step, unsigned percent)
{
    int ends[2];
    unsigned stays = 100;
    expect(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        size_t freed = 0, copied = kernels("Private_Dirty:"), resident = kernels("Rss:");
        for (size_t i = 0; i < BLOCKS; i += step) {
            freed += sizes[i];
            free(blocks[i]);
        }
        copied = kernels("Private_Dirty:") - copied;
        stays = resident == 0 ? 0 : (unsigned)(kernels("Rss:") * 100 / resident);
        if (copied * 100 > freed * percent)
            printf("%zu bytes copied of %zu freed\n", copied, freed), fflush(stdout);
        expect(copied * 100 <= freed * percent);
        expect(write(ends[1], &stays, sizeof stays) == sizeof stays);
        _exit(0);
    }
    expect(end_of_child(child) == 0);
    expect(read(ends[0], &stays, sizeof stays) == sizeof stays);
    return stays;
}

/* The program's own pages, of libraries and of the tables here, stay too. */
static void frees_copy_nothing(void)
{
    make_all();
    expect(child_frees(2, 5) > 80);
    expect(child_frees(1, 5) < 35);
    shuffle();
    expect(child_frees(2, 5) > 80);
    expect(child_frees(1, 5) < 35);
}

/* ... nor of blocks of threads that the child does not have, ended or not. */
static void nor_of_other_threads_blocks(void)
{
    pthread_t thread;
    size_t zero = 0, one = 1;
    expect(pthread_create(&thread, NULL, make_some, &zero) == 0);
    expect(pthread_join(thread, NULL) == 0);
    expect(pthread_create(&thread, NULL, make_some, &one) == 0);
    while (__atomic_load_n(&blocks[BLOCKS - 1], __ATOMIC_ACQUIRE) == NULL)
        usleep(1000);
    usleep(10000);
    expect(child_frees(2, 5) > 40);
    expect(child_frees(1, 5) < 40);
    expect(pthread_join(thread, NULL) == 0);
}

/* --- the mode ends -------------------------------------------------------------------------------------------------------- */

/* A server's child: frees much of what it has inherited, and then serves for long. It needs no more memory than what it uses. */
static void a_child_lives_long(void)
{
    make_all();
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < BLOCKS; i++)
            if (i % 8 != 0)
                free(blocks[i]), blocks[i] = NULL;
        for (unsigned round = 0; round < 50; round++) {
            for (size_t i = 0; i < BLOCKS; i += 4)
                if (i % 8 != 0)
                    make(i);
            for (size_t i = 0; i < BLOCKS; i += 4)
                if (i % 8 != 0) {
                    expect(((unsigned char *)blocks[i])[sizes[i] - 1] == 1);
                    free(blocks[i]);
                }
        }
        for (size_t i = 0; i < BLOCKS; i += 8)
            expect(*(unsigned char *)blocks[i] == 1 && ((unsigned char *)blocks[i])[sizes[i] - 1] == 1);
        malloc_trim(0);
        _exit(kernels("Private_Dirty:") < 64 << 20 ? 0 : 1);
    }
    expect(end_of_child(child) == 0);
}

/* --- misuse --------------------------------------------------------------------------------------------------------------- */

#define TWICE "hakmem: free(): double free"
#define FREED(function) "hakmem: " function "(): invalid"

static void freed_by_the_parent(void) { free(blocks[7]); }
static void freed_twice(void)
{
    free(blocks[8]);
    free(blocks[8]);
}
static void freed_twice_with_others_between(void)
{
    for (size_t i = 10; i < BLOCKS; i += 2)
        free(blocks[i]);
    free(blocks[500]);
}
static void freed_used_and_freed_again(void)
{
    for (size_t i = 10; i < 2000; i++)
        free(blocks[i]);
    for (size_t i = 0; i < 300; i++)
        make(i);
    for (size_t i = 10; i < 2000; i++) /* some of them are in use now, but not all */
        free(blocks[i]);
}
static void freed_by_another(void) { free(blocks[0]); }
static void freed_inside(void) { free((char *)blocks[9] + 16); }
static void asked_when_freed(void)
{
    free(blocks[8]);
    _exit(malloc_usable_size(blocks[8]) != 0);
}
static void resized_when_freed(void)
{
    free(blocks[8]);
    _exit(realloc(blocks[8], 5000) != NULL);
}
static void freed_in_a_grandchild(void)
{
    free(blocks[8]);
    pid_t child = fork();
    if (child == 0)
        free(blocks[8]);
    expect(child > 0);
    abort();
}

/* The bit that the parent's thread has set is not collected yet, and the second free would be the span's last. */
static void *frees_one(void *block)
{
    free(block);
    return NULL;
}
static void misuse_of_what_another_thread_freed(void)
{
    enum { FEW = 4, LONG = 50000 };
    void *few[FEW];
    pthread_t thread;
    for (size_t i = 0; i < FEW; i++)
        few[i] = memset(malloc(LONG), 1, LONG);
    expect(pthread_create(&thread, NULL, frees_one, few[1]) == 0 && pthread_join(thread, NULL) == 0);
    for (size_t i = 0; i < FEW; i++)
        if (i != 1)
            free(few[i]);
    blocks[0] = few[1];
    expect_abort(freed_by_another, TWICE);
}

static void misuse_is_found(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        sizes[i] = 64;
        blocks[i] = memset(malloc(64), 1, 64);
    }
    free(blocks[7]);
    expect_abort(freed_by_the_parent, TWICE);
    expect_abort(freed_twice, TWICE);
    expect_abort(freed_twice_with_others_between, TWICE);
    expect_abort(freed_used_and_freed_again, TWICE);
    expect_abort(freed_inside, FREED("free"));
    expect_abort(asked_when_freed, FREED("malloc_usable_size"));
    expect_abort(resized_when_freed, FREED("realloc"));
    expect_abort(freed_in_a_grandchild, TWICE);
}

/* --- everything else ------------------------------------------------------------------------------------------------------ */

static void *frees_some(void *from)
{
    for (size_t i = *(size_t *)from; i < BLOCKS; i += 4)
        free(blocks[i]), blocks[i] = NULL;
    churn_steps((unsigned)*(size_t *)from, 500);
    return NULL;
}

/* Each child frees what it may, has threads that free and end, and forks the next; deeper than generations are told apart. */
__attribute__((noreturn)) static void descend(unsigned depth)
{
    size_t from[3] = { 1, 2, 3 };
    pthread_t threads[3];
    for (size_t i = 0; i < BLOCKS; i += 16)
        if (blocks[i] != NULL)
            expect(((unsigned char *)blocks[i])[sizes[i] - 1] == 1);
    for (unsigned i = 0; i < 3 && depth % 3 == 1; i++)
        expect(pthread_create(&threads[i], NULL, frees_some, &from[i]) == 0);
    for (size_t i = depth * 4; i < BLOCKS; i += 4 * DEPTH)
        free(blocks[i]), blocks[i] = NULL;
    for (unsigned i = 0; i < 3 && depth % 3 == 1; i++)
        expect(pthread_join(threads[i], NULL) == 0);
    if (depth % 4 == 2)
        malloc_trim(0);
    churn_steps(depth, 1000);
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i] == NULL)
            make(i);
    if (depth + 1 == DEPTH)
        _exit(0);
    pid_t child = fork();
    if (child == 0)
        descend(depth + 1);
    _exit(end_of_child(child));
}

static void children_of_children(void)
{
    make_all();
    pid_t child = fork();
    if (child == 0)
        descend(0);
    expect(end_of_child(child) == 0);
}

/* Blocks of every kind, resized and freed in a child of threads that go on. */
static void every_kind(void)
{
    void *large[LARGE];
    churn_begin(3);
    for (unsigned i = 0; i < LARGE; i++)
        large[i] = memset(i % 3 == 0 ? aligned_alloc(4096, 8192) : malloc((size_t)1 << (4 + i % 18)), 3, 16);
    for (unsigned round = 0; round < in_long_form(10, 200); round++) {
        pid_t child = round % 2 == 0 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (child == 0) {
            limit_child();
            for (unsigned i = 0; i < LARGE; i++)
                if ((large[i] = realloc(large[i], malloc_usable_size(large[i]) * (1 + i % 3) / 2 + 1)) == NULL
                    || *(char *)large[i] != 3)
                    _exit(1);
            for (unsigned i = 0; i < LARGE; i++)
                free(large[i]);
            churn_as_child(round % 2 == 0);
            _exit(42);
        }
        expect(end_of_child(child) == 42);
    }
    churn_end();
}

static volatile sig_atomic_t forked_in_handler;

static void fork_and_free(int number)
{
    (void)number;
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < BLOCKS; i += 3)
            free(blocks[i]), blocks[i] = NULL;
        alarm(30);
        forked_in_handler = 2; /* and goes on with what was interrupted */
        return;
    }
    int status;
    while (waitpid(child, &status, 0) != child)
        continue;
    forked_in_handler = WIFEXITED(status) && WEXITSTATUS(status) == 42 ? 1 : 3;
}

/* The handler is not safe in theory; it comes between two calls here. */
static void forks_in_handlers(void)
{
    make_all();
    signal(SIGUSR1, fork_and_free);
    for (unsigned i = 0; i < 5; i++) {
        forked_in_handler = 0;
        raise(SIGUSR1);
        if (forked_in_handler == 2) {
            churn_steps(i, 2000);
            for (size_t k = 0; k < BLOCKS; k++)
                free(blocks[k]);
            _exit(42);
        }
        expect(forked_in_handler == 1);
        churn_steps(i, 100);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(frees_copy_nothing), CASE(nor_of_other_threads_blocks), CASE(a_child_lives_long), CASE(misuse_is_found), CASE(misuse_of_what_another_thread_freed),
        CASE(children_of_children), CASE(every_kind), CASE(forks_in_handlers),
    };
    return argc < 2 && not_told_of_children() ? LEFT_OUT : RUN_CASES(cases);
}
