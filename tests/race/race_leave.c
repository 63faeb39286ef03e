/* What a thread leaves in its records for the next one (cache/contents.c), every schedule within the bounds: one thread ends, another
 * takes its heap up and allocates and frees without entering anything, and a step of upkeep empties the records of a
 * heap in which something is left. Each block is in one place afterwards. The planted bugs: a new thread that does not enter the
 * heap once, and one that does not take the note back. */
// test: check
#include "heap/heap.h"

#define BIN_CLASS HAK_CLASS_64
#include "bin_world.h"

#include "base/lock.h"
#include "cache/cache.h"
#include "cache/large_cache.h"
#include "diag/options.h"

static struct hak_bin *bin(void) { return &the_heap()->bins[BIN_CLASS]; }

/* --- what contents.c and refill.c call ----------------------------------------------------------------------------------------------- */

void hak__heap_give(struct hak_heap *heap, void *const *blocks, uint32_t count, const char *function)
{
    (void)heap, (void)function;
    for (uint32_t i = 0; i < count; i++) {
        EXPLORE_EXPECT(blocks[i] != NULL, "a block that somebody has popped goes back");
        given[number(blocks[i])]++;
    }
}

void hak__outbox_add_slow(struct hak_heap *heap, void *block, uint32_t word, const char *function)
{
    (void)heap, (void)block, (void)word, (void)function;
}
void hak__outbox_flush(struct hak_heap *heap, const char *function) { (void)heap, (void)function; }
void hak__large_cache_flush(struct hak_heap *heap) { (void)heap; }
bool hak__large_cache_is_valid(const struct hak_heap *heap) { return (void)heap, true; }

/* Nothing is searched for here. */
_Atomic uint64_t hak__option_words[HAK_OPTIONS];
bool hak__heap_has_free(struct hak_heap *heap, uint32_t class, const void *p) { return (void)heap, (void)class, (void)p, false; }
bool hak__heap_has_in_span(const struct hak_heap *heap, uint32_t class, const void *p) { return (void)heap, (void)class, (void)p, false; }
bool hak__heap_ask(struct hak_heap *heap, hak_heap_question *question, uint32_t class, const void *p, unsigned tries)
{
    return (void)heap, (void)question, (void)class, (void)p, (void)tries, false;
}
bool hak__heaps_ask(const struct hak_heap *except, hak_heap_question *question, uint32_t class, const void *p, unsigned tries)
{
    return (void)except, (void)question, (void)class, (void)p, (void)tries, false;
}

/* --- the cases --------------------------------------------------------------------------------------------------------- */

/* As malloc and free do it. */
static void *pop(void)
{
    void *block = hak__cache_pop(bin());
    if (block != NULL)
        in_use[number(block)]++;
    return block;
}

static void push(void *block)
{
    if (block == NULL)
        return;
    in_use[number(block)]--;
    EXPLORE_EXPECT(hak__cache_push(bin(), block), "there is room for what was popped");
}

static void end(struct hak_heap *heap)
{
    EXPLORE_EXPECT(hak__heap_lock(heap), "nobody has given the heap up");
    hak__cache_leave(heap, HAK_LEFT_AT_END);
    hak__heap_unlock(heap);
    hak__heap_park(heap);
}

static void thread_ends(void)
{
    push(pop());
    end(the_heap());
}

static void thread_begins(void)
{
    struct hak_heap *heap = hak__heap_take_up();
    if (heap == NULL)
        return;
    hak__cache_take_up(heap);
    hak__heap_unlock(heap);
    void *kept = pop(), *freed = pop();
    push(freed);
    (void)kept;
}

static void thread_begins_and_ends(void)
{
    struct hak_heap *heap = hak__heap_take_up();
    if (heap == NULL)
        return;
    hak__cache_take_up(heap);
    hak__heap_unlock(heap);
    push(pop());
    end(heap);
}

static void step(void)
{
    if (!hak__heap_try_lock(the_heap(), HAK_SWEEPER))
        return;
    hak__cache_age_left(the_heap(), true);
    hak__heap_unlock(the_heap());
}

static void setup(void)
{
    for (struct hak_heap *one; (one = hak__heap_unpark()) != NULL;)
        hak__heap_unlock(one);
    hak_store(&the_heap()->lock, HAK_LOCK_FREE, HAK_RELAXED);   /* it may be in a thread's hands */
    bin_reset(bin());
    the_heap()->left = HAK_LEFT_NOTHING;
}

static void setup_parked(void)
{
    setup();
    the_heap()->left = HAK_LEFT_NOW;
    hak__heap_park(the_heap());
}

static void check(void) { bin_check(bin()); }

static const struct explore_case cases[] = {
    { "a thread ends, a step", EXPLORE_ALL, 2, setup, { thread_ends, step }, check },
    { "a thread begins, a step", EXPLORE_ALL, 2, setup_parked, { thread_begins, step }, check },
    { "a thread begins and ends, a step", 6, 2, setup_parked, { thread_begins_and_ends, step }, check },
    { "a thread ends, one begins, a step", 4, 3, setup, { thread_ends, thread_begins, step }, check },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof cases[0], argc, argv); }
