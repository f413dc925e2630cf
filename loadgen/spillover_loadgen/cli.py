"""The command `spillover-loadgen`: options to a schedule, a run, and its result.

The only place here that prints results, handles signals and sets exit statuses. What is measured
and how is in `driver` and `results`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from spillover.live.http1 import HttpClient
from spillover.model.errors import InputError, RunError, SpilloverError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Schedule
from spillover_loadgen import display, driver, results, traces, workloads
from spillover_loadgen.record import Outcome, Record

INTERRUPTED = 130
_FILES_WANTED = 60_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status of the contract's section 1."""
    try:
        options = _parser().parse_args(argv)
        status: int = options.command(options)
    except InputError as error:
        _tell(error)
        return 2
    except (SpilloverError, OSError) as error:
        _tell(error)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return status


class _Parser(argparse.ArgumentParser):
    """Tells a usage error in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise InputError("usage", "", message.removeprefix("argument "))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="spillover-loadgen", description="Open-loop load for Spillover.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="send a schedule of requests and measure their times",
        description="Send a schedule of requests in open loop and measure their times.",
        allow_abbrev=False,
    )
    run.set_defaults(command=_run)
    _add_schedule_options(run)
    _add_sending_options(run)
    return parser


def _add_schedule_options(run: argparse.ArgumentParser) -> None:
    source = run.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--workload",
        choices=("bursts", "poisson"),
        help="bursts: the users of Lai & Polak, a burst at one cluster after the other",
    )
    source.add_argument("--trace", metavar="FILE", help="CSV of requests, or Azure's LLM format")
    run.add_argument(
        "--rate",
        type=_above_zero,
        metavar="R",
        help="requests per second at each cluster, for poisson",
    )
    run.add_argument(
        "--duration-s",
        type=_above_zero,
        metavar="D",
        help="length of the schedule; for bursts 5 s per cluster and 20 s if not given",
    )
    run.add_argument(
        "--context-token-ms",
        type=_at_least_zero,
        default=0.25,
        metavar="MS",
        help="service time per context token of an Azure trace (default %(default)s)",
    )
    run.add_argument(
        "--generated-token-ms",
        type=_at_least_zero,
        default=30.0,
        metavar="MS",
        help="service time per generated token of an Azure trace (default %(default)s)",
    )
    run.add_argument(
        "--assign",
        default=traces.ROUND_ROBIN,
        metavar="CLUSTER",
        help="the home of an Azure trace's requests (default %(default)s)",
    )
    run.add_argument(
        "--time-scale",
        type=_above_zero,
        default=1.0,
        metavar="X",
        help="multiply the schedule's times and service times; 2 is twice as slow",
    )
    run.add_argument("--seed", type=_whole, default=1, help="of the workload (default %(default)s)")


def _add_sending_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--target",
        type=_target,
        action="append",
        required=True,
        metavar="CLUSTER=URL",
        help="where a cluster's requests go; repeat it for each cluster, in their order",
    )
    run.add_argument("--no-keys", action="store_true", help="send no idempotency keys")
    run.add_argument(
        "--deadline-ms", type=_above_zero, metavar="MS", help="deadline of each request"
    )
    run.add_argument("--out", metavar="FILE", help="write one JSON line for each request")
    run.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _above_zero(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _at_least_zero(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number, got {text!r}")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def _target(text: str) -> tuple[ClusterId, str]:
    cluster, _, url = text.partition("=")
    if not cluster or not url:
        raise argparse.ArgumentTypeError(f"expected CLUSTER=URL, got {text!r}")
    try:
        HttpClient(url)
    except InputError as error:
        raise argparse.ArgumentTypeError(error.expected) from None
    return ClusterId(cluster), url


def _targets(options: argparse.Namespace) -> dict[ClusterId, str]:
    targets: dict[ClusterId, str] = {}
    for cluster, url in options.target:
        if cluster in targets:
            raise InputError("--target", "", f"expected each cluster once, got {cluster!r} twice")
        targets[cluster] = url
    return targets


def _schedule(
    options: argparse.Namespace, cluster_ids: Sequence[ClusterId]
) -> tuple[Schedule, float]:
    """The schedule that the options describe, and its length in seconds as it will be sent."""
    duration_s: float | None = options.duration_s
    if options.rate is not None and options.workload != "poisson":
        raise InputError("--rate", "", "expected only with --workload poisson")
    if options.trace:
        schedule = traces.read_trace(
            options.trace,
            cluster_ids=cluster_ids,
            context_token_ms=options.context_token_ms,
            generated_token_ms=options.generated_token_ms,
            assign=options.assign,
        )
        if duration_s is None:
            duration_s = schedule[-1].time_s
        else:
            schedule = [arrival for arrival in schedule if arrival.time_s < duration_s]
    elif options.workload == "bursts":
        if duration_s is None:
            duration_s = workloads.bursts_duration_s(len(cluster_ids))
        schedule = workloads.bursts(cluster_ids, duration_s=duration_s, seed=options.seed)
    else:
        if options.rate is None:
            raise InputError("--rate", "", "expected with --workload poisson, got none")
        if duration_s is None:
            raise InputError("--duration-s", "", "expected with --workload poisson, got none")
        schedule = workloads.poisson(
            cluster_ids, rate_per_s=options.rate, duration_s=duration_s, seed=options.seed
        )
    return workloads.stretch(schedule, options.time_scale), duration_s * options.time_scale


def _run(options: argparse.Namespace) -> int:
    targets = _targets(options)
    schedule, duration_s = _schedule(options, list(targets))
    with ExitStack() as stack:
        out = stack.enter_context(_open_out(options.out)) if options.out else None
        records, interrupted = _measure(schedule, targets, options)
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
            results.write_json_lines(records, out)
    return _status(result)


def _measure(
    schedule: Schedule, targets: dict[ClusterId, str], options: argparse.Namespace
) -> tuple[list[Record], bool]:
    """The records of the run, and whether a signal has ended it early."""
    _raise_file_limit()
    # The schedule is long and stays: the collector need not walk it while requests are sent.
    gc.collect()
    gc.freeze()
    with display.progress_bar() as progress, asyncio.Runner(loop_factory=_event_loop()) as runner:

        async def measure() -> tuple[list[Record], bool]:
            stop = asyncio.Event()
            _stop_on_signals(stop)
            records = await driver.run(
                schedule,
                targets,
                seed=options.seed,
                keyed=not options.no_keys,
                deadline_ms=options.deadline_ms,
                progress=progress,
                stop=stop,
            )
            return records, stop.is_set()

        return runner.run(measure())


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
    try:
        return Path(path).open("wb")
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
