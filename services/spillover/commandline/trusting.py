"""The option --ca-file, for commands that call nodes: it says which CAs they believe."""

from __future__ import annotations

import argparse
import os
from typing import Any

from spillover.live.http1.trust import Trust
from spillover.model.errors import InputError
from spillover.model.trust import CA_VARIABLE


class _Trust(argparse.Action):
    """All calls of the process go by this file, as if the environment had named it."""

    def __call__(self, _: Any, options: argparse.Namespace, value: Any, __: Any = None) -> None:
        if not value:  # of a variable that is empty: nobody meant the system's CAs
            raise InputError("--ca-file", "", "expected a file, got ''")
        Trust(value)  # what is wrong with it is told now, and not of each call
        setattr(options, self.dest, value)
        os.environ[CA_VARIABLE] = str(value)


def add_ca_file(parser: argparse.ArgumentParser) -> None:
    """Declare --ca-file."""
    parser.add_argument(
        "--ca-file", action=_Trust, metavar="FILE",
        help="believe the CAs in this file for https (default: those of the file that "
        f"{CA_VARIABLE} names, or else of the system)",
    )  # fmt: skip
