"""From results to verdicts: statistics, noise, baselines, history, records, exports."""
