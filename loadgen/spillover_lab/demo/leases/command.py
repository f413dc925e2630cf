"""`spillover lease demo`: members share streams on Redis while one is killed, frozen, added."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from spillover.cli.parsing import REDIS_VARIABLE, add_redis_url_file, needed_redis_url
from spillover.commandline.option_types import above_zero, whole_number
from spillover.commandline.parsing import add_json, add_seed
from spillover.commandline.terminal import open_console, say, table_of
from spillover.live.redis.rotation import RedisAddress
from spillover.model.errors import InputError
from spillover.model.extras import check_extra

if TYPE_CHECKING:
    from spillover_lab.demo.leases.show import Plan

RECORDS, STREAMS, MEMBERS, MAX_LEASE_MS = 1_000_000, 32, 4, 3_000.0
QUICK_RECORDS, QUICK_STREAMS, QUICK_MAX_LEASE_MS = 100_000, 16, 1_500.0
LIMIT_S = 300.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--records", type=whole_number, metavar="N",
        help=f"the number of records (default {RECORDS}, with --quick {QUICK_RECORDS})",
    )  # fmt: skip
    parser.add_argument(
        "--streams", type=whole_number, metavar="N",
        help=f"the number of partitions (default {STREAMS}, with --quick {QUICK_STREAMS})",
    )  # fmt: skip
    parser.add_argument(
        "--members", type=whole_number, default=MEMBERS, metavar="N",
        help="begin with so many members; one more is added",
    )  # fmt: skip
    parser.add_argument(
        "--max-lease-ms", type=above_zero, metavar="MS",
        help=f"how long a lease lasts; the other times follow (default {MAX_LEASE_MS:g}, with "
        f"--quick {QUICK_MAX_LEASE_MS:g})",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="run smaller, under 30 s")
    parser.add_argument(
        "--redis", nargs="?", const="", metavar="URL",
        help=f"use a Redis that runs already; without URL that of {REDIS_VARIABLE}, whose "
        "password `ps` does not show (default: the demo starts its own)",
    )  # fmt: skip
    add_redis_url_file(parser)
    parser.add_argument("--keep", action="store_true", help="with --redis: leave the data there")
    add_seed(parser, "who is hit, and when")
    parser.add_argument(
        "--limit-s", type=above_zero, default=LIMIT_S, metavar="S",
        help="give up after so long",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("spillover-leases.html"), metavar="FILE",
        help="write the HTML timeline to this file",
    )  # fmt: skip
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    check_extra("lease demo", "leases", "redis", "jinja2")
    from spillover_lab.demo.leases.page import lease_page, standstill_rows
    from spillover_lab.demo.leases.show import run_show
    from spillover_lab.report.page import write_report

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    plan = plan_of(options)
    _check_out(options.out)
    result, console = run_show(plan), open_console()
    write_report(lease_page(result), options.out)
    if options.json:
        print(json.dumps(result.as_json(str(options.out))), flush=True)
    else:
        table = table_of("event", ("streams moved", "stood still, longest", "median"),
                         title="What each disturbance cost", title_justify="left")  # fmt: skip
        for name, told in standstill_rows(result):
            table.add_row(name, *told)
        console.print(table)
    for line in result.told_end():
        say(console, line)
    say(console, f"Open the timeline in a browser: {options.out.resolve().as_uri()}")
    return 1 if result.problems else 0


def plan_of(options: argparse.Namespace) -> Plan:
    """Returns what is to be shown. Raises InputError."""
    from spillover_lab.demo.leases.show import Plan

    quick = options.quick
    return Plan(
        records=_given(options.records, QUICK_RECORDS if quick else RECORDS),
        streams=_given(options.streams, QUICK_STREAMS if quick else STREAMS),
        members=options.members,
        max_lease_ms=options.max_lease_ms or (QUICK_MAX_LEASE_MS if quick else MAX_LEASE_MS),
        seed=options.seed,
        redis=_redis(options),
        keep=options.keep,
        limit_s=options.limit_s,
    )


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _redis(options: argparse.Namespace) -> str | None:
    if options.redis is None and options.redis_url_file is None:
        return None  # a Redis of the demo's own, whatever others of this machine are told to use
    return RedisAddress(needed_redis_url(options.redis, options.redis_url_file)).url


def _check_out(out: Path) -> None:
    """Find out before a minute has passed that there could be no report."""
    directory = out.parent
    if out.is_dir() or not directory.is_dir() or not os.access(directory, os.W_OK):
        raise InputError("--out", "", f"expected a file that can be written, got {out}")
