"""Where a request goes when no server is free, and when work fails: formulas and nothing else."""
