"""The heap profiler: switching it, reading its dumps, symbols, other tools' formats."""
