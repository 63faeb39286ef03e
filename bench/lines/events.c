/* Accesses and system calls as they happen: to the caches, and to the counts of lines and sites. */
#include "events.h"

#include "pub_tool_libcbase.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"

struct cache events_cache;
struct site *events_site[SITE_BUCKETS];
struct counted events_counted;
ULong events_instructions;
static Bool counting;

static void *zeroed(size_t bytes)
{
    return VG_(calloc)("lines", 1, bytes);
}

void events_init(void)
{
    cache_init(&events_cache, zeroed);
}

void events_begin(void)
{
    counting = True;
    events_counted = (struct counted){.instructions = events_instructions};
}

void events_end(void)
{
    counting = False;
    events_counted.instructions = events_instructions - events_counted.instructions;
}

/* The first thread only starts the others: it gets the last core, they get the first ones. */
static unsigned core_of(ThreadId thread)
{
    return (thread + CACHE_CORES - 2) % CACHE_CORES;
}

static struct site *site_of(struct cache_line *line, Addr address, Addr code)
{
    ULong mixed = ((ULong)(Addr)line ^ code * 0x9fb21c651e98df25ULL) * 0x9e3779b97f4a7c15ULL;
    struct site **bucket = &events_site[mixed >> 32 & (SITE_BUCKETS - 1)], *site = *bucket;
    while (site != NULL && (site->line != line || site->code != code))
        site = site->next;
    if (site == NULL) {
        site = zeroed(sizeof *site);
        site->line = line;
        site->address = address & ~(Addr)(CACHE_LINE - 1);
        site->code = code;
        site->next = *bucket;
        *bucket = site;
    }
    return site;
}

static void touch_line(struct cache_page *page, Addr address, unsigned size, UWord packed, Addr code)
{
    const unsigned offset = address % CACHE_LINE;
    struct cache_line *line = &page->line[address % CACHE_PAGE / CACHE_LINE];
    const enum cache_access access = packed >> 8 & 15;
    enum cache_cause cause =
        cache_touch(&events_cache, line, core_of(VG_(get_running_tid)()), offset, size, access);
    line->flags |= packed >> 12 & 1 ? LINE_BY_PROGRAM : LINE_BY_LIBRARY;
    if (cause == CACHE_NONE || !counting)
        return;
    line->count[cause]++;
    site_of(line, address, code)->count[cause]++;
}

VG_REGPARM(3) void events_access(Addr address, UWord packed, Addr code)
{
    const unsigned size = packed & 255, room = CACHE_LINE - address % CACHE_LINE;
    struct cache_page *page = cache_page_of(&events_cache, address, 0);
    events_counted.accesses++;
    if (page == NULL || !page->resident) {
        page = cache_page_of(&events_cache, address, 1);
        page->resident = 1;
        events_counted.faults++;
    }
    touch_line(page, address, size < room ? size : room, packed, code);
    if (size > room)
        events_access(address + room, (packed & ~(UWord)255) | (size - room), code);
}

void events_swap(Addr address, UWord packed, Addr code, UWord stored)
{
    events_access(address, stored ? packed : (packed & ~(UWord)0xf00) | CACHE_CLAIM << 8, code);
}

ULong events_ticks(void)
{
    return events_instructions;
}

void events_mark_own(Addr address, SizeT bytes)
{
    for (Addr at = address; at < address + bytes; at += CACHE_LINE)
        cache_page_of(&events_cache, at, 1)->line[at % CACHE_PAGE / CACHE_LINE].flags |= LINE_OWN;
}
