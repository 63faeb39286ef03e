/* region/region.h: random requests in regions of all sizes against a model, with every invariant checked on the way; runs of units split
 * and join; a full region; a holder of the lock that dies at any of its stores leaves a heap that can be repaired, with all blocks. */
#include "region/region.h"
#include "userheap/userheap.h"

#include "support/check.h"
#include "support/memory.h"

enum { MODEL_BLOCKS = 700 };

/* ThreadSanitizer leaves a program not much more than a terabyte in one piece, and not always. */
#define LARGEST (is_emulated() ? EMULATED_MOST : (size_t)1 << (HAK_TSAN ? 38 : 40))

static const size_t kib = 1 << 10, mib = 1 << 20, gib = 1 << 30;

static void *map_region(size_t size)
{
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    expect(start != MAP_FAILED);
    return start;
}

static struct hak_region *new_region(void *start, size_t size, uint32_t flags)
{
    struct hak_heap_options options = {
        .size = sizeof options, .name = "model", .region = start, .region_size = size, .flags = flags
    };
    struct hak_region *region = hak__region_new(&options);
    expect_ptr(region, hak_align_up((uintptr_t)start, 64));
    return region;
}

static void *take(struct hak_region *region, size_t align, size_t n) { return hak__region_alloc(region, align, n, "take"); }
static void give(struct hak_region *region, void *p) { hak__region_end(region, p, "give"); }

static struct hak_heap_figures figures_of(struct hak_region *region)
{
    struct hak_heap_figures out;
    hak__region_figures(region, &out, "figures");
    return out;
}

/* --- the model ------------------------------------------------------------------------------------------------------------ */

struct model_block {
    char *p;
    size_t n;
    uint64_t tag;
};

struct model {
    struct hak_region *region;
    struct model_block blocks[MODEL_BLOCKS];
    unsigned count;
    size_t most; /* of a request */
    struct rng rng;
    uint64_t tags, refused;
};

static size_t model_size(struct model *model)
{
    size_t kind = rng_below(&model->rng, 20);
    size_t most = kind < 14 ? 600 : kind < 19 ? model->most / 64 : model->most;
    return rng_below(&model->rng, hak_max(most, 1));
}

static void model_add(struct model *model)
{
    struct model_block *block = &model->blocks[model->count];
    size_t align = (size_t)16 << rng_below(&model->rng, rng_below(&model->rng, 8) == 0 ? 13 : 1);
    block->n = model_size(model);
    block->tag = ++model->tags;
    block->p = take(model->region, align, block->n);
    if (block->p == NULL) {
        model->refused++;
        return;
    }
    expect_eq((uintptr_t)block->p % align, 0);
    expect_op(block->p, >=, model->region);
    expect_op(block->p + block->n, <=, (char *)model->region + model->region->size);
    expect_op(hak__region_usable(model->region, block->p, "usable"), >=, block->n);
    memory_fill(block->p, block->n, block->tag);
    model->count++;
}

static void model_check(const struct model *model, const struct model_block *block)
{
    (void)model;
    expect(memory_holds(block->p, block->n, block->n, block->tag));
}

static void model_drop(struct model *model)
{
    struct model_block *block = &model->blocks[rng_below(&model->rng, model->count)];
    model_check(model, block);
    give(model->region, block->p);
    *block = model->blocks[--model->count];
}

static void model_change(struct model *model)
{
    struct model_block *block = &model->blocks[rng_below(&model->rng, model->count)];
    size_t n = model_size(model) + 1;
    char *p = hak__region_realloc(model->region, block->p, n, "realloc");
    if (p == NULL) {
        expect_op(n, >, block->n);
        return;
    }
    expect(memory_holds(p, hak_min(n, block->n), block->n, block->tag));
    block->p = p;
    block->n = n;
    memory_fill(block->p, n, block->tag);
}

static int count_block(void *block, size_t size, void *argument)
{
    (void)block;
    ((uint64_t *)argument)[0]++;
    ((uint64_t *)argument)[1] += size;
    return 0;
}

static void model_check_all(const struct model *model)
{
    uint64_t seen[2] = { 0, 0 };
    struct hak_heap_figures figures = figures_of(model->region);
    expect(hak__region_is_valid(model->region));
    for (unsigned i = 0; i < model->count; i++)
        model_check(model, &model->blocks[i]);
    expect_eq(hak__region_visit_blocks(model->region, &(struct hak_visit){ .block = count_block, .argument = seen }), 0);
    expect_eq(seen[0], model->count);
    expect_eq(figures.live_blocks, model->count);
    expect_eq(figures.live_bytes, seen[1]);
    expect_op(figures.live_bytes, <=, figures.used_bytes);
}

