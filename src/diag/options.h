/* Options: typed values with bounds, read once from the environment (or HAKMEM_CONF), settable by name.
 * Precedence: API, variable, HAKMEM_CONF, default. Under AT_SECURE the environment is ignored. A bad value or an
 * unknown key costs one warning and leaves the default. Values are single words, read relaxed by slow paths only. */
#ifndef HAK_DIAG_OPTIONS_H
#define HAK_DIAG_OPTIONS_H

#include "base/atomic.h"

/* The ring capacities can be fixed at build time under the names of their options. */
#if !defined(HAK_L2_RING_CAP)
#define HAK_L2_RING_CAP 48
#endif
#if !defined(HAK_L25_RING_CAP)
#define HAK_L25_RING_CAP 16
#endif

enum hak_option_kind { HAK_COUNT, HAK_BYTES, HAK_TIME, HAK_FLAG, HAK_STATS };
enum hak_option_when { HAK_AT_START, HAK_NEW_THREADS, HAK_AT_ONCE };
enum hak_option_origin { HAK_FROM_DEFAULT, HAK_FROM_CONF, HAK_FROM_VARIABLE, HAK_FROM_API };
enum { HAK_STATS_OFF, HAK_STATS_ON, HAK_STATS_EXACT, HAK_STATS_JSON, HAK_STATS_PROM };
enum { HAK_STATS_FILE_SIZE = 256 };

enum hak_option {
#define X(name, kind, value, least, most, when, help) HAK_OPTION_##name,
#include "diag/options.def"
#undef X
    HAK_OPTIONS
};

struct hak_option_row {
    const char *name, *help;
    uint64_t value, least, most;   /* the default and its bounds */
    enum hak_option_kind kind;
    enum hak_option_when when;
};

extern const struct hak_option_row hak__option_rows[HAK_OPTIONS];
extern _Atomic uint64_t hak__option_values[HAK_OPTIONS];

/* The file of HAKMEM_STATS=json:FILE and prom:FILE. */
extern char hak__stats_file[HAK_STATS_FILE_SIZE];

hak_inline uint64_t hak__option(enum hak_option option)
{
    return hak_load(&hak__option_values[option], HAK_RELAXED);
}

/* Reads HAKMEM_* from the environment. False when there is no environment yet (before the C library has started);
 * then it is to be called again. */
bool hak__options_read(void);

/* By name; a name may be given as in the environment or in HAKMEM_CONF. 0, ENOENT (unknown name), EINVAL (not a value
 * of the option's kind, or out of bounds), EPERM (it takes effect only at start). */
int hak__option_set(const char *name, const char *value);
int hak__option_get(const char *name, uint64_t *value);
enum hak_option_origin hak__option_origin(enum hak_option option);

#endif
