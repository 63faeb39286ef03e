/* A tracer by the contract of OpenTelemetry's memory profiling, for test_probes.py: attaches to otel_memory:alloc and otel_memory:free
 * of one process and prints each event, "alloc PTR SIZE WEIGHT" or "free PTR", until it is told to end (a byte on stdin).
 *
 *   otel_tracer uprobe PID FILE ALLOC FREE SEMAPHORE    offsets in the file; the kernel sets the probes and counts the semaphore
 *   otel_tracer ptrace PID FILE ALLOC FREE SEMAPHORE    addresses in the process; breakpoints and /proc/PID/mem do the same
 *
 * Prints "attached" first. Exit status 77 with a reason if the system refuses. Traces the process's first thread only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <elf.h>
#include <unistd.h>

enum { PROBES = 2, RING_PAGES = 512, REFUSED = 77 };

static uint64_t number(const char *text) { return strtoull(text, NULL, 0); }

static _Noreturn void refuse(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(REFUSED);
}

static void say(unsigned probe, const uint64_t *arguments)
{
    if (probe == 0)
        printf("alloc %#llx %llu %llu\n", (unsigned long long)arguments[0], (unsigned long long)arguments[1],
               (unsigned long long)arguments[2]);
    else
        printf("free %#llx\n", (unsigned long long)arguments[0]);
}

static void say_attached(void)
{
    puts("attached");
    fflush(stdout);
}

static int is_over(int timeout_ms)
{
    struct pollfd input = { .fd = 0, .events = POLLIN };
    return poll(&input, 1, timeout_ms) > 0;
}

/* --- the kernel's probes ------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { FIRST = 5, SECOND = 4, THIRD = 3 };   /* PERF_REG_X86_DI, _SI, _DX */
#else
enum { FIRST = 0, SECOND = 1, THIRD = 2 };
#endif

static unsigned device_type(void)
{
    unsigned type = 0;
    FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    if (file == NULL || fscanf(file, "%u", &type) != 1)
        refuse("the kernel has no uprobes");
    fclose(file);
    return type;
}

static int event_open(pid_t pid, const char *path, uint64_t offset, uint64_t semaphore, uint64_t *id)
{
    struct perf_event_attr attr = { .size = sizeof attr, .type = device_type(), .sample_period = 1, .wakeup_events = 1 };
    attr.config = semaphore << 32;   /* ref_ctr_offset */
    attr.config1 = (uintptr_t)path;
    attr.config2 = offset;
    attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_REGS_USER;
    attr.sample_regs_user = 1u << FIRST | 1u << SECOND | 1u << THIRD;
    int fd = (int)syscall(SYS_perf_event_open, &attr, pid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_ID, id) != 0)
        refuse("perf_event_open");
    return fd;
}

/* A record: header, the event's number, the registers' kind, then the registers by number. */
static void drain(struct perf_event_mmap_page *ring, const uint64_t *ids)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = RING_PAGES * page;
    uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE), tail = ring->data_tail;
    while (tail != head) {
        struct perf_event_header header;
        char record[sizeof header + 5 * sizeof(uint64_t)];
        uint64_t words[5];
        for (size_t i = 0; i < sizeof record; i++)
            record[i] = ((char *)ring)[page + (tail + i) % bytes];
        memcpy(&header, record, sizeof header);
        memcpy(words, record + sizeof header, sizeof words);
        uint64_t descending[3] = { words[4], words[3], words[2] };
        if (header.type == PERF_RECORD_SAMPLE && words[1] != PERF_SAMPLE_REGS_ABI_NONE)
            say(words[0] == ids[1], FIRST > THIRD ? descending : words + 2);
        else if (header.type == PERF_RECORD_LOST)
            puts("lost");
        tail += header.size;
    }
    __atomic_store_n(&ring->data_tail, tail, __ATOMIC_RELEASE);
}

