/* hak_label_set and its kin, as dumps show them, with every block a sample: labels nest, are the thread's, and are those of the moment
 * of the request, wherever the block lies and whoever frees it; a profile that begins later, starts anew or goes on in a forked child
 * has them; a user heap's name is one. */
#include "hakmem.h"
#include "support/check.h"

#include <sys/wait.h>

/* The live bytes of the sites with this label, of a dump in JSON; NULL: of those without labels. */
static unsigned long long live_of(const char *key, const char *value)
{
    char path[] = "labels-XXXXXX.json", wanted[320], *line = NULL;
    unsigned long long sum = 0, allocated, freed;
    size_t room = 0;
    int fd = mkstemps(path, 5);
    expect(fd >= 0);
    close(fd);
    expect_eq(hak_profile_dump(path), 0);
    FILE *file = fopen(path, "r");
    expect(file != NULL);
    snprintf(wanted, sizeof wanted, "\"%s\":\"%s\"", key == NULL ? "" : key, value == NULL ? "" : value);
    while (getline(&line, &room, file) > 0) {
        const char *labels = strstr(line, "\"labels\":{");
        bool fits = key == NULL ? labels == NULL : labels != NULL && strstr(labels, wanted) != NULL;
        if (!fits || sscanf(line, "{\"allocated\":[%*u,%llu],\"freed\":[%*u,%llu]", &allocated, &freed) != 2)
            continue;
        sum += allocated - freed;
    }
    free(line);
    fclose(file);
    unlink(path);
    return sum;
}

static void labels_nest(void **state)
{
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    const hak_labels_t *none = hak_label_set("tenant", "acme");
    expect(none == NULL);
    void *first = hak_malloc(1000);
    const hak_labels_t *tenant = hak_label_set("query", "a \"quoted\"\\ one\n");
    void *second = hak_malloc(500), *huge = hak_malloc(3 << 20), *large = hak_malloc(300000);
    expect(hak_label_switch(tenant) != tenant);
    void *third = hak_malloc(20);
    hak_label_switch(none);
    void *fourth = hak_malloc(7777);
    expect(hak_label_get() == NULL);
    expect_eq(live_of("tenant", "acme"), 1000 + 500 + (3 << 20) + 300000 + 20);
    expect_eq(live_of("query", "a \\\"quoted\\\"\\\\ one\\n"), 500 + (3 << 20) + 300000);
    hak_label_set("tenant", "other"); /* whoever frees */
    hak_free(second);
    hak_free(huge);
    hak_free(large);
    hak_label_set("tenant", NULL);
    expect(hak_label_get() == NULL);
    expect_eq(live_of("tenant", "acme"), 1020);
    expect_eq(live_of("tenant", "other"), 0);
    hak_free(first);
    hak_free(third);
    hak_free(fourth);
    expect_eq(live_of("tenant", "acme"), 0);
    hak_profile_stop();
}

static void kept_from_before_and_over_restarts(void **state)
{
    (void)state;
    hak_label_set("tenant", "early");
    hak_free(hak_malloc(100));
    expect_eq(hak_profile_start(1), 0);
    void *first = hak_malloc(100);
    hak_profile_stop();
    expect_eq(hak_profile_start(1ull << 40), 0);
    expect_eq(live_of("tenant", "early"), 0);
    expect_eq(hak_profile_start(1), 0);
    void *second = hak_malloc(200);
    expect_eq(live_of("tenant", "early"), 300);
    hak_profile_stop();
    hak_free(first);
    expect_eq(live_of("tenant", "early"), 200);
    hak_free(second);
    hak_label_switch(NULL);
}

static void *of_a_thread(void *argument)
{
    void **blocks = argument;
    expect(hak_label_get() == NULL);
    blocks[0] = hak_malloc(300);
    hak_label_switch(blocks[2]);
    blocks[1] = hak_malloc(400);
    hak_label_set("tenant", "left by a thread");
    return NULL;
}

/* A label may be any bytes; a dump is UTF-8. */
static void labels_are_written_as_utf_8(void **state)
{
    (void)state;
    static const char *const given[][2] = {
        { "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
        { "a\xff" "b", "a?b" }, { "\xc3", "?" }, { "\xe2\x82", "??" }, { "\xc0\x80", "??" }, { "\xe0\x80\x80", "???" },
        { "\xed\xa0\x80", "???" }, { "\xf0\x80\x80\x80", "????" }, { "\xf4\x90\x80\x80", "????" }, { "\xf5z", "?z" },
    };
    expect_eq(hak_profile_start(1), 0);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const hak_labels_t *former = hak_label_set("tenant", given[i][0]);
        void *block = hak_malloc(1000 + 16 * i);
        hak_label_switch(former);
        expect_op(live_of("tenant", given[i][1]), >=, 1000);
        hak_free(block);
    }
    hak_profile_stop();
}

static void labels_are_the_threads(void **state)
{
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    const hak_labels_t *former = hak_label_set("tenant", "lent");
    for (unsigned i = 0; i < 3; i++) {
        void *blocks[3] = { NULL, NULL, (void *)(uintptr_t)hak_label_get() };
        unsigned long long without = live_of(NULL, NULL);
        pthread_t thread;
        expect_eq(pthread_create(&thread, NULL, of_a_thread, blocks), 0);
        expect_eq(pthread_join(thread, NULL), 0);
        expect_op(live_of(NULL, NULL), >=, without + 300);
        expect_eq(live_of("tenant", "lent") % 1000, 400);
        expect_eq(live_of("tenant", "left by a thread"), 0);
        hak_free(blocks[0]);
        hak_free(blocks[1]);
    }
    hak_label_switch(former);
    hak_profile_stop();
}

