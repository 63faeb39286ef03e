/*
 * drift [DAYS [SCALE [SEED [REAL_S]]]]
 *
 * Exercises whether a heap grows although what lives in it does not: a simulated server, DAYS days of minutes. Load follows the time of
 * day. Each minute begins sessions, which hold some blocks and end after minutes to hours; a cache evicts at random; one block in ten
 * thousand survives for good until as many have; every sixth hour the configuration is read anew, next to the old one; each third
 * day a version comes, whose sizes differ by up to a quarter. SCALE is the sessions that begin in the busiest minute.
 *
 * Survivors gather for the first sixteen days at the default load, so that fewer than thirty days show little but that.
 *
 * Prints one line per simulated hour: hour=H live_kib=L resident_kib=R ratio=R/L; then
 *   slope, slope_low, slope_high    of the ratio by day, from the second day on, with its 95 % interval over means of whole days
 *   end_ratio                       mean of the last day
 * With REAL_S, hours take so many seconds of real time, so that what happens by the clock (memory that goes back) does; 0: none.
 * The blocks and their order depend on the arguments alone, never on the allocator; check= is their digest.
 */
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MINUTES_OF_DAY = 1440, DAYS_MOST = 366, WHEEL = 512, BLOCKS_OF_SESSION = 24, CACHE_SLOTS = 1 << 15, RARE = 10000,
    SURVIVORS = 2000, CONFIG = 3000, CONFIG_MINUTES = 360, VERSION_DAYS = 3
};

