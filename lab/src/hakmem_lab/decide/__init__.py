"""From results to verdicts: statistics, noise, baselines, history, decision records, exports, terminal tables."""
