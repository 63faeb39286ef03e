// HAKMEM for C++17 and later (docs/api.md): gives chosen containers and objects blocks of HAKMEM by name, whichever malloc the program uses,
// or blocks of a user heap (docs/heaps.md). Works without exceptions and without RTTI.
//
//   hak::allocator<T>         for containers: from hak_malloc, or from a heap
//   hak::memory_resource      for std::pmr, where the standard library has it: the same; hak::resource() always exists
//   hak::monotonic            for std::pmr: memory that ends all at once, of a bump heap
//   hak::unique_ptr<T>        an object of hak::make_unique<T>(...), or characters of hak_malloc
//   hak::deleter<T>           its deleter, for any std::unique_ptr
//   hak::heap                 owns a heap; its destructor ends the heap and all its blocks
//   hak::default_scope        the thread's malloc goes to a heap until the end of the scope
//   hak::label                what the thread allocates until the end of the scope has a label in profiles
//
// Without memory they behave like operator new: call the new-handler as long as there is one, then throw
// std::bad_alloc. A program compiled without exceptions ends by abort() instead.
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "hakmem.h"

#if __has_include(<memory_resource>)
#include <memory_resource>
#endif
#if defined(__cpp_lib_memory_resource)
#define HAKMEM_HAS_MEMORY_RESOURCE 1
#endif

namespace hak {

namespace detail {

// The alignment of every block.
constexpr std::size_t aligned = 16;

template <class Exception>
[[noreturn]] inline void fail()
{
#if defined(__cpp_exceptions)
    throw Exception();
#else
    std::abort();
#endif
}

// Never null. From a heap, or from malloc if the heap is null.
inline void *allocate(hak_heap_t *heap, std::size_t bytes, std::size_t align)
{
    for (;;) {
        void *block = align <= aligned ? hak_heap_malloc(heap, bytes) : hak_heap_aligned_alloc(heap, align, bytes);
        if (block != nullptr)
            return block;
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr)
            fail<std::bad_alloc>();
        handler();
    }
}

// Takes the size and alignment of the allocation; others are misuse.
inline void deallocate(hak_heap_t *heap, void *block, std::size_t bytes, std::size_t align) noexcept
{
    if (heap != nullptr)
        hak_free(block);
    else if (align <= aligned)
        hak_free_sized(block, bytes);
    else
        hak_free_aligned_sized(block, align, bytes);
}

// Whether a pointer to T may free an object made as a U: a const T one made as a T; a base only if its destructor is virtual and
// RTTI tells where the block begins.
#if defined(__cpp_rtti)
constexpr bool has_rtti = true;
#else
constexpr bool has_rtti = false;
#endif
template <class T, class U>
constexpr bool takes_over = std::is_convertible_v<U *, T *>
    && (std::is_same_v<std::remove_cv_t<T>, std::remove_cv_t<U>> || (has_rtti && std::has_virtual_destructor_v<T>));

// Frees a block whose constructor throws.
class unfinished {
public:
    explicit unfinished(void *block) noexcept : block_(block) {}
    unfinished(const unfinished &) = delete;
    unfinished &operator=(const unfinished &) = delete;
    ~unfinished() { hak_free(block_); }
    void finish() noexcept { block_ = nullptr; }

private:
    void *block_;
};

}  // namespace detail

