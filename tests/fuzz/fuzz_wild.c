/* Fuzz: pointers that are none, given to every function that takes one. After some valid steps a forked child makes the
 * one wild call: it must end in our message and abort(), unless the pointer is a block in use (or NULL), when the call
 * must return. A crash inside of the allocator, a message about something else and a call that believes the pointer are
 * failures alike. What another thread has freed may look in use until its owner collects it: the report comes from there at the
 * latest, as one of a double free.
 *
 * Input: steps, a byte each and what they read: allocate, free, free by another thread, collect, let time pass, and at
 * most six wild calls: a byte for the function, then where the pointer comes from, and what that reads. */
#include "fuzz.h"

#include "diag/options.h"
#include "heap/heap.h"

enum { SLOTS = 48, FREED = 32, WILD_MOST = 6, CHILD_SECONDS = 20 };

static struct slot {
    char *p;
    size_t n, align;
} slots[SLOTS];
static char *freed[FREED];
static bool freed_elsewhere[FREED];
static unsigned freed_next, wild_calls;
static char in_data[4096] __attribute__((aligned(64)));

/* --- valid steps --------------------------------------------------------------------------------------------------- */

static size_t some_size(struct fuzz_input *in)
{
    size_t n = fuzz_pair(in);
    switch (n % 8) {
    case 0: return n * 40;                        /* up to 2.5 MiB */
    case 1:
    case 2: return n;
    default: return n % 1100;
    }
}

static void allocate(struct fuzz_input *in, struct slot *slot)
{
    uint8_t how = fuzz_byte(in);
    size_t n = some_size(in);
    size_t align = how % 8 == 0 ? (size_t)16 << how / 8 % 14 : 16;
    char *p = align > 16 ? hak_memalign(align, n) : hak_malloc(n);
    expect(p != NULL);
    memset(p, how, n < 64 ? n : 64);
    *slot = (struct slot){ p, n, align };
}

static void *free_elsewhere(void *p)
{
    hak_free(hak_malloc(1));
    hak_free(p);
    return NULL;
}

static void release(struct slot *slot, bool elsewhere)
{
    pthread_t thread;
    freed_elsewhere[freed_next % FREED] = elsewhere;
    freed[freed_next++ % FREED] = slot->p;
    if (elsewhere) {
        expect_eq(pthread_create(&thread, NULL, free_elsewhere, slot->p), 0);
        expect_eq(pthread_join(thread, NULL), 0);
    } else {
        hak_free(slot->p);
    }
    slot->p = NULL;
}

/* --- wild pointers ------------------------------------------------------------------------------------------------- */

static const struct slot *live_at(const char *p)
{
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].p != NULL && slots[i].p == p)
            return &slots[i];
    return NULL;
}

static bool was_freed_elsewhere(const char *p)
{
    for (unsigned i = 0; i < FREED; i++)
        if (p != NULL && freed[i] == p && freed_elsewhere[i])
            return true;
    return false;
}

static intptr_t some_offset(struct fuzz_input *in)
{
    uint8_t kind = fuzz_byte(in);
    intptr_t amount = (intptr_t)(1 + fuzz_pair(in));
    switch (kind % 6) {
    case 0: return kind / 6 + 1;
    case 1: return 8;
    case 2: return 16 * amount;
    case 3: return 4096 * amount;
    case 4: return 65536 * amount;
    default: return -(amount << kind / 6 % 20);
    }
}

static uintptr_t some_word(struct fuzz_input *in)
{
    uint64_t low = fuzz_word(in);
    return low | (uint64_t)fuzz_word(in) << 32;
}

/* An address inside of what the allocator itself lives in. */
static uintptr_t own_memory(struct fuzz_input *in)
{
    size_t n = fuzz_pair(in);
    switch (fuzz_byte(in) % 5) {
    case 0: return (uintptr_t)hak__heap_by_id(1) + n;
    case 1: return (uintptr_t)hak__spans + n * 16;
    case 2: return (uintptr_t)hak__supers + n;
    case 3: return (uintptr_t)hak__super_start(n % (hak__arena_top() + 2)) + n % 256 * 4096;
    default: return (uintptr_t)hak__option_words + n;
    }
}

static uintptr_t wild_pointer(struct fuzz_input *in)
{
    char here[64];
    const struct slot *slot = &slots[fuzz_byte(in) % SLOTS];
    switch (fuzz_byte(in) % 12) {
    case 0: return 0;
    case 1: return (uintptr_t)slot->p;
    case 2:
    case 3: return slot->p != NULL ? (uintptr_t)slot->p + (uintptr_t)some_offset(in) : 1;
    case 4:
    case 5: return (uintptr_t)freed[fuzz_byte(in) % FREED];
    case 6: return (uintptr_t)freed[fuzz_byte(in) % FREED] + (uintptr_t)some_offset(in);
    case 7: return (uintptr_t)here + fuzz_byte(in);
    case 8: return (uintptr_t)in_data + fuzz_pair(in) % sizeof in_data;
    case 9: return own_memory(in);
    case 10: return hak__window.base + some_word(in) % ((uintptr_t)1 << 40);
    default: return some_word(in) >> fuzz_byte(in) % 64;
    }
}

