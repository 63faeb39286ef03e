/* Probes for user-space tracers (bpftrace, perf, SystemTap): a nop, and a note in the file with its address and where its
 * arguments are. Only the nop costs anything; notes are not loaded. They follow SystemTap's "stapsdt" notes, version 3;
 * arguments are unsigned and 64 bits wide, in registers or memory as the compiler has them. */
#pragma once

#include "base/compiler.h"

#if (defined(__x86_64__) || defined(__aarch64__)) && !HAK_ASAN && !HAK_TSAN
#define HAK_PROBE3(name, first, second, third) \
    __asm__ volatile("990:\tnop\n" \
                     "\t.pushsection .note.stapsdt, \"\", \"note\"\n\t.balign 4\n" \
                     "\t.4byte 992f - 991f, 994f - 993f, 3\n" \
                     "991:\t.asciz \"stapsdt\"\n992:\t.balign 4\n" \
                     "993:\t.8byte 990b, _.hak.probes, 0\n" \
                     "\t.asciz \"hakmem\"\n\t.asciz \"" #name "\"\n\t.asciz \"8@%0 8@%1 8@%2\"\n" \
                     "994:\t.balign 4\n\t.popsection\n" \
                     "\t.ifndef _.hak.probes\n\t.pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n" \
                     "\t.weak _.hak.probes\n\t.hidden _.hak.probes\n_.hak.probes:\t.space 1\n" \
                     "\t.size _.hak.probes, 1\n\t.popsection\n\t.endif" \
                     : : "r"((uint64_t)(first)), "r"((uint64_t)(second)), "r"((uint64_t)(third)))
#else
#define HAK_PROBE3(name, first, second, third) ((void)(first), (void)(second), (void)(third))
#endif
