"""`python -m dashboards`: writes every board of `boards/` as JSON that Grafana reads."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

from dashboards import boards
from dashboards.board import Board

GRAFANA = Path(__file__).parent / "grafana"


def all_boards() -> Iterator[Board]:
    """Returns those of the modules in `boards/`, by name of module."""
    for module in pkgutil.iter_modules(boards.__path__):
        yield importlib.import_module(f"{boards.__name__}.{module.name}").BOARD


def main() -> int:
    """Write the files, and say which."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--out", type=Path, default=GRAFANA, metavar="DIR")
    directory = parser.parse_args().out
    directory.mkdir(parents=True, exist_ok=True)
    for board in all_boards():
        file = directory / f"{board.name}.json"
        file.write_text(board.text(), encoding="utf-8")
        sys.stderr.write(f"{file}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
