"""Which benchmarks there are, and how one is run from beginning to end.

A new one is a module with `STAGES`, a line here, and one for the packages that its figures hang on.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from importlib.util import find_spec

from spillover.bench.machine import describe_machine
from spillover.bench.model import BenchResult, Plan, Stage
from spillover.bench.session import Session
from spillover.model.errors import InputError

BENCHES = {
    "leases": "spillover.bench.leases",
    "node": "spillover.bench.node",
    "sim": "spillover.bench.sim",
}
"""Name to module, loaded only when it is run."""

_MEASURED = {
    "leases": ("redis", "uvloop"),
    "node": ("aiohttp", "httptools", "uvicorn", "uvloop"),
    "sim": ("ciw", "numba", "numpy", "simpy"),
}
"""Packages whose versions a reader of the figures wants to know."""

_PACKAGES = ("aiohttp", "psutil")


def run_bench(name: str, plan: Plan, say: Callable[[str], None]) -> BenchResult:
    """Run one of `BENCHES`. Raises InputError if a package is missing or `plan.case` names
    nothing, RunError if something that is measured fails."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            expected = "expected for benchmarks: pip install 'spillover[bench]'"
            raise InputError(package, "", expected)
    stages: tuple[Stage, ...] = importlib.import_module(BENCHES[name]).STAGES
    session = Session(plan, say)
    machine = describe_machine(_MEASURED[name])
    asyncio.run(session.run(stages))
    return BenchResult(name, plan, machine, tuple(session.rows), tuple(session.notes))
