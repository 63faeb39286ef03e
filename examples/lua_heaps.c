/* A Lua state per tenant, each in a heap of its own: limited, accounted for, and ended without a walk over its objects.
 *
 *   cc -O2 -Iinclude -I/usr/include/lua5.4 examples/lua_heaps.c -lhakmem -llua5.4 -o lua_heaps
 *   lua_heaps heap|close|malloc [STATES]
 *
 * "heap": lua_newstate with an allocator that asks the heap; the end is hak_heap_destroy. "close": the same, but ended by lua_close.
 * "malloc": Lua's own allocator on malloc, ended by lua_close. Prints the most memory of a state and what the process had resident. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <hakmem.h>

enum { LIMIT = 64 << 20 };

static const char script[] =
    "local words, all = {}, {}\n"
    "for i = 1, 4000 do\n"
    "  words[i] = 'word number ' .. i\n"
    "  all[words[i]] = { id = i, text = words[i]:upper(), call = function(x) return x + i end }\n"
    "end\n"
    "local sum = 0\n"
    "for _, entry in pairs(all) do sum = sum + entry.call(entry.id) end\n"
    "return sum\n";

/* Lua frees a block whose new size is 0. */
static void *in_heap(void *heap, void *p, size_t before, size_t n)
{
    (void)before;
    if (n != 0)
        return hak_heap_realloc(heap, p, n);
    hak_heap_free(heap, p);
    return NULL;
}

static long run(lua_State *lua)
{
    luaL_openlibs(lua);
    if (luaL_dostring(lua, script) != LUA_OK) {
        fprintf(stderr, "%s\n", lua_tostring(lua, -1));
        exit(1);
    }
    return (long)lua_tointeger(lua, -1);
}

static size_t run_in_heap(int close, long *sum)
{
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .name = "state", .limit = LIMIT });
    lua_State *lua = heap != NULL ? lua_newstate(in_heap, heap) : NULL;
    struct hak_heap_figures figures;
    if (lua == NULL)
        exit(1);
    *sum += run(lua);
    hak_heap_stats(heap, &figures, sizeof figures);
    if (close)
        lua_close(lua);
    hak_heap_destroy(heap);
    return figures.peak_bytes;
}

static void run_on_malloc(long *sum)
{
    lua_State *lua = luaL_newstate();
    if (lua == NULL)
        exit(1);
    *sum += run(lua);
    lua_close(lua);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "heap";
    long states = argc > 2 ? atol(argv[2]) : 100, sum = 0;
    size_t peak = 0;
    for (long i = 0; i < states; i++) {
        if (strcmp(kind, "malloc") == 0)
            run_on_malloc(&sum);
        else
            peak = run_in_heap(strcmp(kind, "close") == 0, &sum);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s: states=%ld sum=%ld peak_of_a_state=%zu max_rss_kib=%ld\n", kind, states, sum, peak, usage.ru_maxrss);
    return 0;
}
