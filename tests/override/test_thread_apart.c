/* The library's background thread and the program: it must make no difference but in the number of tasks, and that only while
 * the program has threads itself. What programs do that is different in a process with a thread more: end by their last
 * thread, wait for signals, change credentials, unshare, count their tasks, confine themselves, fork, ask for a signal at
 * their parent's death; and what is different when a thread is created out of malloc: under locks of the caller's. */
// test: ordinary interposed timeout=400 flavours=preload,shared
#include "cases.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

extern const char *hak_conf;
const char *hak_conf = "purge_delay:100";   /* what takes seconds takes a tenth of them */

enum { PATIENCE_MS = 30000, STEP_MS = 2 };
#define MIB ((size_t)1 << 20)

static void rest(unsigned ms)
{
    struct timespec time = { ms / 1000, (long)(ms % 1000) * 1000000 };
    while (nanosleep(&time, &time) != 0)
        ;
}

static void *volatile kept;   /* hides from the compiler that a block is not used */

/* Slow paths, as many as it takes until one looks at the clock. */
static void poll_upkeep(void)
{
    void *blocks[80];
    for (int i = 0; i < 80; i++)
        blocks[i] = malloc(700000);
    for (int i = 0; i < 80; i++)
        free(blocks[i]);
}

/* --- tasks ------------------------------------------------------------------------------------------------------------- */

static bool read_of_task(int task, const char *file, const char *prefix, char *line, int size)
{
    char path[100];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", task, file);
    FILE *in = fopen(path, "r");
    bool found = false;
    while (in != NULL && !found && fgets(line, size, in) != NULL)
        found = strncmp(line, prefix, strlen(prefix)) == 0;
    if (in != NULL)
        fclose(in);
    return found;
}

/* The number of tasks, and which of them is the library's; 0: none. */
static unsigned count_tasks(int *ours)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    char line[200];
    unsigned count = 0;
    *ours = 0;
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        if (read_of_task(atoi(entry->d_name), "comm", "hakmem\n", line, sizeof line))
            *ours = atoi(entry->d_name);
    }
    closedir(folder);
    return count;
}

static int our_task(void)
{
    int task;
    count_tasks(&task);
    return task;
}

static bool eventually(bool (*condition)(void))
{
    for (unsigned waited = 0; waited < PATIENCE_MS; waited += STEP_MS, rest(STEP_MS))
        if (condition())
            return true;
    return false;
}

/* --- a program with threads, whose library has its thread --------------------------------------------------------------- */

static pthread_t companion;
static pthread_mutex_t leave = PTHREAD_MUTEX_INITIALIZER;

static void *accompany(void *argument)
{
    free(malloc(100));
    pthread_mutex_lock(&leave);
    pthread_mutex_unlock(&leave);
    return argument;
}

static bool has_thread(void)
{
    poll_upkeep();
    return our_task() != 0;
}

static void begin_threads(void)
{
    pthread_mutex_lock(&leave);
    kept = memset(malloc(40 * MIB), 1, 40 * MIB);
    expect(pthread_create(&companion, NULL, accompany, NULL) == 0);
    expect(eventually(has_thread));
}

static void end_threads(void)
{
    pthread_mutex_unlock(&leave);
    expect(pthread_join(companion, NULL) == 0);
}

/* Runs the body in a child that must end with the code, and in time. */
static void in_child(void (*body)(void), int code)
{
    if (not_told_of_children())
        return;
    fflush(stdout);
    pid_t child = fork();
    expect(child >= 0);
    if (child == 0) {
        limit_child();
        body();
        _exit(0);
    }
    int ended = end_of_child(child);
    if (ended != code)
        printf("the child ended with %d, not %d\n", ended, code), fflush(stdout);
    expect(ended == code);
}

/* --- cases: what only a process of one thread may do --------------------------------------------------------------------- */

/* The kernel takes a joined thread off its lists a moment after it has let the join go on. */
static bool is_alone(void)
{
    int task;
    return count_tasks(&task) == 1;
}

static void gone_when_the_program_has_one_thread(void)
{
    if (not_emulated("process of one thread"))
        return;
    for (int round = 0; round < 20; round++) {
        begin_threads();
        end_threads();
        expect(eventually(is_alone));
        poll_upkeep();
        expect(our_task() == 0);
        free(kept);
    }
}

static bool can_unshare(void) { return unshare(CLONE_NEWUSER) == 0; }

static void unshares(void)
{
    if (not_emulated("process of one thread"))
        return;
    begin_threads();
    end_threads();
    expect(eventually(is_alone));
    expect(can_unshare() || errno == EPERM || errno == ENOSPC);   /* where the system allows it to nobody */
}

/* --- cases: the end of the process, by its last thread (which does not end a forked child of musl 1.2.3) ----------------------- */

