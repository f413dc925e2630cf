"""Which benchmarks there are, and how one is run from beginning to end.

A new one is a module with `STAGES`, a line here, and one for the packages that its figures hang on.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable

from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover.tools.bench.haproxy import check_haproxy
from spillover.tools.bench.machine import describe_machine
from spillover.tools.bench.model import BenchPlan, BenchResult, Stage
from spillover.tools.bench.session import Session
from spillover.tools.report.page import check_report

BENCHES = {
    "client": "spillover.tools.bench.client",
    "leases": "spillover.tools.bench.leases",
    "membership": "spillover.tools.bench.membership",
    "node": "spillover.tools.bench.node",
    "peers": "spillover.tools.bench.peers",
    "proxy": "spillover.tools.bench.proxy",
    "queue": "spillover.tools.bench.queue",
    "sim": "spillover.tools.bench.sim",
    "tokens": "spillover.tools.bench.tokens",
}
"""Name to module, loaded only when it is run."""

_MEASURED = {
    "client": ("httptools", "httpx", "msgspec", "uvloop"),
    "leases": ("redis", "uvloop"),
    "membership": ("httptools", "uvloop"),
    "node": ("aiohttp", "cryptography", "httptools", "uvicorn", "uvloop"),
    "peers": ("httptools", "uvloop"),
    "proxy": ("httptools", "msgspec", "uvloop"),
    "queue": ("httptools", "redis", "uvloop"),
    "sim": ("ciw", "numba", "numpy", "simpy"),
    "tokens": ("httptools", "numpy", "uvloop"),
}
"""Packages whose versions a reader of the figures wants to know."""

_PACKAGES = ("aiohttp", "psutil")
_MORE_PACKAGES: dict[str, dict[str, tuple[str, ...]]] = {
    "leases": {"leases": ("redis",)},
    "node": {"tls": ("cryptography",)},
    "queue": {"leases": ("redis",)},
    "sim": {"sim": ("numba", "numpy")},
    "tokens": {"sim": ("numba", "numpy")},
}
"""By benchmark and extra. Peers that are missing are left out of the comparison."""


def run_bench(name: str, plan: BenchPlan, say: Callable[[str], None]) -> BenchResult:
    """Run one of `BENCHES`. Raises InputError if a package or program is missing, if `plan.case`
    names nothing, or for an option of another benchmark; RunError if something that is measured
    fails."""
    if plan.policies is not None and name != "peers":
        raise InputError("--policy", "", "expected with bench peers alone")
    if plan.duration_s is not None and name not in ("peers", "tokens"):
        raise InputError("--duration-s", "", "expected with bench peers or tokens alone")
    if plan.replicas is not None and name != "tokens":
        raise InputError("--replicas", "", "expected with bench tokens alone")
    if plan.report is not None:
        if name != "membership":
            raise InputError("--report", "", "expected with bench membership alone")
        check_report(plan.report)
    if name == "peers":
        check_haproxy()
    check_extra("a benchmark", "bench", *_PACKAGES)
    for extra, packages in _MORE_PACKAGES.get(name, {}).items():
        check_extra(f"bench {name}", extra, *packages)
    bench = importlib.import_module(BENCHES[name])
    stages: tuple[Stage, ...] = bench.STAGES
    session = Session(plan, say)
    if plan.report is not None and not session.wants(*bench.REPORTED):
        expected = f"expected a --case that a page is on, such as {bench.REPORTED[0]!r}"
        raise InputError("--report", "", expected)
    machine = describe_machine(_MEASURED[name])
    asyncio.run(session.run(stages))
    rows, notes, details = tuple(session.rows), tuple(session.notes), tuple(session.details)
    return BenchResult(name, plan, machine, rows, notes, details)
