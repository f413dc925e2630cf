"""`spillover queue put-back URL`: put a producer's dead objects back, all or some."""

from __future__ import annotations

import argparse
import json
from urllib.parse import urlencode

from spillover.cli.node_answers import is_put_back
from spillover.cli.node_calls import add_call_options, call_once
from spillover.commandline.option_types import whole_number

SUMMARY = "put a producer's dead objects back into its buffer, all or some"
DESCRIPTION = """\
Objects that were given too often in vain are dead (GET /dead lists them). Once what was wrong with
their handling is mended, put them back: they are given again, as if they had never
been given.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_call_options(
        parser, "the producer, http://HOST:PORT", "print the counts as one JSON object"
    )
    parser.add_argument(
        "--content-type", metavar="TYPE", help="put only objects of this type back (default: all)"
    )
    parser.add_argument(
        "--first", type=whole_number, metavar="N",
        help="put only objects from this number on back (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--last", type=whole_number, metavar="N",
        help="put only objects up to this number back (default: all)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    given = {name: getattr(options, name) for name in ("content_type", "first", "last")}
    asked = urlencode({name: value for name, value in given.items() if value is not None})
    told = call_once(options, "POST", f"/dead/put-back?{asked}".rstrip("?"), is_put_back)
    if options.json:
        print(json.dumps(told), flush=True)
    else:
        print(f"{told['put_back']} objects are put back, {told['dead']} are dead still")
    return 0
