"""Writes problems for a theorem prover: puzzle.py FOLDER SIZE... makes FOLDER/puzzle-SIZE.smt2.

Pigeons that do not fit into their holes, two ways to multiply that must agree, and a sum with bounds.
"""

from __future__ import annotations

import sys
from pathlib import Path


def pigeons(size: int) -> list[str]:
    """size + 1 pigeons, size holes: unsatisfiable, and laborious to prove."""
    lines = ["(push)"]
    lines += [f"(declare-const p{i}_{j} Bool)" for i in range(size + 1) for j in range(size)]
    lines += [f"(assert (or {' '.join(f'p{i}_{j}' for j in range(size))}))" for i in range(size + 1)]
    lines += [f"(assert (or (not p{i}_{j}) (not p{k}_{j})))"
              for j in range(size) for i in range(size + 1) for k in range(i)]
    return [*lines, "(check-sat)", "(pop)"]


def products(bits: int) -> list[str]:
    """The square of a sum by two formulas, on bit vectors."""
    return ["(push)", f"(declare-const a (_ BitVec {bits}))", f"(declare-const b (_ BitVec {bits}))",
            "(assert (distinct (bvmul (bvadd a b) (bvadd a b))"
            " (bvadd (bvmul a a) (bvadd (bvmul a b) (bvadd (bvmul b a) (bvmul b b))))))", "(check-sat)", "(pop)"]


def sums(count: int) -> list[str]:
    """Whole numbers between bounds, each pair apart, with a sum that fits in few ways."""
    names = [f"n{i}" for i in range(count)]
    lines = ["(push)", *(f"(declare-const {name} Int)" for name in names)]
    lines += [f"(assert (and (<= 0 {name}) (<= {name} {2 * count})))" for name in names]
    lines += [f"(assert (distinct {' '.join(names)}))", f"(assert (= (+ {' '.join(names)}) {count * count}))"]
    lines += [f"(assert (< {first} {second}))" for first, second in zip(names[::3], names[1::3])]
    return [*lines, "(check-sat)", "(pop)"]


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    for text in sys.argv[2:]:
        size = int(text)
        lines = [*pigeons(size), *products(size), *sums(2 * size)]
        Path(sys.argv[1], f"puzzle-{size}.smt2").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