static void main_ends_first(void)
{
    begin_threads();
    pthread_mutex_unlock(&leave);
    pthread_exit(NULL);
}

/* The companion never allocates again, and is the last. */
static void *sleeps_a_little(void *argument)
{
    rest(50);
    return argument;
}

static void silent_thread_ends_last(void)
{
    pthread_t thread;
    begin_threads();
    expect(pthread_create(&thread, NULL, sleeps_a_little, NULL) == 0);
    pthread_mutex_unlock(&leave);
    pthread_exit(NULL);
}

static char own_stack[1 << 16] __attribute__((aligned(4096)));
static bool detached_ends_before_main;

static void detached_thread_ends_last(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    begin_threads();
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstack(&attributes, own_stack, sizeof own_stack);
    expect(pthread_create(&thread, &attributes, sleeps_a_little, NULL) == 0);
    if (detached_ends_before_main)
        rest(200);
    pthread_mutex_unlock(&leave);
    pthread_exit(NULL);
}

static void main_ends_after_a_detached_thread(void)
{
    detached_ends_before_main = true;
    detached_thread_ends_last();
}

static _Atomic(int) exits;
static void at_exit(void)
{
    if (atomic_fetch_add(&exits, 1) != 0 || syscall(SYS_gettid) == our_task())
        _exit(9);
    poll_upkeep();
}
static void runs_exit_functions_once(void)
{
    atexit(at_exit);
    silent_thread_ends_last();
}

/* --- cases: signals ------------------------------------------------------------------------------------------------------- */

static void takes_no_signal(void)
{
    char line[200];
    begin_threads();
    expect(read_of_task(our_task(), "status", "SigBlk:", line, sizeof line));
    unsigned long long blocked = strtoull(line + 7, NULL, 16);
    for (int signal = 1; signal <= 64; signal++)
        expect((blocked >> (signal - 1) & 1) != 0 || signal == SIGKILL || signal == SIGSTOP);
}

static void waits_for_signals(void)
{
    sigset_t all;
    int signal;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    begin_threads();
    for (int i = 0; i < 100; i++) {
        expect(kill(getpid(), i % 2 ? SIGTERM : SIGHUP) == 0);
        expect(sigwait(&all, &signal) == 0 && signal == (i % 2 ? SIGTERM : SIGHUP));
    }
}

static void is_terminated(void)
{
    begin_threads();
    kill(getpid(), SIGTERM);
    rest(20000);
}

static void signals_find_the_program(void)
{
    in_child(takes_no_signal, 0);
    in_child(waits_for_signals, 0);
    in_child(is_terminated, 256 + SIGTERM);
}

/* A child asks for a signal at the death of who has forked it: the thread, whoever ends first among the others. */
static void signal_at_the_parents_death(void)
{
    int ends[2];
    char said = 0;
    if (not_told_of_children())
        return;
    expect(pipe(ends) == 0);
    fflush(stdout);
    pid_t middle = fork();
    if (middle == 0) {
        begin_threads();
        if (fork() == 0) {
            close(ends[0]);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            said = 'r';
            if (write(ends[1], &said, 1) != 1)
                _exit(1);
            rest(PATIENCE_MS);
            said = 'x';   /* still alive */
            _exit(write(ends[1], &said, 1) != 1);
        }
        expect(read(ends[0], &said, 1) == 1 && said == 'r');
        rest(600);   /* longer than the thread rests before it ends */
        expect(write(ends[1], "m", 1) == 1);
        _exit(0);
    }
    close(ends[1]);
    expect(end_of_child(middle) == 0);
    expect(read(ends[0], &said, 1) == 1 && said == 'm');
    expect(read(ends[0], &said, 1) == 0);   /* nobody has the other end */
}

/* --- cases: credentials, confinement --------------------------------------------------------------------------------------- */

