#!/usr/bin/env python3
"""Runs every lint over the tree and says OK or FAIL.

    lint.py [ROOT]

A lint is a module lint_*.py with a NAME and a function run(root), which gives how many files it looked at
and a list of findings. One that looked at nothing has failed: a check over an empty list proves nothing.
"""
import pathlib
import sys

import lint_circles
import lint_generated
import lint_idioms
import lint_lab
import lint_layers
import lint_scripts
import lint_shape
import lint_text

LINTS = (lint_layers, lint_circles, lint_shape, lint_idioms, lint_text, lint_generated, lint_scripts, lint_lab)


def main(arguments):
    root = pathlib.Path(arguments[0] if arguments else __file__).resolve()
    if not arguments:
        root = root.parent.parent
    bad = 0
    for lint in LINTS:
        seen, findings = lint.run(root)
        if seen == 0:
            findings = [*findings, "looked at no file"]
        for finding in findings:
            print(f"{lint.NAME}: {finding}")
        print(f"{lint.NAME:<10} {seen:4} files  {f'{len(findings)} found' if findings else 'ok'}")
        bad += len(findings)
    print(f"lint: FAIL ({bad} found)" if bad else "lint: OK")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
