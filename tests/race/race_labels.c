/* Labels (sample/sample.h), every schedule within the bounds: threads that set the same label find the same part, complete, and no
 * bucket has one twice. */
#include <string.h>

#include "sample/sample.h"
#include "world.h"

enum { ROOM = 4096 };

static const struct hak_labels *found[3];
static _Alignas(64) char room[ROOM];
static _Atomic size_t used;

/* --- what lies below --------------------------------------------------------------------------------------------------- */

void *hak__meta_alloc(size_t bytes)
{
    size_t at = hak_fetch_add(&used, (bytes + 63) / 64 * 64, HAK_RELAXED);
    EXPLORE_EXPECT(at + bytes <= ROOM, "parts are not made again and again");
    return room + at;
}

/* --- the threads ------------------------------------------------------------------------------------------------------- */

static void set(unsigned who, const char *key, const char *value)
{
    found[who] = hak__labels_with(NULL, key, value);
    EXPLORE_EXPECT(found[who] != NULL && strcmp(hak__label_key(found[who]), key) == 0, "the key is complete");
    EXPLORE_EXPECT(strcmp(hak__label_value(found[who]), value) == 0, "the value is complete");
}

static void first(void) { set(0, "k", "v"); }
static void second(void) { set(1, "k", "v"); }
static void third(void) { set(2, "k", "w"); }

static void setup(void)
{
    world_reset();
    memset(&hak__label_table, 0, sizeof hak__label_table);
    memset(room, 0, sizeof room);
    atomic_store(&used, 0);
    found[0] = found[1] = found[2] = NULL;
}

static void check_same(void) { EXPLORE_EXPECT(found[0] == found[1], "the same labels are one part"); }

static void check_key(void)
{
    EXPLORE_EXPECT(found[0] != found[2] && found[0]->of->of == found[2]->of->of, "two values of one key");
}

static const struct explore_case cases[] = {
    { "two set the same label", 3, 2, setup, { first, second }, check_same, 2, 2 },
    { "two set values of a new key", 3, 2, setup, { first, third }, check_key, 2, 2 },
};

int main(int argc, char **argv) { return explore_main(cases, sizeof cases / sizeof *cases, argc, argv); }
