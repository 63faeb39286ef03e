/* A library with thread-local memory that is laid out when a thread first uses it, and with functions that allocate and
 * free by whatever malloc it is bound to. Built by test_loader.py. */
#include <stdlib.h>
#include <string.h>

enum { TLS_BYTES = 5000 };

static __thread char *held;
static __thread char area[TLS_BYTES];

char *plugin_make(size_t n);
char *plugin_make(size_t n)
{
    char *block = malloc(n);
    memset(block, 0x5a, n);
    return block;
}

void plugin_free(void *p);
void plugin_free(void *p) { free(p); }

void *plugin_realloc(void *p, size_t n);
void *plugin_realloc(void *p, size_t n) { return realloc(p, n); }

/* The address of malloc that this library uses. */
void *plugin_malloc(void);
void *plugin_malloc(void) { return (void *)malloc; }

/* 0 if this thread's memory is as it should be: new, or as the last call left it. */
int plugin_use_thread_memory(int round);
int plugin_use_thread_memory(int round)
{
    for (int i = 1; i < TLS_BYTES; i++)
        if (area[i] != area[0])
            return 1;
    if ((held == NULL) != (area[0] == 0))
        return 2;
    free(held);
    held = malloc(100);
    memset(area, round % 100 + 1, TLS_BYTES);
    return 0;
}

/* What a thread must do before it ends or the library goes: nobody else can reach the block. */
void plugin_forget(void);
void plugin_forget(void)
{
    free(held);
    held = NULL;
    memset(area, 0, TLS_BYTES);
}
