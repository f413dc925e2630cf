"""What a figure was measured on, as far as a reader of it can use."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("aiohttp", "httptools", "uvicorn", "uvloop")


def describe_machine() -> dict[str, Any]:
    """The `machine` of contract section 3. `load_1min` tells how much else was going on when the
    benchmark began, in processes that wanted to run."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "load_1min": round(os.getloadavg()[0], 2),
    }


def _cpu() -> str:
    """Its name, where the system tells one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
