// Heaps of one's own from C++: owners, containers, std::pmr, default scopes, single objects; plain malloc, new and free beside them.
// test: ordinary flavours=shared,archive,static
#include <hakmem.hpp>

#include <climits>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            return 1; \
        } \
    } while (0)

struct alignas(64) wide {
    explicit wide(int v) : value(v) { ++alive; }
    ~wide() { --alive; }
    static int alive;
    int value;
};
int wide::alive;

static int containers()
{
    hak::heap heap("containers");
    {
        std::vector<int, hak::allocator<int>> numbers{ hak::allocator<int>(heap) };
        std::map<int, int, std::less<int>, hak::allocator<std::pair<const int, int>>> map{ hak::allocator<std::pair<const int, int>>(heap) };
        for (int i = 0; i < 10000; i++) {
            numbers.push_back(i);
            map[i] = i;
        }
        EXPECT(hak_heap_of(numbers.data()) == heap.get());
        EXPECT(hak_heap_of(&*map.begin()) != nullptr || heap.stats().live_blocks >= 10000);
        auto moved = std::move(numbers);
        EXPECT(moved.size() == 10000 && moved[9999] == 9999);
        std::list<wide, hak::allocator<wide>> list{ hak::allocator<wide>(heap) };
        list.emplace_back(3);
        EXPECT(reinterpret_cast<std::uintptr_t>(&list.back()) % 64 == 0);
        EXPECT(hak::allocator<int>(heap) == hak::allocator<char>(heap) && hak::allocator<int>() != hak::allocator<int>(heap));
    }
    EXPECT(heap.stats().live_blocks == 0);
    hak::heap other = std::move(heap);
    EXPECT(heap.get() == nullptr && std::strcmp(other.stats().name, "containers") == 0);
    return 0;
}

#if defined(HAKMEM_HAS_MEMORY_RESOURCE)
static int resources()
{
    hak::heap heap;
    hak::memory_resource resource(heap), same(heap), plain;
    std::pmr::vector<std::pmr::string> words(&resource);
    for (int i = 0; i < 1000; i++)
        words.emplace_back("a text that is too long to be kept in the string itself");
    EXPECT(hak_heap_of(words.data()) == heap.get() && hak_heap_of(words[7].data()) == heap.get());
    EXPECT(resource.is_equal(same) && !resource.is_equal(plain));
    return 0;
}

static int monotonic()
{
    hak::monotonic all("monotonic", 1 << 20), other;
    for (int round = 0; round < 20; round++) {
        {
            std::pmr::vector<std::pmr::string> words(&all);
            for (int i = 0; i < 1000; i++)
                words.emplace_back("a text that is too long to be kept in the string itself");
            EXPECT(hak_heap_of(words.data()) == all.handle() && hak_heap_of(words[7].data()) == all.handle());
            EXPECT(words[999] == words[0]);
        }
        all.release(); // else the limit would not do
    }
    EXPECT(all.is_equal(all) && !all.is_equal(other));
    return 0;
}
#else
static int monotonic() { return 0; }
static int resources() { return 0; }
#endif

static int scopes()
{
    hak::heap heap;
    void *outside = std::malloc(100), *inside, *made;
    {
        hak::default_scope scope(heap);
        inside = std::malloc(100);
        made = ::operator new(3000);
        std::free(outside);
    }
    hak_heap_t *seen = nullptr, *former = heap.get();
    std::thread(hak::inheriting(heap, [&] { seen = hak_heap_of(std::malloc(50)); })).join();
    EXPECT(seen == heap.get());
    std::thread(hak::inheriting([&] { former = hak_heap_of(std::malloc(50)); })).join();
    EXPECT(former == nullptr);
    EXPECT(hak_heap_of(inside) == heap.get() && hak_heap_of(made) == heap.get());
    std::free(inside);
    ::operator delete(made);
    void *after = std::malloc(100);
    EXPECT(hak_heap_of(after) == nullptr);
    std::free(after);
    return 0;
}

static int objects()
{
    hak::heap heap;
    {
        auto one = hak::make_unique_in<wide>(heap, 7);
        EXPECT(one->value == 7 && wide::alive == 1 && hak_heap_of(one.get()) == heap.get());
    }
    EXPECT(wide::alive == 0 && heap.stats().live_blocks == 0);
    return 0;
}

