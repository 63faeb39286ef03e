/* The background thread: it starts when it is wanted and not before, is named, takes no signals, serves threads that
 * sleep, ends when nothing happens, comes back, is made once in a period at most, is not in a forked child until that
 * needs one, ends when it is switched off, and does not keep a process whose other threads have ended. */
// test: serial timeout=300
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "hakmem.h"
#include "hakmem_stats.h"
#include "support/stress.h"
#include "upkeep/upkeep.h"

enum { PATIENCE_MS = 60000, STEP_MS = 5 };   /* how long something may take that takes milliseconds */

static void rest(unsigned ms)
{
    struct timespec time = { ms / 1000, (long)(ms % 1000) * 1000000 };
    nanosleep(&time, NULL);
}

static struct hak_stats stats_now(void)
{
    static struct hak_stats stats;
    hak_stats_snapshot(&stats, sizeof stats);
    return stats;
}

static bool eventually(bool (*condition)(void))
{
    for (unsigned waited = 0; waited < PATIENCE_MS; waited += STEP_MS, rest(STEP_MS))
        if (condition())
            return true;
    return false;
}

static bool runs(void) { return stats_now().upkeep_background != 0; }
static bool does_not_run(void) { return !runs(); }

/* As many slow paths as it takes until one looks at the clock. */
static void take_slow_paths(void)
{
    enum { BLOCKS = 40 };
    void *blocks[BLOCKS];
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = hak_malloc(700000);
        for (int i = 0; i < BLOCKS; i++)
            hak_free(blocks[i]);
    }
}

static void set(const char *name, const char *value) { STRESS_EXPECT(hak_option_set(name, value) == 0, "%s", name); }

/* --- the thread as the kernel sees it ------------------------------------------------------------------------------- */

static bool read_line(const char *task, const char *file, const char *prefix, char *line, int size)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/%s", task, file);
    FILE *in = fopen(path, "r");
    bool found = false;
    while (in != NULL && !found && fgets(line, size, in) != NULL)
        found = strncmp(line, prefix, strlen(prefix)) == 0;
    if (in != NULL)
        fclose(in);
    return found;
}

static int named_tasks(char *task)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    char line[200];
    int found = 0;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && read_line(entry->d_name, "comm", "hakmem\n", line, sizeof line)) {
            strcpy(task, entry->d_name);
            found++;
        }
    closedir(folder);
    return found;
}

static char the_task[256];
static bool is_named(void) { return named_tasks(the_task) == 1; }

static void looks_right(void)
{
    char line[200];
    STRESS_EXPECT(eventually(is_named), "no thread has the name");
    STRESS_EXPECT(read_line(the_task, "status", "SigBlk:", line, sizeof line), "no line SigBlk");
    unsigned long long blocked = strtoull(line + 7, NULL, 16);
    for (int signal = 1; signal < 32; signal++)
        if (signal != SIGKILL && signal != SIGSTOP && !(stress_emulated() && (signal == SIGSEGV || signal == SIGBUS)))
            STRESS_EXPECT(blocked >> (signal - 1) & 1, "signal %d is not blocked", signal);
}

/* --- what it does --------------------------------------------------------------------------------------------------- */

enum { BLOCKS = 1000, SIZE = 500 };
static void *handed[BLOCKS];
static pthread_barrier_t full, done;

static void *sleeper(void *argument)
{
    for (int i = 0; i < BLOCKS; i++)
        handed[i] = hak_malloc(SIZE);
    pthread_barrier_wait(&full);
    pthread_barrier_wait(&done);
    return argument;
}

static uint64_t collected_before;
static bool has_collected(void)
{
    uint64_t sum = 0;
    struct hak_stats stats = stats_now();
    for (unsigned c = 0; c < stats.class_count; c++)
        sum += stats.classes[c].collected;
    return sum >= collected_before + BLOCKS;
}

