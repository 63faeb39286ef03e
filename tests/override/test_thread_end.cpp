// The end of a thread: destructors of pthread keys in all their rounds and of thread_local objects allocate and free,
// before the library has given the thread's heap back and after it. Over many threads memory stays bounded, and blocks
// that a dead thread left behind stay good.
#include <pthread.h>

#include <limits.h>
#include <memory>
#include <string>
#include <vector>

#include "expect.h"

namespace {

enum { THREADS = 1500, KEYS = 3, LEFT = 64 };

pthread_key_t keys[KEYS];
char *left_behind[LEFT];   // by the last threads, for main
unsigned left_count;
unsigned rounds_seen[PTHREAD_DESTRUCTOR_ITERATIONS + 1];

// What a key holds: which round its destructor runs next.
struct Held {
    unsigned key, round;
};

void allocate_and_free(std::size_t salt)
{
    void *blocks[20];
    for (std::size_t i = 0; i < 20; i++) {
        const std::size_t n = (salt * 37 + i * 211) % 5000 + 1;
        blocks[i] = i % 3 ? malloc(n) : calloc(1, n);
        expect_block(blocks[i], n);
    }
    for (void *block : blocks)
        free(block);
}

// The last round of every key runs after the library's own destructor has been called for the last time.
void end_key(void *value)
{
    Held *held = static_cast<Held *>(value), *next = nullptr;
    allocate_and_free(held->round);
    rounds_seen[held->round]++;
    if (held->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        next = static_cast<Held *>(malloc(sizeof *next));
        *next = {held->key, held->round + 1};
        pthread_setspecific(keys[held->key], next);
    } else {
        free(left_behind[left_count % LEFT]);
        left_behind[left_count % LEFT] = static_cast<char *>(malloc(3000));
        memset(left_behind[left_count++ % LEFT], 7, 3000);
    }
    free(held);
}

struct Object {
    std::vector<std::unique_ptr<std::string>> strings;
    ~Object()
    {
        allocate_and_free(strings.size());
        strings.emplace_back(new std::string(200, 'x'));
    }
};
thread_local Object object;

void *run(void *argument)
{
    object.strings.emplace_back(new std::string(100, 'y'));
    for (unsigned i = 0; i < KEYS; i++) {
        auto *held = static_cast<Held *>(malloc(sizeof(Held)));
        *held = {i, 1};
        pthread_setspecific(keys[i], held);
    }
    return argument;
}

// A thread that never allocates itself, so that its destructors are the first to do so.
void *run_quietly(void *argument)
{
    pthread_setspecific(keys[0], argument);
    return nullptr;
}

void run_threads(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pthread_t pair[2];
        auto *held = static_cast<Held *>(malloc(sizeof(Held)));
        *held = {0, 1};
        expect(pthread_create(&pair[0], nullptr, run, nullptr) == 0);
        expect(pthread_join(pair[0], nullptr) == 0);
        expect(pthread_create(&pair[1], nullptr, run_quietly, held) == 0);
        expect(pthread_join(pair[1], nullptr) == 0);
    }
}

} // namespace

int main()
{
    for (pthread_key_t &key : keys)
        expect(pthread_key_create(&key, end_key) == 0);
    run_threads(THREADS / 10);
    const std::size_t settled = resident_bytes();
    run_threads(THREADS - THREADS / 10);
    expect(resident_bytes() < settled + (std::size_t(4) << 20) || not_emulated("account of resident pages without its own"));
    for (unsigned round = 1; round <= PTHREAD_DESTRUCTOR_ITERATIONS; round++)
        expect(rounds_seen[round] == THREADS * (KEYS + 1));
    for (char *block : left_behind) {
        for (unsigned i = 0; i < 3000; i++)
            expect(block[i] == 7);
        free(block);
    }
    return 0;
}
