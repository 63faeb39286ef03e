/* Two processes with one heap in shared memory: workers build lists of words in it, the first process reads and frees them.
 *
 *   cc -O2 -D_GNU_SOURCE -Iinclude examples/shared_heap.c -lhakmem-region -lhakmem -o shared_heap
 *   shared_heap [WORKERS]
 *
 * Each process maps the region wherever the system wants it, so all that they tell one another is offsets from its start. The last
 * worker is killed in the middle of its work: the heap goes on. Prints the words read, and how many blocks the killed one has left. */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hakmem_region.h>

enum { REGION_BYTES = 16 << 20, WORDS = 10000, WORKERS_MOST = 16 };

struct word {
    size_t next;   /* offset of the next one; 0: none */
    char text[24];
};

/* The first block of the heap. */
struct board {
    _Atomic size_t lists[WORKERS_MOST];   /* of finished workers */
};

static char *map(int file)
{
    char *start = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (start == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return start;
}

static size_t build_list(char *start, hak_heap_t *heap, int worker, int words)
{
    size_t list = 0;
    for (int i = 0; i < words; i++) {
        struct word *word = hak_heap_malloc(heap, sizeof *word);
        if (word == NULL)
            break;
        word->next = list;
        snprintf(word->text, sizeof word->text, "%d.%d", worker, i);
        list = (size_t)((char *)word - start);
    }
    return list;
}

static void work(int file, size_t board_at, int worker, int killed)
{
    char *start = map(file);
    hak_heap_t *heap = hak_heap_attach(start, REGION_BYTES);
    if (heap == NULL) {
        perror("hak_heap_attach");
        exit(1);
    }
    struct board *board = (struct board *)(void *)(start + board_at);
    size_t list = build_list(start, heap, worker, killed ? WORDS / 2 : WORDS);
    if (killed)
        raise(SIGKILL);
    atomic_store(&board->lists[worker], list);
    hak_heap_detach(heap);
    munmap(start, REGION_BYTES);
}

static size_t take_list(char *start, hak_heap_t *heap, size_t list)
{
    size_t count = 0;
    while (list != 0) {
        struct word *word = (struct word *)(void *)(start + list);
        list = word->next;
        hak_heap_free(heap, word);
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    int workers = argc > 1 ? atoi(argv[1]) : 4, file = memfd_create("shared_heap", 0);
    if (workers < 1 || workers > WORKERS_MOST || file < 0 || ftruncate(file, REGION_BYTES) != 0) {
        fprintf(stderr, "usage: shared_heap [1..%d]\n", WORKERS_MOST);
        return 2;
    }
    char *start = map(file);
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .name = "shared",
        .flags = HAK_HEAP_SHARED, .region = start, .region_size = REGION_BYTES });
    struct board *board = heap == NULL ? NULL : hak_heap_calloc(heap, 1, sizeof *board);
    if (board == NULL) {
        perror("hak_heap_new");
        return 1;
    }
    for (int worker = 0; worker < workers; worker++) {
        if (fork() == 0) {
            work(file, (size_t)((char *)board - start), worker, worker == workers - 1);
            _exit(0);
        }
    }
    size_t words = 0;
    while (wait(NULL) > 0)
        continue;
    for (int worker = 0; worker < workers; worker++)
        words += take_list(start, heap, atomic_load(&board->lists[worker]));
    struct hak_heap_figures figures;
    hak_heap_stats(heap, &figures, sizeof figures);
    printf("%zu words read, %llu blocks left by the killed worker\n", words, (unsigned long long)figures.live_blocks - 1);
    hak_heap_destroy(heap);
    munmap(start, REGION_BYTES);
    return 0;
}
