/* The tables behind size.h, built from classes.def at compile time. */
#include "size/size.h"

#define X(index, size, slabs, blocks, reciprocal, batch) { reciprocal, size, blocks, slabs, batch },
const struct hak_class hak__classes[HAK_CLASSES] = {
#include "size/classes.def"
};
#undef X

const uint16_t hak__tiny_code[HAK_TINY_MAX / HAK_ALIGN + 1] = { HAK_TINY_CODES };
const uint16_t hak__mid_code[HAK_TABLE_MAX / HAK_TABLE_STEP + 1] = { HAK_MID_CODES };
