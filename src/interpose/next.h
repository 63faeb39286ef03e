/* The C library's function behind one that this folder replaces. */
#pragma once

#include "base/compiler.h"

/* The next definition of the name behind this library's, or NULL. errno may change. */
hak_cold void *hak__next(const char *name);
