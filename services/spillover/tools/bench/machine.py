"""What a figure was measured on, as far as a reader of it can use."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def describe_machine(packages: Iterable[str]) -> dict[str, Any]:
    """Returns the `machine` of contract section 3, with the versions of those packages that are
    installed. `load_1min` tells how much else was going on when the benchmark began, in processes
    that wanted to run."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": _versions(packages),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _versions(packages: Iterable[str]) -> dict[str, str]:
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _cpu() -> str:
    """Its name, where the system tells one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
