// HAKMEM's heaps of one's own (hakmem.h, docs/heaps.md) for C++17 and later. Works without exceptions and without RTTI.
//
//   hak::heap                 owns a heap; its destructor ends the heap and all its blocks
//   hak::allocator<T>         for containers: from a heap, or from malloc
//   hak::memory_resource      for std::pmr: the same
//   hak::default_scope        the thread's malloc goes to a heap until the end of the scope
//   hak::unique_ptr<T>        a single object in a heap, by hak::make_unique<T>(heap, ...)
//
// Where there is no memory, std::bad_alloc is thrown; without exceptions the program ends, as the standard library's own do.
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#if defined(__has_include)
#if __has_include(<memory_resource>)
#include <memory_resource>
#define HAKMEM_HAS_PMR 1
#endif
#endif

#include "hakmem.h"

namespace hak {

namespace detail {

[[noreturn]] inline void no_memory()
{
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

inline void *allocate(hak_heap_t *heap, std::size_t bytes, std::size_t align)
{
    void *block = align <= 16 ? hak_heap_malloc(heap, bytes) : hak_heap_aligned_alloc(heap, align, bytes);
    if (block == nullptr)
        no_memory();
    return block;
}

}  // namespace detail

// Moves, and does not copy. A heap that was moved from is empty: its handle is that of malloc.
class heap {
public:
    heap() : heap(hak_heap_options{ sizeof(hak_heap_options), nullptr, 0, nullptr, nullptr, 0, 0 }) {}
    explicit heap(const char *name, std::size_t limit = 0)
        : heap(hak_heap_options{ sizeof(hak_heap_options), name, limit, nullptr, nullptr, 0, 0 }) {}
    explicit heap(const hak_heap_options &options) : handle_(hak_heap_new(&options))
    {
        if (handle_ == nullptr)
            detail::no_memory();
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

    // No memory is nullptr here.
    void *allocate(std::size_t bytes) noexcept { return hak_heap_malloc(handle_, bytes); }
    void *allocate(std::size_t bytes, std::size_t align) noexcept { return hak_heap_aligned_alloc(handle_, align, bytes); }
    void reset() noexcept { hak_heap_reset(handle_); }
    void set_limit(std::size_t limit) noexcept { hak_heap_set_limit(handle_, limit); }
    hak_heap_figures stats() const noexcept
    {
        hak_heap_figures figures{};
        hak_heap_stats(handle_, &figures, sizeof figures);
        return figures;
    }

private:
    hak_heap_t *handle_;
};

// Two are equal if they are of the same heap; containers that are swapped or assigned by move take it with them.
template <class T>
class allocator {
public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    allocator() noexcept = default;   // malloc's
    allocator(hak_heap_t *handle) noexcept : handle_(handle) {}
    allocator(const heap &from) noexcept : handle_(from.get()) {}
    template <class U>
    allocator(const allocator<U> &other) noexcept : handle_(other.handle()) {}

    T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            detail::no_memory();
        return static_cast<T *>(detail::allocate(handle_, count * sizeof(T), alignof(T)));
    }
    void deallocate(T *p, std::size_t) noexcept { hak_free(const_cast<std::remove_cv_t<T> *>(p)); }
    hak_heap_t *handle() const noexcept { return handle_; }

    template <class U>
    friend bool operator==(const allocator &a, const allocator<U> &b) noexcept { return a.handle() == b.handle(); }
    template <class U>
    friend bool operator!=(const allocator &a, const allocator<U> &b) noexcept { return a.handle() != b.handle(); }

private:
    hak_heap_t *handle_ = nullptr;
};

#if defined(HAKMEM_HAS_PMR)
// Two are equal if they are of the same heap, as far as RTTI can tell that the other is one of these.
class memory_resource : public std::pmr::memory_resource {
public:
    memory_resource() noexcept = default;
    explicit memory_resource(hak_heap_t *handle) noexcept : handle_(handle) {}
    explicit memory_resource(const heap &from) noexcept : handle_(from.get()) {}
    hak_heap_t *handle() const noexcept { return handle_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override { return detail::allocate(handle_, bytes, align); }
    void do_deallocate(void *p, std::size_t, std::size_t) override { hak_free(p); }
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
#endif

// The calling thread's default heap until the end of the scope, which is in the same thread.
class default_scope {
public:
    explicit default_scope(hak_heap_t *handle) noexcept : former_(hak_heap_set_default(handle)) {}
    explicit default_scope(const heap &to) noexcept : default_scope(to.get()) {}
    default_scope(const default_scope &) = delete;
    default_scope &operator=(const default_scope &) = delete;
    ~default_scope() { hak_heap_set_default(former_); }

private:
    hak_heap_t *former_;
};

// A function for a new thread that has the default heap of the thread that calls this.
template <class Function>
auto inheriting(Function function)
{
    return [handle = hak_heap_get_default(), function = std::move(function)](auto &&...arguments) mutable {
        default_scope scope(handle);
        return std::invoke(function, std::forward<decltype(arguments)>(arguments)...);
    };
}

// Frees by hak_free, whichever heap the object is in.
template <class T>
struct deleter {
    void operator()(T *p) const noexcept
    {
        p->~T();
        hak_free(const_cast<std::remove_cv_t<T> *>(p));
    }
};
template <class T>
using unique_ptr = std::unique_ptr<T, deleter<T>>;

template <class T, class... Arguments>
unique_ptr<T> make_unique(hak_heap_t *handle, Arguments &&...arguments)
{
    void *memory = detail::allocate(handle, sizeof(T), alignof(T));
#if defined(__cpp_exceptions)
    try {
        return unique_ptr<T>(::new (memory) T(std::forward<Arguments>(arguments)...));
    } catch (...) {
        hak_free(memory);
        throw;
    }
#else
    return unique_ptr<T>(::new (memory) T(std::forward<Arguments>(arguments)...));
#endif
}
template <class T, class... Arguments>
unique_ptr<T> make_unique(const heap &in, Arguments &&...arguments)
{
    return hak::make_unique<T>(in.get(), std::forward<Arguments>(arguments)...);
}

}  // namespace hak

#endif