static int limits()
{
    hak::heap heap("limited", 1 << 20);
    EXPECT(heap.allocate(4 << 20) == nullptr);
#if defined(__cpp_exceptions)
    bool thrown = false;
    try {
        std::vector<char, hak::allocator<char>> much(4 << 20, 'x', hak::allocator<char>(heap));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    EXPECT(thrown);
#endif
    return 0;
}

/* Of a move-only function, while its heap's blocks are there; the latest first. */
static int ends()
{
    std::vector<int> order;
    int data = 0;
    {
        hak::heap heap("ends");
        auto one = hak::make_unique_in<wide>(heap, 7);
        wide *held = one.get();
        EXPECT(heap.at_end([&order, one = std::move(one)] { order.push_back(one->value); }));
        EXPECT(heap.at_end([&order] { order.push_back(2); }));
        EXPECT(heap.set_name("renamed") && heap.set_data(&data) == nullptr && heap.data() == &data);
        EXPECT(hak_heap_of(held) == heap.get() && wide::alive == 1);
        std::size_t blocks = 0;
        EXPECT(heap.visit_spans([&blocks](const hak_heap_span &span) { return blocks += span.blocks, 0; }) == 0);
        EXPECT(blocks == heap.stats().live_blocks && heap.visit_spans([](const hak_heap_span &) { return 7; }) == 7);
    }
    EXPECT(order.size() == 2 && order[0] == 2 && order[1] == 7 && wide::alive == 0);
    return 0;
}

/* A server's heap, with one for each connection and request, which move. */
static int children()
{
    int ended = 0;
    hak::heap server("server", 4 << 20);
    {
        std::vector<hak::heap> connections;
        for (int i = 0; i < 10; i++)
            connections.push_back(server.child("connection"));
        hak::heap request = connections[3].child("request", 1 << 20);
        EXPECT(request.at_end([&ended] { ended++; }));
        std::vector<int, hak::allocator<int>> numbers{ hak::allocator<int>(request) };
        numbers.resize(10000);
        EXPECT(hak_heap_parent(request.get()) == connections[3].get() && hak_heap_of(numbers.data()) == request.get());
        EXPECT(server.stats().live_blocks == 2 + 1 && connections[3].stats().live_blocks == 3 && connections[4].stats().live_blocks == 0);
        EXPECT(request.allocate(2 << 20) == nullptr && connections[0].allocate(5 << 20) == nullptr);

        auto *block = static_cast<unsigned char *>(request.allocate_zeroed(1000, 256));
        EXPECT(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % 256 == 0 && block[999] == 0);
        block[999] = 7;
        block = static_cast<unsigned char *>(request.reallocate(block, 50000, 256));
        EXPECT(block != nullptr && reinterpret_cast<std::uintptr_t>(block) % 256 == 0 && block[999] == 7);
        hak_free(block);
        char *text = request.copy("text");
        EXPECT(text != nullptr && std::strcmp(text, "text") == 0 && hak_heap_of(text) == request.get());
        connections[5].allocate(100000);
        connections[5].reset();
        connections[5].collect();
        EXPECT(connections[5].stats().used_bytes <= 1 << 17);
    }
    EXPECT(ended == 1 && server.stats().used_bytes == 0);
    return 0;
}

// A thread that has given up its heaps cannot set one. Its scope says so, and changes nothing.
static hak::heap *unsettable;
static pthread_key_t last_words;
static int told, wrong;

static void late(void *round)
{
    auto next = reinterpret_cast<std::uintptr_t>(round) + 1;
    hak_heap_t *before = hak_heap_get_default();
    {
        hak::default_scope scope(*unsettable);
        bool is_set = hak_heap_get_default() == unsettable->get();
        told += !scope;
        wrong += is_set != static_cast<bool>(scope);
    }
    wrong += hak_heap_get_default() != before;
    if (next <= PTHREAD_DESTRUCTOR_ITERATIONS)
        pthread_setspecific(last_words, reinterpret_cast<void *>(next));
}

static int ending_threads()
{
    hak::heap one("one"), two("two");
    unsettable = &two;
    EXPECT(pthread_key_create(&last_words, late) == 0);
    free(malloc(100)); // this thread's first request, where the C and C++ libraries have made none
    hak_heap_set_default_of_new_threads(one.get());
    std::thread([] {
        free(malloc(100));
        pthread_setspecific(last_words, reinterpret_cast<void *>(1));
    }).join();
    hak_heap_set_default_of_new_threads(nullptr);
    pthread_key_delete(last_words);
    std::printf("%d told, %d wrong\n", told, wrong);
    EXPECT(told != 0 && wrong == 0);
    return 0;
}

int main() { return ending_threads() + containers() + resources() + monotonic() + scopes() + objects() + limits() + ends() + children(); }
