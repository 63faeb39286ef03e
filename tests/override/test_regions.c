/* Heaps in the program's memory, in every way of linking libhakmem-region: it and malloc's library are one allocator, whichever came
 * first. The C library's own names take the blocks; a child detects the fork; processes share a heap; figures and walks have it. */
#include "expect.h"

#include <errno.h>
#include <hakmem_region.h>
#include <sys/wait.h>

enum { SIZE = 1 << 20, BLOCKS = 1000 };

static hak_heap_t *heap_at(void *region, uint32_t flags)
{
    struct hak_heap_options options = { .size = sizeof options, .name = "override", .flags = flags, .region = region, .region_size = SIZE };
    hak_heap_t *heap = hak_heap_new(&options);
    expect(heap != NULL);
    return heap;
}

static uint64_t live_blocks(hak_heap_t *heap)
{
    struct hak_heap_figures figures;
    expect(hak_heap_stats(heap, &figures, sizeof figures) == 0 && strcmp(figures.name, "override") == 0 && figures.serial != 0);
    return figures.live_blocks;
}

static void names_of_the_c_library(void)
{
    static char region[SIZE];
    hak_heap_t *heap = heap_at(region, 0);
    char *p = hak_heap_malloc(heap, 100);
    expect_block(p, 100);
    expect(hak_heap_of(p) == heap && hak_usable_size(p) >= 100 && hak_heap_next(NULL) == heap);
    char *grown = realloc(p, 50000);
    expect(grown > region && grown < region + SIZE && grown[99] == 0x5a && hak_heap_of(grown) == heap);
    free(grown);
    expect(live_blocks(heap) == 0);
    errno = 0;
    expect(hak_heap_malloc(heap, SIZE) == NULL && errno == ENOMEM && hak_heap_of(malloc(100)) == NULL);
    hak_heap_destroy(heap);
    expect(hak_heap_next(NULL) == NULL);
}

static int status_of(pid_t child)
{
    int status = -1;
    expect(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

/* The child of a private region has a copy; a shared one is the same heap, also at another address. */
static void children(void)
{
    static char region[SIZE];
    FILE *file = tmpfile();
    expect(file != NULL && ftruncate(fileno(file), SIZE) == 0);
    char *shared = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    hak_heap_t *own = heap_at(region, 0), *common = heap_at(shared, HAK_HEAP_SHARED);
    void *p = hak_heap_malloc(own, 100);
    pid_t child = fork();
    if (child == 0) {
        char *again = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
        hak_heap_t *attached = hak_heap_attach(again, SIZE);
        expect(attached != NULL && again != shared);
        for (unsigned i = 0; i < BLOCKS; i++)
            expect_block(hak_heap_malloc(attached, 100), 100);
        free(hak_heap_malloc(attached, 100));
        free(p);
        expect(live_blocks(own) == 0);
        hak_heap_detach(attached);
        _exit(0);
    }
    expect(status_of(child) == 0 && live_blocks(common) == BLOCKS && live_blocks(own) == 1);
    free(p);
    hak_heap_destroy(common);
    hak_heap_destroy(own);
}

int main(void)
{
    names_of_the_c_library();
    children();
    return 0;
}
