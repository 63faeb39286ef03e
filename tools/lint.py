#!/usr/bin/env python3
"""Runs every lint over the tree and says OK or FAIL.

    lint.py [--sources] [ROOT]     --sources: only the lints that read C sources; they need no more than Python

A lint is a module lint_*.py with a NAME and a function run(root), which gives how many files it looked at
and a list of findings. One that looked at nothing has failed: a check over an empty list proves nothing.
"""
import pathlib
import sys

import lint_circles
import lint_contracts
import lint_format
import lint_generated
import lint_idioms
import lint_lab
import lint_layers
import lint_python
import lint_scripts
import lint_shape
import lint_text
import lint_tidy
import lint_workflows

LINTS = (lint_layers, lint_circles, lint_contracts, lint_shape, lint_idioms, lint_text, lint_generated, lint_scripts, lint_python,
         lint_lab, lint_format, lint_tidy, lint_workflows)

OF_SOURCES = (lint_layers, lint_circles, lint_contracts, lint_shape, lint_idioms, lint_generated)


def main(arguments):
    lints = LINTS
    if arguments[:1] == ["--sources"]:
        lints, arguments = OF_SOURCES, arguments[1:]
    root = pathlib.Path(arguments[0] if arguments else __file__).resolve()
    if not arguments:
        root = root.parent.parent
    bad = 0
    for lint in lints:
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