static const struct bench_arg drift_args[] = {
    {"DAYS", "simulated days", 60, 2, DAYS_MOST, NULL},
    {"SCALE", "sessions that begin in the busiest minute", 60, 1, 100000, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
    {"REAL_S", "seconds of real time that an hour takes at least", 0, 0, 3600, NULL},
};
static const struct bench_spec drift_spec = BENCH_SPEC("Sixty days of a server: resident over live memory, and whether it grows.", drift_args);

/* A block with what was asked for, in front of its content. */
struct block {
    struct block *next;
    size_t size;
};

static uint64_t seed, digest, live, blocks_made, version;
static struct block *wheel[WHEEL]; /* sessions that end in the i-th minute, each a list of blocks */
static struct block *cache[CACHE_SLOTS], *survivors[SURVIVORS], *config[CONFIG];
static size_t survived;
static double day_sum[DAYS_MOST], day_count[DAYS_MOST];

static struct block *make(size_t size)
{
    size = size < sizeof(struct block) ? sizeof(struct block) : size;
    struct block *block = malloc(size);
    if (block == NULL) {
        bench_die("out of memory");
    }
    memset(block, 1, size);
    block->next = NULL;
    block->size = size;
    live += size;
    blocks_made++;
    digest = bench_mix(digest, size);
    return block;
}

static void end(struct block *block)
{
    if (block != NULL) {
        live -= block->size;
        free(block);
    }
}

static size_t below(size_t bound) { return (size_t)(bench_random(&seed) % bound); }

/* Sizes fall off like those of servers: most below 256 bytes, one in fifty up to 64 KiB; a version shifts them. */
static size_t draw_size(void)
{
    size_t base = below(50) == 0 ? 4096 + below(60 << 10) : below(6) == 0 ? 256 + below(3 << 10) : 16 + below(240);
    return base + base * (version * 7 % 8) / 32;
}

static void begin_session(uint64_t minute)
{
    size_t lasts = below(8) == 0 ? 60 + below(WHEEL - 80) : 1 + below(30);
    struct block **at = &wheel[(minute + lasts) % WHEEL];
    for (size_t i = 0; i < BLOCKS_OF_SESSION; i++) {
        struct block *block = make(draw_size());
        block->next = *at;
        *at = block;
    }
    for (size_t i = 0; i < 4; i++) { /* results that the cache keeps */
        size_t slot = below(CACHE_SLOTS);
        end(cache[slot]);
        cache[slot] = make(draw_size());
    }
    if (below(RARE / BLOCKS_OF_SESSION) == 0) {
        end(survivors[survived % SURVIVORS]);
        survivors[survived++ % SURVIVORS] = make(draw_size());
    }
}

static void end_sessions(uint64_t minute)
{
    struct block *block = wheel[minute % WHEEL];
    wheel[minute % WHEEL] = NULL;
    while (block != NULL) {
        struct block *next = block->next;
        end(block);
        block = next;
    }
}

/* The new one is complete before the old one goes. */
static void reload(void)
{
    struct block *old[CONFIG];
    memcpy(old, config, sizeof old);
    for (size_t i = 0; i < CONFIG; i++) {
        config[i] = make(draw_size());
    }
    for (size_t i = 0; i < CONFIG; i++) {
        end(old[i]);
    }
}

/* From a fifth at night to all at noon. */
static double load_at(uint64_t minute)
{
    double day = (double)(minute % MINUTES_OF_DAY) / MINUTES_OF_DAY;
    return 0.6 - 0.4 * cos(2 * 3.14159265358979 * day);
}

static void one_minute(uint64_t minute, uint64_t scale)
{
    end_sessions(minute);
    if (minute % (VERSION_DAYS * MINUTES_OF_DAY) == 0) {
        version++;
    }
    if (minute % CONFIG_MINUTES == 0) {
        reload();
    }
    size_t sessions = (size_t)((double)scale * load_at(minute) + 0.5);
    for (size_t i = 0; i < sessions; i++) {
        begin_session(minute);
    }
}

static void one_hour_ends(uint64_t hour, long before_kb)
{
    static char line[128];
    long resident = bench_rss_kb() - before_kb;
    double ratio = (double)resident * 1024 / (double)live;
    day_sum[hour / 24] += ratio;
    day_count[hour / 24]++;
    snprintf(line, sizeof line, "hour=%lu live_kib=%lu resident_kib=%ld ratio=%.4f\n", (unsigned long)hour, (unsigned long)(live >> 10),
             resident, ratio);
    bench_print(line);
}

/* The least squares through the days' means, without the first. */
static void report(const struct bench_run *run)
{
    static char line[512];
    size_t days = run->value[0], n = days - 1;
    double x = 0, y = 0, xx = 0, xy = 0, rest = 0;
    for (size_t i = 1; i < days; i++) {
        x += (double)i / (double)n;
        y += day_sum[i] / day_count[i] / (double)n;
    }
    for (size_t i = 1; i < days; i++) {
        xx += ((double)i - x) * ((double)i - x);
        xy += ((double)i - x) * (day_sum[i] / day_count[i] - y);
    }
    double slope = xx > 0 ? xy / xx : 0;
    for (size_t i = 1; i < days; i++) {
        double error = day_sum[i] / day_count[i] - y - slope * ((double)i - x);
        rest += error * error;
    }
    double wide = n > 2 && xx > 0 ? 2.05 * sqrt(rest / (double)(n - 2) / xx) : INFINITY;
    snprintf(line, sizeof line, "drift slope=%.5f slope_low=%.5f slope_high=%.5f end_ratio=%.4f live_kib=%lu blocks=%lu check=%016lx args=\"%s\"\n",
             slope, slope - wide, slope + wide, day_sum[days - 1] / day_count[days - 1], (unsigned long)(live >> 10),
             (unsigned long)blocks_made, (unsigned long)digest, run->text);
    bench_print(line);
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "drift", &drift_spec, argc, argv);
    seed = bench_seed(run.value[2], 0);
    memset(cache, 0, sizeof cache); /* resident before the first look */
    memset(survivors, 0, sizeof survivors);
    memset(config, 0, sizeof config);
    long before_kb = bench_rss_kb();
    double begun = bench_now();
    for (uint64_t minute = 0; minute < run.value[0] * MINUTES_OF_DAY; minute++) {
        one_minute(minute, run.value[1]);
        if (minute % 60 == 59) {
            double left = begun + (double)((minute / 60 + 1) * run.value[3]) - bench_now();
            if (run.value[3] != 0 && left > 0) {
                nanosleep(&(struct timespec){(time_t)left, (long)((left - floor(left)) * 1e9)}, NULL);
            }
            one_hour_ends(minute / 60, before_kb);
        }
    }
    report(&run);
    return 0;
}
