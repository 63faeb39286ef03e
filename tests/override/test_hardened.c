/* Hardened mode, each of its parts by its effect: the program asks itself, run anew with the options in its environment, which
 * effects there are. With harden=0 there is none, with harden=1 all are there, and each part that a list
 * leaves out takes away its own and no other. Then what must be right in spite of all: sizes, alignment, contents, threads, forks, the check of the heap. */
// test: ordinary timeout=240
#include "expect.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "hakmem.h"
#include "hakmem_stats.h"

enum { MANY = 4000, SLAB = 64 << 10 };

static void *volatile kept[MANY];

/* Not one of the standard's calls: nothing about freed memory is known to the compiler. */
static void *(*volatile take)(size_t) = malloc;
static void (*volatile drop)(void *) = free;

/* How a child ends that does this. */
static int ending(void (*work)(void *), void *argument)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        expect(freopen("/dev/null", "w", stderr) != NULL);
        work(argument);
        _exit(0);
    }
    expect(child > 0 && waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void touch(void *p) { *(volatile char *)p = 1; }
static bool faults(void *p) { return ending(touch, p) == SIGSEGV; }

/* --- one effect each ------------------------------------------------------------------------------------------------------ */

static void write_behind(void *argument)
{
    size_t n = *(size_t *)argument;
    char *p = take(n);
    p[n] = 1;
    drop(p);
}

static bool canary(void)
{
    static size_t sizes[] = { 1, 24, 100, 1000, 5000, 60000, 300000 };
    unsigned found = 0;
    for (unsigned i = 0; i < 7; i++)
        found += ending(write_behind, &sizes[i]) == SIGABRT;
    expect(found == 0 || found == 7);
    return found != 0;
}

static bool zero(void)
{
    static const size_t sizes[] = { 40, 1000, 5000, 30000, 50000 }; /* longer ones fault */
    unsigned found = 0;
    for (unsigned i = 0; i < 5; i++) {
        char *volatile p = take(sizes[i]), *volatile q = p;
        memset(p, 0x5a, sizes[i]);
        drop(p);
        found += q[sizes[i] / 2] == 0;
    }
    expect(found == 0 || found == 5);
    return found != 0;
}

/* Large blocks are inaccessible from their free until they leave their quarantine, and are as new then. */
static bool closed(void)
{
    static const size_t sizes[] = { 132000, 200 << 10, 500000, 1000000 };
    unsigned found = 0, again = 0;
    for (unsigned i = 0; i < 4; i++) {
        char *p = take(sizes[i]);
        memset(p, 0x5a, sizes[i]);
        expect(!faults(p) && !faults(p + sizes[i] - 1));
        drop(p);
        found += faults(p) && faults(p + sizes[i] / 2) && faults(p + sizes[i] - 1);
        for (unsigned k = 0; k < 40; k++) {
            char *q = take(sizes[i]);
            again += q == p;
            q[sizes[i] / 2]++;
            drop(q);
        }
    }
    expect(found == 0 || (found == 4 && again != 0));
    return found != 0;
}

static bool random_order(void)
{
    unsigned upwards = 0, count = 200;
    for (unsigned i = 0; i < count; i++)
        kept[i] = take(200);
    for (unsigned i = 1; i < count; i++)
        upwards += (uintptr_t)kept[i] > (uintptr_t)kept[i - 1];
    for (unsigned i = 0; i < count; i++)
        drop(kept[i]);
    return upwards < count * 3 / 4 && upwards > count / 4;
}

/* The block just freed is not among the next ones; of any size. */
static bool quarantine(void)
{
    static const size_t sizes[] = { 24, 500, 5000, 40000, 300000, 3 << 20 };
    unsigned late = 0;
    for (unsigned i = 0; i < 6; i++) {
        void *p = take(sizes[i]);
        bool again = false;
        drop(p);
        for (unsigned k = 0; k < 4; k++) {
            kept[k] = take(sizes[i]);
            again |= kept[k] == p;
        }
        for (unsigned k = 0; k < 4; k++)
            drop(kept[k]);
        late += !again;
    }
    return late == 6;
}

/* The last page of each slab in which a small block lies, and of the ten slabs of half a MiB. */
static bool guards(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned found = 0, count = 8;
    for (unsigned i = 0; i < count; i++) {
        char *p = take(i % 2 == 0 ? 16 << i / 2 : 1 << 19);
        uintptr_t end = ((uintptr_t)p & ~(uintptr_t)(SLAB - 1)) + (i % 2 == 0 ? 1 : 10) * SLAB;
        found += faults((void *)(end - page)) || faults((void *)(end - 1));
        drop(p);
    }
    return found == count;
}

/* Slabs that had blocks of one size, which are freed, never have blocks of another; nor do huge blocks lie there. */
static bool regions(void)
{
    static uintptr_t slabs[MANY];
    static const size_t first[] = { 1000, 30000, 100000 }, then[] = { 3000, 50000, 200000, 2 << 20 };
    unsigned met = 0;
    for (unsigned round = 0; round < 3; round++) {
        unsigned count = (unsigned)(16000000 / first[round]), others;
        count = count < MANY ? count : MANY;
        for (unsigned i = 0; i < count; i++) {
            kept[i] = take(first[round]);
            slabs[i] = (uintptr_t)kept[i] / SLAB;
        }
        for (unsigned i = 0; i < count; i++)
            drop(kept[i]);
        malloc_trim(0);
        for (unsigned size = 0; size < 4; size++) {
            others = (unsigned)(8000000 / then[size]) + 1;
            for (unsigned i = 0; i < others; i++)
                kept[i] = take(then[size]);
            for (unsigned i = 0; i < others; i++)
                for (unsigned k = 0; k < count && met == 0; k++)
                    met += slabs[k] - (uintptr_t)kept[i] / SLAB <= (then[size] - 1) / SLAB;
            for (unsigned i = 0; i < others; i++)
                drop(kept[i]);
        }
    }
    return met == 0;
}

static void drop_twice(void *p)
{
    drop(p);
    drop(p);
}

static bool zero_size(void)
{
    void *p = take(0), *q = take(0), *r = calloc(0, 8);
    expect(p != NULL && q != NULL && r != NULL && p != q && q != r && p != r && (uintptr_t)p % 16 == 0);
    bool nowhere = faults(p);
    expect(ending(drop_twice, p) == SIGABRT);
    p = realloc(p, 100);
    expect_block(p, 100);
    drop(p);
    drop(q);
    drop(r);
    for (unsigned i = 0; i < MANY; i++)
        kept[i] = take(0);
    for (unsigned i = 0; i < MANY; i++)
        drop(kept[i]);
    return nowhere;
}

/* Whatever the list: hak_heap_of knows the blocks of a user heap, and a visit sees those in use. */
static void *in_use[MANY];
static unsigned count_in_use, seen;

static int see(void *block, size_t size, void *argument)
{
    (void)size, (void)argument;
    unsigned i = 0;
    while (i < count_in_use && in_use[i] != block)
        i++;
    expect(i < count_in_use);
    seen++;
    return 0;
}

static void user_heaps(void)
{
    static const size_t sizes[] = { 1, 16, 100, 1000, 5000, 30000, 57344, 100000, 200000, 700000, 1000000, 3 << 20 };
    enum { SIZES = sizeof sizes / sizeof *sizes, EACH = 6 };
    hak_heap_t *heap = hak_heap_new(NULL);
    for (unsigned i = 0; i < SIZES * EACH; i++) {
        in_use[i] = hak_heap_malloc(heap, sizes[i / EACH]);
        memset(in_use[i], i % 3 == 0 ? 0 : 0x5a, sizes[i / EACH]);
        expect(hak_heap_of(in_use[i]) == heap);
    }
    for (unsigned i = 0; i < SIZES * EACH; i++) {
        void *p = in_use[i];
        if (i % 2 == 0)
            in_use[count_in_use++] = p;
        else
            hak_heap_free(heap, p);
        expect(hak_heap_of(p) == (i % 2 == 0 ? heap : NULL));
    }
    expect(hak_heap_visit(heap, see, NULL) == 0);
    expect(seen == count_in_use);
    hak_heap_destroy(heap);
}

static const struct effect {
    const char *name;
    bool (*holds)(void);
} effects[] = {
    { "zero_size", zero_size },   { "guards", guards },   { "random", random_order }, { "canary", canary }, { "zero", zero },
    { "quarantine", quarantine }, { "regions", regions }, { "closed", closed }, /* no option's own: what is cleared, and waits */
};
enum { EFFECTS = sizeof effects / sizeof *effects, CLOSED = EFFECTS - 1 };

/* --- asking oneself ------------------------------------------------------------------------------------------------------- */

static char self[4096];

/* The effects there are, as bits, with this value of HAKMEM_HARDEN and, unless it is NULL, of HAKMEM_HARDEN_QUARANTINE. */
static unsigned ask(const char *harden, const char *quarantine)
{
    char text[16] = "";
    int pipe_ends[2];
    expect(pipe(pipe_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("HAKMEM_HARDEN", harden, 1);
        setenv("HAKMEM_CHECK", "1", 1);
        if (quarantine != NULL)
            setenv("HAKMEM_HARDEN_QUARANTINE", quarantine, 1);
        dup2(pipe_ends[1], 1);
        execl(self, self, "effects", (char *)NULL);
        _exit(3);
    }
    close(pipe_ends[1]);
    ssize_t length = read(pipe_ends[0], text, sizeof text - 1);
    int status;
    expect(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 && length > 0);
    close(pipe_ends[0]);
    return (unsigned)strtoul(text, NULL, 0);
}

/* Whatever the parts: of freed huge blocks only addresses wait. */
static void huge_blocks_go_back(void)
{
    enum { HUGE = 8 << 20, ROUNDS = 40 };
    size_t before = resident_bytes();
    for (int i = 0; i < ROUNDS; i++) {
        void *p = take(HUGE);
        memset(p, 1, HUGE);
        drop(p);
    }
    expect(resident_bytes() < before + 6 * (size_t)HUGE);
}

/* Whatever the parts: with a canary a block has what was asked for, without one at least that. */
static void good_sizes(void)
{
    for (size_t n = 0; n < 4 << 20; n += n / 8 + 1) {
        void *p = take(n);
        expect(hak_good_size(n) >= n && malloc_usable_size(p) >= hak_good_size(n));
        drop(p);
    }
}

static int print_effects(void)
{
    unsigned bits = 0;
    user_heaps();
    good_sizes();
    huge_blocks_go_back();
    for (unsigned i = 0; i < EFFECTS; i++)
        bits |= (unsigned)effects[i].holds() << i;
    printf("%u\n", bits);
    return 0;
}

static bool is_part(unsigned effect) { return effect < CLOSED && strcmp(effects[effect].name, "quarantine") != 0; }

/* The names of all parts but one, or, with `only`, of that one. */
static const char *list(unsigned part, bool only, char separator)
{
    static char names[128];
    size_t length = 0;
    for (unsigned i = 0; i < EFFECTS; i++)
        if (is_part(i) && (i == part) == only)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%c", effects[i].name, separator);
    names[length - 1] = 0;
    return names;
}

static void parts(void)
{
    unsigned all = (1u << EFFECTS) - 1, none = 0;
    expect(ask("1", NULL) == all);
    unsigned plain = ask("0", NULL);
    for (unsigned i = 0; i < EFFECTS; i++) /* without hardened mode there may be room behind a block by chance, and so on */
        none |= strcmp(effects[i].name, "regions") == 0 || strcmp(effects[i].name, "guards") == 0 ? plain & 1u << i : 0;
    expect(plain == none);
    for (unsigned i = 0; i < CLOSED; i++) {
        bool opens = strcmp(effects[i].name, "zero") == 0 || strcmp(effects[i].name, "quarantine") == 0;
        unsigned without = is_part(i) ? ask(list(i, false, i % 2 != 0 ? ',' : '+'), NULL) : ask("1", "0");
        unsigned expected = all & ~(1u << i) & ~((unsigned)opens << CLOSED);
        if (without != expected)
            fprintf(stderr, "without %s: %#x\n", effects[i].name, without);
        expect(without == expected);
        unsigned unmapped = strcmp(effects[i].name, "guards") == 0 ? 1u << CLOSED : 0; /* spans that have emptied are */
        if (is_part(i))
            expect((ask(list(i, true, ','), "0") & ~none & ~unmapped) == (1u << i & ~none));
    }
    expect(ask(list(EFFECTS, false, ','), NULL) == all);
}

/* --- what must be right all the same -------------------------------------------------------------------------------------- */

static void sizes(void)
{
    for (size_t n = 0; n < 3 << 20; n += 1 + n / 7) {
        unsigned char *p = take(n);
        expect(p != NULL && (uintptr_t)p % 16 == 0 && malloc_usable_size(p) == n);
        for (size_t i = 0; i < n; i += 1 + n / 50)
            expect(p[i] == 0);
        memset(p, 0x77, n);
        p = realloc(p, n + n / 3 + 1);
        expect(p != NULL && malloc_usable_size(p) == n + n / 3 + 1);
        for (size_t i = 0; i < n; i += 1 + n / 50)
            expect(p[i] == 0x77);
        memset(p, 0x78, n + n / 3 + 1);
        p = realloc(p, n / 2 + 1);
        expect(p != NULL && malloc_usable_size(p) == n / 2 + 1 && p[n / 2] == 0x78);
        drop(p);
        p = calloc(1, n);
        for (size_t i = 0; i < n; i++)
            expect(p[i] == 0);
        drop(p);
    }
}

static void alignments(void)
{
    for (size_t align = 16; align <= 4 << 20; align *= 2)
        for (size_t n = 1; n < 2 << 20; n *= 5) {
            void *p = NULL;
            expect(posix_memalign(&p, align, n) == 0 && (uintptr_t)p % align == 0 && malloc_usable_size(p) == n);
            memset(p, 1, n);
            drop(p);
        }
}

static void impossible(void)
{
    for (size_t i = 0; i < 20; i++) {
        errno = 0;
        expect(take(SIZE_MAX - i) == NULL && errno == ENOMEM);
        expect(take(PTRDIFF_MAX - i) == NULL && aligned_alloc(64, SIZE_MAX - 63 - 64 * i) == NULL);
    }
}

/* Who frees is not who has allocated; the threads end with blocks of the others in quarantine. */
static void *take_some(void *argument)
{
    for (unsigned i = 0; i < MANY; i++) {
        kept[i] = take(1 + i % 3000);
        memset(kept[i], 1, 1 + i % 3000);
    }
    return argument;
}

static void *drop_some(void *argument)
{
    for (unsigned i = 0; i < MANY; i++)
        drop(kept[i]);
    return argument;
}

static void threads(void)
{
    for (unsigned round = 0; round < 6; round++) {
        pthread_t one, other;
        expect(pthread_create(&one, NULL, take_some, NULL) == 0 && pthread_join(one, NULL) == 0);
        expect(pthread_create(&other, NULL, drop_some, NULL) == 0 && pthread_join(other, NULL) == 0);
        expect(hak_check_heap());
    }
}

static void work_in_child(void *argument)
{
    (void)argument;
    drop_some(NULL);
    take_some(NULL);
    threads();
}

static void forks(void)
{
    take_some(NULL);
    for (unsigned i = 0; i < 5; i++)
        expect(ending(work_in_child, NULL) == 0);
    drop_some(NULL);
}

/* --- the check beside threads at work --------------------------------------------------------------------------------------- */

enum { BUSY = 4, CHECKS = 20, BUSY_FORKS = 10, INTERRUPTED_US = 5000 };

static _Atomic bool enough, begun;

/* Blocks that are sealed, sealed anew and cleared all the time. */
static void *seal_and_clear(void *argument)
{
    void *(*volatile resize)(void *, size_t) = realloc;
    for (size_t n = 8; !enough; n = n % 400 + 7) {
        char *p = take(n);
        memset(p, 1, n);
        p = resize(p, n + n / 4);
        p[n] = 1;
        drop(p);
    }
    return argument;
}

/* A block as it is when its thread is interrupted while sealing it. */
static void *seal_slowly(void *argument)
{
    volatile char *behind = (volatile char *)argument + 21;
    while (!enough) {
        *behind ^= 1;
        begun = true;
        usleep(INTERRUPTED_US);
        *behind ^= 1;
        usleep(INTERRUPTED_US / 10);
    }
    return NULL;
}

static void check_in_child(void *argument)
{
    (void)argument;
    expect(hak_check_heap());
    threads();
}

/* What a thread is at just now, or was when the process forked, is no damage. */
static void checks_of_busy_heaps(void)
{
    pthread_t busy[BUSY + 1];
    void *half_sealed = take(20);
    for (unsigned i = 0; i <= BUSY; i++)
        expect(pthread_create(&busy[i], NULL, i < BUSY ? seal_and_clear : seal_slowly, half_sealed) == 0);
    while (!begun)
        usleep(INTERRUPTED_US);
    for (unsigned i = 0; i < CHECKS; i++)
        expect(hak_check_heap());
    for (unsigned i = 0; i < BUSY_FORKS; i++)
        expect(ending(check_in_child, NULL) == 0);
    enough = true;
    for (unsigned i = 0; i <= BUSY; i++)
        pthread_join(busy[i], NULL);
    drop(half_sealed);
}

/* --- user heaps within limits ------------------------------------------------------------------------------------------------- */

/* Fills the heap with clear blocks; returns how many bytes it had room for. */
static size_t fill(hak_heap_t *heap, size_t size)
{
    static const char clear[5000];
    size_t bytes = 0;
    char *p;
    for (count_in_use = 0; count_in_use < MANY && (p = hak_heap_calloc(heap, 1, size)) != NULL; bytes += size) {
        expect(size > sizeof clear || memcmp(p, clear, size) == 0);
        memset(p, 0x5a, size);
        in_use[count_in_use++] = p;
    }
    return bytes;
}

static void free_all(void)
{
    while (count_in_use != 0)
        hak_free(in_use[--count_in_use]);
}

/* What a heap has freed goes back, and its sibling may have it, though the slabs stay reserved; and the other way round. */
static void freed_in_user_heaps(void)
{
    enum { LIMIT = 4 << 20, MOST = LIMIT / 4 * 3 };
    struct hak_heap_options options = { .size = sizeof options, .limit = LIMIT };
    struct hak_heap_figures figures;
    hak_heap_t *parent = hak_heap_new(&options);
    options = (struct hak_heap_options){ .size = sizeof options, .parent = parent };
    hak_heap_t *heaps[] = { hak_heap_new(&options), hak_heap_new(&options) };
    static const size_t sizes[] = { 1500, 5000, 40000, 1500 };
    for (unsigned i = 0; i < 4; i++) {
        expect(fill(heaps[i % 2], sizes[i]) >= MOST);
        free_all();
    }
    expect(fill(heaps[0], 1500) >= MOST);
    size_t full = resident_bytes();
    free_all();
    hak_heap_collect(parent);
    expect(hak_heap_stats(parent, &figures, sizeof figures) == 0 && figures.used_bytes == 0);
    expect(resident_bytes() + MOST / 2 < full);
    expect(hak_check_heap());
    expect(fill(heaps[1], 700) >= MOST / 2);
    hak_heap_destroy(heaps[1]);
    expect(fill(heaps[0], 5000) >= MOST);
    hak_heap_reset(parent);
}

/* What a user heap has left to malloc by a merge goes back once it is free, before the merge or after it. */
static void merged_heaps(void)
{
    struct hak_stats stats;
    for (unsigned round = 0; round < 40; round++) {
        hak_heap_t *heap = hak_heap_new(NULL);
        for (unsigned i = 0; i < MANY; i++)
            kept[i] = hak_heap_malloc(heap, 1000 + i % 3 * 1000);
        for (unsigned i = 0; i < MANY && round % 2 == 0; i++)
            hak_free(kept[i]);
        expect(hak_heap_merge_into_default(heap) == 0);
        for (unsigned i = 0; i < MANY && round % 2 != 0; i++)
            hak_free(kept[i]);
        hak_heap_destroy(heap);
    }
    expect(hak_stats_snapshot(&stats, sizeof stats) == 0 && stats.bytes_spans < 64 << 20);
}

static void run_right(void)
{
    setenv("HAKMEM_HARDEN", "1", 1);
    execl(self, self, "right", (char *)NULL);
    expect(false);
}

int main(int argc, char **argv)
{
    expect(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    if (argc > 1 && strcmp(argv[1], "effects") == 0)
        return print_effects();
    if (argc == 1) {
        parts();
        run_right();
    }
    sizes();
    alignments();
    impossible();
    threads();
    forks();
    checks_of_busy_heaps();
    freed_in_user_heaps();
    merged_heaps();
    sizes();
    expect(hak_check_heap());
    return 0;
}
