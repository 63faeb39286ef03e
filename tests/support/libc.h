/* What tests call that only glibc has, where the C library is another one: by the library's own functions. The build includes it
 * first in every program that tests the library by the C library's names. */
#pragma once

#include "hakmem.h"

#define cfree free
#define pvalloc hak_pvalloc
#define malloc_trim(pad) (hak_collect() != (pad))