static void model_step(struct model *model, unsigned target)
{
    size_t kind = rng_below(&model->rng, 8);
    if (kind == 0 && model->count != 0)
        model_change(model);
    else if (model->count == 0 || (model->count < target && kind < 6) || (model->count < MODEL_BLOCKS && kind == 7))
        model_add(model);
    else
        model_drop(model);
}

static void run_model(struct hak_region *region, size_t most, unsigned steps, uint64_t seed)
{
    static struct model model;
    model = (struct model){ .region = region, .most = most, .rng = { seed } };
    for (unsigned step = 0; step < steps; step++) {
        model_step(&model, step / 1000 % 2 == 0 ? MODEL_BLOCKS : 20);
        if (step % 64 == 0)
            model_check_all(&model);
    }
    while (model.count != 0)
        model_drop(&model);
    model_check_all(&model);
}

static void requests_of_a_model(void **state)
{
    const struct { size_t size, most; unsigned steps; } kinds[] = {
        { 64 << 10, 8 << 10, 20000 }, { 300000, 40000, 20000 }, { 1 << 20, 200 << 10, 20000 }, { 8 << 20, 1 << 20, 10000 },
        { 80 << 20, 4 << 20, 10000 }, { (size_t)5 << 30, 16 << 20, 4000 }, { LARGEST, 16 << 20, 4000 },
    };
    (void)state;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        void *start = map_region(kinds[i].size);
        run_model(new_region(start, kinds[i].size, 0), kinds[i].most, kinds[i].steps / (is_emulated() ? 5 : 1), i);
        munmap(start, kinds[i].size);
    }
}

/* --- the region's bounds ---------------------------------------------------------------------------------------------------- */

static void nothing_is_written_outside(void **state)
{
    static unsigned char memory[200000];
    (void)state;
    for (size_t at = 1; at < 16 * kib; at += 1043) {
        size_t size = 70000 + at;
        memset(memory, 0x5a, sizeof memory);
        unsigned char *start = memory + at;
        struct hak_region *region = new_region(start, size, 0);
        for (size_t n = 1;; n = n * 2 % 3000 + 1) {
            char *p = take(region, 16, n);
            if (p == NULL)
                break;
            memset(p, 1, hak__region_usable(region, p, "usable"));
        }
        expect(hak__region_is_valid(region));
        for (unsigned char *p = memory; p < memory + sizeof memory; p++)
            expect((p >= start && p < start + size) || *p == 0x5a);
    }
}

static void a_region_gets_full_and_empty(void **state)
{
    static const size_t sizes[] = { 16, 100, 1000, 5000, 20000 };
    static void *blocks[300000];
    (void)state;
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct hak_region *region = new_region(map_region(4 * mib), 4 * mib, 0);
        unsigned first = 0;
        for (int round = 0; round < 3; round++) {
            unsigned count = 0;
            while ((blocks[count] = take(region, 16, sizes[i])) != NULL)
                count++;
            expect_op((uint64_t)count * hak_good_size(sizes[i]) * 10, >=, (uint64_t)4 * mib * 8);
            expect_eq(round == 0 ? first = count : first, count);
            expect_op(figures_of(region).refused, >, 0);
            for (unsigned j = 0; j < count; j++)
                give(region, blocks[j]);
            expect(hak__region_is_valid(region));
        }
        expect_op(figures_of(region).used_bytes, <=, 64 * kib); /* a slab may stay */
        expect(take(region, 16, 3 * mib) != NULL);
        munmap(region, 4 * mib);
    }
}

/* A terabyte that nobody has touched takes no memory. */
static void large_regions_cost_what_is_used(void **state)
{
    (void)state;
    struct hak_region *region = new_region(map_region(LARGEST), LARGEST, 0);
    size_t eighth = LARGEST / 8;
    char *p = take(region, 16, 7 * eighth), *q = take(region, (size_t)1 << 30, 10);
    expect(p != NULL && q != NULL);
    expect_eq((uintptr_t)q % gib, 0);
    p[7 * eighth - 1] = 1;
    expect(take(region, 16, eighth) == NULL);
    expect(take(region, 16, PTRDIFF_MAX) == NULL && take(region, 16, SIZE_MAX) == NULL && take(region, (size_t)1 << 62, 1) == NULL);
    expect_ptr(hak__region_realloc(region, p, eighth, "realloc"), p);
    expect_ptr(hak__region_realloc(region, p, 6 * eighth, "realloc"), p);
    expect(hak__region_is_valid(region));
    give(region, p);
    give(region, q);
    expect_eq(figures_of(region).used_bytes, 0);
    munmap(region, LARGEST);
}

