/* Weak orders for the explorer: a model of C11's atomics. The code under test is compiled with -fsanitize=thread, and
 * instead of ThreadSanitizer's run-time library this file is linked: the compiler reports every access here.
 *
 *   locations   Each atomic object has the list of all values stored to it in this schedule, in the order of execution,
 *               which is its modification order.
 *   views       Each thread has, per location, the first entry that it may still read: the last one that it has read or
 *               written, or that happens before it. A load may return any entry from there on; which one is a choice
 *               that the explorer takes in every way, up to a number of older values per schedule.
 *   messages    A release store keeps its thread's view and vector clock; an acquire load that reads it joins both. A
 *               read-modify-write reads the last entry and hands on the message of what it has read (release sequence).
 *   seq_cst     The order of execution. A seq_cst load reads nothing older than what the last seq_cst operation on the
 *               location has written or read.
 *   plain       Accesses of which one is a write, one is not atomic, and which no clock orders, are a violation.
 *
 * Not modelled: a load that returns a value stored later (load buffering), stores that overtake one another in one
 * location's modification order, spurious failures of compare-and-swap, fences between threads. */
#include <stdio.h>
#include <string.h>

#include "support/explore.h"

/* ld --wrap turns everybody's calls of these into calls of __wrap_*; this file's own are meant for the C library. */
void *__real_memset(void *p, int value, size_t size);
void *__real_memcpy(void *to, const void *from, size_t size);
void *__real_memmove(void *to, const void *from, size_t size);
#define memset __real_memset
#define memcpy __real_memcpy

enum { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };
enum { THREADS = EXPLORE_THREADS, LOCATIONS = 512, STORES = 256, MESSAGES = 4096, CELLS = 1 << 14, WAYS = 8, SITES = 256 };

struct message {
    unsigned count;
    uint16_t view[LOCATIONS];
    uint32_t clock[THREADS];
};

/* One entry of a modification order. Of a plain write the value is read from memory when it is next looked at. */
struct entry {
    uint64_t value;
    int message;
    bool known;
};

struct location {
    uintptr_t address;
    unsigned size, count, seq_cst; /* the first entry that a seq_cst load may read */
    struct entry entries[STORES];
};

/* Who has accessed a byte, by the times of their clocks. */
struct byte_use {
    uint32_t write[THREADS], read[THREADS], atomic_write[THREADS], atomic_read[THREADS];
};
struct cell {
    uintptr_t granule;
    uint32_t schedule;
    uint16_t location[8];
    struct byte_use bytes[8];
};

static struct location locations[LOCATIONS]; /* from 1 on */
static unsigned location_count, message_count, stale_left;
static struct message messages[MESSAGES];
static struct message threads[THREADS]; /* each thread's own view and clock */
static struct cell cells[CELLS];
static uint32_t schedule;

/* --- operations seen, and the one that is weakened ------------------------------------------------------------------------ */

struct seen_site {
    const char *function, *operation;
    int order;
};
static struct seen_site sites[SITES];
static unsigned site_count;
static struct seen_site mutant;
static int mutant_order;
static bool mutating;

static const char *const order_names[] = { "relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst" };

static bool acquires(int order) { return order == ACQUIRE || order >= ACQ_REL; }
static bool releases(int order) { return order >= RELEASE; }

static bool same_site(struct seen_site a, struct seen_site b)
{
    return a.order == b.order && a.function != NULL && b.function != NULL && strcmp(a.function, b.function) == 0
        && strcmp(a.operation, b.operation) == 0;
}

static bool is_read_only(const char *operation) { return strcmp(operation, "load") == 0 || strcmp(operation, "peek") == 0; }
static bool is_write_only(const char *operation) { return strstr(operation, "store") != NULL; }

