// Every operator new and delete in turn, directly and by std::stable_sort, whose buffer comes from new(nothrow). Built by
// test_cxx_runtime.py with another allocator's library.
#include <algorithm>
#include <cstdio>
#include <new>
#include <vector>

template <typename... More> void one(std::size_t n, More... more)
{
    ::operator delete(::operator new(n, more...), more...);
    ::operator delete[](::operator new[](n, more...), more...);
}

int main(int argc, char **)
{
    const auto align = std::align_val_t(128);
    for (std::size_t n = 1; n < 300000; n *= 3) {
        one(n), one(n, align);
        ::operator delete(::operator new(n, std::nothrow));
        ::operator delete[](::operator new[](n, std::nothrow));
        ::operator delete(::operator new(n, align, std::nothrow), align);
        ::operator delete[](::operator new[](n, align, std::nothrow), align);
    }
    std::vector<int> numbers;
    for (int i = 0; i < 1000; i++)
        numbers.push_back((i * 7919 + argc) % 1009);
    std::stable_sort(numbers.begin(), numbers.end());
    std::puts(std::is_sorted(numbers.begin(), numbers.end()) ? "sorted" : "wrong");
}
