"""`python -m spillover`: the command line without the installed script."""

import sys

from spillover.cli import main

if __name__ == "__main__":
    sys.exit(main())
