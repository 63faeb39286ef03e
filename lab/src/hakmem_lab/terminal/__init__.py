"""What every command uses: errors, output, numbers, progress. Imports nothing else of the lab."""
