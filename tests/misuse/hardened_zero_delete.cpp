// expect: hakmem: operator delete\(\): wrong size 5000 for 0x[0-9a-f]+ \(112-byte block\)\n(?s:.*)
// env: HAKMEM_HARDEN=zero
// Without canaries a block's class still tells which sizes it cannot have.
#include <new>

int main()
{
    void *volatile p = ::operator new(100);
    ::operator delete(p, 5000);
}
