/* The commands, one file or part of one each. Each gets its own words and returns the status of the program. */
#pragma once

#include "system.h"

int command_run(int count, char **words);
int command_stats(int count, char **words);
int command_ledger(int count, char **words);
int command_doctor(int count, char **words);
int command_profile(int count, char **words);
int command_postmortem(int count, char **words);
int command_options(int count, char **words);

/* The file of the library: HAKMEM_LIBRARY, or the one beside this program, or in the library folder beside its own; NULL: the name alone,
 * which the dynamic linker looks up. */
const char *library_path(char *path, size_t size);
