/* Runs a fuzz target where libFuzzer is not at hand. Takes the same words as far as tests use them:
 *
 *   fuzz_NAME [-runs=N] [-seed=N] [-max_len=N] [-max_total_time=SECONDS] [-artifact_prefix=TEXT] [FILE or FOLDER]...
 *
 * Replays every file once. With a folder among them (or with nothing) it then makes N further inputs, by changing those
 * of the folder and from random bytes alone; an input depends on the seed, its number and the corpus only. Without -runs
 * and -max_total_time that goes on until it is interrupted. The input that fails is left in crash-SEED-NUMBER, after the prefix. */
#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

#include "support/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);   /* fuzz.h */

enum { INPUTS_MAX = 4096, LENGTH_MAX = 1 << 16 };

static struct input {
    uint8_t *data;
    size_t size;
} inputs[INPUTS_MAX];
static size_t input_count, replayed, longest = 512;
static uint64_t runs = UINT64_MAX, seed = 1;
static double seconds_left = 1e9;
static bool any_file, any_folder;
static char prefix[64];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail_with(const char *what, const char *name)
{
    fprintf(stderr, "fuzz: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static void read_file(const char *name)
{
    FILE *file = fopen(name, "rb");
    uint8_t *data = malloc(LENGTH_MAX);
    if (file == NULL || data == NULL || input_count == INPUTS_MAX)
        fail_with("cannot read", name);
    inputs[input_count++] = (struct input){ data, fread(data, 1, LENGTH_MAX, file) };
    fclose(file);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static void read_folder(const char *name)
{
    struct dirent **entries;
    int count = scandir(name, &entries, NULL, by_name);
    if (count < 0)
        fail_with("cannot list", name);
    for (int i = 0; i < count; i++) {
        char path[4096];
        if (entries[i]->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", name, entries[i]->d_name) > 0)
            read_file(path);
        free(entries[i]);
    }
    free(entries);
}

static void read_argument(const char *text)
{
    struct stat about;
    if (sscanf(text, "-runs=%" SCNu64, &runs) == 1 || sscanf(text, "-seed=%" SCNu64, &seed) == 1
        || sscanf(text, "-max_len=%zu", &longest) == 1 || sscanf(text, "-max_total_time=%lf", &seconds_left) == 1
        || sscanf(text, "-artifact_prefix=%63s", prefix) == 1 || text[0] == '-')
        return;   /* libFuzzer's other words mean nothing here */
    if (stat(text, &about) != 0)
        fail_with("cannot read", text);
    any_folder |= S_ISDIR(about.st_mode);
    any_file |= !S_ISDIR(about.st_mode);
    (S_ISDIR(about.st_mode) ? read_folder : read_file)(text);
}

/* --- inputs -------------------------------------------------------------------------------------------------------- */

static size_t insert(struct rng *rng, uint8_t *data, size_t size)
{
    size_t at = rng_below(rng, size + 1), more = 1 + rng_below(rng, 24);
    if (size + more > longest)
        return size;
    memmove(data + at + more, data + at, size - at);
    for (size_t i = 0; i < more; i++)
        data[at + i] = (uint8_t)rng_next(rng);
    return size + more;
}

static size_t drop(struct rng *rng, uint8_t *data, size_t size)
{
    size_t at = rng_below(rng, size), less = 1 + rng_below(rng, size - at < 24 ? size - at : 24);
    memmove(data + at, data + at + less, size - at - less);
    return size - less;
}

static size_t change(struct rng *rng, uint8_t *data, size_t size)
{
    size_t from = rng_below(rng, size + 1), to = rng_below(rng, size + 1), n = 1 + rng_below(rng, 32);
    switch (size == 0 ? 0 : rng_below(rng, 5)) {
    case 0: return insert(rng, data, size);
    case 1: return drop(rng, data, size);
    case 2: data[from % size] ^= (uint8_t)(1u << rng_below(rng, 8)); return size;
    case 3: data[from % size] = (uint8_t)rng_next(rng); return size;
    default:
        n = n > size - from ? size - from : n;
        n = n > size - to ? size - to : n;
        memmove(data + to, data + from, n);
        return size;
    }
}

/* The input of this number. */
static size_t make(uint64_t number, uint8_t *data)
{
    struct rng rng = { seed * 0x9e3779b97f4a7c15ull + number };
    size_t size = 0;
    if (input_count != 0 && number % 4 != 0) {
        const struct input *base = &inputs[rng_below(&rng, input_count)];
        size = base->size < longest ? base->size : longest;
        memcpy(data, base->data, size);
        for (size_t changes = 1 + rng_below(&rng, 12); changes > 0; changes--)
            size = change(&rng, data, size);
        return size;
    }
    size = rng_below(&rng, rng_below(&rng, 4) == 0 ? longest + 1 : longest / 8 + 1);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)rng_next(&rng);
    return size;
}

/* Tries the input in a child, so that it can be kept when it fails. */
static void run(const uint8_t *data, size_t size, const char *kept)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        LLVMFuzzerTestOneInput(data, size);
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        fail_with("cannot fork for", kept);
    if (status == 0)
        return;
    FILE *file = fopen(kept, "wb");
    if (file != NULL) {
        fwrite(data, 1, size, file);
        fclose(file);
    }
    fprintf(stderr, "fuzz: failed; the input is in %s\n", kept);
    exit(1);
}

int main(int argc, char **argv)
{
    static uint8_t data[LENGTH_MAX + 64];
    char kept[160];
    for (int i = 1; i < argc; i++)
        read_argument(argv[i]);
    longest = longest > LENGTH_MAX ? LENGTH_MAX : longest;
    for (replayed = 0; replayed < input_count; replayed++) {
        snprintf(kept, sizeof kept, "%scrash-seed-%zu", prefix, replayed);
        run(inputs[replayed].data, inputs[replayed].size, kept);
    }
    uint64_t number = 0;
    double end = now() + seconds_left;
    for (; (any_folder || !any_file) && number + replayed < runs && now() < end; number++) {
        snprintf(kept, sizeof kept, "%scrash-%" PRIu64 "-%" PRIu64, prefix, seed, number);
        run(data, make(number, data), kept);
    }
    printf("Done %" PRIu64 " runs: %zu of the corpus, %" PRIu64 " made\n", replayed + number, replayed, number);
    return 0;
}
