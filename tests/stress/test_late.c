/* Stress: threads that allocate and free in destructors of thread-local data, down to the very last round.
 *
 * Exercises: frees and allocations in every destructor round, before and after the library has parked the thread's
 * heap; threads whose very first allocation happens there; blocks handed from one round to the next and to other threads.
 *
 * Knobs (environment)      default                long run
 *   HAK_STRESS_SECONDS     2                      60
 *   HAK_STRESS_SHORT       500 x seconds          30000      threads in all
 *   HAK_STRESS_WINDOW      16                     64         threads at once */
// test: timeout=300
#include <limits.h>

#include "harden/mode.h"
#include "support/stress.h"

enum { KEYS = 4, BLOCKS = 12, WINDOW_MAX = 256 };

/* ThreadSanitizer ends its view of a thread in the last round; what runs after that would not be seen right. */
enum { ROUNDS = PTHREAD_DESTRUCTOR_ITERATIONS - HAK_TSAN };

struct late { int round; struct stress_random random; struct stress_block blocks[BLOCKS]; };

static pthread_key_t keys[KEYS];
static struct stress_block mailbox;
static pthread_mutex_t mailbox_lock = PTHREAD_MUTEX_INITIALIZER;

static void swap_with_mailbox(struct stress_block *block)
{
    pthread_mutex_lock(&mailbox_lock);
    struct stress_block other = mailbox;
    mailbox = *block;
    pthread_mutex_unlock(&mailbox_lock);
    *block = other;
}

static void use(struct late *late)
{
    for (int i = 0; i < BLOCKS; i++) {
        struct stress_block *block = &late->blocks[i];
        if (block->p != NULL && stress_below(&late->random, 3) == 0)
            stress_realloc(block, stress_size(&late->random));
        else if (block->p != NULL)
            stress_free(block);
        else
            *block = stress_alloc(&late->random, stress_size(&late->random));
    }
    swap_with_mailbox(&late->blocks[0]);
}

static void ends(pthread_key_t key, struct late *late)
{
    use(late);
    if (++late->round < ROUNDS && pthread_setspecific(key, late) == 0)
        return;
    for (int i = 0; i < BLOCKS; i++)
        stress_free(&late->blocks[i]);
    free(late);
}

static void ends_0(void *value) { ends(keys[0], value); }
static void ends_1(void *value) { ends(keys[1], value); }
static void ends_2(void *value) { ends(keys[2], value); }
static void ends_3(void *value) { ends(keys[3], value); }
static void (*const destructors[KEYS])(void *) = { ends_0, ends_1, ends_2, ends_3 };

static void *live(void *argument)
{
    uintptr_t number = (uintptr_t)argument;
    for (uintptr_t k = 0; k < KEYS; k++) {
        struct late *late = calloc(1, sizeof *late);
        late->random.state = number * KEYS + k;
        if (number % 2 == 0)   /* the others allocate for the first time in their destructors */
            use(late);
        pthread_setspecific(keys[k], late);
    }
    return NULL;
}

int main(void)
{
    pthread_t running[WINDOW_MAX];
    size_t window = (size_t)stress_knob("HAK_STRESS_WINDOW", 16);
    size_t total = (size_t)stress_knob("HAK_STRESS_SHORT", 500 * stress_knob("HAK_STRESS_SECONDS", 2));
    for (int k = 0; k < KEYS; k++)
        pthread_key_create(&keys[k], destructors[k]);
    for (size_t i = 0; i < total + window; i++) {
        if (i >= window)
            pthread_join(running[i % window], NULL);
        if (i < total)
            running[i % window] = stress_thread(live, (void *)(uintptr_t)(i + 1));
    }
    stress_free(&mailbox);
    printf("threads=%zu heaps=%u\n", total, hak__heap_last_id());
    /* One each, the main thread's, the shared one of late frees, in hardened mode an early one, and a common one for
     * every sixteen of them (heap/take.c). */
    size_t most = window + 2 + hak__hardened.on, common = (most + 1) / 16;
    STRESS_EXPECT(hak__heap_last_id() <= most + common, "%u heaps for %zu threads at once", hak__heap_last_id(), window);
    stress_expect_empty();
    return 0;
}
