/* What test_confined.py runs: a program that forbids itself system calls by a seccomp filter. An ordinary program: it only
 * knows malloc and free.
 *   confined only      forbids all calls but those for memory and waiting (and the program's own end), executable memory
 *                      too, when its threads run; then allocates in all of them
 *   confined threads   the same, and what the C library needs to create and end threads, which it then does all the time
 *   confined refused NAME CODE   has one call (mmap, munmap, madvise, mremap, mprotect, all) fail with CODE from then on:
 *                      NULL with ENOMEM is all that may come of it, and no free may change errno
 *   confined deny PROGRAM...     runs a program that is denied everything which tells about the system, from its first
 *                      instruction on: files, limits, random numbers, its own number, clocks
 *   confined use       only uses memory, for `deny` */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#else
#define OWN_ARCH AUDIT_ARCH_AARCH64
#endif

enum { THREADS = 4, ROUNDS = 20000, SLOTS = 200, MAILBOX = 64, LIVES = 300, CALLS_MOST = 64, SKIPPED = 77 };

static void say(const char *text, long number)
{
    char line[160];
    int length = snprintf(line, sizeof line, "%s %ld\n", text, number);
    if (write(2, line, (size_t)length) < 0)
        _exit(4);
}

static void fail(const char *what, long number)
{
    say(what, number);
    _exit(1);
}

/* --- filters ------------------------------------------------------------------------------------------------------- */

struct calls { unsigned count; int numbers[CALLS_MOST]; };

static void add(struct calls *calls, int number)
{
    if (calls->count == CALLS_MOST)
        fail("too many calls in a list", number);
    calls->numbers[calls->count++] = number;
}

static void emit(struct sock_fprog *program, unsigned code, unsigned value, unsigned yes, unsigned no)
{
    program->filter[program->len++] = (struct sock_filter){ (unsigned short)code, (unsigned char)yes, (unsigned char)no, value };
}

/* The calls listed end in `listed`, all others in `others`; memory that is both asked for and executable in `listed` if
 * that is no permission, else in `others`. */
static void install(const struct calls *calls, unsigned listed, unsigned others, bool watch_exec)
{
    static struct sock_filter filter[2 * CALLS_MOST + 32];
    struct sock_fprog program = { 0, filter };
    emit(&program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    emit(&program, BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCH, 1, 0);
    emit(&program, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    emit(&program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    if (watch_exec) {
        emit(&program, BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 1, 0);
        emit(&program, BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3);
        emit(&program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]), 0, 0);
        emit(&program, BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1);
        emit(&program, BPF_RET | BPF_K, others, 0, 0);
        emit(&program, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    }
    for (unsigned i = 0; i < calls->count; i++) {
        emit(&program, BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls->numbers[i], 0, 1);
        emit(&program, BPF_RET | BPF_K, listed, 0, 0);
    }
    emit(&program, BPF_RET | BPF_K, others, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
        say("no seccomp filters here: errno", errno);
        _exit(SKIPPED);
    }
}

static void forbidden(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    say("a forbidden system call, or executable memory: call", info->si_syscall);
    _exit(3);
}

static void forbid_others(bool threads)
{
    static const int memory[] = { SYS_mmap, SYS_munmap, SYS_madvise, SYS_mremap, SYS_mprotect, SYS_futex,
                                  /* the program's own */ SYS_write, SYS_exit_group, SYS_rt_sigreturn };
    static const int lives[] = { SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_rt_sigprocmask, SYS_rt_sigaction,
                                 SYS_exit, /* musl's first thread */ SYS_membarrier };
    struct calls calls = { 0, { 0 } };
    struct sigaction action = { .sa_sigaction = forbidden, .sa_flags = SA_SIGINFO };
    sigaction(SIGSYS, &action, NULL);
    for (unsigned i = 0; i < sizeof memory / sizeof *memory; i++)
        add(&calls, memory[i]);
    for (unsigned i = 0; threads && i < sizeof lives / sizeof *lives; i++)
        add(&calls, lives[i]);
    install(&calls, SECCOMP_RET_ALLOW, SECCOMP_RET_TRAP, true);
}

/* --- use of memory ------------------------------------------------------------------------------------------------- */

struct block { unsigned char *p; size_t size; };
struct user { unsigned long long seed; struct block blocks[SLOTS]; size_t refused; };

static _Atomic(struct block *) mailbox[MAILBOX];   /* blocks that another thread frees */

static size_t below(struct user *user, size_t limit)
{
    user->seed = user->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (size_t)(user->seed >> 33) % limit;
}

static size_t any_size(struct user *user)
{
    static const size_t limits[] = { 128, 128, 1024, 1024, 8 << 10, 56 << 10, 1 << 20, 6 << 20 };
    return 1 + below(user, limits[below(user, 8)] >> below(user, 6));
}

static void check(const struct block *block)
{
    if (block->p[0] != (unsigned char)block->size || block->p[block->size - 1] != (unsigned char)block->size)
        fail("a block has lost its content", (long)block->size);
}

static void give_back(struct block *block)
{
    if (block->p == NULL)
        return;
    check(block);
    errno = 55;
    free(block->p);
    if (errno != 55)
        fail("free changed errno to", errno);
    block->p = NULL;
}

static void *allocate(struct user *user, size_t size)
{
    void *p = NULL;
    errno = 0;
    switch (below(user, 4)) {
    case 0: return calloc(1, size);
    case 1: errno = posix_memalign(&p, (size_t)16 << below(user, 10), size); return p;
    default: return malloc(size);
    }
}

static void take(struct user *user, struct block *block)
{
    size_t size = any_size(user);
    unsigned char *p = block->p != NULL ? (errno = 0, realloc(block->p, size)) : allocate(user, size);
    if (p == NULL) {
        if (errno != ENOMEM)
            fail("refused with", errno);
        user->refused++;
        return;
    }
    *block = (struct block){ p, size };
    p[0] = p[size - 1] = (unsigned char)size;
}

/* Through the mailbox goes a block that describes the other one, so that two sizes change hands. */
static void swap_one(struct user *user, struct block *block)
{
    struct block *letter = malloc(sizeof *letter);
    if (letter == NULL)
        return;
    *letter = *block;
    block->p = NULL;
    letter = atomic_exchange_explicit(&mailbox[below(user, MAILBOX)], letter, memory_order_acq_rel);
    if (letter != NULL)
        give_back(letter);
    free(letter);
}

static void use(struct user *user, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        struct block *block = &user->blocks[below(user, SLOTS)];
        switch (below(user, 8)) {
        case 0: swap_one(user, block); break;
        case 1: case 2: case 3: give_back(block); break;
        default:
            if (block->p != NULL)
                check(block);
            take(user, block);
        }
    }
}

static void end_use(struct user *user)
{
    for (unsigned i = 0; i < SLOTS; i++)
        give_back(&user->blocks[i]);
}

/* --- the ways to be confined --------------------------------------------------------------------------------------- */

static pthread_barrier_t ready, confined, over;

static void *in_a_thread(void *argument)
{
    struct user *user = argument;
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&confined);
    use(user, ROUNDS);
    end_use(user);
    pthread_barrier_wait(&over);
    pthread_barrier_wait(&over);   /* nobody comes: the process ends first */
    return NULL;
}

