/* Decides where the statistics go. The signal handler prints directly: gathering takes no lock and waits for no thread, printing
 * is write(2), and the snapshot is static, so a thread's small stack suffices. A signal that arrives while another is being
 * answered is dropped. A ledger reads only unlocked heaps, which excludes the one whose slow path the signal interrupted. */
#include "stats/stats.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/syscall.h"
#include "diag/options.h"
#include "diag/report.h"
#include "profile/profile.h"

static _Atomic bool answering;

void hak__expand_name(char *to, size_t size, const char *name)
{
    size_t used = 0;
    for (; *name != 0 && used + 24 < size; name++) {
        bool id = name[0] == '%' && name[1] == 'p';
        if (id)
            used += hak__format(to + used, size - used, "%u", (uint64_t)hak__syscall(SYS_getpid));
        else
            to[used++] = *name;
        name += id;
    }
    to[used] = 0;
}

static int print_to(int fd, const void *stats)
{
    switch (hak__option(HAK_OPTION_stats)) {
    case HAK_STATS_JSON: return hak__print_json(fd, stats);
    case HAK_STATS_PROM: return hak__print_openmetrics(fd, stats);
    default: return hak__print_text(fd, stats);
    }
}

static void write_file(const struct hak_stats *stats)
{
    char name[2 * HAK_STATS_FILE_SIZE];
    hak__expand_name(name, sizeof name, hak__stats_file);
    int error = hak__file_write(name, print_to, stats);
    if (error != 0)
        hak__warn("the statistics could not be written to %s (error %u)", name, (uint64_t)error);
}

static void put_out(struct hak_stats *stats)
{
    int saved = errno;
    hak__snapshot(stats);
    if (hak__option(HAK_OPTION_stats_ledger) != 0 && !hak__ledger(stats))
        hak__warn("option stats_ledger: the system does not say what is resident");
    if (hak__option(HAK_OPTION_stats) >= HAK_STATS_JSON)
        write_file(stats);
    else
        hak__print_text(hak__report_fd(), stats);
    errno = saved;
}

static void put_out_pools(const struct hak_stats *stats)
{
    if (hak__option(HAK_OPTION_warm_pool_stats) != 0)
        hak__print_warm_pool(hak__report_fd(), stats);
    if (hak__option(HAK_OPTION_shared_pool_stats) != 0)
        hak__print_shared_pool(hak__report_fd(), stats);
}

void hak__output_at_exit(void)
{
    struct hak_stats stats;
    bool pools = (hak__option(HAK_OPTION_warm_pool_stats) | hak__option(HAK_OPTION_shared_pool_stats)) != 0;
    if (hak__option(HAK_OPTION_stats) != HAK_STATS_OFF)
        put_out(&stats);
    else if (pools)
        hak__snapshot(&stats);
    if (pools)
        put_out_pools(&stats);
}

/* Serves the lab's request (profile/profile.h), if there is one; otherwise prints what is on: a profile, statistics, or both. */
static void on_signal(int number)
{
    static hak_rare_data struct hak_stats stats;
    int saved = errno;
    (void)number;
    bool asked = hak__profile_answer(), profiled = !asked && hak__profile_by_signal();
    bool wanted = !asked && (!profiled || hak__option(HAK_OPTION_stats) != HAK_STATS_OFF);
    if (wanted && !hak_exchange(&answering, true, HAK_ACQUIRE)) {
        put_out(&stats);
        hak_store(&answering, false, HAK_RELEASE);
    }
    errno = saved;
}

/* Whether the kernel sends it for an instruction, which a handler that returns would repeat for ever. */
static bool is_of_instruction(int number)
{
    return number == SIGILL || number == SIGTRAP || number == SIGBUS || number == SIGFPE || number == SIGSEGV || number == SIGSYS;
}

void hak__output_signal_init(void)
{
    int number = (int)hak__option(HAK_OPTION_stats_signal);
    struct sigaction former, ours = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    if (number == 0)
        return;
    bool free_to_take = !is_of_instruction(number) && sigaction(number, NULL, &former) == 0 && former.sa_handler == SIG_DFL;
    if (!free_to_take || sigaction(number, &ours, NULL) != 0)
        hak__warn("option stats_signal: signal %u is in use, means a crash, or cannot be caught", (uint64_t)number);
    else
        hak__profile.signal = (uint32_t)number;
}
