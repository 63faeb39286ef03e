// expect: hakmem: free\(\): double free of 0x[0-9a-f]+ \(48-byte block\)
// A second free by the same thread, found when the thread's cache gives blocks back.
#include <stdlib.h>

int main(void)
{
    static void *p[5000];
    for (int i = 0; i < 5000; i++)
        p[i] = malloc(48);
    free(p[7]);
    free(p[7]);
    for (int i = 8; i < 5000; i++)
        free(p[i]);
    return 0;
}
