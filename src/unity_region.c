/* libhakmem-region as one translation unit, for release builds. What it declares of malloc's library lies beside it, not within. */
#define HAK_REGION_LIBRARY 1
#include "hakmem_region.h"
#include "unity.h"

#include "region/robust.c"
#include "region/units.c"
#include "region/blocks.c"
#include "region/region.c"