/* Whether `weaker` is an order that the operation may have and that promises less than `order`. */
static bool is_weaker(struct seen_site site, int weaker)
{
    if (weaker == CONSUME || weaker >= site.order || (acquires(weaker) && !acquires(site.order)))
        return false;
    bool reads = !is_write_only(site.operation), writes = !is_read_only(site.operation);
    return (reads || !acquires(weaker)) && (writes || !releases(weaker));
}

bool weak_mutant(unsigned n, char *name, unsigned size)
{
    for (unsigned i = 0; i < site_count; i++)
        for (int weaker = RELAXED; weaker <= SEQ_CST; weaker++)
            if (is_weaker(sites[i], weaker) && n-- == 0) {
                snprintf(name, size, "%s:%s:%s -> %s", sites[i].function, sites[i].operation, order_names[sites[i].order],
                         order_names[weaker]);
                mutant_order = weaker;
                mutant = sites[i];
                return true;
            }
    return false;
}

void weak_choose_mutant(unsigned n)
{
    char name[200];
    mutating = weak_mutant(n, name, sizeof name);
}

static int order_here(int order)
{
    struct explore_site at = explore_take_site();
    struct seen_site site = { at.function, at.operation, order };
    if (at.function == NULL || order == RELAXED)
        return order;
    unsigned i = 0;
    while (i < site_count && !same_site(sites[i], site))
        i++;
    if (i == site_count && i < SITES)
        sites[site_count++] = site;
    return mutating && same_site(mutant, site) ? mutant_order : order;
}

/* --- bytes: accesses that nothing orders ------------------------------------------------------------------------------------ */

static struct message *me(void) { return &threads[explore_thread()]; }

static struct cell *cell_of(uintptr_t address)
{
    uintptr_t granule = address >> 3;
    size_t i = (granule * 0x9e3779b97f4a7c15ull >> 40) % CELLS;
    for (unsigned tries = 0; tries < CELLS; tries++, i = (i + 1) % CELLS) {
        struct cell *cell = &cells[i];
        if (cell->schedule == schedule && cell->granule == granule)
            return cell;
        if (cell->schedule != schedule) {
            memset(cell, 0, sizeof *cell);
            cell->schedule = schedule;
            cell->granule = granule;
            return cell;
        }
    }
    explore_violation("weak.c: too many addresses in one schedule; raise CELLS");
}

/* A case may define it: the threads of the case share the real thread's thread-local variables, which it exchanges. */
__attribute__((weak)) bool explore_is_local(const void *at) { return at == NULL; }

static void expect_ordered(const uint32_t times[THREADS], const char *what, uintptr_t address, const void *at)
{
    extern char __executable_start;
    for (unsigned t = 0; t < THREADS; t++)
        if (t != explore_thread() && times[t] > me()->clock[t]) {
            static char text[200];
            snprintf(text, sizeof text, "nothing orders threads %u and %u: %s, address %#lx, at program offset %#lx", t,
                     explore_thread(), what, (unsigned long)address, (unsigned long)((const char *)at - &__executable_start));
            explore_violation(text);
        }
}

enum use { READ, WRITE, ATOMIC_READ, ATOMIC_WRITE };

static void use_byte(struct byte_use *byte, enum use use, uintptr_t address, const void *at)
{
    if (explore_is_local((const void *)address))
        return;
    uint32_t *mine[] = { byte->read, byte->write, byte->atomic_read, byte->atomic_write };
    expect_ordered(byte->write, "a plain write and another access", address, at);
    if (use == READ || use == WRITE)
        expect_ordered(byte->atomic_write, "an atomic write and a plain access", address, at);
    if (use == WRITE || use == ATOMIC_WRITE)
        expect_ordered(byte->read, "a plain read and a write", address, at);
    if (use == WRITE)
        expect_ordered(byte->atomic_read, "an atomic read and a plain write", address, at);
    mine[use][explore_thread()] = me()->clock[explore_thread()];
}

/* --- locations ---------------------------------------------------------------------------------------------------------------- */

