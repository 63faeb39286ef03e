/* Forty sites with known live bytes and known rates, for test_profile.py. Each site is a function of its own, so that its
 * frame tells it. What it does, how many blocks it makes and how many of them stay is in the table; the program writes, as JSON,
 * each function's address and the truth, then a profile to the file that its first argument names. The rates are the same in
 * each run; only the sample differs. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#include "hakmem.h"

namespace {

enum kind { PLAIN, RECYCLED, THREAD, REALLOC, ALIGNED, CALLOC, OBJECT };

struct site {
    kind how;
    size_t bytes;
    unsigned live, rounds;   /* blocks that stay; blocks made and freed at once */
};

/* Totals of about 4 MiB live and 16 MiB made at each, of the large sizes as many as 64 blocks. */
constexpr site sites[] = {
    { PLAIN, 16, 1 << 18, 0 },        { PLAIN, 48, 90000, 0 },          { PLAIN, 100, 42000, 0 },
    { PLAIN, 1000, 4200, 0 },         { PLAIN, 5000, 840, 0 },          { PLAIN, 30000, 140, 0 },
    { PLAIN, 57344, 80, 0 },          { PLAIN, 100000, 60, 0 },         { PLAIN, 700000, 30, 0 },
    { PLAIN, 3 << 20, 6, 0 },         { PLAIN, 64 << 20, 1, 0 },        { RECYCLED, 16, 0, 1 << 20 },
    { RECYCLED, 64, 0, 260000 },      { RECYCLED, 200, 100, 84000 },    { RECYCLED, 1024, 100, 16000 },
    { RECYCLED, 4096, 50, 4000 },     { RECYCLED, 20000, 20, 840 },     { RECYCLED, 50000, 10, 340 },
    { RECYCLED, 90000, 10, 190 },     { RECYCLED, 500000, 5, 60 },      { RECYCLED, 2 << 20, 2, 20 },
    { THREAD, 32, 100, 500000 },      { THREAD, 500, 4000, 32000 },     { THREAD, 8000, 400, 2000 },
    { THREAD, 200000, 20, 80 },       { REALLOC, 64, 1000, 200000 },    { REALLOC, 3000, 1000, 5000 },
    { REALLOC, 40000, 100, 400 },     { ALIGNED, 24, 40000, 200000 },   { ALIGNED, 1000, 4000, 16000 },
    { ALIGNED, 33000, 100, 500 },     { ALIGNED, 300000, 10, 50 },      { CALLOC, 40, 40000, 200000 },
    { CALLOC, 2000, 2000, 8000 },     { CALLOC, 80000, 50, 200 },       { OBJECT, 24, 40000, 400000 },
    { OBJECT, 160, 20000, 100000 },   { OBJECT, 1500, 2000, 10000 },    { OBJECT, 10000, 400, 1600 },
    { OBJECT, 60000, 60, 260 },
};
constexpr unsigned count = sizeof sites / sizeof *sites;
static_assert(count == 40, "as the test says");

volatile char sink;

/* One block of site N, made in a frame that is the site's alone. */
template <unsigned N> __attribute__((noinline)) void *make()
{
    constexpr site s = sites[N];
    void *p = nullptr;
    switch (s.how) {
    case ALIGNED: p = memalign(256, s.bytes); break;
    case CALLOC: p = calloc(1, s.bytes); break;
    case OBJECT: p = ::operator new(s.bytes); break;
    case REALLOC: p = malloc(s.bytes / 8); p = realloc(p, s.bytes); break;
    default: p = malloc(s.bytes);
    }
    *static_cast<volatile char *>(p) = 1;
    sink = 1;   /* a call's result is used: the frame stays */
    return p;
}

template <unsigned N> void drop(void *p)
{
    if (sites[N].how == OBJECT)
        ::operator delete(p, sites[N].bytes);
    else
        free(p);
}

void *batch[512];
unsigned batched;

void *free_batch(void *)
{
    for (unsigned i = 0; i < batched; i++)
        free(batch[i]);
    return nullptr;
}

/* Another thread frees what waits: one thread for each batch, as long as there are few, else for the last. */
void free_elsewhere()
{
    pthread_t thread;
    if (pthread_create(&thread, nullptr, free_batch, nullptr) != 0 || pthread_join(thread, nullptr) != 0)
        abort();
    batched = 0;
}

template <unsigned N> void churn()
{
    for (unsigned i = 0; i < sites[N].rounds; i++) {
        void *p = make<N>();
        if (sites[N].how != THREAD) {
            drop<N>(p);
            continue;
        }
        batch[batched++] = p;
        if (batched == 512)
            free_elsewhere();
    }
    if (batched != 0)
        free_elsewhere();
}

template <unsigned N> void run()
{
    static void **stays = static_cast<void **>(calloc(sites[N].live + 1, sizeof(void *)));
    for (unsigned i = 0; i < sites[N].live; i++)
        stays[i] = make<N>();
    churn<N>();
    const site &s = sites[N];
    double each = s.how == REALLOC ? static_cast<double>(s.bytes + s.bytes / 8) : static_cast<double>(s.bytes);
    printf("%s{\"at\":%zu,\"kind\":%d,\"bytes\":%zu,\"live\":%.0f,\"rate\":%.0f}", N == 0 ? "[" : ",\n",
           reinterpret_cast<size_t>(&make<N>), s.how, s.bytes, static_cast<double>(s.bytes) * s.live,
           each * (static_cast<double>(s.live) + s.rounds));
    if constexpr (N + 1 < count)
        run<N + 1>();
}

}

int main(int arguments, char **argument)
{
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    run<0>();
    printf("]\n");
    return arguments < 2 ? 0 : hak_profile_dump(argument[1]);
}