// Movable, not copyable. A moved-from heap is empty: its handle is malloc's. A child ends before its parent ends or is reset, as a variable
// does that is declared after it.
class heap {
public:
    heap() : heap(hak_heap_options{ sizeof(hak_heap_options), nullptr, 0, nullptr, nullptr, 0, 0, nullptr, 0, nullptr }) {}
    explicit heap(const char *name, std::size_t limit = 0)
        : heap(hak_heap_options{ sizeof(hak_heap_options), name, limit, nullptr, nullptr, 0, 0, nullptr, 0, nullptr }) {}
    explicit heap(const hak_heap_options &options) : handle_(hak_heap_new(&options))
    {
        if (handle_ == nullptr)
            detail::fail<std::bad_alloc>();
    }
    // In the caller's memory, by libhakmem-region (hakmem_region.h); with HAK_HEAP_SHARED for several processes.
    static heap in_region(void *region, std::size_t size, const char *name = nullptr, std::uint32_t flags = 0)
    {
        return heap(hak_heap_options{ sizeof(hak_heap_options), name, 0, nullptr, nullptr, 0, flags, region, size, nullptr });
    }
    // A heap whose memory counts in this one, and against its limit.
    heap child(const char *name = nullptr, std::size_t limit = 0) const
    {
        return heap(hak_heap_options{ sizeof(hak_heap_options), name, limit, nullptr, nullptr, 0, 0, nullptr, 0, handle_ });
    }
    heap(heap &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    heap &operator=(heap &&other) noexcept
    {
        if (this != &other)
            hak_heap_destroy(std::exchange(handle_, std::exchange(other.handle_, nullptr)));
        return *this;
    }
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;
    ~heap() { hak_heap_destroy(handle_); }

    hak_heap_t *get() const noexcept { return handle_; }
    hak_heap_t *release() noexcept { return std::exchange(handle_, nullptr); }

    // They return nullptr without memory. The alignment of a block stays if it is given again.
    void *allocate(std::size_t bytes) noexcept { return hak_heap_malloc(handle_, bytes); }
    void *allocate(std::size_t bytes, std::size_t align) noexcept { return hak_heap_aligned_alloc(handle_, align, bytes); }
    void *allocate_zeroed(std::size_t bytes, std::size_t align = detail::aligned) noexcept
    {
        return hak_heap_aligned_calloc(handle_, align, 1, bytes);
    }
    void *reallocate(void *block, std::size_t bytes, std::size_t align = detail::aligned) noexcept
    {
        return hak_heap_aligned_realloc(handle_, block, align, bytes);
    }
    char *copy(const char *text) noexcept { return hak_heap_strdup(handle_, text); }
    void reset() noexcept { hak_heap_reset(handle_); }
    std::size_t collect() noexcept { return hak_heap_collect(handle_); }
    void set_limit(std::size_t limit) noexcept { hak_heap_set_limit(handle_, limit); }
    bool set_name(const char *name) noexcept { return hak_heap_set_name(handle_, name) == 0; }
    void *data() const noexcept { return hak_heap_data(handle_); }
    void *set_data(void *data) noexcept { return hak_heap_set_data(handle_, data); }

    // Calls function(span) with a const hak_heap_span & for each span that has blocks, until it returns something other than 0, which is the
    // result. No thread may use the heap meanwhile; the function must not throw.
    template <typename F>
    int visit_spans(F &&function) const noexcept
    {
        using visitor = std::remove_reference_t<F>;
        return hak_heap_visit_spans(handle_, [](const hak_heap_span *span, void *argument) noexcept -> int {
            return (*static_cast<visitor *>(argument))(*span);
        }, const_cast<std::remove_const_t<visitor> *>(std::addressof(function)));
    }

    // Calls function() when the heap is next reset or ends, the latest first, before its blocks end. Returns false without memory; then
    // nothing is kept. The function must not throw.
    template <typename F>
    bool at_end(F function)
    {
        void *place = allocate(sizeof(F), alignof(F));
        if (place == nullptr)
            return false;
        F *kept = new (place) F(std::move(function));
        if (hak_heap_at_end(handle_, &run<F>, kept) == 0)
            return true;
        kept->~F();
        hak_heap_free(handle_, kept);
        return false;
    }
    hak_heap_figures stats() const noexcept
    {
        hak_heap_figures figures{};
        hak_heap_stats(handle_, &figures, sizeof figures);
        return figures;
    }

private:
    // The block ends with the heap, unless the heap has been merged.
    template <typename F>
    static void run(void *kept) noexcept
    {
        (*static_cast<F *>(kept))();
        static_cast<F *>(kept)->~F();
        hak_free(kept);
    }

    hak_heap_t *handle_;
};

// Two are equal if both belong to the same heap, or both to malloc; a container's swap and move assignment propagate them.
template <class T>
class allocator {
public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    allocator() noexcept = default;   // malloc's
    allocator(hak_heap_t *handle) noexcept : handle_(handle) {}
    allocator(const heap &from) noexcept : handle_(from.get()) {}
    template <class U>
    allocator(const allocator<U> &other) noexcept : handle_(other.handle()) {}

