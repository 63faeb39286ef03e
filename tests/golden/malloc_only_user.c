/* For test_malloc_only.py. Prints the library in which each function named on the command line is found; with `tasks`, the most
 * tasks that the process had while two threads replaced 32 MiB of blocks and freed them. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 16000, SIZE = 1000, ROUNDS = 40, PAUSE_US = 20000 };

static unsigned count_tasks(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL)
        abort();
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void *replace_blocks(void *most)
{
    static __thread char *blocks[BLOCKS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            free(blocks[i]);
            blocks[i] = malloc(SIZE);
            memset(blocks[i], 1, SIZE);
        }
        usleep(PAUSE_US);
        unsigned now = count_tasks(), *known = most;
        *known = now > *known ? now : *known;
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

static unsigned most_tasks(void)
{
    unsigned of_main = 0, of_other = 0;
    pthread_t other;
    if (pthread_create(&other, NULL, replace_blocks, &of_other) != 0)
        abort();
    replace_blocks(&of_main);
    pthread_join(other, NULL);
    return of_main > of_other ? of_main : of_other;
}

int main(int count, char **names)
{
    if (count == 2 && strcmp(names[1], "tasks") == 0) {
        printf("%u\n", most_tasks());
        return 0;
    }
    for (int i = 1; i < count; i++) {
        Dl_info found = { 0 };
        void *function = dlsym(RTLD_DEFAULT, names[i]);
        printf("%s %s\n", names[i], function != NULL && dladdr(function, &found) != 0 ? found.dli_fname : "-");
    }
    return 0;
}
