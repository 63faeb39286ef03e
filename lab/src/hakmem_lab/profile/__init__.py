"""The heap profiler: controlling it, reading its dumps, symbols, other tools' formats."""
