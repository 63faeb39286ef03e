/* Fuzz: arena/arena.h. Runs of SuperSlabs against a model of which are taken and what they hold, on a system that
 * refuses, has foreign mappings in the way and lets time pass.
 *
 * Input: steps, a byte each and what they read: take a run, give one back, extend, shrink or move one as huge/ does,
 * purge, refill the reserve, weather, a foreign mapping, an option. */
#include "fuzz.h"

#include "arena/arena.h"
#include "arena/retained.h"
#include "arena/runs.h"
#include "support/figures.h"

enum { RUNS = 16, SUPERS = 4096, TOP_MOST = 600 };

struct run {
    size_t first, count, bytes;
    uint64_t tag;
};

static struct run runs[RUNS];
static uint8_t taken[SUPERS];
static uint64_t tags;

/* Nothing is handed out twice. */
static void mark(size_t first, size_t count, uint8_t now)
{
    expect_op(first + count, <=, SUPERS);
    for (size_t i = first; i < first + count; i++) {
        expect_eq(taken[i], !now);
        taken[i] = now;
    }
}

static char *start_of(const struct run *run) { return hak__super_start(run->first); }
static void expect_content(const struct run *run) { expect(memory_holds(start_of(run), run->bytes, run->bytes, run->tag)); }

static void fill(struct run *run)
{
    run->tag = ++tags;
    memory_fill(start_of(run), run->bytes, run->tag);
}

/* The bytes of a run of so many SuperSlabs: it ends in the last one, anywhere. */
static size_t some_bytes(struct fuzz_input *in, size_t count)
{
    size_t last = hak_align_up(1 + fuzz_pair(in) * 32u, hak__page_size());
    return ((count - 1) << HAK_SUPER_SHIFT) + hak_min(last, HAK_SUPER_SIZE);
}

static void take(struct fuzz_input *in, struct run *run)
{
    bool fresh;
    uint8_t shape = fuzz_byte(in);
    size_t count = 1 + shape % 5, align = (size_t)1 << shape / 5 % 4;
    *run = (struct run){ .count = count, .bytes = some_bytes(in, count) };
    run->first = hak__supers_take(count, align, run->bytes, HAK_SUPER_HUGE, &fresh);
    if (run->first == HAK_NO_SUPER) {
        *run = (struct run){ 0 };
        return;
    }
    expect_eq((uintptr_t)start_of(run) % (align << HAK_SUPER_SHIFT), 0);
    mark(run->first, count, 1);
    for (size_t at = 0; fresh && at < run->bytes; at += MEMORY_STEP)
        expect_eq(*(uint64_t *)(start_of(run) + at), 0);
    if (shape / 20 % 2 == 1 && !hak__supers_fill(run->first, run->bytes)) {
        hak__supers_trim(run->first, count, 0);
        mark(run->first, count, 0);
        hak__supers_give(run->first, count);
        *run = (struct run){ 0 };
        return;
    }
    fill(run);
}

static void give(struct run *run)
{
    expect_content(run);
    mark(run->first, run->count, 0);
    hak__supers_give(run->first, run->count);
    *run = (struct run){ 0 };
}

static void extend(struct fuzz_input *in, struct run *run)
{
    size_t count = run->count + fuzz_byte(in) % 3, bytes = some_bytes(in, count);
    if (bytes < run->bytes || !hak__supers_extend(run->first, run->count, count, bytes))
        return;
    mark(run->first + run->count, count - run->count, 1);
    expect_content(run);
    run->count = count;
    run->bytes = bytes;
    fill(run);
}

static void shrink(struct fuzz_input *in, struct run *run)
{
    size_t count = 1 + fuzz_byte(in) % run->count, bytes = hak_min(some_bytes(in, count), run->bytes);
    expect_content(run);
    mark(run->first + count, run->count - count, 0);
    if (count < run->count)
        hak__supers_give(run->first + count, run->count - count);
    hak__supers_trim(run->first, count, bytes);
    run->count = count;
    run->bytes = bytes;
    fill(run);
}

