"""What Python programs do: objects.py json RECORDS, or objects.py source MODULES.

json makes records, turns them into JSON and back and groups them; source parses and compiles modules of Python's own
library.  Prints a digest of what it computed.
"""

from __future__ import annotations

import ast
import json
import sys
import zlib
from pathlib import Path


def work_json(records: int) -> int:
    digest = 0
    for turn in range(3):
        made = [{"id": i, "name": f"name {i * 7919 % 10007}", "tags": [f"t{i % k}" for k in range(2, 9)],
                 "place": {"x": i * 0.5, "y": [i, i + 1], "note": "n" * (i % 60)}} for i in range(records)]
        text = json.dumps(made)
        groups: dict[str, list[object]] = {}
        for each in json.loads(text):
            groups.setdefault(each["name"], []).append(each)
        digest = zlib.crc32(json.dumps({k: len(v) for k, v in sorted(groups.items())}).encode(), digest + turn)
    return digest


def work_source(modules: int) -> int:
    """Sources differ between versions of Python, not between allocators."""
    digest = 0
    sources = sorted(Path(ast.__file__).parent.glob("*.py"), key=lambda path: path.name)[:modules]
    for path in sources:
        tree = ast.parse(path.read_bytes())
        names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        compile(tree, path.name, "exec")
        digest = zlib.crc32(" ".join(names).encode(), digest)
        digest = zlib.crc32(ast.unparse(tree).encode(), digest)
    return digest


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("json", "source"):
        raise SystemExit(__doc__)
    work = {"json": work_json, "source": work_source}[sys.argv[1]]
    print(f"objects.py check={work(int(sys.argv[2])):08x}")


if __name__ == "__main__":
    main()
