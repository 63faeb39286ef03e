"""Runs a command without huge pages: without_huge_pages.py COMMAND [ARGUMENT]...

prctl(PR_SET_THP_DISABLE) holds for the command and all that it starts, as if /sys/kernel/mm/transparent_hugepage/enabled
were `never`, whatever it is. Exit status: the command's; 77 where the kernel has no such call."""

import ctypes
import os
import sys

PR_SET_THP_DISABLE = 41
SKIPPED = 77

if len(sys.argv) < 2:
    sys.exit(__doc__)
if ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
    print("SKIPPED: the kernel has no PR_SET_THP_DISABLE")
    sys.exit(SKIPPED)
os.execvp(sys.argv[1], sys.argv[1:])
