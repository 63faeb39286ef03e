// expect: (?s)hakmem: free\(\): double free of 0x[0-9a-f]+ \(0-byte block\)\nhakmem:   called by thread [0-9]+:\n.*hakmem:   allocated:\n.*hakmem:   freed:\n.*
// env: HAKMEM_HARDEN=1
// What malloc(0) gives in hardened mode, freed twice.
#include <stdlib.h>

int main(void)
{
    void *volatile p = malloc(0);
    free(p);
    free(p);
    return 0;
}
