/* base/assert.h: a broken contract ends the program with what, condition, file and line; the first broken invariant is noted, and no later
 * one. */
#include "base/assert.h"

#include "support/check.h"

static void break_one(void *argument)
{
    int n = *(const int *)argument;
    hak_assert(n < 5, "five is enough");
}

static void a_contract_is_named(void **state)
{
    char line[256];
    (void)state;
    snprintf(line, sizeof line, "hakmem: assertion failed: five is enough: n < 5 at %s:%d", __FILE__, __LINE__ - 7);
    expect_abort(break_one, &(int){ 5 }, line);
    break_one(&(int){ 4 });
}

FRESH_TEST(the_first_finding_stays)
{
    (void)argument;
    int first = 0, second = 0;
    expect(hak__holds(true, "nothing", &first));
    expect(hak__broken.what == NULL);
    expect(!hak__holds(false, "one", &first));
    expect(!hak__holds(false, "two", &second));
    expect_eq(strcmp(hak__broken.what, "one"), 0);
    expect_ptr(hak__broken.where, &first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_contract_is_named),
        cmocka_unit_test(the_first_finding_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
