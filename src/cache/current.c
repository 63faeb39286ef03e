/* The sentinel, and the word that leads from it to a thread's heap. Changed by thread.c alone. */
#include "cache/current.h"

#define CLOSED { HAK_CLOSED_TOP, HAK_CLOSED_TOP }

/* Never written. */
struct hak_heap_front hak__sentinel = {
    .tag = HAK_HEAP_ID_NONE << HAK_CLASS_OFFSET_BITS,
    .mode = HAK_MODE_SENTINEL,
    .bins = { [0 ... HAK_CLASS_LIMIT - 1] = CLOSED },
    .closed_reasons = { [0 ... HAK_CLASS_LIMIT - 1] = HAK_CLOSED_NO_HEAP },
};

__thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));
