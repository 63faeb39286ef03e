/* Stress: a heap of hundreds of gigabytes, on a system whose memory costs nothing until it is touched.
 *
 * Exercises: numbers of SuperSlabs, slabs and bytes that no machine of the project has: blocks of every kind side by side, freed by their
 * thread and by another one, resized, counted; and a window that is used up, in whose last slabs small blocks lie.
 * Expects: no two blocks overlap; each keeps its first and last word; the figures are those of a model; ENOMEM at the end of the
 * window; everything back at the end.
 *
 * Knobs (environment)   default   long run
 *   HAK_VAST_GIB        200       400        of blocks of many kinds; at most a third of the window
 *   HAK_VAST_TIB        1         16         addresses of the window that is used up */
// test: timeout=600
#include <sys/mman.h>

#include "arena/window.h"
#include "support/stress.h"

enum { EVERY_TOUCHED = 16, SKIPPED = 77, ROOM_FOR_ALL = 64 << 20, RESIZED_EVERY = 13, RESIZED_MOST = 16 << 20 };

#define GIB ((size_t)1 << 30)

static struct stress_block *blocks;
static size_t count, most;
static struct stress_random random_state;

/* --- the system -------------------------------------------------------------------------------------------------------- */

static struct hak_os vast_os;
static size_t window_most; /* bytes; a smaller window than usual lies where the system has room */

static int vast_map(uintptr_t address, size_t size)
{
    bool random = window_most < HAK_WINDOW_SIZE && address >= HAK_WINDOW_LOW && address < HAK_WINDOW_HIGH;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (random)
        return EEXIST;
    return mmap((void *)address, size, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED ? errno : 0;
}

/* The window's size is the largest power of two whose metadata finds room as well. */
static uintptr_t vast_probe(size_t size) { return size / 2 < window_most ? hak__os_linux.probe(size) : 0; }

/* Before the library's constructor, which chooses the window; the C library is not ready. */
static void begin_vast(int argc, char **argv, char **environment)
{
    size_t tib = 1;
    (void)argc, (void)argv;
    for (; *environment != NULL; environment++)
        if (strncmp(*environment, "HAK_VAST_TIB=", 13) == 0)
            tib = strtoull(*environment + 13, NULL, 10);
    window_most = tib * 1024 * GIB;
    vast_os = hak__os_linux;
    vast_os.map = vast_map;
    vast_os.probe = vast_probe;
    hak__os = &vast_os;
}
__attribute__((section(".preinit_array"), used)) static void (*const begin_early)(int, char **, char **) = begin_vast;

/* --- blocks ------------------------------------------------------------------------------------------------------------ */

/* Few are touched: what the library writes into them when they are freed is memory enough. */
static bool is_touched(struct stress_block block) { return (uintptr_t)block.p / 4096 % EVERY_TOUCHED == 0; }

static uint64_t *last_word(struct stress_block block) { return (uint64_t *)(void *)(block.p + (block.size - 8) / 8 * 8); }

static void touch(struct stress_block block)
{
    if (!is_touched(block))
        return;
    *(uint64_t *)(void *)block.p = block.size;
    *last_word(block) = block.size;
}

static void look(struct stress_block block)
{
    bool kept = !is_touched(block) || (*(uint64_t *)(void *)block.p == block.size && *last_word(block) == block.size);
    STRESS_EXPECT(kept, "block %p of %zu bytes", (void *)block.p, block.size);
}

static bool add(size_t size)
{
    struct stress_block block = { hak_malloc(size), size };
    if (block.p == NULL)
        return false;
    STRESS_EXPECT(count < most, "%zu blocks", count);
    touch(block);
    blocks[count++] = block;
    return true;
}

static void give(size_t i)
{
    look(blocks[i]);
    hak_free(blocks[i].p);
    blocks[i] = blocks[--count];
}

/* As likely to have each number of bits. */
static size_t between(size_t least, size_t most_bits)
{
    size_t bits = stress_below(&random_state, most_bits), n = least << bits;
    return n + stress_below(&random_state, n);
}

static int by_address(const void *a, const void *b)
{
    const struct stress_block *x = a, *y = b;
    return (x->p > y->p) - (x->p < y->p);
}

static void expect_apart(void)
{
    qsort(blocks, count, sizeof *blocks, by_address);
    for (size_t i = 1; i < count; i++)
        STRESS_EXPECT(blocks[i - 1].p + hak_usable_size(blocks[i - 1].p) <= blocks[i].p, "%p of %zu bytes and %p",
                      (void *)blocks[i - 1].p, blocks[i - 1].size, (void *)blocks[i].p);
}

static void expect_counted(void)
{
    static struct hak_stats stats;
    uint64_t live = 0, huge = 0, huge_bytes = 0, of_classes = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_huge = blocks[i].size > HAK_LARGE_MAX;
        live += !is_huge, huge += is_huge;
        huge_bytes += is_huge ? hak_usable_size(blocks[i].p) : 0;
    }
    hak_collect();
    hak__snapshot(&stats);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        of_classes += stats.classes[c].live;
    STRESS_EXPECT(stats.huge_live == huge && of_classes == live, "%llu huge blocks of %llu, %llu others of %llu",
                  (unsigned long long)stats.huge_live, (unsigned long long)huge, (unsigned long long)of_classes,
                  (unsigned long long)live);
    STRESS_EXPECT(stats.bytes_huge == huge_bytes, "%llu bytes of %llu", (unsigned long long)stats.bytes_huge,
                  (unsigned long long)huge_bytes);
}

