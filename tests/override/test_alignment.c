/* Alignment costs addresses, not memory: 16 bytes for every size, and a block of one byte at any power of two up to
 * 1 GiB makes at most two pages resident, however many there are: its own, and one of a table. From 32 MiB on there may be
 * a third, since a block that far from the others has a page to itself in each of two tables; from 512 MiB on a fourth, where the
 * table of the words for 64 SuperSlabs each grows beyond a page, at an address that differs from run to run. */
#include "cases.h"

#include <fcntl.h>
#include <malloc.h>

/* Exact, which /proc/self/statm is not: the kernel adds up the pages there by batches. Not those of files: how many of the library's
 * code come with one fault depends on how the file came into the page cache. Allocates nothing. */
static size_t resident_pages(void)
{
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    expect(file >= 0);
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    expect(length > 0);
    text[length] = 0;
    static const char label[] = "\nAnonymous:";
    const char *line = strstr(text, label);
    expect(line != NULL);
    return strtoul(line + strlen(label), NULL, 10) * 1024 / (size_t)sysconf(_SC_PAGESIZE);
}

static void sixteen_bytes_for_every_size(void)
{
    static char *held[64];
    for (size_t n = 1; n <= 70000; n++) {
        char *p = malloc(n);
        expect(p != NULL && (uintptr_t)p % 16 == 0 && malloc_usable_size(p) >= n);
        p[0] = p[n - 1] = 1;
        free(held[n % 64]);
        held[n % 64] = p;
    }
    for (size_t n = 70001; n < (size_t)12 << 20; n += n / 50) {
        char *p = malloc(n);
        expect(p != NULL && (uintptr_t)p % 16 == 0 && malloc_usable_size(p) >= n);
        p[0] = p[n - 1] = 1;
        free(p);
    }
}

typedef void *aligned(size_t align, size_t n);

static void *by_posix_memalign(size_t align, size_t n)
{
    void *p = NULL;
    expect(posix_memalign(&p, align, n) == 0);
    return p;
}

/* In hardened mode the first block of a class comes with the marks of those that will follow it, and the first calls from a
 * place with their stacks and their blocks' places in a table, which lie as far apart as the blocks. */
static size_t pages_allowed(size_t align)
{
    const char *harden = getenv("HAKMEM_HARDEN");
    size_t marks = harden != NULL && *harden == '1' ? 16 : 0;
    return marks + (align < (size_t)32 << 20 ? 2 : align < (size_t)512 << 20 ? 3 : 4);
}

static void one_byte_is_few_pages(aligned *call)
{
    enum { COUNT = 4 };
    char *p[COUNT];
    if (not_emulated("account of resident pages without its own"))
        return;
    for (int i = 0; i < 40; i++) /* what is made resident once, by whatever comes first */
        free(malloc((size_t)1 << i % 20));
    resident_pages();
    for (size_t align = 16; align <= (size_t)1 << 30; align *= 2) {
        for (int i = 0; i < COUNT; i++) {
            size_t before = resident_pages();
            p[i] = call(align, 1);
            expect(p[i] != NULL && (uintptr_t)p[i] % align == 0);
            *p[i] = 1;
            size_t after = resident_pages();
            if (after > before + pages_allowed(align))
                printf("alignment %zu, block %d: %zu pages\n", align, i, after - before), fflush(stdout);
            expect(after <= before + pages_allowed(align));
        }
        for (int i = 0; i < COUNT; i++)
            free(p[i]);
    }
}

static void one_byte_by_aligned_alloc(void) { one_byte_is_few_pages(aligned_alloc); }
static void one_byte_by_memalign(void) { one_byte_is_few_pages(memalign); }
static void one_byte_by_posix_memalign(void) { one_byte_is_few_pages(by_posix_memalign); }

/* A block that is alone in its place gives its addresses back: none of this adds up. */
static void a_thousand_of_each_alignment(void)
{
    for (size_t align = (size_t)1 << 16; align <= (size_t)1 << 30; align *= 4)
        for (int i = 0; i < 1000; i++) {
            char *p = aligned_alloc(align, 1 + (size_t)i * 100);
            expect(p != NULL && (uintptr_t)p % align == 0);
            p[(size_t)i * 100] = 1;
            free(p);
        }
    malloc_trim(0);
    expect(resident_bytes() < (size_t)32 << 20);
}

static const struct test_case cases[] = {
    CASE(sixteen_bytes_for_every_size),
    CASE(one_byte_by_aligned_alloc),
    CASE(one_byte_by_memalign),
    CASE(one_byte_by_posix_memalign),
    CASE(a_thousand_of_each_alignment),
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
