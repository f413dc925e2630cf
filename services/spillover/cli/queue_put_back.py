"""`spillover queue put-back URL`: put a producer's dead objects back, all or some."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any
from urllib.parse import urlencode

from spillover.cli.node_calls import NodeCalls
from spillover.cli.parsing import node_url
from spillover_loadgen.api_token import add_token_file, token_headers
from spillover_loadgen.option_types import whole_number
from spillover_loadgen.trusting import add_ca_file

SUMMARY = "put a producer's dead objects back into its buffer, all or some"
DESCRIPTION = """\
Objects that were given too often in vain are dead (GET /dead lists them). Once what was wrong with
their handling is mended, put them back: they are given again as if they had never been.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("url", type=node_url, metavar="URL", help="the producer, http://HOST:PORT")
    parser.add_argument("--content-type", metavar="TYPE", help="only objects of this type")
    parser.add_argument(
        "--first", type=whole_number, metavar="N", help="only objects from this number on"
    )
    parser.add_argument(
        "--last", type=whole_number, metavar="N", help="only objects up to this one"
    )
    parser.add_argument("--json", action="store_true", help="the counts on stdout, as JSON")
    add_ca_file(parser)
    add_token_file(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    told = asyncio.run(_put_back(options))
    if options.json:
        print(json.dumps(told), flush=True)
    else:
        print(f"{told['put_back']} objects are put back, {told['dead']} are dead still")
    return 0


async def _put_back(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in ("content_type", "first", "last")}
    asked = urlencode({name: value for name, value in given.items() if value is not None})
    async with NodeCalls(options.url, token_headers(options)) as node:
        return await node.call("POST", f"/dead/put-back?{asked}".rstrip("?"), _is_told)


def _is_told(told: dict[str, Any]) -> bool:
    return {"put_back", "dead"} <= told.keys()
