"""`python -m docs`, run in `services/`: writes the pages that are generated."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from docs.configuration import configuration_page
from docs.declared import Undocumented

HERE = Path(__file__).parent

PAGES = {"configuration.md": configuration_page}


def main() -> int:
    """Write the files, and say which; 1 and a line for each gap if something is not explained."""
    parser = argparse.ArgumentParser(prog="python -m docs", description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR")
    directory = parser.parse_args().out
    directory.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        try:
            text = page()
        except Undocumented as error:
            sys.stderr.write(f"{error}\n")
            return 1
        file = directory / name
        file.write_text(text, encoding="utf-8")
        sys.stderr.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
