// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(32-byte block\)
// delete of an object that has been deleted.
#include <malloc.h>

struct object {
    long a, b, c;
};

int main()
{
    object *keep = new object, *p = new object;
    delete p;
    delete p;
    malloc_trim(0);
    delete keep;
    return 0;
}
