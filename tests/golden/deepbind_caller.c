/* A library that opens another one by a name that means something to it alone: by its RUNPATH or its own place. With -DNUMBER=n
 * it is the one that is opened, and gives the number. Built by test_deepbind.py. */
#if defined(NUMBER)

int opened_number(void);
int opened_number(void) { return NUMBER; }

#else

#include <dlfcn.h>
#include <stddef.h>

/* The number of what it got; -1 for nothing. Closed again, since the C library knows an open one by its name. */
int caller_opens(const char *name, int mode);
int caller_opens(const char *name, int mode)
{
    void *library = dlopen(name, mode);
    int (*number)(void);
    if (library == NULL)
        return -1;
    *(void **)&number = dlsym(library, "opened_number");
    int found = number == NULL ? -2 : number();
    dlclose(library);
    return found;
}

#endif
