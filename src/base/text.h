/* Text functions in place of the C library's: each symbol imported from there costs every process a little at start
 * (docs/decisions/0038). */
#pragma once

#include <stdbool.h>

static inline bool hak_begins(const char *text, const char *start)
{
    while (*start != 0 && *text == *start)
        text++, start++;
    return *start == 0;
}
