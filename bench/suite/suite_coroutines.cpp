/*
 * suite_coroutines [SESSIONS [REQUESTS [SEED]]]
 *
 * Exercises C++20 coroutines, whose frames are blocks: sessions take turns in one thread, as those of an asynchronous server.
 * Each request is a chain of awaited coroutines of several frame sizes: it is read into words, a generator finds the keys that
 * belong to each, and a recursive search down a tree of shared nodes answers for each key; the answers are gathered in a string. After
 * each word the session lets the others run, so that the frames of all of them are alive at a time.
 * Knobs: SESSIONS decides how much is alive.
 */
extern "C" {
#include "common.h"
}

#include <coroutine>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

static const struct bench_arg coroutines_args[] = {
    {"SESSIONS", "sessions that take turns", 2000, 1, 1000000, nullptr},
    {"REQUESTS", "requests of each", 10, 1, BENCH_COUNT_MAX, nullptr},
    {"SEED", "seed of the random numbers", 1, 0, UINT64_MAX, nullptr},
};
static const struct bench_spec coroutines_spec = BENCH_SPEC("Runs sessions of nested coroutines in turn.", coroutines_args);

static uint64_t frames; /* coroutines begun */

/* What owns a coroutine: its frame ends with it. */
template <typename promise> struct owner {
    static owner of(promise *made)
    {
        frames++;
        return owner{std::coroutine_handle<promise>::from_promise(*made)};
    }
    explicit owner(std::coroutine_handle<promise> begun) : frame(begun) {}
    owner(owner &&other) noexcept : frame(std::exchange(other.frame, nullptr)) {}
    owner(const owner &) = delete;
    ~owner()
    {
        if (frame) {
            frame.destroy();
        }
    }
    std::coroutine_handle<promise> frame;
};

/* A coroutine that starts when it is awaited, and then resumes who awaits it. */
template <typename T> struct [[nodiscard]] task {
    struct promise_type {
        T value{};
        std::coroutine_handle<> awaits;

        task get_return_object() { return task{owner<promise_type>::of(this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct final_awaiter {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> done) noexcept { return done.promise().awaits; }
            void await_resume() noexcept {}
        };
        final_awaiter final_suspend() noexcept { return {}; }
        void return_value(T result) { value = std::move(result); }
        void unhandled_exception() { std::terminate(); }
    };

    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept
    {
        mine.frame.promise().awaits = caller;
        return mine.frame;
    }
    T await_resume() { return std::move(mine.frame.promise().value); }

    owner<promise_type> mine;
};

struct generator {
    struct promise_type {
        uint64_t value = 0;

        generator get_return_object() { return generator{owner<promise_type>::of(this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(uint64_t next) noexcept
        {
            value = next;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };

    bool next()
    {
        mine.frame.resume();
        return !mine.frame.done();
    }
    uint64_t value() const { return mine.frame.promise().value; }

    owner<promise_type> mine;
};

/* A session: nobody awaits it, and its frame ends with it. */
struct session {
    struct promise_type {
        session get_return_object()
        {
            frames++;
            return session{std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> frame;
};

static std::deque<std::coroutine_handle<>> ready;

struct others {
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> me) { ready.push_back(me); }
    void await_resume() noexcept {}
};

/* The data of the server: a tree of random keys, which sessions extend. */
struct node {
    uint64_t key, value;
    std::unique_ptr<node> left, right;
};
static std::unique_ptr<node> root;

static void keep(uint64_t key, uint64_t value)
{
    std::unique_ptr<node> *place = &root;
    while (*place && (*place)->key != key) {
        place = key < (*place)->key ? &(*place)->left : &(*place)->right;
    }
    if (*place) {
        (*place)->value = value;
    } else {
        *place = std::make_unique<node>(node{key, value, nullptr, nullptr});
    }
}

static task<uint64_t> find(const node *at, uint64_t key)
{
    if (at == nullptr) {
        co_return 0;
    }
    if (at->key == key) {
        co_return at->value;
    }
    co_return co_await find(key < at->key ? at->left.get() : at->right.get(), key);
}

static generator keys_of(const std::string &word)
{
    uint64_t key = 0;
    for (char letter : word) {
        key = key * 31 + static_cast<unsigned char>(letter);
        co_yield key % 1024;
    }
}

static task<std::vector<std::string>> words_of(std::string line)
{
    std::vector<std::string> words(1);
    for (char letter : line) {
        if (letter == ' ') {
            words.emplace_back();
        } else {
            words.back().push_back(letter);
        }
    }
    co_return words;
}

static task<std::string> answer(std::string word)
{
    char scratch[200]; /* larger frames than the search's */
    std::string text;
    size_t length = 0;
    generator keys = keys_of(word);
    while (keys.next()) {
        uint64_t found = co_await find(root.get(), keys.value());
        scratch[length++ % sizeof scratch] = static_cast<char>('a' + found % 26);
    }
    text.append(scratch, length < sizeof scratch ? length : sizeof scratch);
    co_return text;
}

static task<uint64_t> handle(uint64_t *seed, std::map<std::string, std::string> *known)
{
    std::string line, reply;
    for (uint64_t i = 0, count = 1 + bench_random(seed) % 6; i < count; i++) {
        line += i == 0 ? "" : " ";
        uint64_t length = 1 + bench_random(seed) % 24; /* a draw a statement: the order of arguments is the compiler's */
        line.append(length, static_cast<char>('a' + bench_random(seed) % 26));
    }
    for (std::string &word : co_await words_of(line)) {
        reply += co_await answer(word);
        (*known)[word.substr(0, 3)] = reply;
        co_await others{};
    }
    keep(bench_random(seed) % 1024, reply.size());
    uint64_t digest = reply.size();
    for (char letter : reply) {
        digest = bench_mix(digest, static_cast<unsigned char>(letter));
    }
    co_return digest;
}

static session serve(uint64_t seed, uint64_t requests, uint64_t *digest)
{
    std::map<std::string, std::string> known;
    for (uint64_t i = 0; i < requests; i++) {
        uint64_t mine = co_await handle(&seed, &known);
        *digest = bench_mix(*digest, mine);
    }
    *digest = bench_mix(*digest, known.size());
}

int main(int argc, char **argv)
{
    struct bench_run run;
    bench_parse(&run, "suite_coroutines", &coroutines_spec, argc, argv);
    uint64_t digest = 0;
    double start = bench_now();
    for (uint64_t i = 0; i < run.value[0]; i++) {
        ready.push_back(serve(run.value[2] * 1000003 + i, run.value[1], &digest).frame);
    }
    while (!ready.empty()) {
        std::coroutine_handle<> next = ready.front();
        ready.pop_front();
        next.resume();
    }
    root.reset();
    double seconds = bench_now() - start;
    bench_check(&run, digest);
    bench_report(&run, nullptr, frames, seconds);
    return 0;
}