static void a_child_keeps_them(void **state)
{
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    hak_label_set("tenant", "forked");
    void *block = hak_malloc(100);
    pid_t child = fork();
    if (child == 0) {
        void *own = hak_malloc(50);
        hak_label_set("job", "of the child");
        void *more = hak_malloc(5);
        bool right = live_of("tenant", "forked") == 155 && live_of("job", "of the child") == 5;
        hak_free(block);
        right &= live_of("tenant", "forked") == 55;
        hak_free(own);
        hak_free(more);
        _exit(right ? 0 : 1);
    }
    int status;
    expect(waitpid(child, &status, 0) == child && status == 0);
    expect_eq(live_of("tenant", "forked"), 100);
    hak_free(block);
    hak_label_switch(NULL);
    hak_profile_stop();
}

static void user_heaps_have_names(void **state)
{
    struct hak_heap_options options = { .size = sizeof options, .name = "cache" };
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    hak_heap_t *cache = hak_heap_new(&options), *unnamed = hak_heap_new(NULL);
    const hak_labels_t *former = hak_label_set("tenant", "acme");
    for (size_t n = 10; n <= 10 << 20; n *= 32)
        expect(hak_heap_malloc(cache, n) != NULL);
    void *block = hak_heap_malloc(unnamed, 60);
    hak_heap_t *before = hak_heap_set_default(cache);
    void *by_default = hak_malloc(1);
    hak_heap_set_default(before);
    unsigned long long bytes = 10 + 320 + 10240 + 327680 + 10485760 + 1;
    expect_eq(live_of("heap", "cache"), bytes);
    expect_eq(live_of("heap", "(unnamed)"), 60);
    expect_eq(live_of("tenant", "acme"), bytes + 60);
    hak_free(by_default);
    expect_eq(live_of("heap", "cache"), bytes - 1);
    hak_heap_destroy(cache);
    expect_eq(live_of("heap", "cache"), 0);
    expect_eq(hak_heap_merge_into_default(unnamed), 0);
    expect_eq(live_of("heap", "(unnamed)"), 60); /* of the moment of the request */
    hak_free(block);
    expect_eq(live_of("heap", "(unnamed)"), 0);
    hak_heap_destroy(unnamed);
    hak_label_switch(former);
    hak_profile_stop();
}

/* "root/child"; what does not fit loses its beginning. */
static void user_heaps_have_paths(void **state)
{
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    struct hak_heap_options options = { .size = sizeof options, .name = "server" };
    hak_heap_t *server = hak_heap_new(&options);
    options.name = NULL;
    options.parent = server;
    hak_heap_t *connection = hak_heap_new(&options);
    options.name = "request";
    options.parent = connection;
    hak_heap_t *request = hak_heap_new(&options);
    expect(hak_heap_malloc(request, 300) != NULL && hak_heap_malloc(server, 70) != NULL);
    expect_eq(live_of("heap", "server/(unnamed)/request"), 300);
    expect_eq(live_of("heap", "server"), 70);
    expect_eq(hak_heap_set_name(connection, "c/1"), 0);
    expect(hak_heap_malloc(request, 400) != NULL);
    expect_eq(live_of("heap", "server/c/1/request"), 400);
    options.name = "a name of 47 bytes, which is the longest that is";
    hak_heap_t *deep = request;
    for (int i = 0; i < 10; i++) {
        options.parent = deep;
        deep = hak_heap_new(&options);
    }
    expect(hak_heap_malloc(deep, 500) != NULL);
    char path[256] = "";
    for (int i = 0; i < 5; i++)
        snprintf(path + strlen(path), sizeof path - strlen(path), "%s%.47s", i == 0 ? "" : "/", options.name);
    expect_eq(live_of("heap", path), 500);
    hak_heap_destroy(server);
    expect_eq(live_of("heap", "server"), 0);
    hak_profile_stop();
}

static void the_text_has_them_too(void **state)
{
    char text[1 << 16];
    (void)state;
    expect_eq(hak_profile_start(1), 0);
    hak_label_set("b", "2");
    hak_label_set("a", "1");
    void *block = hak_malloc(12345);
    expect_eq(hak_profile_dump("labels.heap"), 0);
    FILE *file = fopen("labels.heap", "r");
    expect(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    unlink("labels.heap");
    const char *ab = "\n# labels {\"a\":\"1\",\"b\":\"2\"}\n  t*: 1: 12345 [1: 12345]\n";
    const char *ba = "\n# labels {\"b\":\"2\",\"a\":\"1\"}\n  t*: 1: 12345 [1: 12345]\n";
    expect(strstr(text, ab) != NULL || strstr(text, ba) != NULL);
    hak_free(block);
    hak_label_switch(NULL);
    hak_profile_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_nest),
        cmocka_unit_test(kept_from_before_and_over_restarts),
        cmocka_unit_test(labels_are_written_as_utf_8),
        cmocka_unit_test(labels_are_the_threads),
        cmocka_unit_test(a_child_keeps_them),
        cmocka_unit_test(user_heaps_have_names),
        cmocka_unit_test(user_heaps_have_paths),
        cmocka_unit_test(the_text_has_them_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