static bool all_tasks_say(const char *prefix, const char *value)
{
    DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    char line[200];
    bool all = true;
    while ((entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.' && read_of_task(atoi(entry->d_name), "status", prefix, line, sizeof line))
            all = all && strcmp(line + strlen(prefix), value) == 0;
    closedir(folder);
    return all;
}

static void changes_user(void)
{
    begin_threads();
    expect(setgid(65534) == 0 && setuid(65534) == 0);
    for (int i = 0; i < 50; i++) {
        expect(all_tasks_say("Uid:", "\t65534\t65534\t65534\t65534\n"));
        expect(all_tasks_say("Gid:", "\t65534\t65534\t65534\t65534\n"));
        poll_upkeep();
    }
    expect(eventually(has_thread));
    expect(all_tasks_say("Uid:", "\t65534\t65534\t65534\t65534\n"));
    expect(setuid(0) == -1 && errno == EPERM);
}

static void changes_root_and_user(void)
{
    begin_threads();
    expect(chroot("/proc/self") == 0 && chdir("/") == 0);
    expect(setresuid(65534, 65534, 65534) == 0);
    poll_upkeep();
    expect(access("/fdinfo", F_OK) == 0 && access("/etc", F_OK) != 0);
}

static void *poll_upkeep_apart(void *argument)
{
    while (atomic_load((_Atomic(bool) *)argument))
        poll_upkeep();
    return NULL;
}

/* Another thread would make a new one at once. */
static void changes_user_under_load(void)
{
    static _Atomic(bool) on = true;
    pthread_t thread;
    begin_threads();
    expect(pthread_create(&thread, NULL, poll_upkeep_apart, (void *)(uintptr_t)&on) == 0);
    for (uid_t user = 1000; user < 1200; user++) {
        char value[100];
        expect(seteuid(user) == 0);
        snprintf(value, sizeof value, "\t0\t%u\t0\t%u\n", user, user);
        expect(all_tasks_say("Uid:", value));
        expect(seteuid(0) == 0);
    }
    atomic_store(&on, false);
    expect(pthread_join(thread, NULL) == 0);
}

static void credentials_change_in_every_task(void)
{
    if (getuid() != 0) {
        printf("not root: nothing to change\n");
        return;
    }
    in_child(changes_user, 0);
    in_child(changes_root_and_user, 0);
    in_child(changes_user_under_load, 0);
}

static void confines_all_threads(void)
{
    struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct sock_fprog program = { 1, allow };
    begin_threads();
    expect(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    expect(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    expect(all_tasks_say("Seccomp:", "\t2\n"));
    poll_upkeep();
    pthread_mutex_unlock(&leave);
    rest(600);   /* once more, with a new thread and one that has changed its scheduling */
    poll_upkeep();
}

/* In a filtered process the thread does not make calls for which a filter may kill. */
static void keeps_to_a_filter(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setscheduler, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpriority, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = { sizeof steps / sizeof *steps, steps };
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    expect(sched_setaffinity(0, sizeof one, &one) == 0);
    expect(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    expect(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    pthread_mutex_lock(&leave);
    kept = memset(malloc(40 * MIB), 1, 40 * MIB);
    expect(pthread_create(&companion, NULL, accompany, NULL) == 0);
    for (int i = 0; i < 100; i++, rest(5))
        poll_upkeep();
}

static void confinement(void)
{
    in_child(confines_all_threads, 0);
    in_child(keeps_to_a_filter, 0);
}

/* --- cases: what it is like ------------------------------------------------------------------------------------------------- */

/* musl's functions refuse. */
static int set_scheduler(int policy, const struct sched_param *parameter) { return (int)syscall(SYS_sched_setscheduler, 0, policy, parameter); }

static void check_scheduling(int policy, unsigned processors)
{
    cpu_set_t set;
    int task = our_task();
    expect(task != 0);
    expect(syscall(SYS_sched_getscheduler, task) == policy);
    expect(sched_getaffinity(task, sizeof set, &set) == 0 && (unsigned)CPU_COUNT(&set) == processors);
}

static void scheduling_is_the_process_s(void)
{
    cpu_set_t all, one;
    struct sched_param parameter = { 0 };
    if (not_emulated("threads that are the program's alone"))
        return;
    expect(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    expect(sched_setaffinity(0, sizeof one, &one) == 0);
    if (set_scheduler(SCHED_FIFO, &(struct sched_param){ .sched_priority = 10 }) != 0)
        expect(set_scheduler(SCHED_IDLE, &parameter) == 0);
    begin_threads();
    check_scheduling(SCHED_OTHER, (unsigned)CPU_COUNT(&all));
}

/* A real-time thread waits for its heap while one of the lowest priority collects for it: not for ever. */
static _Atomic(void *) passed[64];
static _Atomic(bool) over;

static void *frees_what_is_passed(void *argument)
{
    struct sched_param parameter = { 0 };
    expect(set_scheduler(SCHED_IDLE, &parameter) == 0);
    for (unsigned i = 0; !atomic_load(&over); i++) {
        free(atomic_exchange(&passed[i % 64], NULL));
        if (i % 256 == 0)
            malloc_trim(0);
    }
    return argument;
}

static void low_priority_does_not_stop_a_real_time_thread(void)
{
    cpu_set_t one;
    pthread_t thread;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    expect(sched_setaffinity(0, sizeof one, &one) == 0);
    expect(pthread_create(&thread, NULL, frees_what_is_passed, NULL) == 0);
    if (set_scheduler(SCHED_FIFO, &(struct sched_param){ .sched_priority = 10 }) != 0)
        printf("no real-time scheduling here: as an ordinary thread\n");
    for (unsigned i = 0; i < 20000; i++) {
        void *block = malloc(500 + i % 3000), *none = NULL;
        if (!atomic_compare_exchange_strong(&passed[i % 64], &none, block))
            free(block);
        if (i % 512 == 0)
            rest(1);
    }
    atomic_store(&over, true);
    expect(pthread_join(thread, NULL) == 0);
}

/* --- cases: locks of the caller's --------------------------------------------------------------------------------------------- */

static pthread_mutex_t around_create = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(bool) wraps;

/* As monitors and tracers have it. */
__attribute__((noinline)) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)(void *)&next = dlsym(RTLD_NEXT, "pthread_create");
    bool locked = atomic_load(&wraps);
    if (locked)
        pthread_mutex_lock(&around_create);
    if (locked)
        poll_upkeep();
    int code = next(thread, attributes, body, argument);
    if (locked)
        pthread_mutex_unlock(&around_create);
    return code;
}

static void *allocates_a_little(void *argument)
{
    free(malloc(100));
    return sleeps_a_little(argument);
}

static void malloc_inside_a_wrapper_of_pthread_create(void)
{
    atomic_store(&wraps, true);
    kept = memset(malloc(20 * MIB), 1, 20 * MIB);
    for (int i = 0; i < 20; i++) {
        pthread_t threads[2];
        for (int t = 0; t < 2; t++)
            expect(pthread_create(&threads[t], NULL, allocates_a_little, NULL) == 0);
        for (int t = 0; t < 2; t++)
            expect(pthread_join(threads[t], NULL) == 0);
    }
    begin_threads();
}

/* Children that share the parent's memory until they end or execute: theirs is no thread of the parent's. */
static void children_in_the_parents_memory(void)
{
    if (not_emulated("children in their parents' memory"))
        return;
    begin_threads();
    end_threads();
    pthread_mutex_lock(&leave);
    expect(pthread_create(&companion, NULL, accompany, NULL) == 0);   /* wanted again, and not made yet */
    for (int i = 0; i < 50; i++) {
        pid_t child = vfork();
        if (child == 0) {
            poll_upkeep();
            free(memset(malloc(3 * MIB), 1, 100));
            _exit(0);
        }
        expect(end_of_child(child) == 0);
    }
    expect(eventually(has_thread));
    expect(kill(our_task(), 0) == 0);
}

static void memory_goes_back_meanwhile(void)
{
    begin_threads();
    size_t before = resident_bytes();
    free(kept);
    for (unsigned waited = 0; waited < PATIENCE_MS && resident_bytes() + 30 * MIB > before; waited += STEP_MS)
        rest(STEP_MS);
    expect(resident_bytes() + 30 * MIB <= before);
}

/* Calls no function of the library's. */
static size_t resident_quietly(void)
{
    char text[100] = "", *end;
    int file = open("/proc/self/statm", O_RDONLY);
    expect(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
    strtoul(text, &end, 10);
    return strtoul(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Nothing was to be done while the program had one thread, and the second one makes only its first request. */
static void memory_goes_back_beside_a_later_thread_that_sleeps(void)
{
    enum { BLOCKS = 15 };
    void *blocks[BLOCKS];
    free(malloc(100));   /* this thread has a heap; blocks of 4 MiB need none */
    pthread_mutex_lock(&leave);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = memset(malloc(4 * MIB), 1, 4 * MIB);
    size_t before = resident_quietly();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    expect(pthread_create(&companion, NULL, accompany, NULL) == 0);
    for (unsigned waited = 0; waited < PATIENCE_MS && resident_quietly() + 50 * MIB > before; waited += STEP_MS)
        rest(STEP_MS);
    expect(resident_quietly() + 50 * MIB <= before);
}

static bool has_come_to_rest(void) { return our_task() == 0; }

static void ends_for_want_of_work_and_comes_back(void)
{
    begin_threads();
    for (int i = 0; i < 3; i++) {
        expect(eventually(has_come_to_rest));
        expect(eventually(has_thread));
    }
}

static const struct test_case cases[] = {
    CASE(gone_when_the_program_has_one_thread),
    CASE(unshares),
    CASE(main_ends_first),
    CASE(silent_thread_ends_last),
    CASE(detached_thread_ends_last),
    CASE(main_ends_after_a_detached_thread),
    CASE(runs_exit_functions_once),
    CASE(signals_find_the_program),
    CASE(signal_at_the_parents_death),
    CASE(credentials_change_in_every_task),
    CASE(confinement),
    CASE(scheduling_is_the_process_s),
    CASE(low_priority_does_not_stop_a_real_time_thread),
    CASE(malloc_inside_a_wrapper_of_pthread_create),
    CASE(children_in_the_parents_memory),
    CASE(memory_goes_back_meanwhile),
    CASE(memory_goes_back_beside_a_later_thread_that_sleeps),
    CASE(ends_for_want_of_work_and_comes_back),
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