static void what_cannot_be_is_refused(void **state)
{
    static char memory[128 << 10] __attribute__((aligned(4096)));
    struct hak_heap_options options = { .size = sizeof options, .region = memory, .region_size = 64 * kib - 16 };
    (void)state;
    expect(hak__region_new(&options) == NULL && errno == EINVAL);
    options.region_size = 64 * kib;
    options.region = memory + 16;
    options.flags = HAK_HEAP_SHARED;
    expect(hak__region_new(&options) == NULL && errno == EINVAL);
    options.region = memory;
    options.purge = HAK_HEAP_PURGE_AT_ONCE;
    expect(hak__region_new(&options) == NULL && errno == EINVAL);
    options.purge = HAK_HEAP_PURGE_LATER;
    options.flags = HAK_HEAP_HARDENED;
    expect(hak__region_new(&options) == NULL && errno == ENOTSUP);
    expect(hak_heap_attach(memory, sizeof memory) == NULL && errno == EINVAL);
    new_region(memory, sizeof memory, 0);
    expect(hak_heap_attach(memory, sizeof memory) == NULL && errno == EINVAL);
    new_region(memory, sizeof memory, HAK_HEAP_SHARED);
    expect(hak_heap_attach(memory, sizeof memory - 16) == NULL && errno == EINVAL);
    expect_ptr(hak_heap_attach(memory, sizeof memory), memory);
}

static void limits_hold(void **state)
{
    static char memory[256 << 10];
    struct hak_region *region = new_region(memory, sizeof memory, 0);
    (void)state;
    hak__region_set_limit(region, 20 * kib, "limit");
    void *p = take(region, 16, 19 * kib);
    expect(p != NULL && take(region, 16, 10 * kib) == NULL);
    expect(hak__region_realloc(region, p, 30 * kib, "realloc") == NULL);
    hak__region_set_limit(region, 0, "limit");
    expect(hak__region_realloc(region, p, 30 * kib, "realloc") != NULL);
    expect_eq(figures_of(region).refused, 2);
    hak__region_reset(region, "reset");
    expect_eq(figures_of(region).live_blocks, 0);
    expect(hak__region_is_valid(region));
}

/* --- repair --------------------------------------------------------------------------------------------------------------- */

/* What else there is, when the lock's holder has died: anything. */
static void spoil(struct hak_region *region, struct rng *rng)
{
    uint32_t frontier = hak_load(&region->frontier, HAK_RELAXED);
    memset(region->bins, (int)rng_next(rng), sizeof region->bins);
    memset(region->bins_used, (int)rng_next(rng), sizeof region->bins_used);
    memset((char *)region + region->begins, (int)rng_next(rng), hak_div_up(region->units, 64) * 8);
    for (uint32_t class = 0; class < HAK_CLASSES; class++)
        region->classes[class].first = (uint32_t)rng_next(rng);
    for (uint32_t unit = 0; unit < frontier; unit++) {
        region->unit[unit].next = (uint32_t)rng_next(rng);
        region->unit[unit].prev = (uint32_t)rng_next(rng);
        region->unit[unit].free = (uint32_t)rng_next(rng);
        region->unit[unit].before = (uint32_t)rng_next(rng);
    }
    region->live_blocks = region->large_units = region->slab_units = rng_next(rng);
    region->known = 0;
}

static void what_follows_is_made_anew(void **state)
{
    static struct model model;
    (void)state;
    void *start = map_region(4 * mib);
    model = (struct model){ .region = new_region(start, 4 * mib, 0), .most = 100 * kib, .rng = { 5 } };
    for (unsigned step = 0; step < 8000; step++) {
        model_step(&model, MODEL_BLOCKS);
        if (step % 50 != 0)
            continue;
        spoil(model.region, &model.rng);
        expect(hak__region_repair(model.region));
        model_check_all(&model);
    }
    hak__run_set(model.region, 0, 0);
    expect(!hak__region_repair(model.region));
    munmap(start, 4 * mib);
}

/* A program has unmapped a region without a word, and uses the addresses for other things. A child finds its lock nowhere. */
static void other_memory_is_left_alone_by_a_child(void **state)
{
    (void)state;
    void *start = map_region(mib);
    struct hak_region *region = new_region(start, mib, 0);
    expect_ptr(hak__region_of(region), start);
    expect_ptr(mmap(start, mib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), start);
    hak_store(&region->lock.word, 123, HAK_RELAXED); /* a number of the program's */
    hak_load(&hak__regions, HAK_RELAXED)->fork_child();
    expect_eq(hak_load(&region->lock.word, HAK_RELAXED), 123);
    expect(hak__region_of(start) == NULL);
    munmap(start, mib);
}

/* A program has closed its region for the time being. */
static void a_closed_region_is_left_alone_by_a_child(void **state)
{
    (void)state;
    void *start = map_region(mib);
    struct hak_region *region = new_region(start, mib, 0);
    expect_eq(mprotect(start, mib, PROT_NONE), 0);
    hak_load(&hak__regions, HAK_RELAXED)->fork_child();
    expect_eq(mprotect(start, mib, PROT_READ | PROT_WRITE), 0);
    expect(take(region, 16, 100) != NULL); /* by its handle; its lock was free */
    munmap(start, mib);
}

