/* The library's figures for another process: include/hakmem_live.h. */
#pragma once

/* Once the library runs: notes where everything lies. */
void hak__live_open(const char *version);
