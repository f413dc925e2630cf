"""How much memory this process may take: the least of what the machine has and of the limits that
it is under. Nothing is limited here.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

HELD_SHARE = 4
"""The memory that a process may take, divided by this, is what its requests and answers may."""

HELD_BYTES_MIN = 64 * 1024 * 1024
"""The least default, whatever the limit: some answers and payloads of the usual limits fit."""

UNKNOWN_BYTES = 1024 * 1024 * 1024
"""Taken for the memory of a machine that does not tell."""

_CGROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def default_held_limit_bytes(processes: int = 1) -> int:
    """`held_limit_bytes` where the topology does not say: a quarter of what the process may take,
    shared by so many of them on one machine, and at least 64 MiB. The rest is for the process
    itself, copies, and answers that arrive when all is full."""
    return max(HELD_BYTES_MIN, memory_limit_bytes() // HELD_SHARE // processes)


def memory_limit_bytes(cgroups: Path = _CGROUPS, mount: Path = _MOUNT) -> int:
    """Returns the least of: the machine's memory, the limits of the control groups (v1, v2) that
    the process is in, and its own of data and of address space."""
    limits = [_machine_bytes(), *_cgroup_limits(cgroups, mount)]
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits)


def _machine_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return UNKNOWN_BYTES


def _cgroup_limits(cgroups: Path, mount: Path) -> list[int]:
    """All that are set, of each group up to the root: the tightest holds. In a container the path
    may be that outside, while the mount shows its own group as the root."""
    try:
        lines = cgroups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return []
    found: list[int] = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            root, name = mount, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = mount / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.strip("/")
        for at in (group, *group.parents):
            found += _limit_in(at / name)
            if at == root:
                break
    return found


def _limit_in(file: Path) -> list[int]:
    """Returns the limit, or None where there is no such file, or it says `max`."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return []
    return [int(text)] if text.isdecimal() else []
