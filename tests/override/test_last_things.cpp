// After main: functions of atexit, on_exit and at_quick_exit, destructors of static and thread_local objects and of the
// program allocate, free what earlier ones left, register further functions, and end the process with the code it was to
// have. By return, exit, quick_exit, exit in another thread, and by an abort whose handler exits.
#include <pthread.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cases.h"

namespace {

enum { DONE_STATIC = 1, DONE_ATEXIT = 2, DONE_AGAIN = 4, DONE_ON_EXIT = 8, DONE_QUICK = 16, DONE_LOCAL = 32 };

unsigned done, wanted;
char *handed_on;   // from each of them to the next
std::size_t handed_size;

// Blocks of every pool, not freed in the order in which they were made.
void allocate()
{
    void *blocks[60] = {};
    for (std::size_t i = 0; i < 600; i++) {
        const std::size_t n = (std::size_t(1) << i % 22) + i;
        void *&block = blocks[i * 7 % 60];
        std::free(block);
        expect_block(block = i % 3 ? std::malloc(n) : std::calloc(n, 1), n);
    }
    for (void *block : blocks)
        std::free(block);
}

void use(unsigned bit)
{
    expect(handed_on == nullptr || (handed_on[0] == 7 && handed_on[handed_size - 1] == 7));
    std::free(handed_on);
    allocate();
    handed_size = handed_size % 1000000 * 3 + 50;
    handed_on = static_cast<char *>(std::malloc(handed_size));
    memset(handed_on, 7, handed_size);
    done |= bit;
}

struct Object {
    std::map<std::string, std::vector<std::string>> map;
    unsigned bit;
    explicit Object(unsigned b) : bit(b)
    {
        for (int i = 0; i < 500; i++)
            map[std::to_string(i)].push_back(std::string(static_cast<std::size_t>(i), 'x'));
    }
    ~Object()
    {
        std::map<std::string, std::vector<std::string>> copy(map);
        expect(copy.size() == 500 && copy["77"][0].size() == 77);
        map.clear();
        use(bit);
    }
};

Object &static_object()
{
    static Object object(DONE_STATIC);
    return object;
}

Object &local_object()
{
    thread_local Object object(DONE_LOCAL);
    return object;
}

void again() { use(DONE_AGAIN); }

void at_exit()
{
    use(DONE_ATEXIT);
    std::atexit(again);
}

void at_on_exit(int, void *argument)
{
    std::free(argument);
    use(DONE_ON_EXIT);
}

void at_quick_exit_too() { use(DONE_QUICK); }

// The last to run: says whether all others have.
__attribute__((destructor)) void destruct()
{
    if (wanted != 0) {
        use(0);
        if (done != wanted) {
            dprintf(2, "done %#x, wanted %#x\n", done, wanted);
            _exit(99);
        }
    }
}

#if !defined(__GLIBC__)
void *on_exit_argument;

int on_exit(void (*function)(int, void *), void *argument)
{
    expect(function == at_on_exit);
    on_exit_argument = argument;
    return std::atexit([] { at_on_exit(0, on_exit_argument); });
}
#endif

void prepare(unsigned bits, bool local = true)
{
    wanted = bits;
    static_object();
    if (local)
        local_object();
    expect(std::atexit(at_exit) == 0);
    expect(on_exit(at_on_exit, std::malloc(5000)) == 0);
    expect(std::at_quick_exit(at_quick_exit_too) == 0);
}

constexpr unsigned of_exit = DONE_STATIC | DONE_ATEXIT | DONE_AGAIN | DONE_ON_EXIT;

void by_return() { prepare(of_exit | DONE_LOCAL); }   // main gives 0 then

void by_exit()
{
    prepare(of_exit | DONE_LOCAL);
    std::exit(0);
}

void by_quick_exit()
{
    prepare(0);
    std::at_quick_exit([] { _exit(done == DONE_QUICK ? 0 : 98); });
    std::at_quick_exit(at_quick_exit_too);   // in the reverse order: this is before the one that asks
    std::quick_exit(97);
}

// The main thread's thread_local objects are not destroyed then.
void by_exit_in_another_thread()
{
    prepare(of_exit);
    std::thread([] { std::exit(0); }).join();
}

// Which of the two is the last is open, and with it whether the main thread's thread_local objects are destroyed.
void by_the_last_threads_end()
{
    prepare(of_exit, false);
    std::thread([] {
        allocate();
        usleep(20000);
    }).detach();
    pthread_exit(nullptr);
}

void exits_from_a_handler(int) { _exit(0); }

void by_abort_with_a_handler()
{
    prepare(0);
    signal(SIGABRT, exits_from_a_handler);
    std::abort();
}

const test_case cases[] = {
    CASE(by_return),
    CASE(by_exit),
    CASE(by_quick_exit),
    CASE(by_exit_in_another_thread),
    CASE(by_the_last_threads_end),
    CASE(by_abort_with_a_handler),
};

} // namespace

int main(int argc, char **argv) { return RUN_CASES(cases); }
