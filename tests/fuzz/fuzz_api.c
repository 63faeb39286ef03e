/* Fuzz: the whole interface against a shadow of the heap: what each block holds, where it may lie, how much of it may be
 * used, what errno says, and that no two blocks overlap. Several threads take turns, each step in one of them, so that
 * frees by others, outboxes, parked and adopted heaps are met, and an input still has one course only.
 *
 * Input: steps, a byte each and what they read: allocate by each function, realloc, free by each function, hand the turn
 * to another thread, end a thread (a later turn starts a new one), collect, set an option, weather. A request may fail
 * only when the system or a limit refuses, or its size is more than there can be. */
#include "fuzz.h"

#include "size/size.h"

enum { SLOTS = 96, THREADS = 4, STEPS_MOST = 400, ERRNO_KEPT = 77 };

static struct slot {
    char *p;
    size_t n, align;
    uint64_t tag;
} slots[SLOTS];
static uint64_t tags;
static bool limited;   /* HAKMEM_LIMIT is set: requests may fail in fair weather as well */

/* --- sizes --------------------------------------------------------------------------------------------------------- */

/* Sizes of every pool, and those at which something changes. */
static size_t some_size(struct fuzz_input *in)
{
    uint8_t kind = fuzz_byte(in);
    size_t n = fuzz_pair(in);
    switch (kind % 16) {
    case 0: return n % 17;
    case 1: return n * 48;                                                  /* up to 3 MiB */
    case 2: return hak__classes[n % HAK_CLASSES].size + (kind / 16) % 3 - 1;
    case 3: return HAK_MID_MAX + n % 8192 - 4096;
    case 4: return HAK_LARGE_MAX + n % 64 - 32;
    case 5: return ((n % 64 + 1) << 12) + (kind / 16) % 3 - 1;
    case 6:
    case 7: return n;
    default: return n % 1040;
    }
}

/* More than there can be, however little is in use. */
static size_t absurd_size(struct fuzz_input *in)
{
    static const size_t sizes[] = { PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 4096,
                                    (size_t)1 << 50, (size_t)1 << 62 };
    return sizes[fuzz_byte(in) % (sizeof sizes / sizeof *sizes)] - fuzz_byte(in) % 64;
}

static size_t some_align(struct fuzz_input *in)
{
    uint8_t shift = fuzz_byte(in);
    return (size_t)1 << (shift % 8 == 0 ? shift / 8 % 24 : shift % 13);
}

/* --- the shadow ---------------------------------------------------------------------------------------------------- */

static bool may_fail(void) { return fake.limit != SIZE_MAX || fake.refuse_move || limited; }

/* In use is not what was asked for but what may be used. */
static void expect_apart(const struct slot *slot)
{
    size_t usable = hak_usable_size(slot->p);
    expect_op(usable, >=, slot->n);
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct slot *other = &slots[i];
        if (other != slot && other->p != NULL)
            expect(slot->p + usable <= other->p || other->p + hak_usable_size(other->p) <= slot->p);
    }
}

static void expect_content(const struct slot *slot, const char *p, size_t n)
{
    expect(memory_holds(p, n < slot->n ? n : slot->n, slot->n, slot->tag));
}

/* A block that was asked for, or none: errno says which. */
static void came(struct slot *slot, char *p, size_t n, size_t align, bool zero, int code)
{
    if (p == NULL) {
        expect_eq(code, ENOMEM);
        expect(may_fail());
        return;
    }
    expect_eq(code, ERRNO_KEPT);
    align = align < HAK_ALIGN ? HAK_ALIGN : align;
    expect_eq((uintptr_t)p % align, 0);
    expect(!zero || is_zero(p, n));
    *slot = (struct slot){ p, n, align, ++tags };
    expect_apart(slot);
    memory_fill(p, n, slot->tag);
}