/* A heap is found in addresses that a former one had, and in a block of another one. */
static void the_inner_heap_is_found(void **state)
{
    (void)state;
    char *start = map_region(2 * mib);
    struct hak_region *former = new_region(start, mib, 0);
    munmap(start, mib / 2);
    struct hak_region *later = new_region(start + mib / 2, mib, 0);
    void *p = take(later, 16, 100);
    expect_ptr(hak__region_of(p), later);
    expect(hak__region_of(former) == former); /* nobody else is there */
    char *block = take(later, 4096, 200 * kib);
    struct hak_region *inner = new_region(block, 200 * kib, 0);
    void *q = take(inner, 16, 100);
    expect_ptr(hak__region_of(q), inner);
    expect_ptr(hak__region_of(p), later);
    hak__region_destroy(inner, "destroy");
    expect_ptr(hak__region_of(q), later);
    hak__region_destroy(later, "destroy");
    munmap(start + mib / 2, mib + mib / 2);
}

/* A process that steps through its work under SIGALRM's eyes would not be stopped everywhere: here one is killed again and again at
 * any instruction, and the next goes on with what it has left. */
struct killed {
    struct hak_region *region;
    _Atomic uint64_t ready;
    struct {
        _Atomic uintptr_t p;
        _Atomic uint64_t n;
    } blocks[64];
};

static void work_until_killed(struct killed *shared, uint64_t seed)
{
    static struct hak_heap mine; /* a thread with a heap asks the kernel for nothing, and is mostly inside the lock */
    struct rng rng = { seed };
    hak__thread_word = (intptr_t)((uintptr_t)&mine - (uintptr_t)&hak__sentinel);
    for (;;) {
        size_t i = rng_below(&rng, 64), n = rng_below(&rng, rng_below(&rng, 4) == 0 ? 50000 : 500);
        char *p = (char *)hak_load(&shared->blocks[i].p, HAK_RELAXED);
        hak_store(&shared->ready, 1, HAK_RELAXED);
        if (p != NULL) {
            hak_store(&shared->blocks[i].p, 0, HAK_RELAXED); /* first: dying in between loses a block */
            hak__region_end(shared->region, p, "free");
            continue;
        }
        p = hak__region_alloc(shared->region, 16, n, "alloc");
        if (p == NULL)
            continue;
        memory_fill(p, n, i);
        hak_store(&shared->blocks[i].n, n, HAK_RELAXED);
        hak_store(&shared->blocks[i].p, (uintptr_t)p, HAK_RELAXED);
    }
}

static void whoever_dies_leaves_a_heap(void **state)
{
    enum { ROUNDS = 150 };
    size_t size = 4 * mib;
    (void)state;
    struct killed *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    expect(shared != MAP_FAILED && start != MAP_FAILED);
    shared->region = new_region(start, size, HAK_HEAP_SHARED);
    unsigned died_inside = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        hak_store(&shared->ready, 0, HAK_RELAXED);
        pid_t child = fork();
        if (child == 0) {
            hak__robust_fork_child();
            work_until_killed(shared, round);
        }
        while (hak_load(&shared->ready, HAK_RELAXED) == 0)
            usleep(100);
        usleep((useconds_t)(round * 37 % 1000));
        kill(child, SIGKILL);
        expect_eq(waitpid(child, NULL, 0), child);
        died_inside += hak_load(&shared->region->lock.word, HAK_RELAXED) != 0;
        struct hak_heap_figures figures;
        hak__region_figures(shared->region, &figures, "figures");
        expect(hak__region_is_valid(shared->region));
        for (unsigned i = 0; i < 64; i++) {
            const char *p = (const char *)hak_load(&shared->blocks[i].p, HAK_RELAXED);
            size_t n = hak_load(&shared->blocks[i].n, HAK_RELAXED);
            if (p != NULL)
                expect(memory_holds(p, n, n, i));
        }
    }
    expect_op(died_inside, >, 0); /* a tenth where nothing else runs */
    munmap(start, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_a_model),
        cmocka_unit_test(nothing_is_written_outside),
        cmocka_unit_test(a_region_gets_full_and_empty),
        cmocka_unit_test(large_regions_cost_what_is_used),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(what_follows_is_made_anew),
        cmocka_unit_test(other_memory_is_left_alone_by_a_child),
        cmocka_unit_test(a_closed_region_is_left_alone_by_a_child),
        cmocka_unit_test(the_inner_heap_is_found),
        cmocka_unit_test(whoever_dies_leaves_a_heap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
