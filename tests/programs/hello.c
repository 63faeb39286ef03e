// The smallest program, for test_footprint.py.
#include <stdio.h>

int main(void) {
    puts("hello, world");
    return 0;
}
