/* Blocks that a profile or the sampled guards have taken are blocks like any other. Expects: what is freed without rights is used
 * again with them, whatever call has taken them; realloc reads what the program may not; in hardened mode a block has just the bytes
 * asked for, also after realloc, and free_sized of that size is right; otherwise a sized free takes what a block was resized to in place, and
 * any size from half of the usable one; what hak_good_size promises may be used; aligned requests, of a user heap too, are aligned; the
 * soft limit's callback is called. */
// test: interposed
#include "cases.h"
#include "hakmem.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/syscall.h>

static const char *const profile[] = { "HAKMEM_PROFILE=1", "HAKMEM_PROFILE_INTERVAL=4096", NULL };
static const char *const every[] = { "HAKMEM_PROFILE=1", "HAKMEM_PROFILE_INTERVAL=1", NULL };
static const char *const guards[] = { "HAKMEM_SAMPLE_GUARDS=2", NULL };
static const char *const both[] = { "HAKMEM_SAMPLE_GUARDS=3", "HAKMEM_PROFILE=1", "HAKMEM_PROFILE_INTERVAL=4096", NULL };
static const char *const *const settings[] = { profile, every, guards, both };
enum { SETTINGS = sizeof settings / sizeof *settings };

/* Runs the case anew with each of the settings, under an emulator with the last alone, and with `more` where that is not NULL. */
static void with_each(const char *name, const char *more, void (*run)(void))
{
    if (getenv("HAK_TEST_SAMPLES") != NULL) {
        alarm(60);
        run();
        _exit(0); /* no dump */
    }
    for (unsigned i = getenv("HAK_TEST_EMULATOR") == NULL ? 0 : SETTINGS - 1; i < SETTINGS; i++) {
        char program[] = "/proc/self/exe", *arguments[] = { program, (char *)(uintptr_t)name, NULL };
        pid_t child = fork();
        expect(child >= 0);
        if (child == 0) {
            putenv((char *)(uintptr_t) "HAK_TEST_SAMPLES=1");
            for (const char *const *one = settings[i]; *one != NULL; one++)
                putenv((char *)(uintptr_t)*one);
            if (more != NULL)
                putenv((char *)(uintptr_t)more);
            execv(program, arguments);
            _exit(127);
        }
        int code = end_of_child(child);
        if (code != 0)
            printf("setting %u ends with %d\n", i, code), fflush(stdout);
        expect(code == 0);
    }
}

/* --- rights ------------------------------------------------------------------------------------------------------------ */

static void take_rights(char *p, size_t n, int right, unsigned turn)
{
    if (turn % 2 == 0)
        expect(mprotect(p, n, right) == 0);
    else
        expect(syscall(SYS_mprotect, p, n, right) == 0);
}

static void free_and_use_again(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < 1500; i++) {
        size_t n = page * (1 + i % 12);
        char *p = memalign(page, n);
        memset(p, 1, n);
        take_rights(p, n, i % 3 == 0 ? PROT_NONE : PROT_READ, 0);
        free(p);
        char *q = calloc(1, n + 100), *r = malloc(n);
        for (size_t k = 0; k < n + 100; k += 64)
            expect(q[k] == 0);
        memset(q, 1, n + 100);
        memset(r, 1, n);
        free(q);
        free(r);
    }
}

static void rights_come_back(void) { with_each("rights_come_back", NULL, free_and_use_again); }

/* By the bare system call too, where each block of up to the mid pool is a sample. */
static void free_unseen(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (getenv("HAKMEM_PROFILE_INTERVAL") == NULL || strcmp(getenv("HAKMEM_PROFILE_INTERVAL"), "1") != 0 || page > 4096)
        return;
    for (unsigned i = 0; i < 500; i++) {
        size_t n = page * (1 + i % 12);
        char *p = memalign(page, n);
        memset(p, 1, n);
        take_rights(p, n, i % 3 == 0 ? PROT_NONE : PROT_READ, i);
        free(p);
        p = memalign(page, n);
        memset(p, 1, n);
        free(p);
    }
}

static void unseen_rights_come_back(void) { with_each("unseen_rights_come_back", NULL, free_unseen); }

static void read_by_realloc(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < 500; i++) {
        size_t n = page * (1 + i % 12);
        char *p = memalign(page, n);
        memset(p, (int)i, n);
        take_rights(p, n, i % 2 == 0 ? PROT_NONE : PROT_READ, 0);
        p = realloc(p, 3 * n);
        for (size_t k = 0; k < n; k += 64)
            expect(p[k] == (char)i);
        memset(p, 1, 3 * n);
        free(p);
    }
}

static void realloc_reads(void) { with_each("realloc_reads", NULL, read_by_realloc); }

/* --- sizes ------------------------------------------------------------------------------------------------------------- */

static void resize_and_free(void)
{
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    for (unsigned i = 0; i < 3000; i++) {
        size_t n = 226 + i % 2500, more = n + 1 + i % (n / 8), less = more - 1 - i % (more / 3);
        char *p = realloc(malloc(n), more);
        memset(p, 1, more);
        expect(malloc_usable_size(p) == more);
        p = realloc(p, less);
        expect(malloc_usable_size(p) == less);
        if (sized != NULL && i % 2 == 0)
            sized(p, less);
        else
            free(p);
    }
}