    [[nodiscard]] T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            detail::fail<std::bad_array_new_length>();
        return static_cast<T *>(detail::allocate(handle_, count * sizeof(T), alignof(T)));
    }
    void deallocate(T *block, std::size_t count) noexcept
    {
        detail::deallocate(handle_, const_cast<std::remove_cv_t<T> *>(block), count * sizeof(T), alignof(T));
    }
    hak_heap_t *handle() const noexcept { return handle_; }

private:
    hak_heap_t *handle_ = nullptr;
};

template <class T, class U>
bool operator==(const allocator<T> &a, const allocator<U> &b) noexcept
{
    return a.handle() == b.handle();
}
template <class T, class U>
bool operator!=(const allocator<T> &a, const allocator<U> &b) noexcept
{
    return a.handle() != b.handle();
}

#if defined(HAKMEM_HAS_MEMORY_RESOURCE)
// Two are equal if both belong to the same heap; without RTTI a resource equals only itself, because it cannot recognise others.
class memory_resource : public std::pmr::memory_resource {
public:
    memory_resource() noexcept = default;   // malloc's
    explicit memory_resource(hak_heap_t *handle) noexcept : handle_(handle) {}
    explicit memory_resource(const heap &from) noexcept : handle_(from.get()) {}
    hak_heap_t *handle() const noexcept { return handle_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override { return detail::allocate(handle_, bytes, align); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override
    {
        detail::deallocate(handle_, block, bytes, align);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        if (this == &other)
            return true;
#if defined(__cpp_rtti)
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && same->handle_ == handle_;
#else
        return false;
#endif
    }
    hak_heap_t *handle_ = nullptr;
};

// A resource that is never destroyed, so that containers of static duration may use it to the end.
inline memory_resource *resource() noexcept
{
    alignas(memory_resource) static unsigned char place[sizeof(memory_resource)];
    static memory_resource *const made = ::new (static_cast<void *>(place)) memory_resource;
    return made;
}

// Owns a bump heap: what it gives ends with it or by release(), as that of std::pmr::monotonic_buffer_resource; but any thread may use it,
// and it has a heap's limit, name and figures.
class monotonic : public std::pmr::memory_resource {
public:
    explicit monotonic(const char *name = nullptr, std::size_t limit = 0)
        : heap_(hak_heap_options{ sizeof(hak_heap_options), name, limit, nullptr, nullptr, 0, HAK_HEAP_BUMP, nullptr, 0, nullptr }) {}
    hak_heap_t *handle() const noexcept { return heap_.get(); }
    void release() noexcept { heap_.reset(); }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override { return detail::allocate(heap_.get(), bytes, align); }
    void do_deallocate(void *, std::size_t, std::size_t) override {}
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }
    heap heap_;
};
#endif

// Ends an object of hak::make_unique.
template <class T>
struct deleter {
    deleter() noexcept = default;
    template <class U, class = std::enable_if_t<detail::takes_over<T, U>>>
    deleter(const deleter<U> &) noexcept {}

