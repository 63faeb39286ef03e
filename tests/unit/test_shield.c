/* span/shield.h: what is noted is undone once, when the block comes back, and only there; a block that cannot be undone is given to
 * nobody; blocks asked for at a multiple of a page count as changed; a heap that forgets its blocks asks as well, and so do samples. */
#include "span/shield.h"

#include "arena/window.h"
#include "hakmem.h"
#include "support/fake_os.h"

enum { AGAIN = 40 };
static const size_t small = 3000, large = 200 << 10, middle = 100000, huge = 5 << 20;

static unsigned lifts(void) { return fake.advices[HAK_OS_RESTORE]; }
static size_t page_size(void) { return hak__os_linux.page_size(); }

static void start(void)
{
    fake_install();
    hak_free(hak_malloc(1));
}

static char *make(size_t n)
{
    char *p = hak_malloc(n);
    expect(p != NULL);
    memset(p, 1, n);
    return p;
}

static void note(char *p, size_t n) { hak__shield_note((uintptr_t)p, n); }

/* Whether a later request gets the address. */
static bool comes_again(const char *p, size_t n)
{
    char *blocks[AGAIN];
    bool found = false;
    for (unsigned i = 0; i < AGAIN; i++)
        found |= (blocks[i] = make(n)) == p;
    for (unsigned i = 0; i < AGAIN; i++)
        hak_free(blocks[i]);
    return found;
}

/* A block costs no call before something is noted, and the note of a block that is alone ends with it. */
FRESH_TEST(lifted_once)
{
    static const size_t sizes[] = { small, middle, large, huge };
    (void)argument;
    start();
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *blocks[AGAIN];
        for (unsigned k = 0; k < AGAIN; k++)
            blocks[k] = make(sizes[i]);
        unsigned before = lifts();
        hak_free(blocks[0]);
        expect_eq(lifts(), before);
        note(blocks[AGAIN / 2], sizes[i]);
        hak_free(blocks[AGAIN / 2]);
        expect_eq(lifts(), before + 1);
        expect_op(fake.advised, <=, (uintptr_t)blocks[AGAIN / 2]);
        expect_op(fake.advised + page_size(), >, (uintptr_t)blocks[AGAIN / 2]);
        for (unsigned k = 1; k < AGAIN; k++)
            if (k != AGAIN / 2)
                hak_free(blocks[k]);
        if (sizes[i] >= large)   /* smaller ones share slabs */
            expect_eq(lifts(), before + 1);
    }
}

FRESH_TEST(realloc_asks_too)
{
    (void)argument;
    start();
    char *p = make(large);
    note(p, 1);
    p = hak_realloc(p, 3 * large);
    expect_eq(lifts(), 1);
    char *q = make(huge);
    note(q + huge / 2, 1);
    q = hak_realloc(q, 4 * huge);
    expect_eq(lifts(), 2);
    hak_free(p);
    hak_free(q);
    expect_eq(lifts(), 2);
}

FRESH_TEST(refused)
{
    (void)argument;
    start();
    static const size_t sizes[] = { middle, large, huge };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *p = make(sizes[i]);
        note(p, sizes[i]);
        fake.refuse_advise = ENOMEM;
        hak_free(p);
        fake.refuse_advise = 0;
        expect(!comes_again(p, sizes[i]));
    }
}

/* Of more than 56 KiB; the next owner of the memory has no note. */
FRESH_TEST(aligned_to_pages)
{
    (void)argument;
    start();
    for (size_t n = 57345; n < 8 * huge; n *= 3) {
        unsigned before = lifts();
        char *p = hak_memalign(page_size(), n);
        hak_free(p);
        expect_eq(lifts(), before + 1);
        p = hak_memalign(page_size() / 2, n);
        hak_free(p);
        expect_eq(lifts(), before + 1);
    }
    hak_free(hak_memalign(page_size(), 56 << 10));
    hak_free(hak_memalign(page_size(), small));
    unsigned before = lifts();
    for (unsigned i = 0; i < AGAIN; i++) {
        hak_free(make(large));
        hak_free(make(huge));
    }
    expect_eq(lifts(), before);
}

/* A heap's end gives back blocks that nobody has freed; one that is begun anew hands the same memory out again. */
static void forget(bool destroy, bool refuse)
{
    static const size_t sizes[] = { small, middle, large };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hak_heap_t *heap = hak_heap_new(NULL);
        char *p = hak_heap_malloc(heap, sizes[i]);
        note(p, sizes[i]);
        unsigned before = lifts();
        fake.refuse_advise = refuse ? ENOMEM : 0;
        if (destroy)
            hak_heap_destroy(heap);
        else
            hak_heap_reset(heap);
        fake.refuse_advise = 0;
        expect_eq(lifts(), before + 1);
        if (refuse)
            expect(!comes_again(p, sizes[i]));
        if (!destroy)
            hak_heap_destroy(heap);
    }
}

FRESH_TEST(heaps_that_forget)
{
    (void)argument;
    start();
    forget(true, false);
    forget(false, false);
    forget(true, true);
    forget(false, true);
}

/* Ranges that are not ours leave no note, however long they are. Notes go by slab, so the range begins at one: mmap aligns to pages, and
 * the note of a slab's first page would reach into the slab that is to have none. */
FRESH_TEST(beside_the_window)
{
    uintptr_t other = (uintptr_t)0x7000 << 32;
    (void)argument;
    start();
    char *mapped = mmap(NULL, 3 * HAK_SLAB_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(mapped != MAP_FAILED && hak__guarded_start() != 0);
    char *there = mapped + (-(uintptr_t)mapped & (HAK_SLAB_SIZE - 1));
    hak__shield_note(other, (size_t)1 << 40);
    hak__shield_note((uintptr_t)there, 1);
    expect(!atomic_load(&hak__shields));
    hak__shield_watch((uintptr_t)there, HAK_SLAB_SIZE);
    hak__shield_note((uintptr_t)there + HAK_SLAB_SIZE / 2, 1);
    expect(atomic_load(&hak__shields));
    expect(hak__shield_lift_range(there + HAK_SLAB_SIZE, page_size()));
    expect_eq(lifts(), 0);
    expect(hak__shield_lift_range(there, page_size()));
    expect_eq(lifts(), 1);
    fake.refuse_advise = ENOMEM;
    expect(!hak__shield_lift_range(there, page_size()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lifted_once), cmocka_unit_test(realloc_asks_too),  cmocka_unit_test(refused),
        cmocka_unit_test(aligned_to_pages), cmocka_unit_test(heaps_that_forget), cmocka_unit_test(beside_the_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
