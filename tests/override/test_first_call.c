/* The very first call that the program makes of the allocator, from its preinit array, before the library's constructor
 * has run: each function of the family, with arguments that succeed, that fail and that are misuse. Fully static, nothing
 * at all has been allocated before it. After it, everything works. */
#include <fcntl.h>
#include <unistd.h>

#include "cases.h"
#include "churn.h"
#include "family.h"

static char a_static_variable[64];
static int first_errno;
static void *first_result;
static size_t first_size;

static void call_free(void) { free(NULL); }
static void call_cfree(void) { cfree(NULL); }
static void call_free_sized(void) { free_sized(NULL, 100); }
static void call_free_aligned_sized(void) { free_aligned_sized(NULL, 64, 100); }
static void call_realloc(void) { first_result = realloc(NULL, first_size = 300); }
static void call_realloc_of_nothing(void) { free(realloc(NULL, 0)); }
static void call_reallocarray(void) { first_result = reallocarray(NULL, 30, 10), first_size = 300; }
static void call_malloc(void) { first_result = malloc(first_size = 300); }
static void call_malloc_of_nothing(void) { first_result = malloc(0); }
static void call_malloc_large(void) { first_result = malloc(first_size = 300000); }
static void call_malloc_huge(void) { first_result = malloc(first_size = 30000000); }
static void call_malloc_impossible(void) { expect(malloc(SIZE_MAX) == NULL && errno == ENOMEM); }
static void call_calloc(void) { first_result = calloc(first_size = 300, 1); }
static void call_calloc_huge(void) { first_result = calloc(first_size = 30000000, 1); }
static void call_memalign(void) { first_result = memalign(1024, first_size = 300); }
static void call_memalign_huge(void) { first_result = memalign((size_t)1 << 30, first_size = 300); }
static void call_aligned_alloc(void) { first_result = aligned_alloc(64, first_size = 300); }
static void call_aligned_alloc_refused(void) { expect(aligned_alloc(3, 300) == NULL && errno == EINVAL); }
static void call_posix_memalign(void) { expect(posix_memalign(&first_result, 256, first_size = 300) == 0); }
static void call_posix_memalign_refused(void) { expect(posix_memalign(&first_result, 3, 300) == EINVAL); }
static void call_valloc(void) { first_result = valloc(first_size = 300); }
static void call_pvalloc(void) { first_result = pvalloc(first_size = 300); }
static void call_usable_size(void) { expect(malloc_usable_size(NULL) == 0); }
static void call_trim(void) { expect(malloc_trim(0) == 0 || malloc_trim(0) == 0); }
#if defined(__GLIBC__)
static void call_mallopt(void) { expect(mallopt(M_MMAP_THRESHOLD, 1) == 1); }
static void call_mallinfo(void) { expect(mallinfo2().hblks == 0); }
#endif

static void free_static(void) { free(a_static_variable); }
static void realloc_static(void) { first_result = realloc(a_static_variable, 100); }
static void usable_size_of_static(void) { first_size = malloc_usable_size(a_static_variable); }

/* In a fork of a program that has not allocated. */
static void call_free_of_what_is_not_ours(void)
{
    expect_abort(free_static, "hakmem: free(): invalid pointer 0x");
    expect_abort(realloc_static, "hakmem: realloc(): invalid pointer 0x");
    expect_abort(usable_size_of_static, "hakmem: malloc_usable_size(): invalid pointer 0x");
}

static const struct test_case calls[] = {
    CASE(call_free),
    CASE(call_cfree),
    CASE(call_free_sized),
    CASE(call_free_aligned_sized),
    CASE(call_realloc),
    CASE(call_realloc_of_nothing),
    CASE(call_reallocarray),
    CASE(call_malloc),
    CASE(call_malloc_of_nothing),
    CASE(call_malloc_large),
    CASE(call_malloc_huge),
    CASE(call_malloc_impossible),
    CASE(call_calloc),
    CASE(call_calloc_huge),
    CASE(call_memalign),
    CASE(call_memalign_huge),
    CASE(call_aligned_alloc),
    CASE(call_aligned_alloc_refused),
    CASE(call_posix_memalign),
    CASE(call_posix_memalign_refused),
    CASE(call_valloc),
    CASE(call_pvalloc),
    CASE(call_usable_size),
    CASE(call_trim),
#if defined(__GLIBC__)
    CASE(call_mallopt),
    CASE(call_mallinfo),
#endif
    CASE(call_free_of_what_is_not_ours),
};
enum { CALLS = sizeof calls / sizeof *calls };

static bool has_called;

static void call_before_main(int argc, char **argv)
{
    for (unsigned i = 0; argc == 2 && i < CALLS; i++)
        if (strcmp(calls[i].name, argv[1]) == 0) {
            errno = 0;
            calls[i].run();
            first_errno = errno;
            has_called = true;
        }
}

#if defined(__GLIBC__)
/* glibc gives preinit functions main's arguments. */
static void preinit(int argc, char **argv, char **environment)
{
    (void)environment;
    call_before_main(argc, argv);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(int, char **, char **) = preinit;
#else
/* musl has no preinit functions. This one comes before the archive's constructor, and gets no arguments. */
__attribute__((constructor(100))) static void first_constructor(void)
{
    static char line[4096];
    int file = open("/proc/self/cmdline", O_RDONLY);
    ssize_t length = read(file, line, sizeof line - 1), first = (ssize_t)strlen(line) + 1;
    char *arguments[] = { line, line + first };
    close(file);
    call_before_main(length > first ? 2 : 1, arguments);
}
#endif

int main(int argc, char **argv)
{
    if (argc != 2)
        return RUN_CASES(calls);
    expect(has_called);
    expect(first_size == 0 || first_result != NULL);
    if (first_result != NULL) {
        expect(first_errno == 0 && malloc_usable_size(first_result) >= first_size);
        expect_block(first_result, first_size);
        first_result = realloc(first_result, 2 * first_size + 1);
        expect_block(first_result, 2 * first_size + 1);
        free(first_result);
    }
    churn_begin(2);
    churn_steps(1, 2000);
    churn_end();
    return 0;
}
