"""Experiments of many runs: interleaved rounds, cases, the search for settings."""