static void allocate(struct fuzz_input *in, struct slot *slot)
{
    uint8_t how = fuzz_byte(in) % 9;
    size_t n = some_size(in), align = HAK_ALIGN, page = hak__page_size(), count = 1;
    void *p = NULL;
    int code = 0;
    errno = ERRNO_KEPT;
    switch (how) {
    case 0:
        count = 1 + fuzz_byte(in) % 7;
        errno = ERRNO_KEPT;
        p = hak_calloc(count, n = n / count);
        n *= count;
        break;
    case 1: p = hak_realloc(NULL, n); break;
    case 2: p = hak_reallocarray(NULL, n, 1); break;
    case 3: p = hak_aligned_alloc(align = some_align(in), n); break;
    case 4: p = hak_memalign(align = some_align(in), n); break;
    case 5:
        align = some_align(in);
        align = align < sizeof(void *) ? sizeof(void *) : align;
        code = hak_posix_memalign(&p, align, n);
        expect_eq(errno, code == ENOMEM ? ENOMEM : ERRNO_KEPT);
        expect_eq(code == 0, p != NULL);
        errno = code == 0 ? ERRNO_KEPT : code;
        break;
    case 6: p = hak_valloc(n), align = page; break;
    case 7: p = hak_pvalloc(n), n = hak_align_up(n, page), align = page; break;
    default: p = hak_malloc(n);
    }
    came(slot, p, n, align, how == 0, errno);
}

/* Requests that nobody can meet, and alignments that are none: nothing changes but errno. */
static void allocate_wrong(struct fuzz_input *in)
{
    size_t n = absurd_size(in), wrong = fuzz_pair(in) | 3;
    void *p = &tags;
    errno = 0;
    switch (fuzz_byte(in) % 8) {
    case 0: p = hak_malloc(n); break;
    case 1: p = hak_calloc(n, 1 + fuzz_byte(in)); break;
    case 2: p = hak_reallocarray(NULL, n, 1 + fuzz_byte(in)); break;
    case 3: p = hak_memalign(4096, n); break;
    case 4:
        expect_eq(hak_posix_memalign(&p, 64, n), ENOMEM);
        expect(p == &tags && errno == ENOMEM);
        return;
    case 5:
        expect_eq(hak_posix_memalign(&p, wrong, 100), EINVAL);
        expect(p == &tags && errno == 0);
        return;
    case 6:
        expect_ptr(hak_aligned_alloc(wrong, 100), NULL);
        expect_eq(errno, EINVAL);
        return;
    default: p = hak_pvalloc(n);
    }
    expect_ptr(p, NULL);
    expect_eq(errno, ENOMEM);
}

static void change_size(struct fuzz_input *in, struct slot *slot)
{
    uint8_t how = fuzz_byte(in) % 8;
    size_t n = how == 0 ? absurd_size(in) : how == 1 ? slot->n + 1 + fuzz_byte(in) : some_size(in);
    expect_content(slot, slot->p, slot->n);
    errno = ERRNO_KEPT;
    char *p = how % 2 != 0 ? hak_reallocarray(slot->p, 1, n) : hak_realloc(slot->p, n);
    int code = errno;
    if (n == 0) {
        expect_ptr(p, NULL);
        *slot = (struct slot){ 0 };
        return;
    }
    if (p == NULL) {
        expect_eq(code, ENOMEM);
        expect(how == 0 || may_fail());
        expect_content(slot, slot->p, slot->n);
        return;
    }
    expect_content(slot, p, n);
    came(slot, p, n, HAK_ALIGN, false, code);
}

static void release(struct fuzz_input *in, struct slot *slot)
{
    uint8_t how = fuzz_byte(in) % 4;
    expect_content(slot, slot->p, slot->n);
    errno = ERRNO_KEPT;
    if (how == 0 && slot->align == HAK_ALIGN)
        hak_free_sized(slot->p, slot->n);
    else if (how == 1)
        hak_free_aligned_sized(slot->p, slot->align, slot->n);
    else
        hak_free(slot->p);
    expect_eq(errno, ERRNO_KEPT);
    slot->p = NULL;
}

