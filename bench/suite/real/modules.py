"""Writes a program of JavaScript modules to be bundled: modules.py FOLDER COUNT...; each count becomes FOLDER/modules-COUNT.

A module imports some of those before it, exports classes and functions, and uses a part of what it imports, so that a bundler has names
to resolve and code to leave out. What is written depends on the count alone. A folder that is there is left alone.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

FUNCTIONS = 12


def module(number: int, chosen: random.Random) -> str:
    """The text of one module."""
    known = sorted(chosen.sample(range(number), min(number, 4)))
    lines = [f'import {{ f{n}_{chosen.randrange(FUNCTIONS)} as from{n}, Shape{n} }} from "./m{n}.js";' for n in known]
    uses = " + ".join([f"from{n}(value, {n})" for n in known] or ["value"])
    lines += [f"const table{number} = {{ {', '.join(f'key{k}: [{k}, {chosen.randrange(1000)}]' for k in range(20))} }};",
              f"export class Shape{number} {{",
              "  #area = 0;",
              f"  constructor(width, height = {number + 1}) {{ this.#area = width * height; this.name = `shape-${{width}}`; }}",
              f"  get area() {{ return this.#area > {chosen.randrange(100)} ? this.#area : {uses.replace('value', 'this.#area')}; }}",
              "}"]
    for n in range(FUNCTIONS):
        lines += [f"export function f{number}_{n}(value, other = {{ ...table{number} }}) {{",
                  f"  const [first, ...rest] = [value, {', '.join(str(chosen.randrange(100)) for _ in range(6))}].map((x) => x * {n + 1});",
                  f"  if (first > {chosen.randrange(1000)}) return rest.reduce((sum, x) => sum + x, {uses});",
                  f"  for (const [key, [low, high]] of Object.entries(other)) if (low > high) return `${{key}}: ${{{uses}}}`;",
                  f"  return {f'new Shape{known[0]}(first).area' if known else 'first'};",
                  "}"]
    return "\n".join(lines) + "\n"


def write(folder: Path, count: int) -> None:
    """All modules, and main.js, which uses the last ten."""
    chosen = random.Random(count)
    for number in range(count):
        (folder / f"m{number}.js").write_text(module(number, chosen))
    last = range(max(0, count - 10), count)
    imports = "".join(f'import {{ f{n}_0, Shape{n} }} from "./m{n}.js";\n' for n in last)
    (folder / "main.js").write_text(imports + "".join(f"console.log(f{n}_0(1), new Shape{n}(2).area);\n" for n in last))


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    for count in map(int, sys.argv[2:]):
        folder = Path(sys.argv[1]) / f"modules-{count}"
        unfinished = folder.with_suffix(f".{os.getpid()}")
        if not folder.is_dir():
            unfinished.mkdir(parents=True)
            write(unfinished, count)
            unfinished.rename(folder)
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    main()
