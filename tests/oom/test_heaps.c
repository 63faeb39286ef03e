/* Out of memory in heaps of one's own: the N-th call to the system fails, for every N, while heaps are made, used, reset, merged
 * and destroyed.
 *
 * Expects: a request gives NULL with errno = ENOMEM and nothing else; what is live keeps its contents; destruction and reset never
 * fail; afterwards the same work runs through, nothing is live and every invariant holds. A thread that cannot set its default heap
 * learns it.
 *
 * Knobs (environment)      default    meaning
 *   HAK_OOM_STRIDE         5          try every so many-th N only (sanitizers: 23); the long run is 1 */
// test: timeout=300
#include <pthread.h>
#include <sys/mman.h>

#include "hakmem.h"
#include "support/fault_os.h"
#include "support/stress.h"

enum { BLOCKS = 400, HEAPS = 12 };

static struct shared {
    uint64_t calls, refused, without_default;
} *shared;

static struct stress_block blocks[BLOCKS];

static size_t size_at(unsigned i) { return i % 97 == 5 ? (size_t)3 << 20 : i % 13 == 4 ? 70000 + i * 500u : 16 + i * 31 % 6000; }

static void refused(const char *what)
{
    STRESS_EXPECT(errno == ENOMEM, "%s failed with %d", what, errno);
    STRESS_EXPECT(fault_failures() > 0, "%s failed though the system did not", what);
    shared->refused++;
}

static void use(hak_heap_t *heap)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        errno = 0;
        blocks[i] = (struct stress_block){ hak_heap_malloc(heap, size_at(i)), size_at(i) };
        if (blocks[i].p == NULL)
            refused("hak_heap_malloc");
        else
            stress_fill(blocks[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i += 3) {
        if (blocks[i].p == NULL)
            continue;
        errno = 0;
        unsigned char *p = hak_heap_realloc(heap, blocks[i].p, blocks[i].size / 2 + 4000);
        if (p == NULL)
            refused("hak_heap_realloc");
        else
            stress_check(blocks[i], p, blocks[i].size < blocks[i].size / 2 + 4000 ? blocks[i].size : blocks[i].size / 2 + 4000);
        hak_free(p != NULL ? p : blocks[i].p);
        blocks[i].p = NULL;
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].p != NULL)
            stress_check(blocks[i], blocks[i].p, blocks[i].size);
}

static void workload(void)
{
    for (unsigned h = 0; h < HEAPS; h++) {
        errno = 0;
        hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .name = "scarce" });
        if (heap == NULL) {
            refused("hak_heap_new");
            continue;
        }
        use(heap);
        if (h % 3 == 1) {
            hak_heap_reset(heap);
            use(heap);
        }
        if (h % 3 == 2 && hak_heap_merge_into_default(heap) == 0)
            for (unsigned i = 0; i < BLOCKS; i++)
                hak_free(blocks[i].p);
        hak_heap_destroy(heap);
    }
}

/* --- default heaps ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 64 };

static pthread_barrier_t barrier;

/* All threads' first call; each keeps what it has got until all have asked. */
static void *sets_its_default(void *argument)
{
    hak_heap_t *heap = argument;
    pthread_barrier_wait(&barrier);
    errno = 0;
    STRESS_EXPECT(hak_heap_set_default(heap) == NULL, "the default was malloc's");
    bool set = hak_heap_get_default() == heap;
    STRESS_EXPECT(errno == (set ? 0 : ENOMEM), "errno is %d, and the default is %s", errno, set ? "set" : "not set");
    void *p = hak_malloc(100);
    STRESS_EXPECT(p == NULL || hak_heap_of(p) == (set ? heap : NULL), "the block is another heap's");
    hak_free(p);
    pthread_barrier_wait(&barrier);
    if (set)
        STRESS_EXPECT(hak_heap_set_default(NULL) == heap, "the default has been set");
    return set ? argument : NULL;
}

static void threads_set_defaults(const void *argument)
{
    pthread_t threads[THREADS];
    hak_heap_t *heap = hak_heap_new(NULL);
    void *got;
    STRESS_EXPECT(heap != NULL, "there is memory so far");
    STRESS_EXPECT(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0, "a barrier");
    for (unsigned i = 0; i < THREADS; i++)
        STRESS_EXPECT(pthread_create(&threads[i], NULL, sets_its_default, heap) == 0, "a thread");
    fault_install((struct fault_plan){ FAULT_FROM_THEN_ON, 1, ENOMEM });
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    fault_install((struct fault_plan){ FAULT_NEVER, 0, 0 });
    for (unsigned i = 0; i < THREADS; i++) {
        STRESS_EXPECT(pthread_join(threads[i], &got) == 0, "a thread's end");
        shared->without_default += got == NULL;
    }
    hak_heap_destroy(heap);
    stress_expect_empty();
    (void)argument;
}

/* --- cases --------------------------------------------------------------------------------------------------------------- */

static void one_case(const void *argument)
{
    STRESS_EXPECT(hak_option_set("background", "0") == 0, "the background thread cannot be switched off");
    fault_install(*(const struct fault_plan *)argument);
    workload();
    shared->calls = fault_calls();
    fault_install((struct fault_plan){ FAULT_NEVER, 0, 0 });
    workload();
    stress_expect_empty();
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fault_plan plan = { FAULT_NEVER, 0, 0 };
    stress_in_child(one_case, &plan, 60, "the workload");
    uint64_t calls = shared->calls, stride = (uint64_t)stress_knob("HAK_OOM_STRIDE", STRESS_SANITIZED ? 23 : 5);
    unsigned cases = 0;
    STRESS_EXPECT(calls >= 10 && shared->refused == 0, "%u calls, %u refusals", (unsigned)calls, (unsigned)shared->refused);
    for (unsigned mode = FAULT_ONCE; mode < FAULT_MODES; mode++) {
        for (uint64_t n = 1 + mode % stride; n <= calls; n += stride, cases++) {
            plan = (struct fault_plan){ (enum fault_mode)mode, n, ENOMEM };
            stress_in_child(one_case, &plan, 60, "a case");
        }
    }
    stress_in_child(threads_set_defaults, NULL, 60, "threads that set their defaults");
    printf("calls=%u cases=%u refusals=%u without_default=%u\n", (unsigned)calls, cases, (unsigned)shared->refused,
           (unsigned)shared->without_default);
    STRESS_EXPECT(shared->refused > 0 && shared->without_default > 0, "some request must have been refused");
    return 0;
}