/* Its blocks are freed by this thread, which then does nothing: they pass this thread's outbox and are collected for it. */
static void serves_a_sleeper(void)
{
    pthread_barrier_init(&full, NULL, 2);
    pthread_barrier_init(&done, NULL, 2);
    pthread_t thread = stress_thread(sleeper, NULL);
    pthread_barrier_wait(&full);
    for (int i = 0; i < BLOCKS; i++)
        hak_free(handed[i]);
    STRESS_EXPECT(eventually(has_collected), "a sleeping thread's blocks were not collected");
    pthread_barrier_wait(&done);
    pthread_join(thread, NULL);
}

static bool runs_again(void)
{
    take_slow_paths();
    return runs();
}

static uint64_t starts_before;
static bool came_back(void)
{
    take_slow_paths();
    return stats_now().upkeep_background_starts > starts_before;
}

static uint64_t clock_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

/* It ends with each generation of a program's threads, which may live for milliseconds; it is not made anew for each. */
static void is_made_once_in_a_period(void)
{
    enum { GENERATIONS = 50, PERIOD_MS = 250 };
    set("purge_delay", "1000");
    uint64_t made = stats_now().upkeep_background_starts, begun = clock_ms();
    for (int i = 0; i < GENERATIONS; i++) {
        hak__background_forbid();
        hak__background_allow();
        take_slow_paths();
    }
    made = stats_now().upkeep_background_starts - made;
    uint64_t periods = (clock_ms() - begun) / PERIOD_MS;
    STRESS_EXPECT(made <= periods + 2, "%d generations, %d made in %d periods", GENERATIONS, (int)made, (int)periods);
    set("purge_delay", "100");
    STRESS_EXPECT(eventually(runs_again), "it does not come back");
}

/* --- processes ------------------------------------------------------------------------------------------------------ */

static int status_of(pid_t child)
{
    int status = -1;
    for (unsigned waited = 0; waited < PATIENCE_MS; waited += STEP_MS, rest(STEP_MS))
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return -1;
}

static void fork_once(void)
{
    pid_t child = fork();
    if (child == 0) {
        char task[256];
        STRESS_EXPECT(!runs() && named_tasks(task) == 0, "a forked child has the thread");
        take_slow_paths();
        STRESS_EXPECT(eventually(runs), "a forked child does not get one when it needs it");
        _exit(0);
    }
    STRESS_EXPECT(status_of(child) == 0, "the forked child failed");
}

/* A thread that has just begun is in the middle of its first step, whose locks and words the child has as they were. Under
 * AddressSanitizer, whose own locks a fork does not reset, the thread has long begun. */
static void forks(void)
{
    enum { FORKS = HAK_ASAN ? 0 : 100 };
    if (HAK_ASAN) {
        rest(100);
        fork_once();
    }
    for (int i = 0; i < FORKS; i++) {
        set("background", "0");
        take_slow_paths();
        STRESS_EXPECT(eventually(does_not_run), "it does not end");
        set("background", "1");
        take_slow_paths();
        fork_once();
    }
    take_slow_paths();
    STRESS_EXPECT(eventually(runs), "the parent's thread is gone for good");
}

/* The process ends when its last thread does, though that is not the first one and does not call exit(). */
static void does_not_keep_a_process(void)
{
    pid_t child = fork();
    if (child == 0) {
        take_slow_paths();
        STRESS_EXPECT(eventually(runs), "no thread");
        pthread_exit(NULL);
    }
    STRESS_EXPECT(status_of(child) == 0, "a process does not end");
}

int main(void)
{
    take_slow_paths();
    rest(50);
    STRESS_EXPECT(!runs(), "auto: a thread in a process that has none of its own");
    set("purge_delay", "100");
    set("background", "1");
    take_slow_paths();
    STRESS_EXPECT(eventually(runs), "the thread does not start");
    looks_right();
    collected_before = 0;
    serves_a_sleeper();
    STRESS_EXPECT(eventually(does_not_run), "it does not end though nothing happens");
    starts_before = stats_now().upkeep_background_starts;
    STRESS_EXPECT(eventually(came_back), "it does not come back");
    is_made_once_in_a_period();
    if (!HAK_TSAN && !stress_emulated()) {   /* which do not let a forked child start threads */
        forks();
        does_not_keep_a_process();
    }
    set("background", "0");
    take_slow_paths();
    STRESS_EXPECT(eventually(does_not_run), "it does not end when it is switched off");
    return 0;
}
