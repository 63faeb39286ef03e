// Blocks of new and of malloc are the library's: their usable sizes are its classes. It throws std::bad_alloc where there is no memory.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <hakmem.h>

int main()
{
    auto words = std::make_unique<std::vector<std::string>>();
    for (int i = 0; i < 1000; i++)
        words->push_back(std::string(100, 'x') + std::to_string(i));
    void *p = std::malloc(100);
    bool ours = hak_usable_size(p) == hak_good_size(100) && hak_usable_size(words->front().data()) >= 101;
    std::free(p);
    try {
        (void)std::string(std::size_t(1) << 60, 'x');
        ours = false;   // nobody has as much
    } catch (const std::bad_alloc &) {
    }
    std::printf("hakmem %s\n", ours ? hak_version() : "is not at work");
    return ours ? 0 : 1;
}