/* --- the wild call ------------------------------------------------------------------------------------------------- */

enum { FREE, REALLOC, USABLE, FREE_SIZED, FREE_ALIGNED_SIZED, CALLS };
static const char *const names[CALLS] = { "free", "realloc", "malloc_usable_size", "free_sized", "free_aligned_sized" };

struct call {
    void *p;
    unsigned function;
    size_t n, align;
};

static void make_call(void *argument)
{
    const struct call *call = argument;
    alarm(CHILD_SECONDS * limit_factor());
    switch (call->function) {
    case FREE: hak_free(call->p); break;
    case REALLOC: call->p == NULL ? hak_free(hak_realloc(NULL, call->n)) : hak_free(hak_realloc(call->p, call->n + 1)); break;
    case USABLE: _exit(hak_usable_size(call->p) >= call->n ? 0 : 3);
    case FREE_SIZED: hak_free_sized(call->p, call->n); break;
    default: hak_free_aligned_sized(call->p, call->align, call->n);
    }
    hak_collect();
}

/* One line: the prefix, the function, and what is wrong with this pointer. A sized free is a free of a block of the right
 * size, and says so: what is no block is the free's to report, a size that cannot be is its own. */
static bool is_report(const struct call *call, const char *said)
{
    bool sized = call->function == FREE_SIZED || call->function == FREE_ALIGNED_SIZED;
    char lines[3][128];
    const char *end = strchr(said, '\n'), *own = names[call->function], *freeing = sized ? "free" : own;
    if (was_freed_elsewhere(call->p) && strncmp(said, "hakmem: free(): double", 22) == 0)
        freeing = "free";
    snprintf(lines[0], sizeof lines[0], "hakmem: %s(): double free of %p ", freeing, call->p);
    snprintf(lines[1], sizeof lines[1], "hakmem: %s(): invalid pointer %p: ", freeing, call->p);
    snprintf(lines[2], sizeof lines[2], "hakmem: %s(): wrong size %zu for %p ", own, call->n, call->p);
    bool good = false;
    for (unsigned i = 0; i < (sized ? 3 : 2); i++)
        good |= strncmp(said, lines[i], strlen(lines[i])) == 0;
    return good && end != NULL && end[1] == 0;
}

static void wild(struct fuzz_input *in)
{
    static char said[SAID_SIZE];
    struct call call = { .function = fuzz_byte(in) % CALLS };
    call.p = (void *)wild_pointer(in);
    const struct slot *slot = live_at(call.p);
    call.n = slot != NULL ? slot->n : call.p == NULL ? 0 : fuzz_pair(in);
    call.align = slot != NULL ? slot->align : 16;
    if (call.align > 16 && call.function == FREE_SIZED)   /* not for aligned blocks, by the standard */
        call.function = FREE_ALIGNED_SIZED;
    bool valid = slot != NULL || call.p == NULL;
    if (!valid && call.function == USABLE && was_freed_elsewhere(call.p))
        return;
    int status = run_child(make_call, &call, said);
    if (valid ? status != 0 : !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        fprintf(stderr, "%s(%p), %s: status 0x%x, said: %s\n", names[call.function], call.p,
                valid ? "a block in use" : "no block", (unsigned)status, said);
    if (valid) {
        expect_eq(status, 0);
        expect_eq(said[0], 0);
        return;
    }
    expect(WIFSIGNALED(status));
    expect_eq(WTERMSIG(status), SIGABRT);
    if (!is_report(&call, said))
        fprintf(stderr, "%s(%p) said: %s\n", names[call.function], call.p, said);
    expect(is_report(&call, said));
}

static void step(struct fuzz_input *in)
{
    uint8_t what = fuzz_byte(in);
    struct slot *slot = &slots[fuzz_byte(in) % SLOTS];
    switch (what % 8) {
    case 0: hak_collect(); break;
    case 1:
        if (wild_calls++ < WILD_MOST)
            wild(in);
        break;
    case 2: fake.now += 1000; break;
    default: slot->p != NULL ? release(slot, what % 8 == 3) : allocate(in, slot);
    }
}

void fuzz_one(struct fuzz_input *in)
{
    while (fuzz_more(in))
        step(in);
    if (wild_calls == 0)
        wild(in);
}