/* The program is not linked with the preloaded library, so these are found when it starts. */
#pragma weak hak_heap_new
#pragma weak hak_heap_set_default
#pragma weak hak_heap_aligned_alloc

/* A block with guards ends with a page, wherever that lets it begin: not where an alignment is asked for, in whichever heap. */
static void ask_for_alignment(void)
{
    expect(hak_heap_new != NULL && hak_heap_set_default != NULL && hak_heap_aligned_alloc != NULL);
    hak_heap_t *heap = hak_heap_new(NULL);
    for (size_t i = 0; i < 60000; i++) {
        size_t align = (size_t)32 << i % 8, n = 1 + i * 7919 % 9000;
        if (i % 30000 == 0)
            hak_heap_set_default(i == 0 ? NULL : heap);
        char *p = i % 2 ? hak_heap_aligned_alloc(heap, align, n) : aligned_alloc(align, n);
        expect(p != NULL && (uintptr_t)p % align == 0);
        memset(p, 1, n);
        free(p);
    }
}

/* Less than malloc's alignment is the same. */
static void ask_for_little(void)
{
    expect(hak_heap_new != NULL && hak_heap_aligned_alloc != NULL);
    hak_heap_t *heap = hak_heap_new(NULL);
    for (size_t i = 0; i < 3000; i++) {
        size_t align = (size_t)1 << i % 4, n = 1 + i * 7919 % 9000;
        char *p = i % 3 != 0 ? hak_heap_aligned_alloc(heap, align, n) : aligned_alloc(align, n);
        expect(p != NULL && (uintptr_t)p % 16 == 0);
        memset(p, 1, n);
        free(p);
    }
}

#pragma weak hak_aligned_realloc
#pragma weak hak_free_aligned_sized

/* Each block is as long as was asked for, not as its class. */
static void halve_and_free(void)
{
    static void *blocks[3000];
    expect(hak_aligned_realloc != NULL && hak_free_aligned_sized != NULL);
    for (size_t i = 0; i < 3000; i++)
        blocks[i] = aligned_alloc(32, 60 + i);
    for (size_t i = 0; i < 3000; i++) {
        size_t half = (malloc_usable_size(blocks[i]) + 1) / 2;
        if (i % 2 == 0)
            blocks[i] = hak_aligned_realloc(blocks[i], 32, half);
        hak_free_aligned_sized(blocks[i], 32, half);
    }
}

/* What hak_good_size says before a block is asked for may be used in whichever block comes. */
static void fill_what_was_promised(void)
{
    enum { BLOCKS = 20000, MOST = 1000 };
    static void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t n = 1 + i % MOST, promised = hak_good_size(n);
        blocks[i] = malloc(n);
        expect(promised >= n && malloc_usable_size(blocks[i]) >= promised);
        memset(blocks[i], 1, promised);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

static void promised_sizes(void) { with_each("promised_sizes", "HAKMEM_HARDEN=0", fill_what_was_promised); }
static void hardened_promises(void) { with_each("hardened_promises", "HAKMEM_HARDEN=zero+guards", fill_what_was_promised); }
static void halved_sizes(void) { with_each("halved_sizes", "HAKMEM_HARDEN=0", halve_and_free); }
static void alignment(void) { with_each("alignment", NULL, ask_for_alignment); }
static void little_alignment(void) { with_each("little_alignment", NULL, ask_for_little); }
static void hardened_alignment(void) { with_each("hardened_alignment", "HAKMEM_HARDEN=1", ask_for_alignment); }

/* --- limits ------------------------------------------------------------------------------------------------------------ */

#pragma weak hak_option_set
#pragma weak hak_set_pressure_callback

static void called(size_t mapped, size_t limit, void *calls) { *(unsigned *)calls += mapped > limit; }

/* Also where every block is a sample, so that no other request comes. */
static void cross_the_soft_limit(void)
{
    unsigned calls = 0;
    expect(hak_set_pressure_callback != NULL && hak_option_set != NULL);
    hak_set_pressure_callback(called, &calls);
    expect(hak_option_set("soft_limit", "4M") == 0);
    for (unsigned i = 0; i < 2000; i++)
        memset(malloc(5000), 1, 5000);
    hak_set_pressure_callback(NULL, NULL);
    expect(calls == 1);
}

/* Near the limit a profile is written, here in vain. */
static void soft_limit(void) { with_each("soft_limit", "HAKMEM_PROFILE=1:/dev/null/", cross_the_soft_limit); }

static void hardened_sizes(void) { with_each("hardened_sizes", "HAKMEM_HARDEN=1", resize_and_free); }

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(rights_come_back),
        CASE(unseen_rights_come_back),
        CASE(realloc_reads),
        CASE(hardened_sizes), CASE(promised_sizes), CASE(hardened_promises), CASE(halved_sizes), CASE(alignment),
        CASE(hardened_alignment), CASE(little_alignment), CASE(soft_limit),
    };
    return RUN_CASES(cases);
}