    void operator()(T *object) const noexcept
    {
        void *block = start(object);
        object->~T();
        hak_free(block);
    }

private:
    static void *start(T *object) noexcept
    {
#if defined(__cpp_rtti)
        if constexpr (std::is_polymorphic_v<T>)
            return const_cast<void *>(dynamic_cast<const volatile void *>(object));
        else
#endif
            return const_cast<void *>(static_cast<const volatile void *>(object));
    }
};

// Ends an array whose elements need no destructor: the block does not know their number.
template <class T>
struct deleter<T[]> {
    static_assert(std::is_trivially_destructible_v<T>, "elements with a destructor belong in a container with hak::allocator");
    void operator()(T *first) const noexcept { hak_free(const_cast<void *>(static_cast<const volatile void *>(first))); }
};

// Frees memory of hak_malloc and the like.
template <>
struct deleter<void> {
    void operator()(void *block) const noexcept { hak_free(block); }
};

template <class T>
using unique_ptr = std::unique_ptr<T, deleter<T>>;

// An object in a heap, or in malloc's memory if the heap is null.
template <class T, class... Arguments>
std::enable_if_t<!std::is_array_v<T>, unique_ptr<T>> make_unique_in(hak_heap_t *handle, Arguments &&...arguments)
{
    void *block = detail::allocate(handle, sizeof(T), alignof(T));
    detail::unfinished guard(block);
    unique_ptr<T> made(::new (block) T(std::forward<Arguments>(arguments)...));
    guard.finish();
    return made;
}
template <class T, class... Arguments>
std::enable_if_t<!std::is_array_v<T>, unique_ptr<T>> make_unique_in(const heap &in, Arguments &&...arguments)
{
    return hak::make_unique_in<T>(in.get(), std::forward<Arguments>(arguments)...);
}

template <class T, class... Arguments>
std::enable_if_t<!std::is_array_v<T>, unique_ptr<T>> make_unique(Arguments &&...arguments)
{
    return hak::make_unique_in<T>(static_cast<hak_heap_t *>(nullptr), std::forward<Arguments>(arguments)...);
}

// An array of `count` elements, each with its initial value (0 for numbers).
template <class T>
std::enable_if_t<std::is_array_v<T> && std::extent_v<T> == 0, unique_ptr<T>> make_unique(std::size_t count)
{
    using element = std::remove_extent_t<T>;
    element *first = allocator<element>().allocate(count);
    detail::unfinished guard(first);
    std::uninitialized_value_construct_n(first, count);
    guard.finish();
    return unique_ptr<T>(first);
}

// Sets the calling thread's default heap until the end of the scope, which the same thread must leave. False: it could not be set, for the
// reasons given at hak_heap_set_default, and the scope changes nothing; it does not throw, since malloc goes on serving the thread.
class default_scope {
public:
    explicit default_scope(hak_heap_t *handle) noexcept
        : former_(hak_heap_set_default(handle)), is_set_(hak_heap_get_default() == handle)
    {
    }
    explicit default_scope(const heap &to) noexcept : default_scope(to.get()) {}
    default_scope(const default_scope &) = delete;
    default_scope &operator=(const default_scope &) = delete;
    ~default_scope()
    {
        if (is_set_)
            hak_heap_set_default(former_);
    }
    explicit operator bool() const noexcept { return is_set_; }

private:
    hak_heap_t *former_;
    bool is_set_;
};

// Labels the calling thread's samples until the end of the scope, which the same thread must leave; scopes end in reverse order. Without
// a key, it sets all labels at once: those of another thread, or of a task.
class label {
public:
    label(const char *key, const char *value) noexcept : former_(hak_label_set(key, value)) {}
    explicit label(const hak_labels_t *all) noexcept : former_(hak_label_switch(all)) {}
    label(const label &) = delete;
    label &operator=(const label &) = delete;
    ~label() { hak_label_switch(former_); }

private:
    const hak_labels_t *former_;
};

// Wraps a function for a new thread, which then has this default heap and the calling thread's labels. Create the thread without a default:
// the C library keeps what it allocates for it beyond the thread's end.
template <class Function>
auto inheriting(hak_heap_t *handle, Function function)
{
    return [handle, labels = hak_label_get(), function = std::move(function)](auto &&...arguments) mutable {
        default_scope scope(handle);
        label labelled(labels);
        return std::invoke(function, std::forward<decltype(arguments)>(arguments)...);
    };
}
template <class Function>
auto inheriting(const heap &to, Function function)
{
    return inheriting(to.get(), std::move(function));
}

// The same with the calling thread's default heap.
template <class Function>
auto inheriting(Function function)
{
    return inheriting(hak_heap_get_default(), std::move(function));
}

}  // namespace hak

#endif
