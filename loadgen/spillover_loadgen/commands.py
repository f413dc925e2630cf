"""The commands of `spillover-loadgen`: options to a schedule, a run, and its result.

The only place here that prints results, handles signals and sets exit statuses. What is measured
and how is in `driver` and `results`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from spillover.commandline.api_token import Headers, add_token_file, token_headers
from spillover.commandline.option_types import above_zero
from spillover.commandline.output import take_all_characters
from spillover.commandline.parsing import OneLineParser, add_json
from spillover.commandline.trusting import add_ca_file
from spillover.live.process.beginning import end_by_default
from spillover.model.errors import InputError, RunError, SpilloverError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover.workloads.options import add_schedule_options, read_schedule
from spillover_loadgen import (
    clients_command,
    clients_driver,
    display,
    driver,
    queue_command,
    queue_driver,
    results,
)
from spillover_loadgen.cli import INTERRUPTED
from spillover_loadgen.queue_record import Put
from spillover_loadgen.record import Outcome, Record
from spillover_loadgen.targets import check_targets, target

T = TypeVar("T")

_FILES_WANTED = 60_000


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that is named; returns its exit status."""
    take_all_characters()
    try:
        options = make_parser().parse_args(arguments)
        status: int = options.command(options)
    except InputError as error:
        _tell(error)
        return 2
    except (SpilloverError, OSError) as error:
        _tell(error)
        return 1
    return status


def make_parser() -> OneLineParser:
    """Returns the parser of the command and its own commands."""
    parser = OneLineParser(prog="spillover-loadgen", description="Open-loop load for Spillover.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="send a schedule of requests and measure their times",
        description="Send a schedule of requests in open loop and measure their times.",
        allow_abbrev=False,
    )
    run.set_defaults(command=_run)
    add_schedule_options(run)
    _add_sending_options(run)
    for name, module, command in (
        ("queue", queue_command, _queue),
        ("clients", clients_command, _clients),
    ):
        parsed = commands.add_parser(
            name, help=module.SUMMARY, description=module.DESCRIPTION, allow_abbrev=False
        )
        parsed.set_defaults(command=command)
        module.configure(parsed)
        add_ca_file(parsed)
        add_token_file(parsed)
    return parser


def _add_sending_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--target", type=target, action="append", required=True, metavar="CLUSTER=URL",
        help="the address for a cluster's requests; repeat it for each cluster, in their order",
    )  # fmt: skip
    run.add_argument(
        "--no-check",
        action="store_true",
        help="do not ask each target first whether it is that cluster",
    )
    run.add_argument("--no-keys", action="store_true", help="send no idempotency keys")
    run.add_argument(
        "--deadline-ms", type=above_zero, metavar="MS", help="the deadline of each request"
    )
    add_ca_file(run)
    add_token_file(run)
    run.add_argument("--out", metavar="FILE", help="write one JSON line for each request")
    add_json(run, "print the result as one JSON object")


def _targets(options: argparse.Namespace, kind: str = "cluster") -> dict[ClusterId, str]:
    targets: dict[ClusterId, str] = {}
    for cluster, url in options.target:
        if cluster in targets:
            raise InputError("--target", "", f"expected each {kind} once, got {cluster!r} twice")
        targets[cluster] = url
    return targets


def _run(options: argparse.Namespace) -> int:
    targets = _targets(options)
    headers = token_headers(options)
    schedule, duration_s = read_schedule(options, list(targets))
    with ExitStack() as stack:
        out = stack.enter_context(_open_out(options.out)) if options.out else None
        if not options.no_check:
            asyncio.run(check_targets(targets, headers=headers))
        records, interrupted = _measure(schedule, targets, options, headers)
        result = results.summary(
            records,
            cluster_ids=targets,
            seed=options.seed,
            duration_s=duration_s,
            interrupted=interrupted,
        )
        if options.json:
            print(json.dumps(result, allow_nan=False), flush=True)
        else:
            display.print_summary(result)
        if out is not None:
            with suppress(OSError):  # a pipe holds nothing of an earlier run
                out.truncate(0)
            results.write_json_lines(records, out)
    return _status(result)


