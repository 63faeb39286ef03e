// HAKMEM for C++17 and later (docs/api.md): gives chosen containers and objects blocks of HAKMEM by name, whoever has malloc.
// Works without exceptions and without RTTI.
//
//   hak::allocator<T>         for containers
//   hak::memory_resource      for std::pmr, where the standard library has it; hak::resource() is one that always exists
//   hak::unique_ptr<T>        an object of hak::make_unique<T>(...), or characters of hak_malloc
//   hak::deleter<T>           what ends it, for a std::unique_ptr of one's own
//
// Where there is no memory, they do what operator new does: call the new-handler as long as there is one, then throw
// std::bad_alloc. A program that is compiled without exceptions ends by abort() instead.
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include <cstddef>
#include <cstdlib>
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

// What every block is aligned to.
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

// Never null.
inline void *allocate(std::size_t bytes, std::size_t align)
{
    for (;;) {
        void *block = align <= aligned ? hak_malloc(bytes) : hak_aligned_alloc(align, bytes);
        if (block != nullptr)
            return block;
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr)
            fail<std::bad_alloc>();
        handler();
    }
}

// With the size and alignment that it was allocated with; others are misuse.
inline void deallocate(void *block, std::size_t bytes, std::size_t align) noexcept
{
    if (align <= aligned)
        hak_free_sized(block, bytes);
    else
        hak_free_aligned_sized(block, align, bytes);
}

// Whether a pointer to T may end what was made as a U: a const T what was a T; a base only if its destructor is virtual and
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

// All are equal: any of them frees what another has allocated.
template <class T>
class allocator {
public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type;
    using is_always_equal = std::true_type;

    allocator() noexcept = default;
    template <class U>
    allocator(const allocator<U> &) noexcept {}

    [[nodiscard]] T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            detail::fail<std::bad_array_new_length>();
        return static_cast<T *>(detail::allocate(count * sizeof(T), alignof(T)));
    }
    void deallocate(T *block, std::size_t count) noexcept { detail::deallocate(block, count * sizeof(T), alignof(T)); }
};

template <class T, class U>
bool operator==(const allocator<T> &, const allocator<U> &) noexcept
{
    return true;
}
template <class T, class U>
bool operator!=(const allocator<T> &, const allocator<U> &) noexcept
{
    return false;
}

#if defined(HAKMEM_HAS_MEMORY_RESOURCE)
// All are equal; without RTTI each is equal to itself alone, since no other can be told to be one.
class memory_resource : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t align) override { return detail::allocate(bytes, align); }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override { detail::deallocate(block, bytes, align); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
#if defined(__cpp_rtti)
        return this == &other || dynamic_cast<const memory_resource *>(&other) != nullptr;
#else
        return this == &other;
#endif
    }
};

// One that is never destroyed, so that containers of static duration may use it to the end.
inline memory_resource *resource() noexcept
{
    alignas(memory_resource) static unsigned char place[sizeof(memory_resource)];
    static memory_resource *const made = ::new (static_cast<void *>(place)) memory_resource;
    return made;
}
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

// Ends an array whose elements need no destructor: the block does not know how many there are.
template <class T>
struct deleter<T[]> {
    static_assert(std::is_trivially_destructible_v<T>, "elements with a destructor belong in a container with hak::allocator");
    void operator()(T *first) const noexcept { hak_free(const_cast<void *>(static_cast<const volatile void *>(first))); }
};

// Ends memory of hak_malloc and its kin.
template <>
struct deleter<void> {
    void operator()(void *block) const noexcept { hak_free(block); }
};

template <class T>
using unique_ptr = std::unique_ptr<T, deleter<T>>;

template <class T, class... Arguments>
std::enable_if_t<!std::is_array_v<T>, unique_ptr<T>> make_unique(Arguments &&...arguments)
{
    void *block = detail::allocate(sizeof(T), alignof(T));
    detail::unfinished guard(block);
    unique_ptr<T> made(::new (block) T(std::forward<Arguments>(arguments)...));
    guard.finish();
    return made;
}

// An array of so many elements, each with its initial value (0 for numbers).
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

}  // namespace hak

#endif
