// std::pmr's monotonic resource behind the interface that table.c opens.
#include <cstddef>
#include <memory_resource>
#include <new>

extern "C" {
void *monotonic_new(void *) { return new (std::nothrow) std::pmr::monotonic_buffer_resource; }
void *monotonic_take(void *heap, std::size_t n) { return static_cast<std::pmr::monotonic_buffer_resource *>(heap)->allocate(n, 16); }
void monotonic_reset(void *heap) { static_cast<std::pmr::monotonic_buffer_resource *>(heap)->release(); }
void monotonic_end(void *heap) { delete static_cast<std::pmr::monotonic_buffer_resource *>(heap); }
}
