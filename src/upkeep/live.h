/* The library's figures for another process: include/hakmem_live.h. */
#ifndef HAK_UPKEEP_LIVE_H
#define HAK_UPKEEP_LIVE_H

/* Once the library runs: writes down where everything lies. */
void hak__live_open(const char *version);

#endif
