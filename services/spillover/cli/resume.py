"""`spillover resume URL`: put a drained node back into service."""

from __future__ import annotations

import argparse
import json
import sys

from spillover.cli.node_answers import is_node_or_producer, is_producer
from spillover.cli.node_calls import add_call_options, call_once


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_call_options(
        parser, "the node or producer, http://HOST:PORT", "print its state as one JSON object"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    state = call_once(options, "POST", "/admin/resume", is_node_or_producer)
    if options.json:
        print(json.dumps(state), flush=True)
    if is_producer(state):
        line = f"producer {state['producer']} takes objects"
    else:
        line = f"cluster {state['cluster']} accepts requests"
    print(line, file=sys.stderr if options.json else sys.stdout)
    return 0