static uint64_t memory_at(uintptr_t address, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)address, size); /* both kinds of machine that this runs on are little-endian */
    return value;
}

static void know_last(struct location *location)
{
    struct entry *last = &location->entries[location->count - 1];
    if (!last->known)
        last->value = memory_at(location->address, location->size);
    last->known = true;
}

static unsigned number_of(const struct location *location) { return (unsigned)(location - locations); }

static void append(struct location *location, struct entry entry)
{
    if (location->count == STORES)
        explore_violation("weak.c: too many stores to one object; raise STORES");
    know_last(location);
    me()->view[number_of(location)] = (uint16_t)location->count;
    location->entries[location->count++] = entry;
}

static struct location *locate(uintptr_t address, unsigned size)
{
    struct cell *cell = cell_of(address);
    uint16_t *number = &cell->location[address & 7];
    if (*number == 0) {
        if (location_count + 1 == LOCATIONS)
            explore_violation("weak.c: too many atomic objects; raise LOCATIONS");
        *number = (uint16_t)++location_count;
        struct location *location = &locations[*number];
        location->address = address;
        location->size = size;
        location->count = 1;
        location->seq_cst = 0;
        location->entries[0] = (struct entry){ memory_at(address, size), -1, true };
    }
    know_last(&locations[*number]);
    return &locations[*number];
}

static void plain(const void *p, size_t size, bool write, const void *at)
{
    if (explore_directly() || size == 0)
        return;
    if (write && explore_every_write())
        hak__race_point(NULL, NULL);
    uintptr_t address = (uintptr_t)p;
    for (uintptr_t a = address; a < address + size; a++) {
        struct cell *cell = cell_of(a);
        use_byte(&cell->bytes[a & 7], write ? WRITE : READ, a, at);
        if (write && cell->location[a & 7] != 0)
            append(&locations[cell->location[a & 7]], (struct entry){ 0, -1, false });
    }
}

static void use_atomic(uintptr_t address, unsigned size, bool write, const void *at)
{
    for (uintptr_t a = address; a < address + size; a++)
        use_byte(&cell_of(a)->bytes[a & 7], write ? ATOMIC_WRITE : ATOMIC_READ, a, at);
}

/* --- messages ------------------------------------------------------------------------------------------------------------------- */

static void join(struct message *into, const struct message *from)
{
    for (unsigned i = 1; i <= from->count; i++)
        into->view[i] = into->view[i] > from->view[i] ? into->view[i] : from->view[i];
    for (unsigned t = 0; t < THREADS; t++)
        into->clock[t] = into->clock[t] > from->clock[t] ? into->clock[t] : from->clock[t];
}

static int new_message(void)
{
    if (message_count == MESSAGES)
        explore_violation("weak.c: too many messages; raise MESSAGES");
    struct message *message = &messages[message_count];
    message->count = location_count;
    memset(message->view, 0, (location_count + 1) * sizeof message->view[0]);
    memset(message->clock, 0, sizeof message->clock);
    return (int)message_count++;
}

/* What a store hands on: the message of what it has read in the same step (-1: nothing), and its own if it releases. */
static int message_of(int read, bool release)
{
    if (!release)
        return read;
    int made = new_message();
    messages[made].count = location_count;
    if (read >= 0)
        join(&messages[made], &messages[read]);
    me()->count = location_count;
    join(&messages[made], me());
    me()->clock[explore_thread()]++;
    return made;
}

/* The entry that a load reads, in one of the ways it may. */
static unsigned choose_entry(const struct location *location, int order)
{
    unsigned first = me()->view[number_of(location)], last = location->count - 1;
    if (order == SEQ_CST && location->seq_cst > first)
        first = location->seq_cst;
    if (stale_left == 0 || first == last)
        return last;
    unsigned ways = last - first + 1 < WAYS ? last - first + 1 : WAYS, back = explore_choose(ways);
    stale_left -= back != 0;
    return last - back;
}

