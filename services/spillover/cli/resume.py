"""`spillover resume URL`: put a drained node back into service."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from spillover.cli.node_calls import Headers, NodeCalls, is_state
from spillover.cli.parsing import node_url
from spillover.cli.producers import is_producer
from spillover_loadgen.api_token import add_token_file, token_headers
from spillover_loadgen.trusting import add_ca_file


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("url", type=node_url, metavar="URL", help="the node, http://HOST:PORT")
    add_ca_file(parser)
    parser.add_argument(
        "--json", action="store_true", help="its state on stdout, as one JSON object"
    )
    add_token_file(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    state = asyncio.run(_resume(options.url, token_headers(options)))
    if options.json:
        print(json.dumps(state), flush=True)
    told_to = sys.stderr if options.json else sys.stdout
    if is_producer(state):
        told = f"producer {state['producer']} takes objects"
    else:
        told = f"cluster {state['cluster']} accepts requests"
    print(told, file=told_to)
    return 0


async def _resume(url: str, headers: Headers) -> dict[str, Any]:
    async with NodeCalls(url, headers) as node:
        return await node.call("POST", "/admin/resume", _is_state)


def _is_state(told: dict[str, Any]) -> bool:
    return is_state(told) or is_producer(told)
