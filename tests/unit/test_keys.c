/* os/keys.c: a key's destructor runs with the value that its thread has set, and in no other thread. */
#include "os/os.h"
#include "support/check.h"

static pthread_key_t key;
static int ended;

static void ends(void *value) { ended += *(int *)value; }

static void *sets_value(void *argument)
{
    expect(hak__os_key_set(key, argument) == 0);
    return NULL;
}

static void *sets_none(void *argument) { return argument; }

static void a_thread_ends(void **state)
{
    pthread_t thread, other;
    int value = 7;
    (void)state;
    expect(hak__os_keys() && hak__os_key_create(&key, ends) == 0);
    expect(pthread_create(&other, NULL, sets_none, NULL) == 0 && pthread_join(other, NULL) == 0);
    expect(ended == 0);
    expect(pthread_create(&thread, NULL, sets_value, &value) == 0 && pthread_join(thread, NULL) == 0);
    expect(ended == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_thread_ends) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
