"""The lab of HAKMEM: run, see, compare and decide.  This file imports nothing; bench/run.py relies on it."""

__version__ = "0.1.0"
