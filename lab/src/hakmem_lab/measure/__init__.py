"""One measured run: running it, its record in the results file, and the load on the machine."""
