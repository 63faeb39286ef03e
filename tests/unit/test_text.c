/* hak_begins: what a text begins with, which may be all of it or nothing. */
#include "base/text.h"
#include "support/check.h"

static void beginnings(void **state)
{
    (void)state;
    expect(hak_begins("free", "free"));
    expect(hak_begins("free_sized", "free"));
    expect(hak_begins("free", ""));
    expect(hak_begins("", ""));
    expect(!hak_begins("fre", "free"));
    expect(!hak_begins("", "free"));
    expect(!hak_begins("realloc", "free"));
    expect(!hak_begins("frei", "free"));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(beginnings) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
