// What operator new does when there is no memory, case by case: as a library that a C program loads, and with -DPROGRAM as a
// program. Built and run by test_cxx_runtime.py.
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

namespace {

std::size_t volatile impossible = std::size_t(1) << 60;
void *volatile kept;
int volatile calls;   // compilers may assume that operator new changes nothing of the program

void *variant(int which, std::size_t n)
{
    const auto align = std::align_val_t(256);
    switch (which) {
    case 0: return ::operator new(n);
    case 1: return ::operator new[](n);
    case 2: return ::operator new(n, align);
    case 3: return ::operator new[](n, align);
    case 4: return ::operator new(n, std::nothrow);
    case 5: return ::operator new[](n, std::nothrow);
    case 6: return ::operator new(n, align, std::nothrow);
    default: return ::operator new[](n, align, std::nothrow);
    }
}

enum { VARIANTS = 8 };

// One letter for each variant: t bad_alloc, n nullptr, h what the handler threw, ? anything else.
const char *failing()
{
    static char found[VARIANTS + 1];
    for (int i = 0; i < VARIANTS; i++) {
        try {
            found[i] = (kept = variant(i, impossible)) == nullptr ? 'n' : '?';
        } catch (const std::bad_alloc &) {
            found[i] = 't';
        } catch (int thrown) {
            found[i] = thrown == 42 ? 'h' : '?';
        } catch (...) {
            found[i] = '?';
        }
    }
    return found;
}

void throw_at_third()
{
    calls = calls + 1;
    if (calls % 3 == 0)
        throw 42;
}

void throw_bad_alloc() { throw std::bad_alloc(); }

const char *handled(std::new_handler handler, int expected)
{
    std::set_new_handler(handler);
    const char *found = failing();
    std::set_new_handler(nullptr);
    return calls == expected ? found : "wrong number of calls";
}

rlimit whole;

void make_room()
{
    calls = calls + 1;
    setrlimit(RLIMIT_AS, &whole);
}

void limit(std::size_t bytes)
{
    getrlimit(RLIMIT_AS, &whole);
    rlimit little = whole;
    little.rlim_cur = bytes;
    setrlimit(RLIMIT_AS, &little);
}

// The handler makes room, and the request is tried again.
const char *room()
{
    static char found[VARIANTS + 1];
    for (int i = 0; i < VARIANTS; i++) {
        calls = 0;
        limit(std::size_t(400) << 20);
        std::set_new_handler(make_room);
        char *p = static_cast<char *>(variant(i, std::size_t(500 + 100 * i) << 20));
        std::set_new_handler(nullptr);
        found[i] = p != nullptr && calls == 1 ? 'r' : '?';
    }
    return found;
}

// Until not even the smallest block is there, for the exception either.
const char *nothing_left()
{
    std::size_t count = 0;
    void **last = nullptr;
    limit(std::size_t(300) << 20);
    try {
        for (;; count++) {
            auto *block = static_cast<void **>(::operator new(count < 200 ? std::size_t(1) << 20 : 100));
            *block = last;
            last = block;
        }
    } catch (const std::bad_alloc &) {
        setrlimit(RLIMIT_AS, &whole);
    }
    while (last != nullptr) {
        void **next = static_cast<void **>(*last);
        ::operator delete(last);
        last = next;
    }
    return count > 10000 ? "bad_alloc" : "too early";
}

} // namespace

extern "C" const char *plugin_run(const char *what)
{
    calls = 0;
    if (std::strcmp(what, "failing") == 0)
        return failing();
    if (std::strcmp(what, "handler throws") == 0)
        return handled(throw_at_third, 3 * VARIANTS);
    if (std::strcmp(what, "handler throws bad_alloc") == 0)
        return handled(throw_bad_alloc, 0);
    if (std::strcmp(what, "room") == 0)
        return room();
    return nothing_left();
}

#if defined(PROGRAM)
int main(int, char **arguments)
{
    std::puts(plugin_run(arguments[1]));
    return 0;
}
#endif