static void by_kernel(pid_t pid, const char *path, const uint64_t *offsets, uint64_t semaphore)
{
    uint64_t ids[PROBES];
    int fds[PROBES];
    for (unsigned i = 0; i < PROBES; i++)
        fds[i] = event_open(pid, path, offsets[i], semaphore, &ids[i]);
    void *ring = mmap(NULL, (1 + RING_PAGES) * (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    if (ring == MAP_FAILED || ioctl(fds[1], PERF_EVENT_IOC_SET_OUTPUT, fds[0]) != 0)
        refuse("the events' memory");
    say_attached();
    for (int over = 0; !over;) {
        over = is_over(5);
        drain(ring, ids);
    }
}

/* --- breakpoints --------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static const unsigned char trap[] = { 0xcc };
static uint64_t after_trap(struct user_regs_struct *regs, uint64_t *arguments)
{
    arguments[0] = regs->rdi, arguments[1] = regs->rsi, arguments[2] = regs->rdx;
    return regs->rip;   /* behind the trap, which has the length of the nop */
}
#else
static const unsigned char trap[] = { 0, 0, 0x20, 0xd4 };
static uint64_t after_trap(struct user_regs_struct *regs, uint64_t *arguments)
{
    memcpy(arguments, regs->regs, 3 * sizeof *arguments);
    return regs->pc += sizeof trap;
}
#endif

static void patch(int memory, uint64_t at, const void *bytes, size_t count)
{
    if (pwrite(memory, bytes, count, (off_t)at) != (ssize_t)count)
        refuse("writing the process's memory");
}

static void count_semaphore(int memory, uint64_t at, int change)
{
    uint16_t value;
    if (pread(memory, &value, sizeof value, (off_t)at) != sizeof value)
        refuse("reading the process's memory");
    value = (uint16_t)(value + change);
    patch(memory, at, &value, sizeof value);
}

/* The process stops at a trap, or with another signal, which it gets. */
static void stopped(pid_t pid, int status, const uint64_t *addresses)
{
    struct user_regs_struct regs;
    struct iovec all = { &regs, sizeof regs };
    uint64_t arguments[3];
    int sent = WSTOPSIG(status);
    if (sent == SIGTRAP && ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &all) == 0) {
        uint64_t next = after_trap(&regs, arguments);
        for (unsigned i = 0; i < PROBES; i++)
            if (next == addresses[i] + sizeof trap)
                say(i, arguments);
        ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &all);
        sent = 0;
    }
    ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)(sent == SIGSTOP ? 0 : sent));
}

static void by_breakpoints(pid_t pid, const uint64_t *addresses, uint64_t semaphore)
{
    unsigned char former[PROBES][sizeof trap];
    char path[64];
    int status;
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int memory = open(path, O_RDWR | O_CLOEXEC);
    if (memory < 0 || ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0)
        refuse("attaching as a debugger");
    waitpid(pid, &status, __WALL);
    for (unsigned i = 0; i < PROBES; i++) {
        if (pread(memory, former[i], sizeof trap, (off_t)addresses[i]) != sizeof trap)
            refuse("reading the process's memory");
        patch(memory, addresses[i], trap, sizeof trap);
    }
    count_semaphore(memory, semaphore, 1);
    ptrace(PTRACE_CONT, pid, NULL, NULL);
    say_attached();
    while (!is_over(0)) {
        if (waitpid(pid, &status, __WALL | WNOHANG) != pid)
            usleep(100);
        else if (WIFSTOPPED(status))
            stopped(pid, status, addresses);
        else
            return;
    }
    kill(pid, SIGSTOP);
    while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP)
        stopped(pid, status, addresses);
    count_semaphore(memory, semaphore, -1);
    for (unsigned i = 0; i < PROBES; i++)
        patch(memory, addresses[i], former[i], sizeof trap);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
}

int main(int count, char **argument)
{
    if (count != 7)
        return 2;
    uint64_t probes[PROBES] = { number(argument[4]), number(argument[5]) }, semaphore = number(argument[6]);
    pid_t pid = (pid_t)number(argument[2]);
    if (strcmp(argument[1], "uprobe") == 0)
        by_kernel(pid, argument[3], probes, semaphore);
    else
        by_breakpoints(pid, probes, semaphore);
    return 0;
}
