"""`spillover lease run`: one member of a partition-lease group."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from dataclasses import fields
from typing import Any

import uvloop

from spillover.live.logs import configure_logs
from spillover.model.lease_times import LeaseTimes
from spillover_loadgen.option_types import above_zero, whole_number


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    summary = "serve partitions as a member of a group, until SIGTERM or Ctrl-C"
    member = commands.add_parser("run", help=summary, description=summary, allow_abbrev=False)
    member.add_argument("--redis", required=True, metavar="URL", help="redis://HOST:PORT/NUMBER")
    member.add_argument("--group", required=True, metavar="G")
    member.add_argument("--node", required=True, metavar="ID", help="no other of the group's")
    member.add_argument("--partitions", type=whole_number, required=True, metavar="N")
    member.add_argument(
        "--handler", required=True, metavar="python:MODULE:FUNCTION",
        help="called as FUNCTION(partition, epoch, stop_event) for each partition held",
    )  # fmt: skip
    for time in fields(LeaseTimes):
        option = f"--{time.name.replace('_', '-')}"
        member.add_argument(option, type=above_zero, default=time.default, metavar="MS")
    member.add_argument(
        "--max-progress-ms", type=above_zero, metavar="MS",
        help="a handler that reports progress and then is silent for so long loses its partition",
    )  # fmt: skip
    member.add_argument("--seed", type=whole_number, help="make the member's draws repeatable")
    member.add_argument("--log-format", choices=("text", "json"), default="text")
    member.set_defaults(command=_run_member)


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; its exit status."""
    status: int = options.command(options)
    return status


def _run_member(options: argparse.Namespace) -> int:
    from spillover.live.lease_group import LeaseGroup
    from spillover.live.lease_handlers import load_handler

    # Where `spillover.live.streams.example` finds its streams.
    os.environ["SPILLOVER_REDIS"] = options.redis
    os.environ["SPILLOVER_GROUP"] = options.group
    configure_logs(options.node, as_json=options.log_format == "json", log_requests=False)
    group = LeaseGroup(
        options.redis,
        options.group,
        node=options.node,
        partitions=options.partitions,
        handler=load_handler(options.handler, "--handler"),
        times=LeaseTimes(**{time.name: getattr(options, time.name) for time in fields(LeaseTimes)}),
        max_progress_ms=options.max_progress_ms,
        on_event=_print_event,
        seed=options.seed,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(group))
    return 0


def _print_event(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


async def _serve(group: Any) -> None:
    """Until a signal, then hand over; a second signal ends it at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    entering = asyncio.ensure_future(group.__aenter__())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait([entering, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not entering.done():
        entering.cancel()
        await asyncio.wait([entering])
        return
    entering.result()
    try:
        waiting = asyncio.ensure_future(group.wait())
        await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        await group.__aexit__(None, None, None)
