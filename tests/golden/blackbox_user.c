/* A program for test_blackbox.py: blackbox_user WHAT [MIB], each in small blocks, with a rest now and then.
 *
 *   leak       keeps every block, for ever
 *   hold       keeps MIB, says "held", and waits
 *   scatter    keeps MIB, frees all but every eighth block, says "held", and waits
 *   outside    maps and touches MIB by itself, says "held", and goes on allocating a little
 *   fork       keeps MIB, forks, and both go on allocating a little
 *   ends       as `fork`, but the child allocates for a while and calls _exit, and a child of vfork does at once
 *   crash      keeps MIB, and writes to address 16
 *   double     frees a block twice
 *   leave      keeps MIB, and its second thread calls _exit
 *   exit       allocates MIB and exits */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BLOCK = 1000,
    TURN = 500,
    KEEP_EACH = 8,
    LEAK_US = 30000,
    CHILD_TURNS = 500
}; /* a leak is steady: its start counts little */
static struct node {
    struct node *next;
    char rest[BLOCK - sizeof(void *)];
} * first;

__attribute__((noinline)) static void keep_one(void)
{
    struct node *node = malloc(sizeof *node);
    if (node == NULL)
        exit(3);
    memset(node, 1, sizeof *node);
    node->next = first;
    first = node;
}

static void keep(size_t mib)
{
    for (size_t i = 0; i < (mib << 20) / BLOCK; i++) {
        keep_one();
        if (i % TURN == 0)
            usleep(1000);
    }
}

static void free_most(void)
{
    struct node **at = &first;
    for (size_t i = 0; *at != NULL; i++) {
        struct node *node = *at;
        if (i % KEEP_EACH == 0) {
            at = &node->next;
        } else {
            *at = node->next;
            free(node);
        }
    }
}

/* Allocations in sizes that come and go, so that slow paths are taken. */
static void go_on(unsigned turns)
{
    void *blocks[TURN];
    while (turns-- != 0) {
        for (size_t i = 0; i < TURN; i++)
            blocks[i] = malloc(2000 + i * 16);
        for (size_t i = 0; i < TURN; i++)
            free(blocks[i]);
        usleep(1000);
    }
}

static void let_children_end(void)
{
    if (fork() == 0) {
        go_on(CHILD_TURNS);
        _exit(0);
    }
    wait(NULL);
    if (vfork() == 0)
        _exit(0);
    wait(NULL);
}

static void *leave(void *code) { _exit(*(int *)code); }

static void leave_by_a_thread(int code)
{
    pthread_t thread;
    pthread_create(&thread, NULL, leave, &code);
    for (;;)
        pause();
}

static void say(const char *word)
{
    puts(word);
    fflush(stdout);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    size_t mib = count > 2 ? strtoul(words[2], NULL, 10) : 64;
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
    if (strcmp(what, "leak") == 0)
        for (;; usleep(LEAK_US))
            keep(1);
    if (strcmp(what, "outside") == 0) {
        char *all = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (all == MAP_FAILED)
            return 3;
        memset(all, 1, mib << 20);
    } else {
        keep(mib);
    }
    if (strcmp(what, "exit") == 0)
        return 0;
    if (strcmp(what, "leave") == 0)
        leave_by_a_thread(4);
    if (strcmp(what, "crash") == 0)
        *(volatile char *)16 = 1;
    if (strcmp(what, "double") == 0) {
        void *volatile block = malloc(100);
        free(block);
        free(block);
    }
    if (strcmp(what, "scatter") == 0)
        free_most();
    if (strcmp(what, "ends") == 0)
        let_children_end();
    if (strcmp(what, "fork") == 0 && fork() == 0)
        keep(mib);
    say("held");
    go_on(UINT_MAX);
}
