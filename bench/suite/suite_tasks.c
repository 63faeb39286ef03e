/*
 * suite_tasks [WORKERS [TASKS [ROUNDS [SEED]]]]
 *
 * Exercises tasks that migrate, as in asynchronous programs: each step of a task runs on whichever worker is free.  TASKS
 * messages (a box with a name, a list that grows and a map of small nodes) pass 24 stages, each of which replaces
 * parts of them; then 200 connections answer requests and keep some.  Little is live at any time, but every worker meets
 * every size.  An allocator that keeps memory of every size for each thread grows with their number here.
 * Knobs: WORKERS; ROUNDS, how often each message passes all stages.
 */
#include "alloc_libc.h"
#include "common.h"

#include <pthread.h>
#include <string.h>

enum { TASKS_STAGES = 24, TASKS_NODES = 16, TASKS_CONNECTIONS = 200, TASKS_KEPT = 24, TASKS_ANSWERS = 2000, TASKS_MAX = 1 << 16 };

static const struct bench_arg tasks_args[] = {
    {"WORKERS", "threads that run tasks", 8, 1, 128, NULL},
    {"TASKS", "messages on their way at the same time", 2000, 1, TASKS_MAX, NULL},
    {"ROUNDS", "passes through all stages", 10, 1, BENCH_COUNT_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec tasks_spec = BENCH_SPEC("Tasks migrate between threads.", tasks_args);

struct node {
    uint64_t value;
    size_t size;
};

struct box {
    size_t size;
    char *name;
    uint64_t *list;
    size_t list_count, list_room;
    struct node *map[TASKS_NODES];
};

/* A message or a connection; its own random numbers make what it computes independent of who runs it. */
struct task {
    uint64_t seed, digest, steps, blocks;
    struct box *box;
    void *kept[TASKS_KEPT];
};

/* The tasks that are ready to run, first come first served. */
static struct {
    pthread_mutex_t lock;
    uint32_t *ready; /* a ring with a place for every task */
    uint64_t first, end, places;
} tasks_queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct task *all_tasks;
static uint64_t tasks_messages, tasks_steps;

static void *tasks_alloc(struct task *task, size_t size)
{
    task->blocks++;
    void *block = bench_alloc(size);
    if (block == NULL) {
        bench_die("out of memory");
    }
    bench_touch(block, size);
    return block;
}

static struct node *node_make(struct task *task)
{
    const uint64_t random = bench_random(&task->seed);
    const size_t size = bench_size(random, sizeof(struct node), 160);
    struct node *node = tasks_alloc(task, size);
    *node = (struct node){random, size};
    return node;
}

static void name_make(struct task *task)
{
    const uint64_t random = bench_random(&task->seed);
    const size_t size = bench_size(random, 8, 120);
    bench_free(task->box->name);
    task->box->name = tasks_alloc(task, size);
    task->digest = bench_mix(task->digest, size);
}

/* Doubles its room when it is full, as vectors do; now and then the list is begun anew. */
static void list_push(struct task *task, uint64_t value)
{
    struct box *box = task->box;
    if (box->list_count == box->list_room) {
        const size_t room = box->list_room == 0 ? 4 : 2 * box->list_room;
        uint64_t *list = tasks_alloc(task, room * sizeof *list);
        if (box->list_count != 0) {
            memcpy(list, box->list, box->list_count * sizeof *list);
        }
        bench_free(box->list);
        box->list = list;
        box->list_room = room;
    }
    box->list[box->list_count++] = value;
}

static void list_clear(struct box *box)
{
    bench_free(box->list);
    box->list = NULL;
    box->list_count = box->list_room = 0;
}

/* Every stage passes a box of a size of its own. */
static void box_pass(struct task *task, size_t size)
{
    struct box *box = tasks_alloc(task, size);
    if (task->box != NULL) {
        memcpy(box, task->box, sizeof *box);
        bench_free(task->box);
    } else {
        memset(box, 0, sizeof *box);
    }
    box->size = size;
    task->box = box;
}

static void box_end(struct task *task)
{
    struct box *box = task->box;
    for (unsigned i = 0; i < TASKS_NODES; i++) {
        task->digest = bench_mix(task->digest, box->map[i] == NULL ? 0 : box->map[i]->value);
        bench_free(box->map[i]);
    }
    list_clear(box);
    bench_free(box->name);
    bench_free(box);
    task->box = NULL;
}

static void message_step(struct task *task)
{
    const size_t stage = task->steps % TASKS_STAGES;
    box_pass(task, sizeof(struct box) + stage * 24);
    name_make(task);
    for (unsigned i = 0; i < 3; i++) {
        struct node **place = &task->box->map[bench_below((uint32_t)bench_random(&task->seed), TASKS_NODES)];
        if (*place != NULL) {
            task->digest = bench_mix(task->digest, (*place)->value + (*place)->size);
        }
        bench_free(*place);
        *place = node_make(task);
    }
    for (unsigned i = 0; i < 6; i++) {
        list_push(task, task->digest + i);
    }
    if (stage == TASKS_STAGES - 1) {
        list_clear(task->box);
    }
}

/* One request in eight keeps its answer. */
static void connection_step(struct task *task)
{
    const uint64_t random = bench_random(&task->seed);
    const size_t size = bench_size(random, 32, (random & 7) == 0 ? 8192 : 1024);
    uint64_t *answer = tasks_alloc(task, size);
    answer[0] = random;
    task->digest = bench_mix(task->digest, answer[0] + size);
    if ((random >> 3 & 7) == 0) {
        void **place = &task->kept[bench_below((uint32_t)(random >> 8), TASKS_KEPT)];
        bench_free(*place);
        *place = answer;
    } else {
        bench_free(answer);
    }
}

static void task_end(struct task *task)
{
    if (task->box != NULL) {
        box_end(task);
    }
    for (unsigned i = 0; i < TASKS_KEPT; i++) {
        bench_free(task->kept[i]);
    }
}

/* Whether the task goes on. */
static int task_step(uint32_t number)
{
    struct task *task = &all_tasks[number];
    const int message = number < tasks_messages;
    if (message) {
        message_step(task);
    } else {
        connection_step(task);
    }
    if (++task->steps < (message ? tasks_steps : TASKS_ANSWERS)) {
        return 1;
    }
    task_end(task);
    return 0;
}

/* A task that goes on is put at the end; returns the next one, or -1 when none is left. */
static int64_t queue_next(int64_t done, int goes_on)
{
    int64_t next = -1;
    pthread_mutex_lock(&tasks_queue.lock);
    if (done >= 0 && goes_on) {
        tasks_queue.ready[tasks_queue.end++ % tasks_queue.places] = (uint32_t)done;
    }
    if (tasks_queue.first != tasks_queue.end) {
        next = tasks_queue.ready[tasks_queue.first++ % tasks_queue.places];
    }
    pthread_mutex_unlock(&tasks_queue.lock);
    return next;
}

static void tasks_body(void *arg, struct bench_team *team)
{
    (void)arg;
    bench_team_start(team);
    int64_t number = queue_next(-1, 0);
    while (number >= 0) {
        number = queue_next(number, task_step((uint32_t)number));
    }
    bench_team_stop(team);
}

static double run_tasks(uint64_t first, uint64_t end, unsigned workers)
{
    static char nothing[128];
    for (uint64_t i = first; i < end; i++) {
        tasks_queue.ready[tasks_queue.end++ % tasks_queue.places] = (uint32_t)i;
    }
    return bench_team_run(workers, tasks_body, nothing, 1);
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_tasks", &tasks_spec, argc, argv);
    const unsigned workers = (unsigned)run.value[0];
    tasks_messages = run.value[1];
    tasks_steps = run.value[2] * TASKS_STAGES;
    tasks_queue.places = tasks_messages + TASKS_CONNECTIONS;
    tasks_queue.ready = bench_map(tasks_queue.places * sizeof *tasks_queue.ready);
    all_tasks = bench_map(tasks_queue.places * sizeof *all_tasks);
    for (uint64_t i = 0; i < tasks_queue.places; i++) {
        all_tasks[i].seed = bench_seed(run.value[3], (unsigned)i);
    }
    double seconds = run_tasks(0, tasks_messages, workers);
    seconds += run_tasks(tasks_messages, tasks_queue.places, workers);
    uint64_t digest = 0, blocks = 0;
    for (uint64_t i = 0; i < tasks_queue.places; i++) {
        digest = bench_mix(digest, all_tasks[i].digest);
        blocks += all_tasks[i].blocks;
    }
    bench_check(&run, digest);
    bench_report(&run, NULL, blocks, seconds);
    return 0;
}
