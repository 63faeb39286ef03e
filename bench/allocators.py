"""Who is measured: the lab's list of allocators, which needs nothing but the standard library."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "lab" / "src"))

from hakmem_lab.target.allocators import (
                                   FLOOR,
                                   HAKMEM,
                                   PEERS,
                                   SYSTEM,
                                   Allocator,
                                   describe,
                                   environment_facts,
                                   find_hardened,
                                   find_peers,
                                   installed_libraries,
                                   served_by,
                                   why_not_loaded,
)

__all__ = ["FLOOR", "HAKMEM", "PEERS", "SYSTEM", "Allocator", "describe", "environment_facts", "find_hardened",
           "find_peers", "installed_libraries", "served_by", "why_not_loaded"]
