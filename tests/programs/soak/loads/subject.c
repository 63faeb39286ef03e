/* What gdb, strace and valgrind look at: a program that allocates in two threads, forks, and prints what must be the same.
 * The allocator's results are checked, so that a fault of it ends the program. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct tree {
    struct tree *left, *right;
    unsigned key;
    char *text;
};

static unsigned next_number(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static struct tree *insert(struct tree *at, unsigned key)
{
    if (!at) {
        at = calloc(1, sizeof *at);
        if (!at || !(at->text = malloc(key % 300 + 20)))
            abort();
        at->key = key;
        snprintf(at->text, key % 300 + 20, "key %u", key);
    } else if (key < at->key) {
        at->left = insert(at->left, key);
    } else {
        at->right = insert(at->right, key);
    }
    return at;
}

static uint64_t sum_up(const struct tree *at)
{
    return at ? at->key + strlen(at->text) + 3 * sum_up(at->left) + 5 * sum_up(at->right) : 0;
}

static void release(struct tree *at)
{
    if (at) {
        release(at->left);
        release(at->right);
        free(at->text);
        free(at);
    }
}

/* Where a debugger stops: the tree is whole, and both threads are there. */
static uint64_t show(const struct tree *root, int depth)
{
    return sum_up(root) + (uint64_t)depth;
}

static pthread_barrier_t both;

static void *work(void *result)
{
    unsigned state = 7;
    struct tree *root = NULL;
    for (int i = 0; i < 4000; i++)
        root = insert(root, next_number(&state) % 100000);
    char *grown = NULL;
    for (size_t n = 1; n < 300000; n += n / 2 + 1) {
        grown = realloc(grown, n);
        if (!grown)
            abort();
        grown[n - 1] = 1;
    }
    *(uint64_t *)result = sum_up(root);
    free(grown);
    release(root);
    return NULL;
}

static void *work_beside(void *result)
{
    work(result);
    pthread_barrier_wait(&both);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    uint64_t sums[2];
    pthread_barrier_init(&both, NULL, 2);
    if (pthread_create(&thread, NULL, work_beside, &sums[0]) != 0)
        return 1;
    work(&sums[1]);
    struct tree *root = NULL;
    for (unsigned i = 0; i < 100; i++)
        root = insert(root, i * 7919 % 1009);
    uint64_t shown = show(root, 3);
    release(root);
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    printf("sums %llu %llu %llu\n", (unsigned long long)sums[0], (unsigned long long)sums[1], (unsigned long long)shown);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        work(&sums[0]);
        printf("child %llu\n", (unsigned long long)sums[0]);
        exit(3);
    }
    int status;
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3 ? 0 : 1;
}
