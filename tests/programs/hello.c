// Hello world, for test_footprint.py. It stays until its input ends, so that it can be looked at.
#include <stdio.h>

int main(void) {
    puts("hello, world");
    fflush(stdout);
    getchar();
    return 0;
}
