/* Reports a failed assertion of a debug build with write(2) alone, then aborts. */
#include "base/assert.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if HAK_DEBUG
static void put(const char *text)
{
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written;
}

void hak__assert_failed(const char *condition, const char *what, const char *file, int line)
{
    char digits[12];
    int at = (int)sizeof digits;
    digits[--at] = 0;
    for (int n = line; n > 0; n /= 10)
        digits[--at] = (char)('0' + n % 10);
    put("hakmem: assertion failed: ");
    put(what);
    put(": ");
    put(condition);
    put(" at ");
    put(file);
    put(":");
    put(digits + at);
    put("\n");
    abort();
}
#endif