static uint64_t read_entry(struct location *location, unsigned index, int order)
{
    struct entry entry = location->entries[index];
    me()->view[number_of(location)] = (uint16_t)index;
    if (acquires(order) && entry.message >= 0)
        join(me(), &messages[entry.message]);
    if (order == SEQ_CST && index > location->seq_cst)
        location->seq_cst = index;
    return entry.value;
}

static void write_entry(struct location *location, uint64_t value, int read, int order)
{
    append(location, (struct entry){ value, -1, true });
    location->entries[location->count - 1].message = message_of(read, releases(order));
    if (order == SEQ_CST)
        location->seq_cst = location->count - 1;
}

/* --- operations ------------------------------------------------------------------------------------------------------------------ */

static uint64_t do_load(const volatile void *p, unsigned size, int order, const void *at)
{
    order = order_here(order);
    use_atomic((uintptr_t)p, size, false, at);
    struct location *location = locate((uintptr_t)p, size);
    return read_entry(location, choose_entry(location, order), order);
}

static void do_store(volatile void *p, unsigned size, uint64_t value, int order, const void *at)
{
    order = order_here(order);
    use_atomic((uintptr_t)p, size, true, at);
    write_entry(locate((uintptr_t)p, size), value, -1, order);
}

/* Reads the last value, as every read-modify-write does; `order` becomes the one that counts. */
static uint64_t do_rmw_read(volatile void *p, unsigned size, int *order, struct location **location, const void *at)
{
    *order = order_here(*order);
    use_atomic((uintptr_t)p, size, true, at);
    *location = locate((uintptr_t)p, size);
    return read_entry(*location, (*location)->count - 1, *order);
}

static void do_rmw_write(struct location *location, uint64_t value, int order)
{
    write_entry(location, value, location->entries[location->count - 1].message, order);
}

/* Whether to go on with the exchange; *expected is what was read otherwise. A failure may read an older value. */
static bool do_cas(volatile void *p, unsigned size, uint64_t *expected, uint64_t value, int order, int failure, const void *at)
{
    int ordered = order_here(order);
    if (ordered != order && !acquires(ordered))
        failure = RELAXED;
    struct location *location = locate((uintptr_t)p, size);
    unsigned index = choose_entry(location, failure), last = location->count - 1;
    if (location->entries[index].value == *expected)
        index = last; /* success needs the last one */
    bool succeeds = location->entries[index].value == *expected;
    use_atomic((uintptr_t)p, size, succeeds, at);
    uint64_t read = read_entry(location, index, succeeds ? ordered : failure);
    if (succeeds)
        do_rmw_write(location, value, ordered);
    else
        *expected = read;
    return succeeds;
}

void weak_begin(unsigned stale)
{
    schedule++;
    location_count = message_count = 0;
    stale_left = stale;
    memset(threads, 0, sizeof threads);
    for (unsigned t = 0; t < THREADS; t++)
        threads[t].clock[t] = 1;
}

/* --- what the compiler calls --------------------------------------------------------------------------------------------------------- */

#define HERE __builtin_return_address(0)

static bool goes_directly(const volatile void *p)
{
    bool local = !explore_directly() && explore_is_local((const void *)(uintptr_t)p);
    if (local)
        explore_take_site();
    return local || explore_directly();
}

