"""Runs the load generator as `python -m spillover_loadgen`."""

import sys

from spillover_loadgen.cli import main

if __name__ == "__main__":
    sys.exit(main())
