/* A C program that loads C++ while it runs, each library for itself alone. Run by test_cxx_runtime.py.
 *
 *   cxx_user [PLUGIN...] CASE    loads the plugins, then runs the case in each: one line with what each says */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLUGINS_MOST = 4 };

int main(int count, char **arguments)
{
    const char *(*run[PLUGINS_MOST])(const char *);
    int plugins = count - 2;
    if (plugins < 1 || plugins > PLUGINS_MOST || dlsym(RTLD_DEFAULT, "__cxa_throw") != NULL)
        return 2;
    for (int i = 0; i < plugins; i++) {
        void *plugin = dlopen(arguments[i + 1], RTLD_NOW | RTLD_LOCAL);
        if (plugin == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 3;
        }
        *(void **)&run[i] = dlsym(plugin, "plugin_run");
    }
    for (int i = 0; i < plugins; i++)
        printf("%s%s", i == 0 ? "" : " ", run[i](arguments[count - 1]));
    printf("\n");
    return 0;
}