#define WEAK_ATOMIC(bits) \
    typedef uint##bits##_t u##bits; \
    u##bits __tsan_atomic##bits##_load(const volatile u##bits *p, int order); \
    u##bits __tsan_atomic##bits##_load(const volatile u##bits *p, int order) \
    { \
        return goes_directly(p) ? *p : (u##bits)do_load(p, sizeof *p, order, HERE); \
    } \
    void __tsan_atomic##bits##_store(volatile u##bits *p, u##bits value, int order); \
    void __tsan_atomic##bits##_store(volatile u##bits *p, u##bits value, int order) \
    { \
        if (!goes_directly(p)) \
            do_store(p, sizeof *p, value, order, HERE); \
        *p = value; \
    } \
    WEAK_RMW(bits, exchange, value) \
    WEAK_RMW(bits, fetch_add, (u##bits)(before + value)) \
    WEAK_RMW(bits, fetch_sub, (u##bits)(before - value)) \
    WEAK_RMW(bits, fetch_or, (u##bits)(before | value)) \
    WEAK_RMW(bits, fetch_and, (u##bits)(before & value)) \
    WEAK_CAS(bits, strong) \
    WEAK_CAS(bits, weak)

#define WEAK_RMW(bits, name, result) \
    u##bits __tsan_atomic##bits##_##name(volatile u##bits *p, u##bits value, int order); \
    u##bits __tsan_atomic##bits##_##name(volatile u##bits *p, u##bits value, int order) \
    { \
        struct location *location = NULL; \
        u##bits before = *p; \
        if (!explore_directly()) \
            before = (u##bits)do_rmw_read(p, sizeof *p, &order, &location, HERE); \
        u##bits after = result; \
        if (location != NULL) \
            do_rmw_write(location, after, order); \
        *p = after; \
        return before; \
    }

#define WEAK_CAS(bits, kind) \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile u##bits *p, u##bits *expected, u##bits value, int order, \
                                                      int failure); \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile u##bits *p, u##bits *expected, u##bits value, int order, \
                                                      int failure) \
    { \
        uint64_t wanted = *expected; \
        bool succeeds = *p == *expected; \
        u##bits read = *p; \
        if (!explore_directly()) { \
            succeeds = do_cas(p, sizeof *p, &wanted, value, order, failure, HERE); \
            read = (u##bits)wanted; \
        } \
        if (succeeds) \
            *p = value; \
        else \
            *expected = read; \
        return succeeds; \
    }

WEAK_ATOMIC(8)
WEAK_ATOMIC(16)
WEAK_ATOMIC(32)
WEAK_ATOMIC(64)

#define WEAK_PLAIN(name, size) \
    void __tsan_read##name(void *p); \
    void __tsan_read##name(void *p) { plain(p, size, false, HERE); } \
    void __tsan_write##name(void *p); \
    void __tsan_write##name(void *p) { plain(p, size, true, HERE); } \
    void __tsan_unaligned_read##name(void *p); \
    void __tsan_unaligned_read##name(void *p) { plain(p, size, false, HERE); } \
    void __tsan_unaligned_write##name(void *p); \
    void __tsan_unaligned_write##name(void *p) { plain(p, size, true, HERE); }

WEAK_PLAIN(1, 1)
WEAK_PLAIN(2, 2)
WEAK_PLAIN(4, 4)
WEAK_PLAIN(8, 8)
WEAK_PLAIN(16, 16)

void __tsan_read_range(void *p, size_t size);
void __tsan_read_range(void *p, size_t size) { plain(p, size, false, HERE); }
void __tsan_write_range(void *p, size_t size);
void __tsan_write_range(void *p, size_t size) { plain(p, size, true, HERE); }
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order) { (void)order; } /* for the compiler alone */
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}

/* Calls of these by the code under test come here (ld --wrap): their accesses are reported by nobody else. */
void *__wrap_memset(void *p, int value, size_t size);
void *__wrap_memset(void *p, int value, size_t size)
{
    plain(p, size, true, HERE);
    return __real_memset(p, value, size);
}
void *__wrap_memcpy(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *to, const void *from, size_t size)
{
    plain(from, size, false, HERE);
    plain(to, size, true, HERE);
    return __real_memcpy(to, from, size);
}
void *__wrap_memmove(void *to, const void *from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size)
{
    plain(from, size, false, HERE);
    plain(to, size, true, HERE);
    return __real_memmove(to, from, size);
}
