/* A conservative search, like LeakSanitizer's: every word that looks like an address inside a sampled block reaches it. It reads
 * memory with process_vm_readv, which fails cleanly where another thread has unmapped it. */
#include "profile/sites.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/syscall.h"
#include "diag/report.h"
#include "os/os.h"

enum { LEAKS_CHUNK = 16 << 10, LEAKS_LINE = 512, SLABS_BACK = 1 << 15 };

static hak_rare_data uintptr_t leaks_words[LEAKS_CHUNK / sizeof(uintptr_t)];
static hak_rare_data char leaks_maps[4096];
static struct hak_record *leaks_waiting;
static bool leaks_searched, leaks_refused;

bool hak__leaks_were_searched(void) { return leaks_searched; }

/* --- from a word to a block ----------------------------------------------------------------------------------------------------- */

/* For blocks above the mid classes the table knows the slab in which they begin. */
static struct hak_record *in_place_around(uintptr_t word)
{
    size_t slab = hak__slab_of((void *)word);
    for (size_t back = 0; back < SLABS_BACK && back <= slab; back++) {
        struct hak_record *record = hak__in_place_find(hak__slab_start(slab - back), false);
        if (record != NULL)
            return record;
        if (back != 0 && hak__owner_at(slab - back) != 0 && hak__owner_has_class(hak__owner_at(slab - back)))
            return NULL; /* a span of smaller blocks */
    }
    return NULL;
}

static bool counts(const struct hak_record *record)
{
    return hak_load(&record->state, HAK_ACQUIRE) == HAK_SAMPLE_LIVE && record->site != NULL;
}

static struct hak_record *record_around(uintptr_t word)
{
    struct hak_record *record = NULL;
    if (hak__sample_has((void *)word))
        record = hak__sample_record_of((void *)word);
    else if (hak__slab_of((void *)word) < hak_read_mostly(&hak__window.slabs))
        record = in_place_around(word);
    bool inside = record != NULL && word - record->block < hak_max(record->bytes, 1);
    return inside && counts(record) ? record : NULL;
}

static void leaks_reach(uintptr_t word)
{
    struct hak_record *record = record_around(word);
    if (record == NULL || record->marked != 0)
        return;
    record->marked = 1;
    record->leak_next = leaks_waiting;
    leaks_waiting = record;
}

/* --- memory ---------------------------------------------------------------------------------------------------------------------- */

static void leaks_scan(uintptr_t start, uintptr_t end)
{
    for (uintptr_t at = hak_align_up(start, sizeof at); at < end; at += LEAKS_CHUNK) {
        struct iovec here = { leaks_words, hak_min(end - at, LEAKS_CHUNK) }, there = { (void *)at, here.iov_len };
        long got = hak__syscall(SYS_process_vm_readv, hak__syscall(SYS_getpid), &here, 1L, &there, 1L, 0L);
        leaks_refused |= got < 0 && got != -EFAULT;
        for (long i = 0; i < got / (long)sizeof *leaks_words; i++)
            leaks_reach(leaks_words[i]);
    }
}

static void scan_waiting(void)
{
    while (leaks_waiting != NULL) {
        struct hak_record *record = leaks_waiting;
        leaks_waiting = record->leak_next;
        leaks_scan(record->block, record->block + record->bytes);
    }
}

/* Scans the window except for the sampled blocks, which must be reached. */
static void scan_window(uintptr_t start, uintptr_t end)
{
    while (start < end) {
        struct hak_record *record = record_around(start);
        uintptr_t next = hak_min((start & ~(HAK_SLAB_SIZE - 1)) + HAK_SLAB_SIZE, end);
        if (record == NULL)
            leaks_scan(start, next);
        start = next;
    }
}

/* --- roots ------------------------------------------------------------------------------------------------------------------------ */

static uintptr_t put_hexadecimal(const char **at)
{
    uintptr_t value = 0;
    for (;; ++*at) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* Parses a line of the kernel's list: "start-end rw-p offset device inode   name". Skips what only a word from elsewhere may reach:
 * samples that count, and the calling thread's stack below this function, which holds the search's own data. */
static void scan_mapping(const char *line)
{
    uintptr_t start = put_hexadecimal(&line), here = (uintptr_t)__builtin_frame_address(0);
    line++;
    uintptr_t end = put_hexadecimal(&line);
    if (line[0] != ' ' || line[1] != 'r' || line[2] != 'w' || hak__store_owns(start)
        || (hak__guarded_has((void *)start) && counts(hak__sample_record_of((void *)start))))
        return;
    if (here - start < end - start)
        start = here;
    if (start >= hak__window.base && hak__slab_of((void *)start) < hak_read_mostly(&hak__window.slabs))
        scan_window(start, end);
    else
        leaks_scan(start, end);
}

static bool each_mapping(void)
{
    char line[LEAKS_LINE];
    size_t used = 0;
    long got;
    int fd = (int)hak__syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while ((got = hak__syscall(SYS_read, fd, leaks_maps, sizeof leaks_maps)) > 0)
        for (long i = 0; i < got; i++) {
            if (leaks_maps[i] != '\n') {
                used += used < sizeof line - 1;
                line[used - 1] = leaks_maps[i];
                continue;
            }
            line[used] = 0;
            used = 0;
            scan_mapping(line);
        }
    hak__syscall(SYS_close, fd);
    return got == 0;
}

/* --- the search --------------------------------------------------------------------------------------------------------------------- */

static void count_unreached(void)
{
    uint64_t lost = 0, bytes = 0;
    uint32_t number = 0;
    for (struct hak_record *record; (record = hak__sample_record_next(&number)) != NULL;)
        if (counts(record) && record->marked == 0) {
            hak_fetch_add(&record->site->unreachable, 1, HAK_RELAXED);
            hak_fetch_add(&record->site->unreachable_bytes, record->bytes, HAK_RELAXED);
            lost++;
            bytes += record->bytes;
        }
    if (lost != 0)
        hak__warn("leaks: no pointer leads to %u sampled blocks of %u bytes; the profile says where they come from", lost, bytes);
}

bool hak__leaks_search(void)
{
    bool listed = each_mapping();
    scan_waiting();
    leaks_searched = listed && !leaks_refused;
    if (leaks_searched)
        count_unreached();
    else
        hak__warn("the search for leaks failed: the system does not let the process read its own memory");
    return leaks_searched;
}
