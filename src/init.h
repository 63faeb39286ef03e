/* The library's start, end and forks. */
#ifndef HAK_INIT_H
#define HAK_INIT_H

#include "base/compiler.h"

/* Starts what is not started: the arena, the heap layer, the options. False when the system refuses; called again by
 * the next request then. */
bool hak__start(void);

/* The mode that the options ask of new heaps. */
uint32_t hak__start_mode(void);

/* At the start. */
void hak__fork_init(void);

/* From now on all forked children are put in order; called before a second thread comes to have a heap, or the library one
 * of its own: before anything can be locked at a fork. May allocate. */
void hak__fork_watch(void);
bool hak__fork_alone(void);   /* neither has happened yet */
void hak__init_fork_child(void);

#endif
