/* Allocates, writes and frees a few large buffers again and again. Prints the page faults of the second half of the rounds, and the
 * peak of resident memory in bytes. Run by test_page_faults.py.
 *   buffers_again BYTES COUNT ROUNDS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { COUNT_MOST = 16 };

static long faults(void)
{
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_minflt;
}

/* getrusage's figure is the parent's where that was larger before it started this program. */
static long peak_bytes(void)
{
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && kib == 0 && fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmHWM: %ld", &kib);
    return kib * 1024;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t bytes = strtoull(argv[1], NULL, 0);
    int count = atoi(argv[2]), rounds = atoi(argv[3]);
    char *buffers[COUNT_MOST];
    long before = 0;
    if (count > COUNT_MOST)
        return 2;
    for (int round = 0; round < rounds; round++) {
        if (round == rounds / 2)
            before = faults();
        for (int i = 0; i < count; i++) {
            buffers[i] = malloc(bytes);
            if (buffers[i] == NULL)
                return 1;
            memset(buffers[i], round, bytes);
        }
        for (int i = 0; i < count; i++)
            free(buffers[i]);
    }
    printf("%ld ", faults() - before);
    printf("%ld\n", peak_bytes());
    return 0;
}
