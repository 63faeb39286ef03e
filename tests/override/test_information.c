/* malloc_info, mallinfo2, mallinfo, malloc_stats, malloc_trim and mallopt: well-formed, plausible, and harmless. */
// test: glibc
#include "expect.h"

#include <ctype.h>
#include <errno.h>
#include <malloc.h>

void malloc_stats(void);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"   /* mallinfo is, and programs use it all the same */

enum { COUNT = 3000, SIZE = 1000 };

static void *blocks[COUNT];

static void allocate(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        expect_block(blocks[i] = malloc(SIZE), SIZE);
}

static void release(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        free(blocks[i]);
}

/* --- XML ----------------------------------------------------------------------------------------------------------- */

/* name="value" pairs up to the end of a tag; gives what follows the last one. */
static const char *attributes(const char *at)
{
    while (*at == ' ') {
        for (at++; isalnum((unsigned char)*at); at++)
            continue;
        expect(at[0] == '=' && at[1] == '"');
        at += 2 + strcspn(at + 2, "\"<>");
        expect(*at == '"');
        at++;
    }
    return at;
}

/* Elements are closed in the reverse order of their opening; gives how many there are. */
static unsigned elements(const char *at)
{
    const char *open[16];
    size_t lengths[16];
    unsigned depth = 0, count = 0;
    while ((at = strchr(at, '<')) != NULL) {
        bool closing = *++at == '/';
        const char *name = at += closing;
        while (isalnum((unsigned char)*at))
            at++;
        size_t length = (size_t)(at - name);
        expect(length != 0);
        if (closing) {
            expect(depth > 0 && lengths[--depth] == length && memcmp(open[depth], name, length) == 0);
        } else {
            at = attributes(at);
            expect(depth < 16);
            open[depth] = name;
            lengths[depth++] = length;
            depth -= *at == '/';
            at += *at == '/';
            count++;
        }
        expect(*at == '>');
    }
    expect(depth == 0);
    return count;
}

static void info(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    allocate();
    expect(malloc_info(0, stream) == 0);
    fclose(stream);
    expect(strncmp(text, "<malloc version=\"", 17) == 0);
    expect(strstr(text, "<heap nr=\"0\">") != NULL && strstr(text, "<system type=\"current\" size=\"") != NULL);
    expect(elements(text) > 6);
    free(text);
    expect(malloc_info(1, stderr) == EINVAL);
    release();
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static void figures(void)
{
    struct mallinfo2 before = mallinfo2();
    allocate();
    void *huge = malloc(5000000);
    struct mallinfo2 during = mallinfo2();
    struct mallinfo narrow = mallinfo();
    release();
    free(huge);
    struct mallinfo2 after = mallinfo2();
    expect(during.uordblks >= before.uordblks + (size_t)COUNT * SIZE);
    expect(during.uordblks <= before.uordblks + (size_t)COUNT * SIZE * 5 / 4);
    expect(during.hblks == before.hblks + 1 && during.hblkhd >= before.hblkhd + 5000000);
    expect(during.arena >= during.uordblks);
    expect(during.arena == during.uordblks + during.fordblks);
    expect((size_t)narrow.uordblks == during.uordblks && (size_t)narrow.hblks == during.hblks);
    expect(after.uordblks < before.uordblks + 100000 && after.hblks == before.hblks);
}

/* Whatever is written to stderr while the function runs. */
static size_t said(void (*function)(void), char *text, size_t size)
{
    int saved = dup(2), file = memfd_create("stderr", 0);
    dup2(file, 2);
    function();
    dup2(saved, 2);
    close(saved);
    ssize_t length = pread(file, text, size - 1, 0);
    close(file);
    expect(length >= 0);
    text[length] = 0;
    return (size_t)length;
}

static void stats(void)
{
    static char text[20000];
    expect(said(malloc_stats, text, sizeof text) > 100);
    expect(strncmp(text, "hakmem: statistics of process ", 30) == 0);
}

static void trim(void)
{
    static void *large[40];
    for (unsigned i = 0; i < 40; i++)
        expect_block(large[i] = malloc(900000), 900000);
    size_t full = resident_bytes();
    for (unsigned i = 0; i < 40; i++)
        free(large[i]);
    malloc_trim(0);
    expect(malloc_trim(0) == 0);   /* nothing is left to return */
    expect(resident_bytes() + 20 * 900000 < full);
}

static void tuning(void)
{
    expect(mallopt(M_MMAP_THRESHOLD, 100000) == 1);
    expect(mallopt(M_ARENA_MAX, 1) == 1);
    allocate();
    release();
}

int main(void)
{
    info();
    figures();
    stats();
    trim();
    tuning();
    return 0;
}
