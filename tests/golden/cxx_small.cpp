// As little of a C++ runtime as a program can have that catches a bad_alloc; with -DUNCAUGHT, -fno-exceptions and without
// anybody who catches it. Built and run by test_cxx_runtime.py.
#include <cstddef>
#include <new>

std::size_t volatile impossible = std::size_t(1) << 60;

#if defined(UNCAUGHT)
int main()
{
    char *volatile p = new (std::nothrow) char[100];
    char *volatile q = new char[impossible];
    return p != q ? 1 : 2;
}
#else
int main()
{
    try {
        char *volatile p = new char[impossible];
        return p != nullptr ? 1 : 2;
    } catch (const std::bad_alloc &) {
        return 3;
    }
}
#endif
