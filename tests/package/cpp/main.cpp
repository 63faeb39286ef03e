// hakmem.hpp as users have it: containers, std::pmr, objects and their ends, sizes and alignments, failures. The program is linked
// with the library; every block it looks at must be one of HAKMEM's, and nothing may be left at the end.
#include <hakmem.hpp>
#include <hakmem_stats.h>

#include <cstdint>
#include <cstdio>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

static int failures;
#define CHECK(condition) \
    ((condition) ? (void)0 : (void)(failures++, std::fprintf(stderr, "%d: %s\n", __LINE__, #condition)))

static bool is_aligned(const void *p, std::size_t to) { return reinterpret_cast<std::uintptr_t>(p) % to == 0; }

static std::uint64_t live_bytes()
{
    hak_stats now{};
    CHECK(hak_stats_snapshot(&now, sizeof now) == 0);
    return now.bytes_live;
}

struct alignas(64) line {
    char bytes[64];
};

struct counted {
    static int alive;
    int value;
    explicit counted(int v) : value(v) { alive++; }
    counted(const counted &) = delete;
    virtual ~counted() { alive--; }
};
int counted::alive;

struct tagged {
    virtual ~tagged() = default;
    long tag = 7;
};
struct both : tagged, counted {
    both() : counted(2) {}
    std::string text = std::string(100, 'b');
};

static void containers()
{
    std::vector<int, hak::allocator<int>> numbers;
    for (int n = 0; n < 100000; n++)
        numbers.push_back(n);
    CHECK(numbers[99999] == 99999 && hak_usable_size(numbers.data()) >= numbers.capacity() * sizeof(int));

    using text = std::basic_string<char, std::char_traits<char>, hak::allocator<char>>;
    std::map<text, int, std::less<text>, hak::allocator<std::pair<const text, int>>> words;
    std::unordered_map<int, text, std::hash<int>, std::equal_to<int>, hak::allocator<std::pair<const int, text>>> names;
    std::list<text, hak::allocator<text>> order;
    for (int n = 0; n < 1000; n++) {
        text each(static_cast<std::size_t>(50 + n % 7), 'x');
        each += std::to_string(n).c_str();
        words[each] = n;
        names.emplace(n, each);
        order.push_back(std::move(each));
    }
    CHECK(words.size() == 1000 && words[names.at(500)] == 500 && order.size() == 1000);

    std::vector<line, hak::allocator<line>> lines(100);
    CHECK(is_aligned(lines.data(), 64));
    lines.resize(1000);
    CHECK(is_aligned(lines.data(), 64));

    auto moved = std::move(numbers);
    std::vector<int, hak::allocator<int>> other(3);
    const int *data = moved.data();
    other = std::move(moved);   // as any allocator frees it, the block itself moves
    CHECK(other.data() == data && other.size() == 100000);

    auto shared = std::allocate_shared<std::string>(hak::allocator<std::string>(), 200, 's');
    CHECK(shared->size() == 200);
    using traits = std::allocator_traits<hak::allocator<char>>;
    static_assert(!traits::is_always_equal::value && traits::propagate_on_container_swap::value);
    CHECK(hak::allocator<int>() == hak::allocator<long>() && !(hak::allocator<int>() != hak::allocator<int>()));
}

static void sizes()
{
    hak::allocator<char> from;
    for (std::size_t n : { 0, 1, 15, 16, 17, 100, 1024, 57343, 57345, 100000, 1 << 20, (1 << 20) + 1, 5 << 20 }) {
        char *p = from.allocate(n);
        CHECK(is_aligned(p, 16) && hak_usable_size(p) >= n);
        from.deallocate(p, n);
    }
}

static void objects()
{
    {
        auto one = hak::make_unique<counted>(5);
        CHECK(one->value == 5 && counted::alive == 1 && hak_usable_size(one.get()) >= sizeof(counted));
        hak::unique_ptr<const counted> constant = std::move(one);
        CHECK(!one && constant->value == 5 && counted::alive == 1);
    }
    CHECK(counted::alive == 0);
    auto wide = hak::make_unique<line>();
    CHECK(is_aligned(wide.get(), 64));
    auto zeros = hak::make_unique<int[]>(1000);
    CHECK(zeros[0] == 0 && zeros[999] == 0);
    hak::unique_ptr<char[]> text(static_cast<char *>(hak_malloc(100)));
    std::unique_ptr<void, hak::deleter<void>> raw(hak_malloc(100));
    CHECK(hak_usable_size(text.get()) >= 100 && hak_usable_size(raw.get()) >= 100);
    static_assert(!std::is_convertible_v<hak::unique_ptr<std::string>, hak::unique_ptr<void>>);
#if defined(__cpp_rtti)
    {
        hak::unique_ptr<counted> base = hak::make_unique<both>();   // not at the block's start
        CHECK(base->value == 2 && counted::alive == 1);
    }
    CHECK(counted::alive == 0);
#else
    static_assert(!std::is_convertible_v<hak::unique_ptr<both>, hak::unique_ptr<counted>>);
#endif
}

#if defined(HAKMEM_HAS_MEMORY_RESOURCE)
static void resources()
{
    hak::memory_resource own;
    std::pmr::vector<std::pmr::string> words(&own);
    for (int n = 0; n < 1000; n++)
        words.emplace_back("a text that is too long to lie inside of a string object itself");
    CHECK(hak_usable_size(words.data()) >= words.size() * sizeof words[0] && hak_usable_size(words[0].data()) >= 60);
    std::pmr::monotonic_buffer_resource pool(hak::resource());
    std::pmr::list<int> numbers({ 1, 2, 3 }, &pool);
    CHECK(numbers.back() == 3);
    void *block = own.allocate(4096, 4096);
    CHECK(is_aligned(block, 4096));
    own.deallocate(block, 4096, 4096);
    CHECK(own == own && !(own == *std::pmr::new_delete_resource()));
#if defined(__cpp_rtti)
    CHECK(own == *hak::resource());
#endif
}
#else
static void resources() {}
#endif

#if defined(__cpp_exceptions)
static int asked;

struct throwing {
    throwing() { throw 5; }
    char room[5000];
};

template <class Exception, class Action>
static bool throws(Action action)
{
    try {
        action();
    } catch (const Exception &) {
        return true;
    }
    return false;
}

static void exceptions()
{
    hak::allocator<long> from;
    volatile std::size_t most = SIZE_MAX; // compilers warn of it where they know it
    CHECK(throws<std::bad_array_new_length>([&] { (void)from.allocate(most / sizeof(long) + 1); }));
    CHECK(throws<std::bad_alloc>([&] { (void)from.allocate(most / sizeof(long)); }));
    CHECK(throws<std::bad_alloc>([&] { hak::make_unique<char[]>(most / 2); }));
    asked = 0;
    std::set_new_handler([] {
        if (++asked == 3)
            std::set_new_handler(nullptr);
    });
    CHECK(throws<std::bad_alloc>([&] { (void)from.allocate(most / sizeof(long)); }) && asked == 3);
    CHECK(throws<int>([] { (void)hak::make_unique<throwing>(); }));
#if defined(HAKMEM_HAS_MEMORY_RESOURCE)
    CHECK(throws<std::bad_alloc>([] { (void)hak::resource()->allocate(SIZE_MAX / 2); }));
#endif
}
#else
static void exceptions() {}
#endif

static void all()
{
    containers();
    sizes();
    objects();
    resources();
    exceptions();
}

int main(int count, char **)
{
    if (count > 1)   // one that cannot be had: must throw or abort
        return hak::allocator<char>().allocate(SIZE_MAX / 2) != nullptr;
    all();   // the library's and the runtime's first blocks come now
    std::uint64_t before = live_bytes();
    for (int round = 0; round < 3; round++)
        all();
    CHECK(live_bytes() <= before + 1000);
#if defined(HAKMEM_HAS_MEMORY_RESOURCE)
    const char *pmr = "with";
#else
    const char *pmr = "without";
#endif
    std::printf("hakmem.hpp: C++ %ld, %s std::pmr, %d failures\n", __cplusplus, pmr, failures);
    return failures != 0;
}
