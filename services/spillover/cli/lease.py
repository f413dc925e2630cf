"""`spillover lease run`: one member of a partition-lease group."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import uvloop

from spillover.cli.command import added_commands
from spillover.cli.parsing import (
    REDIS_VARIABLE,
    add_lease_times,
    add_log_format,
    add_redis_url_file,
    add_tokens,
    address,
    lease_times,
    needed_redis_url,
)
from spillover.cli.tls_options import add_tls_options, tls_files
from spillover.commandline.option_types import above_zero, whole_number
from spillover.commandline.parsing import add_command, add_json, run_subcommand
from spillover.core.leases.machine import LEAVE_TIMES_MAX
from spillover.live.process.line_writer import LineWriter
from spillover.live.process.logs import configure_logs
from spillover.live.process.stopping import StopSignals, has_returned
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.errors import InputError, RunError
from spillover.model.extras import check_extra
from spillover.model.lease_times import LEASE_BALANCES, LEASE_RULES, LeaseTimes

if TYPE_CHECKING:
    from spillover.apps.lease.server import LeaseService
    from spillover.live.leases.group import LeaseGroup
    from spillover.live.tls.rotation import Credentials

DESCRIPTION = """\
Serve partitions as a member of a group, until SIGTERM, Ctrl-C or POST /admin/drain; then hand
everything over and exit 0. A second signal ends it at once (130): leases run out by themselves.
"""

RULES = """\
move partitions where the stored counts say so, renew leases, and fence late members off by epochs
(guarded, default); or take the source document's steps as written, where the fastest answer wins
(blog), for comparison only: nothing is renewed, nobody is fenced, and handlers get 0 for an epoch,
so that sinks let everybody in
"""

run = run_subcommand


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    summary = "serve partitions as a member of a group, until SIGTERM or Ctrl-C"
    member = add_command(commands, "run", summary, _run_member, DESCRIPTION)
    member.add_argument(
        "--redis", metavar="URL",
        help=f"the address of Redis, redis://HOST:PORT/NUMBER (default: what {REDIS_VARIABLE} "
        "says; a password belongs there or in a file, since `ps` shows options to everybody)",
    )  # fmt: skip
    add_redis_url_file(member)
    member.add_argument("--group", required=True, metavar="G", help="the group's name")
    member.add_argument(
        "--node", required=True, metavar="ID",
        help="the member's id, which no other member of the group has",
    )  # fmt: skip
    member.add_argument(
        "--partitions", type=whole_number, required=True, metavar="N",
        help="the number of partitions of the group",
    )  # fmt: skip
    member.add_argument(
        "--handler", required=True, metavar="python:MODULE:FUNCTION",
        help="the function to call as FUNCTION(partition, epoch, stop_event) for each partition "
        "held",
    )  # fmt: skip
    _add_service_options(member)
    member.add_argument("--rule", choices=LEASE_RULES, default="guarded", help=RULES)
    member.add_argument(
        "--balance", choices=LEASE_BALANCES, default="count",
        help="even members out by how many partitions they serve (count, default), or by the "
        "load that handlers report with current_lease().report_load(x)",
    )  # fmt: skip
    add_lease_times(member)
    member.add_argument(
        "--max-progress-ms", type=above_zero, metavar="MS",
        help="take a partition from a handler that has called current_lease().progress() and "
        "does not call it again within so long (default: no limit)",
    )  # fmt: skip
    member.add_argument(
        "--seed", type=whole_number, metavar="N", help="make the member's draws repeatable"
    )
    add_json(member, "accepted for symmetry: each event is a JSON line on stdout in any case")
    add_log_format(member)
    for name, added in added_commands(below="lease").items():
        module = added.load()
        module.configure(add_command(commands, name, added.summary, module.run))


def _add_service_options(member: argparse.ArgumentParser) -> None:
    member.add_argument(
        "--bind", type=_bind, default=("127.0.0.1", 0), metavar="HOST:PORT",
        help="serve /state, /metrics, /healthz, /readyz and /admin/drain at this address; port "
        "0 takes any that is free, `off` serves nothing (default 127.0.0.1:0; the first line "
        "tells)",
    )  # fmt: skip
    add_tls_options(member, "the certificate of its service in PEM, which is https then", None)
    add_tokens(member)


def _bind(text: str) -> tuple[str, int] | None:
    return None if text == "off" else address(text)


def _run_member(options: argparse.Namespace) -> int:
    check_extra("a lease group", "leases", "redis")
    given = needed_redis_url(options.redis, options.redis_url_file)
    address = RedisAddress(given)
    # Where `spillover.live.leases.streams.example` finds its streams.
    os.environ["SPILLOVER_REDIS"] = address.url
    if address.file is not None:
        os.environ["SPILLOVER_REDIS_FILE"] = address.file
    os.environ["SPILLOVER_GROUP"] = options.group
    configure_logs(
        options.node, as_json=options.log_format == "json", log_requests=False, role="node"
    )
    lines = LineWriter(_stdout())
    member = _member_of(options, given, lines.write)
    with ExitStack() as ends:
        ends.callback(lines.close)
        limit_s = _end_limit_s(member.times)
        signals = StopSignals(lambda _: member.drain_soon(), None, limit_s, in_loop=False)
        signals.heed()
        service = _service(member, options)
        if service is not None:
            member.events.tell("serving", url=ends.enter_context(service))
        rereads: list[Callable[[], None]] = [] if service is None else [*service.rereads]
        if address.file is not None:
            rereads.append(member.redis.look_now)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(member, rereads, signals))
            has_returned(0)
    return 0


def _end_limit_s(times: LeaseTimes) -> float:
    """Returns how long the end may take: handlers stop, and the store learns of it."""
    from spillover.live.leases.asks import CLOSE_S

    return LEAVE_TIMES_MAX * times.max_shutdown_ms / 1e3 + 2.0 * CLOSE_S


def _member_of(
    options: argparse.Namespace, url: RedisUrl, tell: Callable[[str], None]
) -> LeaseGroup:
    from spillover.live.leases.group import LeaseGroup
    from spillover.live.leases.handlers import load_handler

    return LeaseGroup(
        url,
        options.group,
        node=options.node,
        partitions=options.partitions,
        handler=load_handler(options.handler, "--handler"),
        times=lease_times(options),
        rule=options.rule,
        balance=options.balance,
        max_progress_ms=options.max_progress_ms,
        on_event=lambda line: tell(json.dumps(line)),
        seed=options.seed,
    )


def _stdout() -> int | None:
    with suppress(AttributeError, OSError, ValueError):  # it was closed before Python began
        return sys.stdout.fileno()
    return None


def _service(member: LeaseGroup, options: argparse.Namespace) -> LeaseService | None:
    """Returns the HTTP service of the member, or None with `--bind off`."""
    if options.bind is None:
        return None
    from spillover.apps.http.token_files import TokenFiles
    from spillover.apps.lease.server import LeaseService

    token_files = TokenFiles(options.tokens) if options.tokens else None
    return LeaseService(member, options.bind, token_files, _credentials(options))


def _credentials(options: argparse.Namespace) -> Credentials | None:
    """Returns the certificate of the service. Operators and Prometheus call it by its url, so that
    it needs no other name."""
    if (files := tls_files(options)) is None:
        return None
    from spillover.live.tls.rotation import Credentials

    return Credentials(files, None)


async def _serve(
    member: LeaseGroup, rereads: Sequence[Callable[[], None]], signals: StopSignals
) -> None:
    """Serve until the member has handed over and left. Raises InputError if its id is another
    one's, RunError if it has failed by an error of its own."""
    from spillover.live.leases.completion import MemberFailed

    signals.heed(rereads)
    watching = asyncio.create_task(member.redis.watch(), name="the password of Redis")
    async with member:
        try:
            await member.wait()
        except MemberFailed:
            raise
        except RunError as error:
            raise InputError("--node", "", str(error)) from None
        finally:
            watching.cancel()
