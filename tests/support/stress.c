/* See stress.h. */
#include "arena/runs.h"
#include "cache/cache.h"
#include "heap/heap.h"
#include "support/stress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>

enum { WHOLE = 512, HEAD = 256, TAIL = 64, STEP = 4096, HUGE_STEP = 64 << 10 };

void stress_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: expected %s: ", file, line, condition);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

double stress_knob(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != 0 ? strtod(text, NULL) : otherwise;
}

bool stress_emulated(void) { return stress_knob("HAK_TEST_EMULATED", 0) != 0; }

double stress_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void stress_sleep(double seconds)
{
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    nanosleep(&t, NULL);
}

/* --- random numbers ------------------------------------------------------------------------------------------------ */

uint64_t stress_next(struct stress_random *random)
{
    uint64_t x = random->state + 0x9e3779b97f4a7c15ull;
    random->state = x;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

size_t stress_below(struct stress_random *random, size_t limit) { return (size_t)(stress_next(random) % limit); }

size_t stress_size(struct stress_random *random)
{
    size_t kind = stress_below(random, 1000);
    if (kind < 600)
        return stress_below(random, 129);
    if (kind < 850)
        return stress_below(random, HAK_TINY_MAX + 1);
    if (kind < 970)
        return stress_below(random, HAK_MID_MAX + 1);
    if (kind < 996)
        return stress_below(random, HAK_LARGE_MAX + 1);
    return stress_below(random, 4u << 20);
}

/* --- blocks -------------------------------------------------------------------------------------------------------- */

static unsigned char byte_of(struct stress_block block, size_t i)
{
    uint64_t key = ((uint64_t)(uintptr_t)block.p ^ block.size) * 0x9e3779b97f4a7c15ull;
    return (unsigned char)((key >> (i % 8 * 8)) + i / 8);
}

/* The next offset after i that carries content. */
static size_t next_offset(size_t size, size_t i)
{
    if (size <= WHOLE || i + 1 < HEAD || i + 1 >= size - TAIL)
        return i + 1;
    size_t step = size > HAK_LARGE_MAX ? HUGE_STEP : STEP, next = (i / step + 1) * step;
    return next < size - TAIL ? next : size - TAIL;
}

void stress_fill(struct stress_block block)
{
    for (size_t i = 0; i < block.size; i = next_offset(block.size, i))
        block.p[i] = byte_of(block, i);
}

void stress_check(struct stress_block block, const unsigned char *where, size_t length)
{
    for (size_t i = 0; i < length && i < block.size; i = next_offset(block.size, i))
        STRESS_EXPECT(where[i] == byte_of(block, i), "block %p of %zu bytes, at %p now, is damaged at offset %zu", (void *)block.p,
                      block.size, (const void *)where, i);
}

static void expect_zero(const unsigned char *p, size_t size)
{
    for (size_t i = 0; i < size; i += i < STEP ? 1 : 64)
        STRESS_EXPECT(p[i] == 0, "calloc(%zu) at %p has byte %zu", size, (const void *)p, i);
}

static void *alloc_aligned(struct stress_random *random, size_t size, bool posix)
{
    void *p = NULL;
    size_t align = (size_t)16 << stress_below(random, stress_below(random, 50) == 0 ? 18 : 9);
    if (!posix)
        p = hak_memalign(align, size);
    else
        STRESS_EXPECT(hak_posix_memalign(&p, align, size) == 0, "posix_memalign(%zu, %zu)", align, size);
    STRESS_EXPECT((uintptr_t)p % align == 0, "%p for alignment %zu", p, align);
    return p;
}

struct stress_block stress_alloc(struct stress_random *random, size_t size)
{
    struct stress_block block = { NULL, size };
    size_t kind = stress_below(random, 16);
    if (kind < 2)
        block.p = alloc_aligned(random, size, kind == 0);
    else if (kind < 5)
        block.p = hak_calloc(1, size);
    else
        block.p = hak_malloc(size);
    STRESS_EXPECT(block.p != NULL, "%zu bytes by function %zu", size, kind);
    STRESS_EXPECT((uintptr_t)block.p % HAK_ALIGN == 0, "%p", (void *)block.p);
    STRESS_EXPECT(hak_usable_size(block.p) >= size, "%zu of %zu", hak_usable_size(block.p), size);
    if (kind >= 2 && kind < 5)
        expect_zero(block.p, size);
    stress_fill(block);
    return block;
}

void stress_realloc(struct stress_block *block, size_t size)
{
    struct stress_block former = *block;
    size = size == 0 ? 1 : size;
    stress_check(former, former.p, former.size);
    block->p = hak_realloc(former.p, size);
    block->size = size;
    STRESS_EXPECT(block->p != NULL, "realloc to %zu bytes", size);
    stress_check(former, block->p, size);
    stress_fill(*block);
}

void stress_free(struct stress_block *block)
{
    if (block->p != NULL)
        stress_check(*block, block->p, block->size);
    errno = 77;
    hak_free(block->p);
    STRESS_EXPECT(errno == 77, "free changed errno to %d", errno);
    *block = (struct stress_block){ NULL, 0 };
}

/* --- the process --------------------------------------------------------------------------------------------------- */

size_t stress_rss(void)
{
    char text[128] = "";
    unsigned long pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
        sscanf(text, "%*u %lu", &pages);
    if (fd >= 0)
        close(fd);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t stress_rss_peak(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmHWM: %lu", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return (size_t)kib * 1024;
}

static bool heap_exists(uint32_t id) { return hak_load(&hak__heap_by_id(id)->state, HAK_ACQUIRE) != HAK_HEAP_NEW; }

void stress_expect_valid(void)
{
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++) {
        if (!heap_exists(id))
            continue;
        STRESS_EXPECT(hak__heap_is_valid(hak__heap_by_id(id)), "heap %u", id);
        STRESS_EXPECT(hak__cache_is_valid(hak__heap_by_id(id)), "cache of heap %u", id);
    }
    STRESS_EXPECT(hak__arena_is_valid(), "the arena");
}

/* The background thread may be collecting for the heap just now, with what was pending in hand. */
static void collect_alone(struct hak_heap *heap)
{
    while (!hak__heap_try_lock(heap, HAK_SWEEPER))
        stress_sleep(0.0005);
    hak__heap_collect(heap);
    hak__heap_unlock(heap);
}

void stress_expect_empty(void)
{
    static struct hak_stats totals;
    hak_collect();
    for (uint32_t id = 1; id <= hak__heap_last_id(); id++)
        if (heap_exists(id))
            collect_alone(hak__heap_by_id(id));
    stress_expect_valid();
    hak__snapshot(&totals);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        STRESS_EXPECT(totals.classes[c].live == 0, "%llu blocks of %u bytes are still live",
                      (unsigned long long)totals.classes[c].live, (unsigned)hak__classes[c].size);
    STRESS_EXPECT(totals.huge_live == 0 && totals.bytes_huge == 0, "%llu huge blocks, %llu bytes",
                  (unsigned long long)totals.huge_live, (unsigned long long)totals.bytes_huge);
}

pthread_t stress_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int code = pthread_create(&thread, NULL, body, argument);
    STRESS_EXPECT(code == 0, "pthread_create: %s", strerror(code));
    return thread;
}

bool stress_child_passes(pid_t child, double seconds, const char *what)
{
    int status;
    double end = stress_now() + seconds * stress_knob("HAK_TEST_EMULATED", 1);
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (stress_now() > end) {
            fprintf(stderr, "%s hangs\n", what);
            kill(child, SIGABRT);
            waitpid(child, &status, 0);
            return false;
        }
        stress_sleep(0.0005);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    fprintf(stderr, "%s ended with status 0x%x\n", what, (unsigned)status);
    return false;
}

bool stress_passes_in_child(void (*body)(const void *), const void *argument, double seconds, const char *what)
{
    fflush(NULL);
    pid_t child = fork();
    STRESS_EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        body(argument);
        fflush(NULL);
        _exit(0);
    }
    return stress_child_passes(child, seconds, what);
}

void stress_await_child(pid_t child, double seconds, const char *what)
{
    STRESS_EXPECT(stress_child_passes(child, seconds, what), "%s", what);
}

void stress_in_child(void (*body)(const void *), const void *argument, double seconds, const char *what)
{
    STRESS_EXPECT(stress_passes_in_child(body, argument, seconds, what), "%s", what);
}
