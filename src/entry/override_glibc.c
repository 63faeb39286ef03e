/* What glibc has in malloc's family beyond other C libraries. <malloc.h> is not included: which of it exists depends on the
 * version of glibc that the library is built against, and the library has it all (struct mallinfo2 is glibc 2.33's). */
#include "base/compiler.h"
#if HAK_OVERRIDE && HAK_GLIBC
#include <errno.h>
#include <stdio.h>

#include "arena/arena.h"
#include "diag/report.h"
#include "hakmem.h"
#include "stats/stats.h"

HAK_FORWARD(void *, pvalloc, hak_pvalloc, (size_t n), (n))
HAK_FORWARD_VOID(cfree, hak_free, (void *p), (p))
/* The C library exports its own functions by these names too. A program that calls them frees their blocks with free. */
HAK_FORWARD(void *, __libc_malloc, hak_malloc, (size_t n), (n))
HAK_FORWARD(void *, __libc_calloc, hak_calloc, (size_t count, size_t size), (count, size))
HAK_FORWARD(void *, __libc_realloc, hak_realloc, (void *p, size_t n), (p, n))
HAK_FORWARD_VOID(__libc_free, hak_free, (void *p), (p))
HAK_FORWARD(void *, __libc_memalign, hak_memalign, (size_t align, size_t n), (align, n))
HAK_FORWARD(void *, __libc_valloc, hak_valloc, (size_t n), (n))
HAK_FORWARD(void *, __libc_pvalloc, hak_pvalloc, (size_t n), (n))

/* As <malloc.h> declares them. */
struct glibc_mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
struct glibc_mallinfo2 {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
hak_export int malloc_trim(size_t pad);
hak_export int mallopt(int parameter, int value);
hak_export void malloc_stats(void);
hak_export struct glibc_mallinfo2 mallinfo2(void);
hak_export struct glibc_mallinfo mallinfo(void);
hak_export int malloc_info(int options, FILE *stream);

hak_export int malloc_trim(size_t pad)
{
    (void)pad;
    return hak_collect() != 0;
}

/* Accepts the C library's tuning knobs without effect: they describe another allocator. */
hak_export int mallopt(int parameter, int value)
{
    (void)parameter, (void)value;
    return 1;
}

hak_export void malloc_stats(void) { hak_stats_print(2); }

/* The library's figures in the C library's terms: arena = mapped without huge blocks, uordblks = live, fordblks = the rest. */
static hak_cold struct glibc_mallinfo2 info_of(const struct hak_stats *stats)
{
    struct glibc_mallinfo2 info = { .hblks = stats->huge_live,
                                    .hblkhd = stats->bytes_huge,
                                    .uordblks = stats->bytes_live,
                                    .keepcost = stats->bytes_free_dirty,
                                    .usmblks = stats->total_peak_bytes };
    info.arena = stats->bytes_mapped > stats->bytes_huge ? stats->bytes_mapped - stats->bytes_huge : 0;
    info.fordblks = info.arena > info.uordblks ? info.arena - info.uordblks : 0;
    for (unsigned c = 0; c < HAK_CLASSES; c++)
        info.ordblks += stats->classes[c].cached;
    return info;
}

hak_export struct glibc_mallinfo2 mallinfo2(void)
{
    struct hak_stats *stats = hak__arena_top() == 0 ? NULL : hak__snapshot_take();
    if (stats == NULL)
        return (struct glibc_mallinfo2){ 0 };
    struct glibc_mallinfo2 info = info_of(stats);
    hak__snapshot_give(stats);
    return info;
}

hak_export struct glibc_mallinfo mallinfo(void)
{
    struct glibc_mallinfo2 wide = mallinfo2();
    return (struct glibc_mallinfo){ .arena = (int)wide.arena,
                                    .ordblks = (int)wide.ordblks,
                                    .hblks = (int)wide.hblks,
                                    .hblkhd = (int)wide.hblkhd,
                                    .usmblks = (int)wide.usmblks,
                                    .uordblks = (int)wide.uordblks,
                                    .fordblks = (int)wide.fordblks,
                                    .keepcost = (int)wide.keepcost };
}

/* Separate, because fprintf takes more stack than all else here. */
static hak_cold void info_line(FILE *stream, const char *format, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    char line[256];
    hak__format(line, sizeof line, format, a, b, c, d);
    fputs(line, stream);
}

static hak_cold void info_classes(FILE *stream, const struct hak_stats *stats)
{
    for (unsigned c = 0; c < HAK_CLASSES; c++) {
        const struct hak_stats_class *class = &stats->classes[c];
        uint64_t size = hak__classes[c].size, from = c == 0 ? 1 : (uint64_t)hak__classes[c - 1].size + 1;
        if (class->refilled != 0)
            info_line(stream, "  <size from=\"%u\" to=\"%u\" total=\"%u\" count=\"%u\"/>\n", from, size, size * class->cached,
                      class->cached);
    }
}

/* The C library's outermost elements as far as they apply; one <size> per class with free blocks. */
hak_export int malloc_info(int options, FILE *stream)
{
    if (options != 0)
        return EINVAL;
    struct hak_stats *stats = hak__snapshot_take();
    if (stats == NULL)
        return ENOMEM;
    struct glibc_mallinfo2 info = info_of(stats);
    fputs("<malloc version=\"hakmem-1\">\n<heap nr=\"0\">\n<sizes>\n", stream);
    info_classes(stream, stats);
    info_line(stream,
              "</sizes>\n<total type=\"fast\" count=\"%u\" size=\"%u\"/>\n<total type=\"rest\" count=\"%u\" size=\"%u\"/>\n",
              info.ordblks, stats->bytes_cached, 0, info.fordblks);
    info_line(stream,
              "<total type=\"mmap\" count=\"%u\" size=\"%u\"/>\n<system type=\"current\" size=\"%u\"/>\n<system type=\"max\" "
              "size=\"%u\"/>\n",
              info.hblks, info.hblkhd, info.arena + info.hblkhd, info.usmblks);
    fputs("</heap>\n</malloc>\n", stream);
    hak__snapshot_give(stats);
    return 0;
}

#endif