/* As huge/ moves a block that cannot grow where it is. */
static void move(struct fuzz_input *in, struct run *run)
{
    bool fresh;
    struct run to = { .count = run->count + 1, .tag = run->tag };
    to.bytes = hak_max(some_bytes(in, to.count), run->bytes);
    if (to.count > 8)
        return;
    to.first = hak__supers_take(to.count, 1, to.bytes, HAK_SUPER_HUGE, &fresh);
    if (to.first == HAK_NO_SUPER)
        return;
    mark(to.first, to.count, 1);
    if (!hak__supers_move(run->first, run->bytes, to.first, to.bytes)) {
        mark(to.first, to.count, 0);
        hak__supers_give(to.first, to.count);
        return;
    }
    mark(run->first, run->count, 0);
    hak__supers_give(run->first, run->count);
    expect(memory_holds(start_of(&to), run->bytes, run->bytes, run->tag));
    *run = to;
    fill(run);
}

static void foreign(struct fuzz_input *in)
{
    enum { GAP = 64 << 10 };
    if (fake.foreign_count < FAKE_FOREIGN)
        fake_add_foreign(hak__super_start(hak__arena_top() + fuzz_byte(in) % 4) + GAP, GAP);
}

static void option(struct fuzz_input *in)
{
    static const char *const rows[][2] = {
        { "dirty_limit", "0" }, { "dirty_limit", "4M" },  { "dirty_limit", "1G" }, { "dirty_limit", "16M" },
        { "unmap", "0" },       { "unmap", "1" },         { "purge_delay", "0" },  { "purge_delay", "1s" },
        { "reserve", "0" },     { "reserve", "8" },       { "limit", "0" },        { "limit", "32M" },
    };
    const char *const *row = rows[fuzz_byte(in) % (sizeof rows / sizeof *rows)];
    expect_eq(hak_option_set(row[0], row[1]), 0);
}

static void step(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct run *run = &runs[what / 16];
    switch (what % 16) {
    case 0: fuzz_weather(in); break;
    case 1: foreign(in); break;
    case 2: option(in); break;
    case 3: hak__arena_purge(fake.now, fuzz_byte(in) % 4 == 0); break;
    case 4: hak__reserve_refill(); break;
    case 5: fuzz_fair(); break;
    case 6:
    case 7: run->count != 0 ? extend(in, run) : take(in, run); break;
    case 8:
    case 9: run->count != 0 ? shrink(in, run) : take(in, run); break;
    case 10:
    case 11: run->count != 0 ? move(in, run) : take(in, run); break;
    default: run->count != 0 ? give(run) : take(in, run);
    }
}

/* The mapped prefix of each SuperSlab is what the system has there, to the page. */
static void expect_mapped_as_said(void)
{
    for (size_t i = 0; i < hak__arena_top(); i++) {
        size_t mapped = hak__supers[i].mapped;
        expect(mapped == 0 || is_mapped(hak__super_start(i)));
        expect(mapped == 0 || is_mapped(hak__super_start(i) + mapped - 1));
        expect(mapped == HAK_SUPER_SIZE || !is_mapped(hak__super_start(i) + mapped));
    }
}

void fuzz_one(struct fuzz_input *in)
{
    while (fuzz_more(in) && hak__arena_top() < TOP_MOST) {
        step(in);
        fuzz_expect_valid();
        expect_mapped_as_said();
    }
    fuzz_fair();
    for (unsigned i = 0; i < RUNS; i++)
        if (runs[i].count != 0)
            give(&runs[i]);
    hak__arena_purge(fake.now, true);
    fuzz_expect_valid();
    struct arena_figures figures;
    arena_figures(&figures);
    expect_eq(figures.taken, 0);
    expect_eq(figures.dirty, 0);
}
