/* What test_environment.py runs under strange environments, linked with the static library so that it may be set-user-id:
 * prints AT_SECURE, and value and origin of an option, and uses memory.
 *   environment          with the environment as it is
 *   environment twice    starts itself anew with the option in the environment twice, 7 before 9 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "hakmem.h"

int main(int argc, char **argv)
{
    char *twice[] = { "HAKMEM_REFILL_COUNT=7", "HAKMEM_REFILL_COUNT=9", NULL }, *alone[] = { argv[0], NULL };
    uint64_t value = 0;
    if (argc > 1 && strcmp(argv[1], "twice") == 0)
        return execve("/proc/self/exe", alone, twice), 1;
    for (size_t size = 1; size < (size_t)8 << 20; size *= 3) {
        char *p = malloc(size);
        if (p == NULL)
            return 1;
        memset(p, 1, size);
        free(p);
    }
    hak_option_get("refill_count", &value);
    printf("%lu %lu %s\n", getauxval(AT_SECURE), (unsigned long)value, hak_option_origin("refill_count"));
    return 0;
}