/* --- many kinds -------------------------------------------------------------------------------------------------------- */

/* Of ten thousand bytes, so many in each kind. Of those in small blocks, most would be touched when they are freed. */
static void fill(size_t bytes)
{
    static const struct {
        size_t share, least, bits;
    } kinds[] = { { 8900, HAK_LARGE_MAX + 1, 9 }, { 1050, HAK_MID_MAX + 1, 4 }, { 45, HAK_TINY_MAX + 1, 5 }, { 5, 64, 4 } };
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (size_t got = 0; got < bytes / 10000 * kinds[kind].share; got += blocks[count - 1].size)
            STRESS_EXPECT(add(between(kinds[kind].least, kinds[kind].bits)), "block %zu", count);
}

static void *give_every_third(void *argument)
{
    for (size_t i = count; i-- > 0;)
        if (i % 3 == 0)
            give(i);
    return argument;
}

/* Mostly in place or by moving pages; a touched one keeps its first word. Where there are many mappings they are copied, so they are few. */
static void resize_huge(void)
{
    for (size_t i = 0; i < count; i++) {
        if (blocks[i].size <= HAK_LARGE_MAX || blocks[i].size > RESIZED_MOST || i % RESIZED_EVERY != 0)
            continue;
        struct stress_block before = blocks[i], after = { NULL, before.size * (1 + i % 5) / 2 + HAK_LARGE_MAX };
        uint64_t first = is_touched(before) ? *(uint64_t *)(void *)before.p : 0;
        after.p = hak_realloc(before.p, after.size);
        STRESS_EXPECT(after.p != NULL, "%zu bytes", after.size);
        STRESS_EXPECT(!is_touched(before) || *(uint64_t *)(void *)after.p == first, "%p", (void *)after.p);
        touch(after);
        blocks[i] = after;
    }
}

static void many_kinds(const void *argument)
{
    size_t bytes = *(const size_t *)argument;
    fill(bytes);
    expect_apart();
    expect_counted();
    STRESS_EXPECT(pthread_join(stress_thread(give_every_third, NULL), NULL) == 0, "join");
    expect_counted();
    resize_huge();
    fill(bytes / 4);
    expect_apart();
    expect_counted();
    stress_expect_valid();
    printf("blocks=%zu peak_rss=%zu meta=%zu\n", count, stress_rss_peak(), hak__meta_bytes());
    while (count > 0)
        give(count - 1);
    stress_expect_empty();
}

/* --- the whole window --------------------------------------------------------------------------------------------------- */

/* Runs of which each next one is half as long, until not even a SuperSlab is left. */
static void use_up(size_t largest)
{
    for (size_t size = largest; size >= HAK_SUPER_SIZE; size /= 2)
        while (add(size))
            continue;
    STRESS_EXPECT(errno == ENOMEM, "%s", strerror(errno));
    STRESS_EXPECT(hak_malloc(SIZE_MAX / 4) == NULL && errno == ENOMEM, "%s", strerror(errno));
}

/* The last runs give way to blocks of every class. */
static void use_the_end(void)
{
    unsigned char *end = NULL;
    qsort(blocks, count, sizeof *blocks, by_address);
    for (size_t room = 0; room < ROOM_FOR_ALL; room += blocks[count].size) {
        end = blocks[count - 1].p;
        give(count - 1);
    }
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        for (unsigned i = 0; i < 2; i++)
            STRESS_EXPECT(add(hak__classes[c].size), "%u bytes", (unsigned)hak__classes[c].size);
    STRESS_EXPECT(blocks[count - 1].p >= end, "%p below %p", (void *)blocks[count - 1].p, (void *)end);
}

static void whole_window(const void *argument)
{
    add(64);
    use_up(hak__window_supers() << HAK_SUPER_SHIFT >> 8);
    size_t left = hak__window_supers() - hak__arena_top();
    STRESS_EXPECT(left == 0, "%zu SuperSlabs of %zu", left, hak__window_supers());
    use_the_end();
    expect_apart();
    expect_counted();
    STRESS_EXPECT(pthread_join(stress_thread(give_every_third, NULL), NULL) == 0, "join");
    expect_counted();
    stress_expect_valid();
    printf("slabs=%zu peak_rss=%zu meta=%zu\n", hak__arena_top() * HAK_SUPER_SLABS, stress_rss_peak(), hak__meta_bytes());
    while (count > 0)
        give(count - 1);
    stress_expect_empty();
    (void)argument;
}

int main(void)
{
    size_t bytes = (size_t)stress_knob("HAK_VAST_GIB", 200) * GIB, room = hak__window_supers() << HAK_SUPER_SHIFT;
    if (stress_emulated()) /* it notes each page of a mapping */
        return SKIPPED;
    STRESS_EXPECT(room <= window_most && hak__os == &vast_os, "a window of %zu bytes", room);
    bytes = bytes < room / 3 ? bytes : room / 3;
    most = 2 * bytes / (16 << 10);
    blocks = mmap(NULL, most * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    STRESS_EXPECT(blocks != MAP_FAILED, "%s", strerror(errno));
    stress_in_child(many_kinds, &bytes, 300, "many kinds");
    stress_in_child(whole_window, NULL, 300, "the whole window");
    return 0;
}
