/* Reports a failed assertion of a debug build with write(2) alone and aborts; notes broken invariants. */
#include "base/assert.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/syscall.h"

#if HAK_DEBUG && !defined(HAK_RACE_TEST) /* the schedule explorer has its own */
static void say_text(const char *text)
{
    long written = hak__syscall(SYS_write, STDERR_FILENO, text, strlen(text));
    (void)written;
}

void hak__assert_failed(const char *condition, const char *what, const char *file, int line)
{
    char digits[12];
    int at = (int)sizeof digits;
    digits[--at] = 0;
    for (int n = line; n > 0; n /= 10)
        digits[--at] = (char)('0' + n % 10);
    say_text("hakmem: assertion failed: ");
    say_text(what);
    say_text(": ");
    say_text(condition);
    say_text(" at ");
    say_text(file);
    say_text(":");
    say_text(digits + at);
    say_text("\n");
    abort();
}
#endif

struct hak_broken hak__broken;

bool hak__holds(bool condition, const char *what, const void *where)
{
    if (hak_likely(condition))
        return true;
    if (hak_peek(&hak__broken.what) == NULL) {
        hak_owner_store(&hak__broken.where, where);
        hak_owner_store(&hak__broken.what, what);
    }
    return false;
}
