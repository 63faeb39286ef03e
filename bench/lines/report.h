/* The report: one JSON object, written when counting has ended. */
#ifndef LINES_REPORT_H
#define LINES_REPORT_H

#include "pub_tool_basics.h"

void report_write(const HChar *path);

#endif
