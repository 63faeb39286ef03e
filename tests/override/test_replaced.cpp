// A program that replaces the plain operators new and delete, alone or with those of arrays, and keeps something before each
// block: all other operators that it calls have to come to its own, as the C++ runtime's do. With its names in the program, the
// library's are found behind them, so this is about how it is preloaded and linked as a shared library.
// test: flavours=preload,shared
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "expect.h"

#if !defined(__clang__)   // gcc sees what is done here, and warns of it
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
#endif

namespace {

enum { HEAD = 16, MARK = 0x5eed };
unsigned made, ended;

struct Throws {
    char content[100];
    Throws() { throw 1; }
};

} // namespace

void *operator new(std::size_t n)
{
    auto *head = static_cast<std::size_t *>(std::malloc(n + HEAD));
    if (head == nullptr)
        throw std::bad_alloc();
    *head = MARK;
    made++;
    return reinterpret_cast<char *>(head) + HEAD;
}

void operator delete(void *p) noexcept
{
    if (p == nullptr)
        return;
    auto *head = reinterpret_cast<std::size_t *>(static_cast<char *>(p) - HEAD);
    expect(*head == MARK);
    *head = 0;
    ended++;
    std::free(head);
}

int main()
{
    struct Plain {
        long values[20];
    };
    for (int i = 0; i < 1000; i++) {
        delete new Plain;                                            // sized, as compilers call it from C++14 on
        ::operator delete(::operator new(100 + i), std::size_t(100 + i));
        ::operator delete(::operator new(50), std::nothrow);
        ::operator delete(::operator new(50, std::nothrow));
        std::vector<std::string> texts(20, std::string(100, 'x'));   // std::allocator: sized
    }
    try {
        new (std::nothrow) Throws;   // its constructor throws: the nothrow delete is called
        expect(!"thrown");
    } catch (int) {
    }
    expect(made == ended && made >= 1000);
    unsigned before = made;
    delete[] new Plain[10];          // not replaced: whoever allocates frees
    ::operator delete[](::operator new[](100), std::size_t(100));
    ::operator delete[](::operator new[](100), std::nothrow);
    expect(made == before || made == ended);
    return 0;
}
