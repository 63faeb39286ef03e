/* While another thread stays inside dl_iterate_phdr, whose lock a fork does not reset: every call of malloc's family on blocks that a
 * profile has sampled returns, in the process and in a child that was forked meanwhile, and so does a walk of its own over
 * the stack for each sample. */
#include "cases.h"

#include <link.h>
#include <malloc.h>
#include <pthread.h>

static int entered[2], leave[2];

static int stay_inside(struct dl_phdr_info *info, size_t size, void *argument)
{
    char byte = 0;
    (void)info, (void)size, (void)argument;
    expect(write(entered[1], &byte, 1) == 1);
    expect(read(leave[0], &byte, 1) == 1);
    return 1;
}

static void *hold_lock(void *argument)
{
    dl_iterate_phdr(stay_inside, NULL);
    return argument;
}

static void use_family(void)
{
    static const size_t sizes[] = { 1, 100, 5000, 40000, 100000, 3 << 20 };
    for (unsigned i = 0; i < 20 * sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i / 20];
        char *p = malloc(n), *q = calloc(1, n), *r = memalign(64, n);
        expect(p != NULL && q != NULL && r != NULL);
        expect(malloc_usable_size(p) >= n && malloc_usable_size(q) >= n);
        p = realloc(p, n + n / 3 + 1);
        q = realloc(q, n / 2 + 1);
        expect(p != NULL && q != NULL);
        free(p);
        free(q);
        free(r);
    }
}

static void sampled_blocks(void)
{
    pthread_t thread;
    char byte = 0;
    alarm(30);
    expect(pipe(entered) == 0 && pipe(leave) == 0);
    expect(pthread_create(&thread, NULL, hold_lock, NULL) == 0);
    expect(read(entered[0], &byte, 1) == 1);
    use_family();
    pid_t child = fork();
    if (child == 0) {
        limit_child();
        use_family();
        _exit(0);
    }
    expect(end_of_child(child) == 0);
    expect(write(leave[1], &byte, 1) == 1);
    expect(pthread_join(thread, NULL) == 0);
    _exit(0);   /* no dump */
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = { CASE(sampled_blocks) };
    setenv("HAKMEM_PROFILE", "1", 1);
    setenv("HAKMEM_PROFILE_INTERVAL", "1", 1);
    return RUN_CASES(cases);
}
