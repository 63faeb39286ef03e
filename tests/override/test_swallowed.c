/* A filter that answers madvise with 0 and does nothing, as older emulators do, some for guards alone, or with an error. Expects: calloc gives zeros in every size, also when memory
 * has gone back and come again, and hardened mode stops nothing. (The filter comes after the start, and the archive does not see it.) */
// test: timeout=120 flavours=preload,shared
#include "expect.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { GUARD_INSTALL = 102, SKIPPED = 77, SLOTS = 500, STEPS = 15000, ROUNDS = 3, PAUSE_MS = 60 };

/* To advice from `least` on. */
static bool answer_advice(unsigned code, unsigned least)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, least, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static bool all_zero(const unsigned char *p, size_t n)
{
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

static size_t size_by(unsigned random)
{
    static const size_t below[] = { 100, 3000, 30000, 300000, 3000000 };
    unsigned kind = random % 1000;
    return 1 + (random >> 4) % below[kind < 500 ? 0 : kind < 900 ? 1 : kind < 970 ? 2 : kind < 995 ? 3 : 4];
}

static void *come_and_go(void *number)
{
    unsigned random = 7 + (unsigned)(uintptr_t)number;
    static __thread struct slot { unsigned char *p; size_t n; } slots[SLOTS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < STEPS; i++) {
            random = random * 1103515245 + 12345;
            struct slot *slot = &slots[(random >> 8) % SLOTS];
            if (slot->p != NULL)
                memset(slot->p, 0xee, slot->n);
            free(slot->p);
            slot->n = size_by((random = random * 1103515245 + 12345) >> 8);
            slot->p = calloc(1, slot->n);
            expect(slot->p != NULL && all_zero(slot->p, slot->n));
        }
        for (unsigned i = 0; i < SLOTS; i++) {
            if (slots[i].p != NULL)
                memset(slots[i].p, 0xdd, slots[i].n);
            free(slots[i].p);
            slots[i].p = NULL;
        }
        malloc_trim(0);
        nanosleep(&(struct timespec){ 0, PAUSE_MS * 1000000 }, NULL);
    }
    return NULL;
}

static void run_under(unsigned code, unsigned least)
{
    pthread_t thread;
    if (!answer_advice(code, least))
        _exit(SKIPPED);
    expect(pthread_create(&thread, NULL, come_and_go, (void *)1) == 0);
    come_and_go((void *)2);
    expect(pthread_join(thread, NULL) == 0);
    exit(0);
}

int main(void)
{
    static const unsigned codes[][2] = { { 0, 0 }, { EPERM, 0 }, { EINVAL, 0 }, { 0, GUARD_INSTALL } };
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++) {
        int status = 0;
        pid_t child = fork();
        expect(child >= 0);
        if (child == 0)
            run_under(codes[i][0], codes[i][1]);
        expect(waitpid(child, &status, 0) == child && WIFEXITED(status));
        if (WEXITSTATUS(status) == SKIPPED)
            return puts("no filter can be installed here"), SKIPPED;
        expect(WEXITSTATUS(status) == 0);
    }
    return 0;
}
