"""One measured run, what it leaves in the results file, and what disturbed it."""