static struct user *new_user(unsigned long long seed)
{
    struct user *user = calloc(1, sizeof *user);
    if (user == NULL)
        fail("no memory for a user", 0);
    user->seed = seed * 7919;
    return user;
}

static void run_only(void)
{
    pthread_t thread;
    struct user *mine = new_user(99);
    pthread_barrier_init(&ready, NULL, THREADS + 1);
    pthread_barrier_init(&confined, NULL, THREADS + 1);
    pthread_barrier_init(&over, NULL, THREADS + 1);
    for (unsigned i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, in_a_thread, new_user(i + 1)) != 0)
            fail("pthread_create", i);
    pthread_barrier_wait(&ready);
    forbid_others(false);
    pthread_barrier_wait(&confined);
    use(mine, ROUNDS);
    end_use(mine);
    pthread_barrier_wait(&over);
    malloc_trim(0);
    use(mine, ROUNDS);
    if (mine->refused != 0)
        fail("refused though nothing is: times", (long)mine->refused);
    _exit(0);
}

static void *short_life(void *argument)
{
    struct user *user = argument;
    use(user, ROUNDS / LIVES);
    end_use(user);
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    struct user *users[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        users[i] = new_user(i + 1);
    forbid_others(true);
    for (unsigned life = 0; life < LIVES + THREADS; life++) {
        if (life >= THREADS)
            pthread_join(threads[life % THREADS], NULL);
        if (life < LIVES && pthread_create(&threads[life % THREADS], NULL, short_life, users[life % THREADS]) != 0)
            fail("pthread_create", life);
    }
    _exit(0);
}

static void run_refused(const char *name, int code)
{
    static const struct { const char *name; int number; } calls[] = {
        { "mmap", SYS_mmap }, { "munmap", SYS_munmap }, { "madvise", SYS_madvise }, { "mremap", SYS_mremap },
        { "mprotect", SYS_mprotect },
    };
    struct calls refused = { 0, { 0 } };
    struct user *user = new_user(5);
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(name, calls[i].name) == 0 || strcmp(name, "all") == 0)
            add(&refused, calls[i].number);
    use(user, ROUNDS);
    if (user->refused != 0 || refused.count == 0)
        fail("refused before anything was", (long)user->refused);
    install(&refused, SECCOMP_RET_ERRNO | (unsigned)code, SECCOMP_RET_ALLOW, false);
    for (unsigned i = 0; i < 10; i++) {
        use(user, ROUNDS);
        end_use(user);
        malloc_trim(0);
    }
    say("refused", (long)user->refused);
    /* With what was mapped before a program goes on: small blocks are there. */
    for (unsigned i = 0; i < 1000; i++)
        if ((user->blocks[i % SLOTS].p = malloc(100)) == NULL)
            fail("nothing left of what had been freed, after", i);
    _exit(0);
}

static void run_deny(char **program)
{
    static const int told[] = {
        SYS_getrandom, SYS_openat, SYS_readlinkat, SYS_prlimit64, SYS_sched_getaffinity, SYS_sched_yield, SYS_getpid,
        SYS_gettid, SYS_sysinfo, SYS_uname, SYS_clock_gettime, SYS_newfstatat, SYS_statx,
#if defined(SYS_open)
        SYS_open, SYS_readlink, SYS_getrlimit, SYS_stat,
#endif
    };
    struct calls calls = { 0, { 0 } };
    for (unsigned i = 0; i < sizeof told / sizeof *told; i++)
        add(&calls, told[i]);
    install(&calls, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_ALLOW, false);
    execv(program[0], program);
    fail("execv", errno);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "only") == 0)
        run_only();
    if (strcmp(mode, "threads") == 0)
        run_threads();
    if (strcmp(mode, "refused") == 0 && argc > 3)
        run_refused(argv[2], atoi(argv[3]));
    if (strcmp(mode, "deny") == 0 && argc > 2)
        run_deny(argv + 2);
    if (strcmp(mode, "use") == 0) {
        struct user *user = new_user(3);
        use(user, ROUNDS);
        end_use(user);
        if (user->refused != 0)
            fail("refused: times", (long)user->refused);
        return 0;
    }
    return 2;
}
