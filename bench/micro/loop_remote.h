/*
 * remote: blocks are allocated in one thread and freed in another; they travel through bounded rings.
 * Two modes: `oneway` makes pairs of a producer and a consumer, so the consumer's frees must find their
 * way back; `exchange` makes a circle in which every thread sends to the next and frees what the one
 * before it sent.
 *
 * In exchange mode all threads draw the same sequence of sizes and stay at most one ring ahead of what
 * they have received: then no thread gives away more than RING blocks of a size beyond those it got.
 */
#ifndef BENCH_LOOP_REMOTE_H
#define BENCH_LOOP_REMOTE_H

#include "block.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>

enum { REMOTE_ONEWAY, REMOTE_EXCHANGE };
enum { REMOTE_BATCH = 64 }; /* blocks per publication, so that the ring itself costs little */

static const char *const remote_modes[] = {"oneway", "exchange", NULL};

static const struct bench_arg remote_args[] = {
    {"MODE", "who frees", REMOTE_ONEWAY, 0, 0, remote_modes},
    {"PAIRS", "pairs of threads", 1, 1, BENCH_THREADS_MAX / 2, NULL},
    {"ITERATIONS", "blocks sent by each sending thread", 20000000, 1, BENCH_COUNT_MAX, NULL},
    {"MIN", "smallest block in bytes", 64, 1, BENCH_SIZE_MAX, NULL},
    {"MAX", "largest block in bytes", 64, 1, BENCH_SIZE_MAX, NULL},
    {"RING", "slots of a ring, a power of two", 1024, 2, BENCH_BLOCKS_MAX, NULL},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, NULL},
};

static const struct bench_spec remote_spec =
    BENCH_SPEC("Blocks are allocated in one thread and freed in another.", remote_args);

/* Single producer, single consumer; tail - head blocks are under way, 0 <= tail - head <= slots. */
struct remote_ring {
    alignas(64) atomic_uint_fast64_t tail; /* blocks ever sent, written by the producer */
    alignas(64) atomic_uint_fast64_t head; /* blocks ever received, written by the consumer */
    alignas(64) void **slot;
};

struct remote_worker {
    BENCH_APART struct remote_ring *out; /* NULL: this thread only receives */
    struct remote_ring *in;  /* NULL: this thread only sends */
    uint64_t slots;          /* of every ring */
    uint64_t to_send;
    uint64_t to_receive;
    uint64_t sent;
    uint64_t received;
    uint64_t seed;
    size_t min;
    size_t max;
};

static inline uint64_t remote_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many blocks may be sent now: a batch, what is left to send, what the ring has room for, and in
 * exchange mode what keeps the thread within one ring of what it has received. */
static uint64_t remote_room(const struct remote_worker *worker)
{
    /* Pairs with the release in remote_receive: a slot is reused only after its block was read. */
    uint64_t head = atomic_load_explicit(&worker->out->head, memory_order_acquire);
    uint64_t room = worker->slots - (worker->sent - head);
    if (worker->in != NULL && worker->sent > worker->received) {
        room = remote_least(room, worker->slots - (worker->sent - worker->received));
    }
    return remote_least(remote_least(REMOTE_BATCH, room), worker->to_send - worker->sent);
}

static uint64_t remote_send(struct remote_worker *worker)
{
    if (worker->out == NULL) {
        return 0;
    }
    const uint64_t count = remote_room(worker), mask = worker->slots - 1;
    for (uint64_t i = 0; i < count; i++) {
        size_t size = bench_size(bench_random(&worker->seed), worker->min, worker->max);
        worker->out->slot[(worker->sent + i) & mask] = bench_block(size);
    }
    worker->sent += count;
    /* Pairs with the acquire in remote_receive: the slots are filled before the count says so. */
    atomic_store_explicit(&worker->out->tail, worker->sent, memory_order_release);
    return count;
}

static uint64_t remote_receive(struct remote_worker *worker)
{
    if (worker->in == NULL) {
        return 0;
    }
    /* Pairs with the release in remote_send. */
    uint64_t tail = atomic_load_explicit(&worker->in->tail, memory_order_acquire);
    const uint64_t count = remote_least(REMOTE_BATCH, tail - worker->received), mask = worker->slots - 1;
    for (uint64_t i = 0; i < count; i++) {
        bench_free(worker->in->slot[(worker->received + i) & mask]);
    }
    worker->received += count;
    /* Pairs with the acquire in remote_room. */
    atomic_store_explicit(&worker->in->head, worker->received, memory_order_release);
    return count;
}

static void remote_body(void *arg, struct bench_team *team)
{
    struct remote_worker *worker = arg;
    if (worker->out != NULL) {
        bench_thread_prepare((struct bench_demand){worker->min, worker->max, worker->slots});
    }
    bench_team_start(team);
    while (worker->sent < worker->to_send || worker->received < worker->to_receive) {
        if (remote_send(worker) + remote_receive(worker) == 0) {
            sched_yield();
        }
    }
    bench_team_stop(team);
    bench_thread_done();
}

/* Thread i sends into ring i and receives from the ring of the thread before it. */
static unsigned remote_connect(struct remote_worker *worker, struct remote_ring *ring,
                               const struct bench_run *run)
{
    const int oneway = run->value[0] == REMOTE_ONEWAY;
    const unsigned threads = 2 * (unsigned)run->value[1];
    const uint64_t iterations = run->value[2];
    for (unsigned i = 0; i < threads; i++) {
        int sends = !oneway || i % 2 == 0, receives = !oneway || i % 2 == 1;
        ring[i].slot = bench_map(run->value[5] * sizeof *ring[i].slot);
        worker[i] = (struct remote_worker){.out = sends ? &ring[i] : NULL,
                                           .in = receives ? &ring[(i + threads - 1) % threads] : NULL,
                                           .slots = run->value[5],
                                           .to_send = sends ? iterations : 0,
                                           .to_receive = receives ? iterations : 0,
                                           .seed = bench_seed(run->value[6], 0),
                                           .min = run->value[3],
                                           .max = run->value[4]};
    }
    return threads;
}

static int remote_main(const char *name, int argc, char **argv)
{
    static struct remote_worker worker[BENCH_THREADS_MAX];
    static struct remote_ring ring[BENCH_THREADS_MAX];
    struct bench_run run;
    bench_parse(&run, name, &remote_spec, argc, argv);
    bench_require(&run, run.value[3] <= run.value[4], "MIN must not exceed MAX");
    bench_require(&run, (run.value[5] & (run.value[5] - 1)) == 0, "RING must be a power of two");
    bench_require(&run, run.value[0] == REMOTE_EXCHANGE || !BENCH_NEEDS_BALANCE,
                  "an allocator without refill cannot run one way, only in exchange mode");
    unsigned threads = remote_connect(worker, ring, &run);
    uint64_t ops = 0;
    double seconds = bench_team_run(threads, remote_body, worker, sizeof worker[0]);
    for (unsigned i = 0; i < threads; i++) {
        ops += worker[i].sent;
    }
    bench_report(&run, NULL, ops, seconds);
    return 0;
}

#endif
