/* The tables behind size.h, built from classes.def at compile time. */
#include "size/size.h"

#define X(index, size, slabs, blocks, reciprocal, batch) { reciprocal, size, blocks, slabs, batch },
const struct hak_class hak__classes[HAK_CLASSES] = {
#include "size/classes.def"
};
#undef X

/* Requests in units of 16 bytes; ROWn covers n units with one class. */
#define C(class) ((class) * HAK_RECORD_SIZE)
#define ROW2(class) C(class), C(class)
#define ROW4(class) ROW2(class), ROW2(class)
#define ROW8(class) ROW4(class), ROW4(class)
const uint16_t hak__tiny_code[HAK_TINY_MAX / HAK_ALIGN + 1] = {
    C(0), /* a request of 0 bytes gets a block of its own */
    C(0), C(1), C(2), C(3), C(4), C(5), C(6), C(7),
    ROW2(8), ROW2(9), ROW2(10), ROW2(11),
    ROW4(12), ROW4(13), ROW4(14), ROW4(15),
    ROW8(16), ROW8(17), ROW8(18), ROW8(19),
};
