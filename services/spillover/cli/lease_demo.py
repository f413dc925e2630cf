"""`spillover lease demo`: members share streams on Redis while one is killed, frozen, added."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from spillover.cli.parsing import REDIS_VARIABLE, add_redis_url_file, needed_redis_url
from spillover.live.redis.rotation import RedisAddress
from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover_loadgen.option_types import above_zero, whole_number

if TYPE_CHECKING:
    from spillover.tools.demo.leases.display import LeaseDisplay
    from spillover.tools.demo.leases.model import LeaseDemoResult
    from spillover.tools.demo.leases.plan import LeasePlan

RECORDS, STREAMS, MEMBERS, MAX_LEASE_MS = 1_000_000, 32, 4, 3_000.0
QUICK_RECORDS, QUICK_STREAMS, QUICK_MAX_LEASE_MS = 100_000, 16, 1_500.0
LIMIT_S = 300.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--records", type=whole_number, metavar="N",
        help=f"default {RECORDS}, with --quick {QUICK_RECORDS}",
    )  # fmt: skip
    parser.add_argument(
        "--streams", type=whole_number, metavar="N",
        help=f"the partitions (default {STREAMS}, with --quick {QUICK_STREAMS})",
    )  # fmt: skip
    parser.add_argument(
        "--members", type=whole_number, default=MEMBERS, metavar="N",
        help=f"that begin (default {MEMBERS}); one more is added",
    )  # fmt: skip
    parser.add_argument(
        "--max-lease-ms", type=above_zero, metavar="MS",
        help=f"the other times follow (default {MAX_LEASE_MS:g}, --quick {QUICK_MAX_LEASE_MS:g})",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="smaller, under 30 s")
    parser.add_argument(
        "--redis", nargs="?", const="", metavar="URL",
        help="one that runs already; without URL that of "
        f"{REDIS_VARIABLE}, whose password `ps` does not show; else the demo starts its own",
    )  # fmt: skip
    add_redis_url_file(parser)
    parser.add_argument("--keep", action="store_true", help="leave the data there, with --redis")
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N", help="who is hit, and when"
    )
    parser.add_argument(
        "--limit-s", type=above_zero, default=LIMIT_S, metavar="S",
        help=f"give up after so long (default {LIMIT_S:.0f})",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("spillover-leases.html"), metavar="FILE",
        help="where the HTML timeline goes (default spillover-leases.html)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    from spillover.tools.demo.leases.display import LeaseDisplay
    from spillover.tools.demo.leases.run import run_lease_demo

    check_extra("lease demo", "leases", "redis", "jinja2")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    plan = plan_of(options)
    _check_out(options.out)
    display = LeaseDisplay()
    return _end(run_lease_demo(plan, display), options, display)


def _end(result: LeaseDemoResult, options: argparse.Namespace, display: LeaseDisplay) -> int:
    """Write the report and tell what came of it; the exit status."""
    from spillover.tools.demo.leases.display import closing_table
    from spillover.tools.demo.leases.report import report_page
    from spillover.tools.report.page import write_report

    write_report(report_page(result), options.out)
    if options.json:
        print(json.dumps(result.as_json(str(options.out))), flush=True)
    else:
        display.console.print(closing_table(result))
    for line in result.told_end():
        display.say(line)
    display.say(f"Open the timeline in a browser: {options.out.resolve().as_uri()}")
    return 1 if result.problems else 0


def plan_of(options: argparse.Namespace) -> LeasePlan:
    """Returns what is to be shown. Raises InputError."""
    from spillover.tools.demo.leases.plan import LeasePlan

    return LeasePlan(
        records=_given(options.records, QUICK_RECORDS if options.quick else RECORDS),
        streams=_given(options.streams, QUICK_STREAMS if options.quick else STREAMS),
        members=options.members,
        max_lease_ms=options.max_lease_ms
        or (QUICK_MAX_LEASE_MS if options.quick else MAX_LEASE_MS),
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