def _queue(options: argparse.Namespace) -> int:
    targets, load = _targets(options, "producer"), queue_command.load_of(options)
    headers = token_headers(options)
    asyncio.run(check_targets(targets, "producer", headers=headers))
    record, interrupted = _until_stopped(
        lambda stop: queue_driver.run(targets, load, stop, headers=headers)
    )
    result = record.summary(duration_s=load.duration_s, seed=load.seed, interrupted=interrupted)
    if options.json:
        print(json.dumps(result, allow_nan=False), flush=True)
    else:
        queue_command.print_summary(result)
    if interrupted:
        return INTERRUPTED
    if result["offered"] and result["put_outcomes"][Put.UNREACHABLE] == result["offered"]:
        raise RunError(f"no object could be put: {next(iter(result['reasons']))}")
    return 0


def _clients(options: argparse.Namespace) -> int:
    load, headers = clients_command.load_of(options), token_headers(options)
    result, interrupted = _until_stopped(
        lambda stop: clients_driver.run(load, stop, headers=headers)
    )
    result |= {"interrupted": interrupted}
    if options.json:
        print(json.dumps(result, allow_nan=False), flush=True)
    else:
        clients_command.print_summary(result)
    if interrupted:
        return INTERRUPTED
    if not any(result["clients"].values()):
        reason = next(iter(result["reasons"]), "nobody lets clients in")
        raise RunError(f"no client has a session: {reason}")
    return 0


def _measure(
    schedule: Schedule,
    targets: dict[ClusterId, str],
    options: argparse.Namespace,
    headers: Headers,
) -> tuple[list[Record], bool]:
    """Returns the records of the run, and whether a signal has ended it early."""
    # The schedule is long and stays: the collector need not walk it while requests are sent.
    gc.collect()
    gc.freeze()
    with display.progress_bar() as progress:
        return _until_stopped(
            lambda stop: driver.run(
                schedule,
                targets,
                seed=options.seed,
                keyed=not options.no_keys,
                deadline_ms=options.deadline_ms,
                headers=headers,
                progress=progress,
                stop=stop,
            )
        )


def _until_stopped(measure: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
    """Returns what a measurement gives, which ends early once its event is set, and whether a
    signal has set that."""
    _raise_file_limit()

    async def run() -> tuple[T, bool]:
        stop = asyncio.Event()
        _stop_on_signals(stop)
        return await measure(stop), stop.is_set()

    with asyncio.Runner(loop_factory=_event_loop()) as runner:
        return runner.run(run())


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


def _stop_on_signals(stop: asyncio.Event) -> None:
    """The first signal ends the sending; the next one ends the process at once."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def first_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)
        end_by_default()

    for number in signals:
        loop.add_signal_handler(number, first_signal)


def _raise_file_limit() -> None:
    """Each request in flight has a connection of its own: allow as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_out(path: str) -> BinaryIO:
    """What is there stays until there is something to put in its place."""
    try:
        return Path(path).open("ab")
    except OSError as error:
        raise InputError(
            "--out", "", f"expected a file that can be written, got {path!r}: {error.strerror}"
        ) from None


def _status(result: dict[str, Any]) -> int:
    lag_ms = result["schedule_lag_ms"]["p99"]
    if not result["kept_up"]:
        _tell(f"warning: 1 % of the requests left more than {lag_ms:.0f} ms later than intended")
    if result["interrupted"]:
        return INTERRUPTED
    if result["sent"] and result["outcomes"][Outcome.UNREACHABLE] == result["sent"]:
        reason = next(iter(result["reasons"]))
        raise RunError(f"no request could be sent: {reason}")
    return 0


def _tell(message: object) -> None:
    print(f"spillover-loadgen: {message}", file=sys.stderr)
