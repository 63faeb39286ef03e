// operator new and delete in all standard variants: blocks, alignment, failure by bad_alloc or nullptr, the new-handler
// called and the request tried again; and the containers that stand on them.
#include <dlfcn.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "expect.h"
#include "hakmem.h"

namespace {

constexpr std::size_t impossible = PTRDIFF_MAX;
std::size_t volatile impossible_size = impossible + 1;   // keeps the compiler from seeing that it is one
void *volatile kept;                                      // keeps it from leaving out a call whose result nobody uses

template <std::size_t Align> struct alignas(Align) Aligned {
    char bytes[Align + 1];
};

// --- each function by its name -----------------------------------------------------------------------------------

void plain()
{
    for (std::size_t n = 0; n < 3000000; n = n * 3 + 1) {
        void *p = ::operator new(n), *q = ::operator new[](n);
        expect(p != q && hak_usable_size(p) >= n);
        expect_block(p, n);
        expect_block(q, n);
        ::operator delete(p);
        ::operator delete[](q);
        ::operator delete(::operator new(n), n);
        ::operator delete[](::operator new[](n), n);
        p = ::operator new(n, std::nothrow);
        q = ::operator new[](n, std::nothrow);
        expect_block(p, n);
        expect_block(q, n);
        ::operator delete(p, std::nothrow);
        ::operator delete[](q, std::nothrow);
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr);
}

void aligned()
{
    for (std::size_t align = 16; align <= 1 << 22; align *= 4)
        for (std::size_t n = 0; n < 300000; n = n * 7 + 1) {
            const auto a = std::align_val_t(align);
            void *p = ::operator new(n, a), *q = ::operator new[](n, a);
            expect(reinterpret_cast<std::uintptr_t>(p) % align == 0);
            expect(reinterpret_cast<std::uintptr_t>(q) % align == 0);
            expect_block(p, n);
            expect_block(q, n);
            ::operator delete(p, a);
            ::operator delete[](q, a);
            ::operator delete(::operator new(n, a), n, a);
            ::operator delete[](::operator new[](n, a), n, a);
            p = ::operator new(n, a, std::nothrow);
            q = ::operator new[](n, a, std::nothrow);
            expect(reinterpret_cast<std::uintptr_t>(p) % align == 0);
            expect(reinterpret_cast<std::uintptr_t>(q) % align == 0);
            ::operator delete(p, a, std::nothrow);
            ::operator delete[](q, a, std::nothrow);
        }
}

template <std::size_t Align> void expressions()
{
    auto *one = new Aligned<Align>, *many = new Aligned<Align>[7];
    expect(reinterpret_cast<std::uintptr_t>(one) % Align == 0 && reinterpret_cast<std::uintptr_t>(many) % Align == 0);
    delete one;
    delete[] many;
}

// --- failure -----------------------------------------------------------------------------------------------------

template <typename Function> bool throws(Function function)
{
    try {
        function();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void failing()
{
    const auto a = std::align_val_t(64);
    const std::size_t n = impossible_size;
    expect(throws([=] { kept = ::operator new(n); }));
    expect(throws([=] { kept = ::operator new[](n); }));
    expect(throws([=] { kept = ::operator new(n, a); }));
    expect(throws([=] { kept = ::operator new[](n, a); }));
    expect(throws([=] { kept = ::operator new(n - 1); }));
    expect(::operator new(n, std::nothrow) == nullptr);
    expect(::operator new[](n, std::nothrow) == nullptr);
    expect(::operator new(n, a, std::nothrow) == nullptr);
    expect(::operator new[](n, a, std::nothrow) == nullptr);
    }

int volatile handler_calls;   // compilers may assume that operator new changes nothing of the program
rlimit whole;

// Makes room, as a handler that drops a cache would.
void make_room()
{
    handler_calls = handler_calls + 1;
    if (handler_calls == 2)
        expect(setrlimit(RLIMIT_AS, &whole) == 0);
}

void give_up()
{
    handler_calls = handler_calls + 1;
    std::set_new_handler(nullptr);
}

void throw_it()
{
    handler_calls = handler_calls + 1;
    throw std::bad_alloc();
}

template <typename Function> void with_little_room(Function function)
{
    if (not_emulated("RLIMIT_AS"))
        return;
    getrlimit(RLIMIT_AS, &whole);
    rlimit little = whole;
    little.rlim_cur = std::min<rlim_t>(whole.rlim_max, 300 << 20);
    expect(setrlimit(RLIMIT_AS, &little) == 0);
    handler_calls = 0;
    std::set_new_handler(make_room);
    void *p = function();
    std::set_new_handler(nullptr);
    setrlimit(RLIMIT_AS, &whole);
    expect(p != nullptr && handler_calls == 2);
    hak_free(p);
}

void handlers()
{
    const std::size_t n = impossible_size;
    handler_calls = 0;
    std::set_new_handler(give_up);
    expect(throws([=] { kept = ::operator new(n); }) && handler_calls == 1);
    std::set_new_handler(give_up);
    expect(::operator new(n, std::nothrow) == nullptr && handler_calls == 2);
    std::set_new_handler(throw_it);
    expect(throws([=] { kept = ::operator new(n); }) && handler_calls == 3);
    expect(throws([=] { kept = ::operator new(n, std::align_val_t(256)); }) && handler_calls == 4);
    std::set_new_handler(nullptr);
    // Each asks for more than the last, whose address space stays mapped.
    with_little_room([] { return ::operator new(std::size_t(400) << 20); });
    with_little_room([] { return ::operator new(std::size_t(800) << 20, std::nothrow); });
    with_little_room([] { return ::operator new[](std::size_t(1200) << 20, std::align_val_t(4096)); });
}

// --- what programs do ---------------------------------------------------------------------------------------------

void containers()
{
    std::map<std::string, std::vector<std::shared_ptr<std::string>>> map;
    for (int i = 0; i < 20000; i++)
        map["key number " + std::to_string(i % 997)].push_back(std::make_shared<std::string>(std::to_string(i)));
    std::size_t sum = 0;
    for (const auto &[key, values] : map)
        for (const auto &value : values)
            sum += std::stoul(*value);
    expect(sum == std::size_t(20000) * 19999 / 2);
    std::thread([map = std::move(map)]() mutable { map.clear(); }).join();
}

// zig hides the C++ runtime that it links into each program for musl, so that the shared library cannot throw by it.
bool can_throw()
{
#if defined(__GLIBC__)
    return true;
#else
    static int data;
    Dl_info program = {}, operators = {};
    dladdr(&data, &program);
    dladdr(reinterpret_cast<void *>(static_cast<void *(*)(std::size_t)>(::operator new)), &operators);
    if (program.dli_fbase != operators.dli_fbase)
        puts("skipped: the failures");
    return program.dli_fbase == operators.dli_fbase;
#endif
}

} // namespace

int main()
{
    plain();
    aligned();
    expressions<16>();
    expressions<64>();
    expressions<4096>();
    expressions<1 << 17>();
    if (can_throw()) {
        failing();
        handlers();
    }
    containers();
    return 0;
}
