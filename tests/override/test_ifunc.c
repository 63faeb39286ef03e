/* Allocation in an IFUNC resolver of the program: that runs while the program is being relocated, when the environment
 * and most of the C library are not ready and thread-local memory may yet be laid out anew.
 * Not fully static: there resolvers run before the processor's thread register is set, and no thread-local variable can
 * be read at all; the C library's own malloc crashes as well. */
// test: glibc flavours=preload,shared,archive
#include "expect.h"

enum { COUNT = 100 };

/* Nothing may be reported from there; what a resolver leaves is looked at in main. */
static unsigned char *early[COUNT];

static size_t size_of(unsigned i) { return i * i * 30 + 1; }

static int the_function(void) { return 42; }

static int (*resolve(void))(void)
{
    for (unsigned i = 0; i < COUNT; i++) {
        early[i] = malloc(size_of(i));
        for (size_t at = 0; early[i] != NULL && at < size_of(i); at++)
            early[i][at] = (unsigned char)i;
    }
    for (unsigned i = 0; i < COUNT; i += 2)
        free(early[i]);
    return the_function;
}
int resolved(void) __attribute__((ifunc("resolve")));

int main(void)
{
    expect(resolved() == 42);
    for (unsigned i = 0; i < COUNT; i += 2)
        expect_block(early[i] = malloc(size_of(i)), size_of(i));
    for (unsigned i = 1; i < COUNT; i += 2) {
        expect(early[i] != NULL);
        for (size_t at = 0; at < size_of(i); at++)
            expect(early[i][at] == i);
        early[i] = realloc(early[i], size_of(i) * 2);
        expect(early[i][size_of(i) - 1] == i);
    }
    for (unsigned i = 0; i < COUNT; i++)
        free(early[i]);
    return 0;
}
