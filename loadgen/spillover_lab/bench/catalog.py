"""Which benchmarks there are, and how one is run from beginning to end.

A new one is a module with `STAGES` and a line here.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from spillover.model.errors import InputError
from spillover.model.extras import check_extra
from spillover_lab.bench.relays import check_haproxy
from spillover_lab.bench.session import BenchPlan, BenchResult, Session, Stage

PACKAGES = ("aiohttp", "httptools", "psutil")
"""What every benchmark needs, of the extra `bench`."""
LEASES, SIM, TLS = {"leases": ("redis",)}, {"sim": ("numba", "numpy")}, {"tls": ("cryptography",)}


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark: its module, loaded only when it is run."""

    module: str
    shown: tuple[str, ...]
    """Packages whose versions a reader of the figures wants to know."""
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Packages by their extra. Peers that are missing are left out of the comparison."""


BENCHES = {
    "affinity": Bench("affinity", ("httptools", "uvloop")),
    "capacity": Bench("capacity", ("httptools", "uvloop")),
    "client": Bench("client", ("httptools", "httpx", "msgspec", "uvloop")),
    "leases": Bench("leases", ("redis", "uvloop"), LEASES),
    "membership": Bench("membership", ("httptools", "uvloop")),
    "node": Bench("node", ("aiohttp", "cryptography", "httptools", "uvicorn", "uvloop"), TLS),
    "peers": Bench("peers", ("httptools", "uvloop")),
    "proxy": Bench("proxy", ("httptools", "msgspec", "uvloop")),
    "queue": Bench("queue", ("httptools", "redis", "uvloop"), LEASES),
    "sim": Bench("sim", ("numba", "numpy", "simpy"), SIM),
    "tokens": Bench("tokens", ("httptools", "numpy", "uvloop"), SIM),
}

_ONLY_OF = {
    "--policy": ("policies", ("peers",)),
    "--duration-s": ("duration_s", ("peers", "tokens")),
    "--replicas": ("replicas", ("tokens",)),
}
"""Options that not all benchmarks heed: the field of the plan, and who does."""


def stages_of(name: str) -> tuple[Stage, ...]:
    """Returns what one of `BENCHES` measures."""
    module = importlib.import_module(f"spillover_lab.bench.{BENCHES[name].module}")
    stages: tuple[Stage, ...] = module.STAGES
    return stages


def run_bench(name: str, plan: BenchPlan, say: Callable[[str], None]) -> BenchResult:
    """Run one of `BENCHES`. Raises InputError if a package or program is missing, if `plan.case`
    names nothing, or for an option of another benchmark; RunError if something that is measured
    fails."""
    for option, (field_name, heeded_by) in _ONLY_OF.items():
        if getattr(plan, field_name) is not None and name not in heeded_by:
            raise InputError(option, "", f"expected with bench {' or '.join(heeded_by)} alone")
    if name == "peers":
        check_haproxy()
    check_extra("a benchmark", "bench", *PACKAGES)
    for extra, packages in BENCHES[name].needs.items():
        check_extra(f"bench {name}", extra, *packages)
    session = Session(plan, say)
    machine = describe_machine(BENCHES[name].shown)
    asyncio.run(session.run(stages_of(name)))
    return BenchResult(name, plan, machine, tuple(session.rows), tuple(session.notes))


def describe_machine(packages: Iterable[str]) -> dict[str, Any]:
    """Returns the `machine` of a benchmark's JSON, with the versions of those packages that are
    installed. `load_1min` tells how much else was going on when the benchmark began, in processes
    that wanted to run."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": versions,
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _cpu() -> str:
    """Returns its name, where the system tells one."""
    found = []
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or platform.machine()
