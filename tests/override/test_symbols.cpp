// Every name of the family and of the operators belongs to the library, by two ways of asking: the object that dladdr
// names for the address that the program uses, and the one for the address that dlsym finds first, which is what the
// program's other libraries use. Fully static there is one object only; test_names.c looks at addresses there.
// test: flavours=preload,shared,archive
#include <dlfcn.h>
#include <malloc.h>

#include <initializer_list>
#include <new>

#include "cases.h"
#include "hakmem.h"

extern "C" {
void cfree(void *);
void free_sized(void *, std::size_t);
void free_aligned_sized(void *, std::size_t, std::size_t);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // mallinfo is, and programs use it all the same

namespace {

struct Name {
    const char *name;
    void *address;
};

template <typename Function> void *address_of(Function *function) { return reinterpret_cast<void *>(function); }
#define NAMED(function) { #function, address_of(function) }
#define OPERATOR(mangled, type, op) { mangled, address_of(static_cast<type *>(op)) }

const Name family[] = {
    NAMED(malloc), NAMED(calloc), NAMED(realloc), NAMED(reallocarray), NAMED(free), NAMED(free_sized), NAMED(free_aligned_sized),
    NAMED(aligned_alloc), NAMED(memalign), NAMED(posix_memalign), NAMED(valloc), NAMED(malloc_usable_size),
#if defined(__GLIBC__)
    NAMED(cfree), NAMED(pvalloc), NAMED(malloc_trim), NAMED(malloc_info), NAMED(malloc_stats), NAMED(mallinfo), NAMED(mallinfo2),
    NAMED(mallopt),
#endif
};

using New = void *(std::size_t);
using NewAligned = void *(std::size_t, std::align_val_t);
using NewNothrow = void *(std::size_t, const std::nothrow_t &) noexcept;
using NewAlignedNothrow = void *(std::size_t, std::align_val_t, const std::nothrow_t &) noexcept;
using Delete = void(void *) noexcept;
using DeleteSized = void(void *, std::size_t) noexcept;
using DeleteNothrow = void(void *, const std::nothrow_t &) noexcept;
using DeleteAligned = void(void *, std::align_val_t) noexcept;
using DeleteSizedAligned = void(void *, std::size_t, std::align_val_t) noexcept;
using DeleteAlignedNothrow = void(void *, std::align_val_t, const std::nothrow_t &) noexcept;

const Name operators[] = {
    OPERATOR("_Znwm", New, ::operator new),
    OPERATOR("_Znam", New, ::operator new[]),
    OPERATOR("_ZnwmSt11align_val_t", NewAligned, ::operator new),
    OPERATOR("_ZnamSt11align_val_t", NewAligned, ::operator new[]),
    OPERATOR("_ZdlPv", Delete, ::operator delete),
    OPERATOR("_ZdaPv", Delete, ::operator delete[]),
    OPERATOR("_ZdlPvm", DeleteSized, ::operator delete),
    OPERATOR("_ZdaPvm", DeleteSized, ::operator delete[]),
    OPERATOR("_ZdlPvRKSt9nothrow_t", DeleteNothrow, ::operator delete),
    OPERATOR("_ZdaPvRKSt9nothrow_t", DeleteNothrow, ::operator delete[]),
    OPERATOR("_ZdlPvSt11align_val_t", DeleteAligned, ::operator delete),
    OPERATOR("_ZdaPvSt11align_val_t", DeleteAligned, ::operator delete[]),
    OPERATOR("_ZdlPvmSt11align_val_t", DeleteSizedAligned, ::operator delete),
    OPERATOR("_ZdaPvmSt11align_val_t", DeleteSizedAligned, ::operator delete[]),
    OPERATOR("_ZdlPvSt11align_val_tRKSt9nothrow_t", DeleteAlignedNothrow, ::operator delete),
    OPERATOR("_ZdaPvSt11align_val_tRKSt9nothrow_t", DeleteAlignedNothrow, ::operator delete[]),
};

// In a program with the archive they are the C++ runtime's, and call the plain ones.
const Name nothrow_operators[] = {
    OPERATOR("_ZnwmRKSt9nothrow_t", NewNothrow, ::operator new),
    OPERATOR("_ZnamRKSt9nothrow_t", NewNothrow, ::operator new[]),
    OPERATOR("_ZnwmSt11align_val_tRKSt9nothrow_t", NewAlignedNothrow, ::operator new),
    OPERATOR("_ZnamSt11align_val_tRKSt9nothrow_t", NewAlignedNothrow, ::operator new[]),
};

void *object_of(void *address)
{
    Dl_info info;
    expect(dladdr(address, &info) != 0);
    return info.dli_fbase;
}

void expect_ours(const char *name, const char *asked, void *address)
{
    const bool ours = address != nullptr && object_of(address) == object_of(address_of(hak_malloc));
    if (!ours)
        printf("%s by %s is not the library's\n", name, asked), fflush(stdout);
    expect(ours);
}

// The archive's names are the program's own, and it exports those only that its libraries refer to.
bool is_library() { return object_of(address_of(hak_malloc)) != object_of(const_cast<Name *>(family)); }

// zig links the C++ runtime into each program for musl; its operators come first there, and call the library's malloc.
#if defined(__GLIBC__)
constexpr bool has_own_runtime = false;
#else
constexpr bool has_own_runtime = true;
#endif

template <std::size_t Count> void expect_all_ours(const Name (&list)[Count])
{
    for (const Name &one : list) {
        if (has_own_runtime && object_of(one.address) == object_of(const_cast<Name *>(family)))
            continue;
        expect_ours(one.name, "its address", one.address);
        if (is_library())
            expect_ours(one.name, "dlsym", dlsym(RTLD_DEFAULT, one.name));
    }
}

void the_c_librarys_names() { expect_all_ours(family); }
void the_operators()
{
    expect_all_ours(operators);
    if (is_library())
        expect_all_ours(nothrow_operators);
}

// What the C library itself calls: exported in every build, also by a program that has the archive in it.
void what_the_c_library_calls()
{
    for (const char *name : {"malloc", "calloc", "realloc", "free"})
        expect_ours(name, "dlsym", dlsym(RTLD_DEFAULT, name));
    char *text = strdup("from the C library");
    expect(hak_usable_size(text) >= 19);
    free(text);
}

const test_case cases[] = {
    CASE(the_c_librarys_names),
    CASE(the_operators),
    CASE(what_the_c_library_calls),
};

} // namespace

int main(int argc, char **argv) { return RUN_CASES(cases); }
