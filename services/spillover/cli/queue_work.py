"""`spillover queue work`: feed a handler from the distributed queue, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any

import uvloop

from spillover.cli.parsing import add_log_format
from spillover.commandline.api_token import add_token_file, read_secret
from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.parsing import add_json
from spillover.commandline.trusting import add_ca_file
from spillover.live.process.line_writer import LineWriter
from spillover.live.process.logs import configure_logs
from spillover.live.process.stopping import StopSignals, has_returned
from spillover.live.queue.consumer_shell import CLOSE_S
from spillover.live.queue.consuming import Consumer, consume
from spillover.live.queue.work import QueueWork
from spillover.model.errors import InputError, blamed_on
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster
from spillover.model.trust import CA_VARIABLE

SUMMARY = "feed a handler with the objects of a queue, until SIGTERM or Ctrl-C"
DESCRIPTION = """\
Have a handler work on the objects of a queue. What it has done is acknowledged, what failed goes
back to its producer. SIGTERM or Ctrl-C takes no object any more, finishes those under way, and
exits 0; a second signal ends at once (130), and the objects return by themselves.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--handler", required=True, metavar="HANDLER",
        help="the handler: python:MODULE:FUNCTION, http:URL, or what else a node can have; it "
        "gets an object's JSON, other types as content_type and body_base64",
    )  # fmt: skip
    parser.add_argument(
        "--producer", action="append", required=True, metavar="URL",
        help="a producer of the queue; one is enough, more are asked if it is down",
    )  # fmt: skip
    parser.add_argument(
        "--at-once", type=whole_number, default=1, metavar="N",
        help="handle so many objects at the same time",
    )  # fmt: skip
    parser.add_argument(
        "--workers", choices=("thread", "process"), default="thread",
        help="run a synchronous python handler in threads or in processes",
    )  # fmt: skip
    parser.add_argument(
        "--deadline-ms", type=above_zero, default=3_600_000.0, metavar="MS",
        help="give back an object whose handling takes longer",
    )  # fmt: skip
    parser.add_argument(
        "--max-hops", type=whole_number, default=3, metavar="N",
        help="let one probe visit so many producers",
    )  # fmt: skip
    parser.add_argument(
        "--access", choices=("uniform", "learned"), default="learned",
        help="ask all producers alike, or mostly those from which objects came",
    )  # fmt: skip
    parser.add_argument(
        "--drain-timeout-s", type=at_least_zero, default=30.0, metavar="S",
        help="wait at most so many seconds after SIGTERM for objects under way; then they go back",
    )  # fmt: skip
    add_json(parser, "accepted for symmetry: at the end, one JSON line is on stdout in any case")
    add_log_format(parser)
    add_token_file(parser)
    add_ca_file(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    if options.at_once < 1:
        expected = "expected a whole number of at least 1"
        raise InputError("--at-once", "", f"{expected}, got {options.at_once}")
    configure_logs("work", as_json=options.log_format == "json", log_requests=False, role="node")
    consumer = _consumer_of(options)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        told = runner.run(_work(consumer, options))
        has_returned(0)
    lines = LineWriter(sys.stdout.fileno())
    lines.write(json.dumps(told))
    lines.close()
    return 0


_OPTIONS = {"max_hops": "--max-hops", "at_once": "--at-once", "access": "--access"}


def _consumer_of(options: argparse.Namespace) -> Consumer:
    try:
        return consume(
            options.producer,
            max_hops=options.max_hops,
            at_once=options.at_once,
            access=options.access,
            token=read_secret(options.token_file),
        )
    except InputError as error:
        if error.source == os.environ.get(CA_VARIABLE):
            raise
        raise InputError(_OPTIONS.get(error.source, "--producer"), "", error.expected) from None


async def _work(consumer: Consumer, options: argparse.Namespace) -> dict[str, Any]:
    """Run until the end, and return how many objects were done and given back."""
    work = _work_of(consumer, options)
    stopped = asyncio.Event()
    limit_s = options.drain_timeout_s + 2.0 * CLOSE_S
    StopSignals(lambda _: stopped.set(), None, limit_s).heed([])
    running = asyncio.create_task(work.run())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            work.stop()
            await asyncio.wait([running], timeout=options.drain_timeout_s)
    finally:
        stopping.cancel()
        await work.close()
    with blamed_on("--handler"):
        await running
    return {"done": work.done, "given_back": work.given_back}


def _work_of(consumer: Consumer, options: argparse.Namespace) -> QueueWork:
    """Returns the work, which belongs to the running loop."""
    with blamed_on("--handler"):
        return QueueWork(consumer, pool_of(options), "--handler", options.deadline_ms / 1e3)


def pool_of(options: argparse.Namespace) -> Cluster:
    """Returns the servers that handle objects, as a node would have them."""
    return Cluster(
        id=ClusterId("work"),
        servers=options.at_once,
        handler=options.handler,
        workers=options.workers,
    )