static void option(struct fuzz_input *in)
{
    static const char *const rows[][2] = {
        { "refill_count", "1" },    { "refill_count", "256" }, { "thread_budget", "0" }, { "thread_budget", "64M" },
        { "process_budget", "1M" }, { "process_budget", "0" }, { "dirty_limit", "0" },   { "purge_delay", "0" },
        { "purge_delay", "10s" },   { "purge_delay", "2" },    { "purge_delay", "800" }, { "tiers", "0" },
        { "tiers", "1" },           { "reserve", "0" },        { "limit", "24M" },       { "limit", "0" },
        { "preset", "all_128" },    { "ring_adapt", "0" },     { "warm_pool_prefill", "0" },
    };
    const char *const *row = rows[fuzz_byte(in) % (sizeof rows / sizeof *rows)];
    expect_eq(hak_option_set(row[0], row[1]), 0);
    if (strcmp(row[0], "limit") == 0)
        limited = strcmp(row[1], "0") != 0;
}

/* --- threads that take turns --------------------------------------------------------------------------------------- */

/* One at a time runs: whose turn it is. Thread 0 is the one that reads the input's first step. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned turn;
    bool alive[THREADS], leave;
    pthread_t threads[THREADS];
} stage = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .alive = { true } };
static struct fuzz_input *input;
static unsigned steps;

static void run_steps(unsigned self);

static void await_turn(unsigned self)
{
    pthread_mutex_lock(&stage.lock);
    while (stage.turn != self)
        pthread_cond_wait(&stage.changed, &stage.lock);
    pthread_mutex_unlock(&stage.lock);
}

static void *thread_main(void *argument)
{
    unsigned self = (unsigned)(uintptr_t)argument;
    await_turn(self);
    run_steps(self);
    return NULL;
}

static void give_turn(unsigned to)
{
    pthread_mutex_lock(&stage.lock);
    stage.turn = to;
    pthread_cond_broadcast(&stage.changed);
    pthread_mutex_unlock(&stage.lock);
}

/* The turn goes to another thread, which is started if need be, and comes back some time. */
static void hand_over(unsigned self, unsigned to)
{
    if (to == self)
        return;
    if (!stage.alive[to]) {
        stage.alive[to] = true;
        expect_eq(pthread_create(&stage.threads[to], NULL, thread_main, (void *)(uintptr_t)to), 0);
    }
    give_turn(to);
    await_turn(self);
}

/* Ends another thread: it is given the turn to leave, and has left when it is joined. */
static void end_thread(unsigned self, unsigned which)
{
    if (which == self || which == 0 || !stage.alive[which])
        return;
    stage.leave = true;
    give_turn(which);
    pthread_join(stage.threads[which], NULL);
    stage.leave = stage.alive[which] = false;
    stage.turn = self;
}

/* --- steps --------------------------------------------------------------------------------------------------------- */

static void step(unsigned self)
{
    struct fuzz_input *in = input;
    uint8_t what = fuzz_byte(in);
    struct slot *slot = &slots[fuzz_byte(in) % SLOTS];
    switch (what % 16) {
    case 0: fuzz_weather(in); break;
    case 1: fuzz_fair(); break;
    case 2: allocate_wrong(in); break;
    case 3: option(in); break;
    case 4:
        errno = ERRNO_KEPT;
        hak_collect();
        break;
    case 5: end_thread(self, what / 16 % THREADS); break;
    case 6:
    case 7: hand_over(self, what / 16 % THREADS); break;
    case 8:
    case 9: slot->p != NULL ? change_size(in, slot) : allocate(in, slot); break;
    default: slot->p != NULL ? release(in, slot) : allocate(in, slot);
    }
}

static void run_steps(unsigned self)
{
    while (fuzz_more(input) && steps < STEPS_MOST && !stage.leave) {
        steps++;
        step(self);
        if (!stage.leave)
            fuzz_expect_valid();
    }
    if (self != 0 && !stage.leave) {   /* the input has ended: thread 0 tidies up, and has this one end */
        give_turn(0);
        await_turn(self);
    }
}

void fuzz_one(struct fuzz_input *in)
{
    input = in;
    run_steps(0);
    for (unsigned i = 1; i < THREADS; i++)
        end_thread(0, i);
    fuzz_fair();
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].p != NULL)
            release(in, &slots[i]);
    fuzz_expect_empty();
}
