// A library that is loaded at run time: it allocates in its constructor, when it is used, in a thread of its own with
// thread-local objects, and in its destructor.
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {
std::vector<std::string> words(100, std::string(50, 'x'));
thread_local std::vector<std::string> local_words;

struct AtUnload {
    ~AtUnload()
    {
        std::vector<std::string> more(words);
        words.swap(more);
    }
} at_unload;
} // namespace

extern "C" char *plugin_make(std::size_t size)
{
    std::thread([] { local_words.assign(words.begin(), words.end()); }).join();
    char *block = static_cast<char *>(std::malloc(size));
    std::memset(block, 0, size);
    return std::strcpy(block, "made by the plugin");
}
